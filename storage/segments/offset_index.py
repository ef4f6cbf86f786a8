"""The sparse offset index of one segment: which byte a batch begins at.

Format of `<base offset, 20 digits>.index`, big-endian, 8 bytes per entry, sorted:

    int32  offset of the *last* record of a batch, relative to the segment's base offset
    int32  position of that same batch in the .log file, in bytes

Rules: both columns rise strictly; relative offset and position are ≥ 0 and the last relative offset is > 0 (Kafka's
sanity check), which holds because the first batch of a segment never gets an entry. Every position is a batch boundary,
so the index also answers "where may a read end".

Loading checks these rules and that the last entry is true (`index_check`). Whether another one is true shows at the
batch that stands at its position, when it is used (`refutes`). Older Kafkas' followers noted the last offset of all
batches of one append with the position of the first, so an entry may say a higher offset than its batch has. A search
that uses such an entry begins at an earlier batch than it could, never at a later one than it may.
"""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_left, bisect_right

from strandline.protocol.records.batch import MAGIC, BatchHeader
from strandline.storage.errors import CorruptIndex
from strandline.storage.segments.sparse_index import SparseIndex

MAX_RELATIVE_OFFSET = 2**31 - 1


class OffsetIndex(SparseIndex):
    """Entries of one segment, in memory."""

    __slots__ = ("positions",)

    SUFFIX = ".index"
    ENTRY_BYTES = 8

    def __init__(self, base_offset: int) -> None:
        super().__init__(base_offset)
        self.positions = array("i")

    @property
    def columns(self) -> tuple[array[int], array[int]]:
        return self.relative_offsets, self.positions

    def append(self, last_offset: int, position: int) -> None:
        """Note the batch at `position` whose last record has `last_offset`."""
        self.relative_offsets.append(last_offset - self.base_offset)
        self.positions.append(position)

    def entry_for_offset(self, offset: int) -> int:
        """The last entry of a batch that ends at or before `offset`; −1 where none does."""
        return bisect_right(self.relative_offsets, offset - self.base_offset) - 1

    def entry_at_position(self, position: int) -> int:
        """The last entry of a batch at or before `position`; −1 where there is none."""
        return bisect_right(self.positions, position) - 1

    def position_for_offset(self, offset: int) -> int:
        """The position of a batch that begins at or before `offset`, as near as the index knows; 0 at least."""
        entry = self.entry_for_offset(offset)
        return self.positions[entry] if entry >= 0 else 0

    def refutes(self, entry: int, header: BatchHeader) -> str:
        """Why an entry is wrong, empty where it is right: `header`, which stands at its position, has to be of a batch
        that begins above the offset of the entry before and ends at the offset that this one notes, or below it."""
        noted = self.base_offset + self.relative_offsets[entry]
        before = self.base_offset + self.relative_offsets[entry - 1] if entry else self.base_offset - 1
        if header.magic == MAGIC and before < header.base_offset <= header.last_offset <= noted:
            return ""
        return f"the batch that ends at offset {noted} does not stand at byte {self.positions[entry]}"

    @property
    def widest_gap_bytes(self) -> int:
        """The most that lies between the batches of two entries, or before the first of them: so much may well follow
        the last one, too."""
        return max(map(operator.sub, self.positions, [0, *self.positions[:-1]]), default=0)

    @property
    def last_position(self) -> int:
        """Position of the last batch noted; 0 when the index is empty."""
        return self.positions[-1] if self.positions else 0

    def truncate_to_position(self, position: int) -> None:
        """Forget the batches at `position` and above."""
        self.truncate_entries(bisect_left(self.positions, position))

    @classmethod
    def decode(cls, base_offset: int, data: bytes, log_bytes: int) -> OffsetIndex:
        """The index in `data`, for a segment whose .log has `log_bytes`. CorruptIndex where it breaks a rule."""
        index = cls.parse(base_offset, data)
        index.check(log_bytes)
        return index

    def check(self, log_bytes: int) -> None:
        """CorruptIndex where it breaks a rule."""
        if len(self) and self.relative_offsets[-1] == 0:
            raise CorruptIndex("the last entry notes the first offset: the first batch has none")
        self.check_columns()
        if len(self) and self.positions[-1] >= log_bytes:
            raise CorruptIndex(f"the last entry points to byte {self.positions[-1]} of {log_bytes}")
