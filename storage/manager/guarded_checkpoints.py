"""The offset checkpoints of one log directory as files: what we wrote, and whether it still stands there.

Between an orderly stop and the next start the state file holds the CRC-32C of each (`directory_state`). One with
another content was changed by nobody of us, and a wrong digit looks like any other: such a file is renamed to
`<name>.damaged`, for the operator, and counts as missing. That is durable before the state says anything else, so that
a start after this one, which has no checksum any more, does not believe it either. (Whoever edits a checkpoint by hand
and means it removes Kafka's marker and the state, too.) One of a version that is not understood is put aside in the
same way, after any stop.

The checksums are of what this life read and wrote, never of what it finds at the stop: then a change that happened
meanwhile would be vouched for.

After a kill of ours no marker tells whether a Kafka had the directory since. The high watermarks do: a Kafka that leads
or follows writes them every few seconds, and before it closes a log. So while a broker runs the state has the checksums
of those that are ours: of the file that stands there, and of the one that is about to replace it; it is durable before
that is. None may be there, too, as a Kafka removes none. (Where two threads write at once, it may be one behind: then a
start after a kill looks everything through for nothing.) Of the other checkpoints nothing is written down then, which
would cost another fsync for each; their numbers are held against the batches (`recovery/believed_offsets`).
"""

from __future__ import annotations

from collections.abc import Mapping

import crc32c

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import Disk
from strandline.storage.disk.checkpoints import (
    COMPACTED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    Checksums,
    Report,
    encode_offsets,
    read_guarded,
    write_atomically,
)
from strandline.storage.disk.damaged_files import put_aside
from strandline.storage.manager.directory_state import STATE, DirectoryState, encode_state

NAMES = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, COMPACTED_OFFSETS)


class GuardedCheckpoints:
    """Those of the directory at `path`. Its methods block. OSError from the disk."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._written: dict[str, int | None] = {}
        """Checksum of each as it was read or written last; None where there is none."""

    def open(self, expected: Mapping[str, Checksums], report: Report) -> None:
        """Look at them before they are read, and before a marker goes. expected: what the state says of them. From now
        on it says that the broker runs, and the high watermarks that stand there count as ours."""
        for name in NAMES:
            path = f"{self._path}/{name}"
            found = read_guarded(self._disk, path, expected.get(name), report)
            if not found.is_believed and found.crc is not None:
                put_aside(self._disk, path)
            self._written[name] = found.crc if found.is_believed else None
        self._note_watermarks(self._written[HIGH_WATERMARKS])

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace one, durably."""
        self._replace(name, encode_offsets(offsets))

    def write_final(self, contents: Mapping[str, Mapping[TopicPartition, int]]) -> dict[str, Checksums]:
        """At the stop: the checksum of each, which is replaced first where it does not say `contents` in exactly our
        words."""
        for name, offsets in contents.items():
            written = self._written.get(name)
            content = encode_offsets(offsets)
            if (offsets or written is not None) and written != crc32c.crc32c(content):
                self._replace(name, content)
        return {name: [self._written.get(name)] for name in contents}

    def _replace(self, name: str, content: bytes) -> None:
        coming = int(crc32c.crc32c(content))
        if name == HIGH_WATERMARKS and coming != self._written[name]:
            self._note_watermarks(self._written[name], coming)
        write_atomically(self._disk, f"{self._path}/{name}", content)
        self._written[name] = coming

    def _note_watermarks(self, *ours: int | None) -> None:
        state = DirectoryState({HIGH_WATERMARKS: [None, *ours]}, segments_crc=None, is_for_all=False)
        write_atomically(self._disk, f"{self._path}/{STATE}", encode_state(state))
