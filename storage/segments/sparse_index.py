"""What both indexes of a segment are: entries for few of its batches, sorted, of which their file is an image.

An entry has a number in each of two columns, of which one is an offset. Both columns rise strictly, so an index can be
searched by either. They are arrays: as many bytes in memory as on the disk, and searched and copied as fast as memory.
A file has entry after entry, each number of it big-endian, 4 or 8 bytes.
"""

from __future__ import annotations

import operator
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator
from contextlib import closing
from typing import ClassVar, Self

from strandline.runtime.disk import Disk, File
from strandline.storage.errors import CorruptIndex

MAX_INDEX_BYTES_READ = 2**30
"""An index file above this is damaged, whatever it contains."""

_WORD_BYTES = 4


class SparseIndex(ABC):
    """Entries of one segment, in memory."""

    __slots__ = ("base_offset", "relative_offsets", "written")

    SUFFIX: ClassVar[str]
    """Of the file."""
    ENTRY_BYTES: ClassVar[int]

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.relative_offsets = array("i")
        self.written = 0
        """So many entries, from the first one on, stand in the file as they do here."""

    def __len__(self) -> int:
        return len(self.relative_offsets)

    @property
    @abstractmethod
    def columns(self) -> tuple[array[int], array[int]]:
        """As they stand in an entry of the file."""

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; the base offset when there is none."""
        return self.base_offset + (self.relative_offsets[-1] if self.relative_offsets else 0)

    def truncate_entries(self, count: int) -> None:
        """Keep the first `count` entries."""
        for column in self.columns:
            del column[count:]
        self.written = min(self.written, count)

    def forget(self, entry: int) -> None:
        """This entry is wrong. The file is written anew from its beginning: if the entries before this one stayed, a
        start after a kill would believe them, although all later ones are missing. An empty one nobody believes."""
        for column in self.columns:
            del column[entry]
        self.written = 0

    def thin_out(self, at_most: int) -> None:
        """Where there are more than `at_most` entries keep one in so many, the last one among them."""
        if len(self) <= at_most:
            return
        if at_most <= 0:
            self.truncate_entries(0)
            return
        every = -(-len(self) // at_most)
        first = (len(self) - 1) % every
        for column in self.columns:
            column[:] = column[first::every]
        self.written = 0

    def encode(self, first: int = 0) -> bytes:
        """The file's bytes from entry `first` on."""
        words = array("i", bytes(self.ENTRY_BYTES * (len(self) - first)))
        for column, places in self._places():
            part = column[first:]
            if sys.byteorder == "little":
                part.byteswap()
            own = array("i", part.tobytes())
            for number, place in enumerate(places):
                words[place :: self.ENTRY_BYTES // _WORD_BYTES] = own[number :: len(places)]
        return words.tobytes()

    @classmethod
    def parse(cls, base_offset: int, data: bytes) -> Self:
        """The index in `data`, whatever its numbers say. CorruptIndex where a part of an entry is missing."""
        if len(data) % cls.ENTRY_BYTES:
            raise CorruptIndex(f"{len(data)} bytes are no whole number of {cls.ENTRY_BYTES}-byte entries")
        index = cls(base_offset)
        words = array("i", data)
        for column, places in index._places():
            own = array("i", bytes(len(data) // cls.ENTRY_BYTES * column.itemsize))
            for number, place in enumerate(places):
                own[number :: len(places)] = words[place :: cls.ENTRY_BYTES // _WORD_BYTES]
            column.frombytes(own.tobytes())
            if sys.byteorder == "little":
                column.byteswap()
        return index

    def check_columns(self) -> None:
        """CorruptIndex where one does not rise, or begins below 0."""
        if len(self) and any(column[0] < 0 for column in self.columns):
            raise CorruptIndex("the first entry lies before the segment")
        if not all(all(map(operator.lt, column, column[1:])) for column in self.columns):
            raise CorruptIndex("the entries do not rise")

    def _places(self) -> Iterator[tuple[array[int], range]]:
        """Each column, and which of the 4-byte words of an entry are its numbers."""
        start = 0
        for column in self.columns:
            stop = start + column.itemsize // _WORD_BYTES
            yield column, range(start, stop)
            start = stop


def read_entries(file: File) -> bytes:
    """All that an index file has. CorruptIndex where no index is so long; OSError from the disk."""
    size_bytes = file.size()
    if size_bytes > MAX_INDEX_BYTES_READ:
        raise CorruptIndex(f"{size_bytes} bytes are more than any index has")
    return file.pread(size_bytes, 0)


def read_last_entry(disk: Disk, path: str, entry_bytes: int) -> bytes:
    """Of an index file, without reading the others; empty where it has none. CorruptIndex where a part of an entry is
    missing; OSError from the disk."""
    with closing(disk.open(path, read_only=True)) as file:
        size_bytes = file.size()
        if size_bytes % entry_bytes:
            raise CorruptIndex(f"{size_bytes} bytes are no whole number of entries")
        return file.pread(entry_bytes, size_bytes - entry_bytes) if size_bytes else b""
