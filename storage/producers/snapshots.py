"""Producer snapshots: what every producer of a log had appended below an offset, so that a start need not read the log.

File `<offset, 20 digits>.snapshot` in the partition's folder; all integers big endian (Kafka's ProducerStateManager):
```
 0 int16  version = 1
 2 uint32 CRC-32C of all from 6 on
 6 int32  number of producers, then for each of them 42 bytes:
   int64 producer id            int32 last minus first offset of that batch     int32 coordinator epoch, −1 none
   int16 producer epoch         int64 largest timestamp of that batch, ms       int64 first offset of the open
   int32 last sequence                                                                transaction, −1 none
   int64 last offset, −1 where no batch is known
```
It is true of the log below its offset. Only the last batch of each producer is in it; the others of the last five are
read from the log's latest headers (`rebuilding`).

A file is written beside its name, synced, and renamed once it is known to be true still: what it tells may have been
cut off meanwhile. A snapshot that is missing or damaged costs time, never truth: an older one or the log replaces it.
One that cannot be read, or is of another version, is kept aside as `.damaged`, whatever it was to be removed for.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress

import crc32c

from strandline.runtime.disk import Disk, read_file, remove_files
from strandline.storage.disk.checkpoints import Report, remove_temporary, write_temporary
from strandline.storage.disk.damaged_files import put_aside
from strandline.storage.errors import CorruptSnapshot
from strandline.storage.producers.states import ProducerRow

SNAPSHOT_SUFFIX = ".snapshot"
VERSION = 1

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ROW = struct.Struct(">qhiqiqiq")
_NAME = re.compile(r"([0-9]{20})\.snapshot")


def snapshot_path(folder: str, offset: int) -> str:
    return f"{folder}/{offset:020d}{SNAPSHOT_SUFFIX}"


def encode_snapshot(rows: Sequence[ProducerRow]) -> bytes:
    """The bytes of a snapshot file."""
    body = b"".join((_COUNT.pack(len(rows)), *(_ROW.pack(*row) for row in rows)))
    return _HEAD.pack(VERSION, crc32c.crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerRow]:
    """CorruptSnapshot: not a whole snapshot, or one that no log can have led to."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are no snapshot")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"its version is {version}, not {VERSION}")
    body = memoryview(data)[_HEAD.size :]
    if crc32c.crc32c(body) != crc:
        raise CorruptSnapshot("the CRC does not match")
    (count,) = _COUNT.unpack_from(body)
    if count * _ROW.size != len(body) - _COUNT.size:
        raise CorruptSnapshot(f"it announces {count} producers in {len(data)} bytes")
    rows = [ProducerRow(*values) for values in _ROW.iter_unpack(body[_COUNT.size :])]
    for row in rows:
        if row.producer_id < 0 or row.epoch < -1 or row.offset_delta < 0 or row.last_offset - row.offset_delta < -1:
            raise CorruptSnapshot(f"it tells of an impossible producer: {row}")
    return rows


def list_snapshots(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among a folder's names, rising."""
    return sorted(int(parts[1]) for name in names if (parts := _NAME.fullmatch(name)))


class ProducerSnapshots:
    """The snapshots of one log: on the disk (`offsets`), or captured and waiting for a flush to write them.

    OSError from the disk passes through all that touches it."""

    __slots__ = ("_captured", "_disk", "_folder", "offsets")

    def __init__(self, disk: Disk, folder: str, offsets: Iterable[int] = ()) -> None:
        self.offsets = list(offsets)
        """Of the files, rising."""
        self._disk = disk
        self._folder = folder
        self._captured: dict[int, Sequence[ProducerRow]] = {}

    @property
    def captured(self) -> tuple[tuple[int, Sequence[ProducerRow]], ...]:
        """(offset, rows) of what is to be written."""
        return tuple(self._captured.items())

    def has(self, offset: int) -> bool:
        return offset in self._captured or (bool(self.offsets) and offset in self.offsets)

    def capture(self, offset: int, rows: Sequence[ProducerRow]) -> None:
        """This is true below `offset`: the next flush writes it."""
        self._captured[offset] = rows

    def publish(self, offset: int, rows: Sequence[ProducerRow], temporary: str) -> None:
        """A flush wrote `rows` to `temporary`: give the file its name, unless they are not true any more."""
        if self._captured.get(offset) is not rows:
            remove_files(self._disk, [temporary])
            return
        try:
            self._disk.rename(temporary, snapshot_path(self._folder, offset))
        except OSError:
            remove_temporary(self._disk, temporary)
            raise
        del self._captured[offset]
        if offset not in self.offsets:
            self.offsets = sorted([*self.offsets, offset])

    def remove_above(self, end_offset: int) -> None:
        """The log ends at `end_offset` (or only that far it is known to be whole): later snapshots are not true."""
        for offset in [offset for offset in self._captured if offset > end_offset]:
            del self._captured[offset]
        while self.offsets and self.offsets[-1] > end_offset:
            self.remove(self.offsets[-1])

    def remove(self, offset: int) -> None:
        path = snapshot_path(self._folder, offset)
        if self._is_of_another_version(path):
            put_aside(self._disk, path)
        else:
            remove_files(self._disk, [path])
        self.offsets.remove(offset)

    def clear(self) -> None:
        """The log starts anew."""
        self._captured.clear()
        while self.offsets:
            self.remove(self.offsets[-1])

    def forget_below(self, base_offset: int) -> list[str]:
        """The log's first segment begins at `base_offset` now: the paths of the snapshots that nobody needs any more,
        for the caller to remove. The newest one that tells of everything before stays."""
        not_above = [offset for offset in self.offsets if offset <= base_offset]
        obsolete = not_above[:-1]
        self.offsets = self.offsets[len(obsolete) :]
        return [snapshot_path(self._folder, offset) for offset in obsolete]

    def read(self, offset: int) -> list[ProducerRow]:
        """CorruptSnapshot: not a snapshot of that offset."""
        try:
            rows = decode_snapshot(read_file(self._disk, snapshot_path(self._folder, offset)))
        except (FileNotFoundError, ValueError) as error:
            raise CorruptSnapshot(str(error)) from error
        if any(row.last_offset >= offset for row in rows):
            raise CorruptSnapshot("it tells of batches above its offset")
        return rows

    def read_newest(self, report: Report) -> tuple[int, list[ProducerRow]] | None:
        """(offset, rows) of the newest readable one; those that are not are put aside and reported."""
        while self.offsets:
            offset = self.offsets[-1]
            try:
                return offset, self.read(offset)
            except CorruptSnapshot as error:
                self.drop_damaged(offset, str(error), report)
        return None

    def drop_damaged(self, offset: int, why: str, report: Report) -> None:
        """Keep it aside."""
        path = snapshot_path(self._folder, offset)
        report("producer-snapshot-damaged", path=path, why=why)
        if self._disk.exists(path):
            put_aside(self._disk, path)
        self.offsets.remove(offset)

    def _is_of_another_version(self, path: str) -> bool:
        with suppress(FileNotFoundError), closing(self._disk.open(path, read_only=True)) as file:
            return file.pread(2, 0) != VERSION.to_bytes(2, "big")
        return False


def write_snapshot(disk: Disk, folder: str, offset: int, rows: Sequence[ProducerRow]) -> str:
    """Write and sync a snapshot beside its name; returns the path of the temporary file. Blocking, for any thread."""
    return write_temporary(disk, snapshot_path(folder, offset), encode_snapshot(rows))
