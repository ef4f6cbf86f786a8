"""The offset checkpoints of one log directory as files: what we wrote, and whether it still stands there.

Between an orderly stop and the next start the clean-shutdown marker holds the CRC-32C of each (`segment_manifest`). One
with another content was changed by nobody of us, and a wrong digit looks like any other: such a file is renamed to
`<name>.damaged`, for the operator, and counts as missing. That is durable before the marker goes, so that a start after
this one, which has no checksum any more, does not believe it either. (Whoever edits a checkpoint by hand and means it
removes the marker, too.)

The checksums are of what this life read and wrote, never of what it finds at the stop: then a change that happened
meanwhile would be vouched for.
"""

from __future__ import annotations

from collections.abc import Mapping

import crc32c

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import Disk, read_file
from strandline.storage.checkpoints import (
    COMPACTED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    Report,
    encode_offsets,
    write_offsets,
)
from strandline.storage.damage import DAMAGED_SUFFIX

NAMES = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, COMPACTED_OFFSETS)
_UNREADABLE = -1


class CheckpointFiles:
    """Those of the directory at `path`. Its methods block. OSError from the disk."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._written: dict[str, int | None] = {}
        """Checksum of each as it was read or written last; None where there is none."""

    def open(self, expected: Mapping[str, int | None] | None, report: Report) -> None:
        """Look at them before they are read, and before the marker goes. expected: checksums of the orderly stop."""
        is_changed = False
        for name in NAMES:
            path = f"{self._path}/{name}"
            found = self._written[name] = checksum(self._disk, path)
            if expected is None or name not in expected or found == expected[name]:
                continue
            report("checkpoint-not-as-written", path=path, is_missing=found is None)
            if found is not None:
                self._disk.rename(path, path + DAMAGED_SUFFIX)
                self._written[name] = None
                is_changed = True
        if is_changed:
            self._disk.fsync_dir(self._path)

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace one, durably."""
        self._written[name] = write_offsets(self._disk, f"{self._path}/{name}", offsets)

    def settle(self, contents: Mapping[str, Mapping[TopicPartition, int]]) -> dict[str, int | None]:
        """At the stop: the checksum of each, which says `contents` then, in exactly our words."""
        for name, offsets in contents.items():
            written = self._written.get(name)
            if (offsets or written is not None) and written != crc32c.crc32c(encode_offsets(offsets)):
                self.write(name, offsets)
        return {name: self._written.get(name) for name in contents}


def checksum(disk: Disk, path: str) -> int | None:
    """CRC-32C of a file; None where there is none. OSError from the disk."""
    try:
        return int(crc32c.crc32c(read_file(disk, path)))
    except FileNotFoundError:
        return None
    except ValueError:  # absurdly large
        return _UNREADABLE
