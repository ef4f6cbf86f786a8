"""The time index of one segment: up to which offset no record is younger than a timestamp.

Format of `<base offset, 20 digits>.timeindex`, big-endian, 12 bytes per entry:

    int64  the largest timestamp of the segment up to here, milliseconds since 1970
    int32  last offset of the batch which brought that timestamp, relative to the segment's base offset

Rules: timestamps rise strictly, offsets rise strictly. A segment that takes no more appends ends with the entry of its
largest timestamp (unless no record has one), so the last entry of an inactive segment is its age. Loading checks that
entries rise and that the last one is true; `refutes` proves another one when it is used.
"""

from __future__ import annotations

import operator
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from strandline.protocol.records.batch import BatchHeader
from strandline.storage.errors import CorruptIndex

ENTRY_BYTES = 12
NO_TIMESTAMP = -1
_TIMESTAMP_BYTES = 8


class TimeIndex:
    """Entries of one segment, in memory."""

    __slots__ = ("base_offset", "relative_offsets", "timestamps_ms")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.timestamps_ms = array("q")
        self.relative_offsets = array("i")

    def __len__(self) -> int:
        return len(self.timestamps_ms)

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Note that the batch ending at `offset` brought `timestamp_ms`; nothing where that is no new maximum."""
        if timestamp_ms > self.last_timestamp_ms:
            self.timestamps_ms.append(timestamp_ms)
            self.relative_offsets.append(offset - self.base_offset)

    @property
    def last_timestamp_ms(self) -> int:
        """The largest timestamp noted; `NO_TIMESTAMP` when there is none."""
        return self.timestamps_ms[-1] if self.timestamps_ms else NO_TIMESTAMP

    @property
    def last_offset(self) -> int:
        """Last offset of the batch with the largest timestamp noted; the base offset when there is none."""
        return self.base_offset + (self.relative_offsets[-1] if self.relative_offsets else 0)

    def entry_before(self, timestamp_ms: int) -> int:
        """The last entry such that every batch that ends before its offset is older than `timestamp_ms`; −1 where there
        is none."""
        return bisect_right(self.timestamps_ms, timestamp_ms) - 1

    def offset_of(self, entry: int) -> int:
        """The offset that an entry notes; of entry −1 the base offset."""
        return self.base_offset + (self.relative_offsets[entry] if entry >= 0 else 0)

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

    def truncate_entries(self, count: int) -> None:
        """Keep the first `count` entries."""
        del self.timestamps_ms[count:]
        del self.relative_offsets[count:]

    def forget(self, entry: int) -> None:
        """This entry is wrong."""
        del self.timestamps_ms[entry]
        del self.relative_offsets[entry]

    def thin_out(self, at_most: int) -> None:
        """Where there are more than `at_most` entries keep one in so many, the last one among them."""
        if len(self) > at_most > 0:
            every = -(-len(self) // at_most)
            first = (len(self) - 1) % every
            self.relative_offsets = self.relative_offsets[first::every]
            self.timestamps_ms = self.timestamps_ms[first::every]
        elif at_most <= 0:
            self.truncate_entries(0)

    def encode(self, first: int = 0) -> bytes:
        """The file's bytes from entry `first` on."""
        timestamps_ms, relative_offsets = self.timestamps_ms[first:], self.relative_offsets[first:]
        if sys.byteorder == "little":
            timestamps_ms.byteswap()
            relative_offsets.byteswap()
        halves = array("i", timestamps_ms.tobytes())
        columns = array("i", bytes(ENTRY_BYTES * len(relative_offsets)))
        columns[0::3] = halves[0::2]
        columns[1::3] = halves[1::2]
        columns[2::3] = relative_offsets
        return columns.tobytes()

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> TimeIndex:
        """The index in `data`. CorruptIndex where it breaks a rule."""
        if len(data) % ENTRY_BYTES:
            raise CorruptIndex(f"{len(data)} bytes are no whole number of {ENTRY_BYTES}-byte entries")
        columns = array("i", data)
        halves = array("i", bytes(len(data) // ENTRY_BYTES * _TIMESTAMP_BYTES))
        halves[0::2] = columns[0::3]
        halves[1::2] = columns[1::3]
        index = cls(base_offset)
        index.timestamps_ms.frombytes(halves.tobytes())
        index.relative_offsets = columns[2::3]
        if sys.byteorder == "little":
            index.timestamps_ms.byteswap()
            index.relative_offsets.byteswap()
        index.check()
        return index

    def check(self) -> None:
        """CorruptIndex where it breaks a rule."""
        if not len(self):
            return
        if self.relative_offsets[0] < 0 or self.timestamps_ms[0] < 0:
            raise CorruptIndex("the first entry lies before the segment")
        if not (_rises(self.timestamps_ms) and _rises(self.relative_offsets)):
            raise CorruptIndex("the entries do not rise")


def _rises(column: array[int]) -> bool:
    return all(map(operator.lt, column, column[1:]))
