"""The file that a group of segments becomes: `<base>.log.cleaned` with both indexes, written once, front to back.

Nothing of it counts before the log has taken it over (`takeover`): a start removes `.cleaned` files, and so does the
next cleaning of the same log. It is synced before anybody hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from strandline.protocol.records.batch import BatchHeader
from strandline.runtime.disk import Buffer, Disk, File, remove_files, write_whole
from strandline.storage.recovery.interrupted_changes import is_leftover
from strandline.storage.segments.index_bounds import thin_out
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import IndexBuilder
from strandline.storage.segments.segment import LOG_SUFFIX
from strandline.storage.segments.time_index import TimeIndex

CLEANED_SUFFIX = ".cleaned"
SUFFIXES = (OffsetIndex.SUFFIX, TimeIndex.SUFFIX, LOG_SUFFIX)
"""The .log last: its name says that the group is complete."""
MAX_SEGMENT_BYTES = 2**31 - 1
"""Positions in an index are int32."""


class Unwritable(Exception):
    """A segment would grow beyond what an index can address, or its name is taken."""


class Output:
    """Use it within `contextlib.closing`."""

    def __init__(self, disk: Disk, folder: str, base_offset: int, index_interval_bytes: int) -> None:
        self.path = f"{folder}/{base_offset:020d}"
        self.size_bytes = 0
        self.indexes = IndexBuilder(base_offset, index_interval_bytes)
        self._disk = disk
        self._log = self._create(LOG_SUFFIX)

    def append(self, headers: Sequence[BatchHeader], pieces: Sequence[Buffer]) -> None:
        """These batches come next; `pieces` are their bytes. OSError; Unwritable."""
        size = sum(map(len, pieces))
        if self.size_bytes + size > MAX_SEGMENT_BYTES:
            raise Unwritable(f"{self.path} would have more than {MAX_SEGMENT_BYTES} bytes")
        _write(self._log, pieces, self.size_bytes, size)
        position = self.size_bytes
        for header in headers:
            self.indexes.add(position, header)
            position += header.size_bytes
        assert position == self.size_bytes + size
        self.size_bytes = position

    def finish(self, mtime_ms: int, max_index_bytes: int) -> None:
        """Write the indexes, each within `max_index_bytes`, and make all three durable. mtime_ms: when the newest of
        what it replaces was written: that is the age of records without timestamps (Kafka keeps it, too). Blocking."""
        self.indexes.finish()
        thin_out(self.indexes.offset_index, self.indexes.time_index, max_index_bytes)
        for index in (self.indexes.offset_index, self.indexes.time_index):
            with closing(self._create(index.SUFFIX)) as file:
                write_whole(file, index.encode(), 0)
                file.fsync()
        self._disk.set_mtime_ms(self._log.path, mtime_ms)
        self._log.fsync()
        self._log.close()

    def discard(self) -> None:
        """It is not needed. What cannot be removed now is removed by the next cleaning."""
        self.close()
        remove_files(self._disk, [self.path + suffix + CLEANED_SUFFIX for suffix in SUFFIXES])

    def close(self) -> None:
        self._log.close()

    def _create(self, suffix: str) -> File:
        """New and by this process only: a leftover is somebody else's."""
        path = self.path + suffix + CLEANED_SUFFIX
        if self._disk.is_dir(path):
            raise Unwritable(f"somebody keeps a folder at {path}")
        remove_files(self._disk, [path])
        return self._disk.open(path, exclusive=True)


def _write(file: File, pieces: Sequence[Buffer], position: int, size: int) -> None:
    written = file.pwritev(pieces, position) if pieces else 0
    if written != size:
        write_whole(file, memoryview(b"".join(pieces))[written:], position + written)


def remove_unfinished(disk: Disk, folder: str) -> None:
    """Unlink what a cleaning that came to nothing left in a partition's folder. Blocking. OSError from the disk."""
    left = [entry.name for entry in disk.scandir(folder) if entry.name.endswith(CLEANED_SUFFIX) and entry.is_file]
    remove_files(disk, [f"{folder}/{name}" for name in left if is_leftover(name)])
