"""The time index of one segment: up to which offset no record is younger than a timestamp.

Format of `<base offset, 20 digits>.timeindex`, big-endian, 12 bytes per entry:

    int64  the largest timestamp of the segment up to here, milliseconds since 1970
    int32  last offset of the batch which brought that timestamp, relative to the segment's base offset

Rules: timestamps rise strictly, offsets rise strictly. A segment that takes no more appends ends with the entry of its
largest timestamp (unless no record has one), so the last entry of an inactive segment is its age. Loading checks that
entries rise and that the last one is true; `refutes` proves another one when it is used.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from strandline.protocol.records.batch import BatchHeader
from strandline.storage.segments.sparse_index import SparseIndex

NO_TIMESTAMP = -1


class TimeIndex(SparseIndex):
    """Entries of one segment, in memory."""

    __slots__ = ("timestamps_ms",)

    SUFFIX = ".timeindex"
    ENTRY_BYTES = 12

    def __init__(self, base_offset: int) -> None:
        super().__init__(base_offset)
        self.timestamps_ms = array("q")

    @property
    def columns(self) -> tuple[array[int], array[int]]:
        return self.timestamps_ms, self.relative_offsets

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Note that the batch ending at `offset` brought `timestamp_ms`; nothing where that is no new maximum."""
        if timestamp_ms > self.last_timestamp_ms:
            self.timestamps_ms.append(timestamp_ms)
            self.relative_offsets.append(offset - self.base_offset)

    @property
    def last_timestamp_ms(self) -> int:
        """The largest timestamp noted; `NO_TIMESTAMP` when there is none."""
        return self.timestamps_ms[-1] if self.timestamps_ms else NO_TIMESTAMP

    def entry_before(self, timestamp_ms: int) -> int:
        """The last entry such that every batch that ends before its offset is older than `timestamp_ms`; −1 where there
        is none."""
        return bisect_right(self.timestamps_ms, timestamp_ms) - 1

    def entry_below(self, offset: int) -> int:
        """The last entry that notes an offset below `offset`; −1 where there is none."""
        return bisect_left(self.relative_offsets, offset - self.base_offset) - 1

    def offset_of(self, entry: int) -> int:
        """The offset that an entry notes; of entry −1 the base offset."""
        return self.base_offset + (self.relative_offsets[entry] if entry >= 0 else 0)

    def newest_is_of(self, header: BatchHeader) -> bool:
        """Whether the last entry is of this batch."""
        return header.base_offset <= self.last_offset <= header.last_offset and (
            header.max_timestamp_ms == self.last_timestamp_ms
        )

    def refutes(self, entry: int, headers: Iterable[BatchHeader]) -> str:
        """Why an entry is wrong, where the one before is right, by the batches from there (or from before there) on;
        empty where it is right: the batch at its offset has its timestamp, and those between are older."""
        timestamp_ms, offset = self.timestamps_ms[entry], self.offset_of(entry)
        before = self.offset_of(entry - 1) if entry else self.base_offset - 1
        for header in headers:
            if header.last_offset <= before:
                continue
            if header.last_offset >= offset:
                if header.base_offset <= offset and header.max_timestamp_ms == timestamp_ms:
                    return ""
                break
            if header.max_timestamp_ms >= timestamp_ms:
                break
        return f"timestamp {timestamp_ms} does not come up at offset {offset} first"

    def truncate_to_offset(self, offset: int) -> None:
        """Forget the batches that end at `offset` or above."""
        self.truncate_entries(bisect_left(self.relative_offsets, offset - self.base_offset))

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> TimeIndex:
        """The index in `data`. CorruptIndex where it breaks a rule."""
        index = cls.parse(base_offset, data)
        index.check_columns()
        return index
