"""The sparse offset index of one segment: which byte a batch begins at.

Format of `<base offset, 20 digits>.index`, big-endian, 8 bytes per entry, sorted:

    int32  offset of the *last* record of a batch, relative to the segment's base offset
    int32  position of that same batch in the .log file, in bytes

Rules: both columns rise strictly; relative offset and position are ≥ 0 and the last relative offset is > 0 (Kafka's
sanity check), which holds because the first batch of a segment never gets an entry. Every position is a batch boundary,
so the index also answers "where may a read end". Entries live in two arrays (8 bytes each in memory as on disk); the
file is only an image of them.
"""

from __future__ import annotations

import operator
import sys
from array import array
from bisect import bisect_left, bisect_right

from strandline.storage.errors import CorruptIndex

ENTRY_BYTES = 8
MAX_RELATIVE_OFFSET = 2**31 - 1


class OffsetIndex:
    """Entries of one segment, in memory."""

    __slots__ = ("base_offset", "positions", "relative_offsets")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.relative_offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.positions)

    def append(self, last_offset: int, position: int) -> None:
        """Note the batch at `position` whose last record has `last_offset`."""
        self.relative_offsets.append(last_offset - self.base_offset)
        self.positions.append(position)

    def position_for_offset(self, offset: int) -> int:
        """The position of a batch that begins at or before `offset`, as near as the index knows; 0 at least."""
        entry = bisect_right(self.relative_offsets, offset - self.base_offset) - 1
        return self.positions[entry] if entry >= 0 else 0

    def floor_position(self, position: int) -> int:
        """The largest known batch boundary ≤ `position`; 0 when none is known."""
        entry = bisect_right(self.positions, position) - 1
        return self.positions[entry] if entry >= 0 else 0

    @property
    def last_position(self) -> int:
        """Position of the last batch noted; 0 when the index is empty."""
        return self.positions[-1] if self.positions else 0

    @property
    def last_offset(self) -> int:
        """Last offset of the last batch noted; the base offset when the index is empty."""
        return self.base_offset + (self.relative_offsets[-1] if self.relative_offsets else 0)

    def truncate_to_position(self, position: int) -> None:
        """Forget the batches at `position` and above."""
        self.truncate_entries(bisect_left(self.positions, position))

    def truncate_entries(self, count: int) -> None:
        """Keep the first `count` entries."""
        del self.relative_offsets[count:]
        del self.positions[count:]

    def encode(self, first: int = 0) -> bytes:
        """The file's bytes from entry `first` on."""
        columns = array("i", bytes(ENTRY_BYTES * (len(self) - first)))
        columns[0::2] = self.relative_offsets[first:]
        columns[1::2] = self.positions[first:]
        if sys.byteorder == "little":
            columns.byteswap()
        return columns.tobytes()

    @classmethod
    def decode(cls, base_offset: int, data: bytes, log_bytes: int) -> OffsetIndex:
        """The index in `data`, for a segment whose .log has `log_bytes`. CorruptIndex where it breaks a rule."""
        if len(data) % ENTRY_BYTES:
            raise CorruptIndex(f"{len(data)} bytes are no whole number of {ENTRY_BYTES}-byte entries")
        columns = array("i", data)
        if sys.byteorder == "little":
            columns.byteswap()
        index = cls(base_offset)
        index.relative_offsets = columns[0::2]
        index.positions = columns[1::2]
        if not len(index):
            return index
        if index.relative_offsets[0] < 0 or index.positions[0] < 0 or index.relative_offsets[-1] == 0:
            raise CorruptIndex("the first entry lies before the segment")
        if not (_rises(index.relative_offsets) and _rises(index.positions)):
            raise CorruptIndex("the entries do not rise")
        if index.positions[-1] >= log_bytes:
            raise CorruptIndex(f"the last entry points to byte {index.positions[-1]} of {log_bytes}")
        return index


def _rises(column: array[int]) -> bool:
    return all(map(operator.lt, column, column[1:]))
