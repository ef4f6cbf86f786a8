"""Finding a batch in a segment by its indexes. OSError from the disk passes through.

An index is checked only in part when it is loaded, and one wrong entry would make records vanish. So an entry that is
used is proven by the header of the batch that stands there, which is read anyway. One that is refuted is forgotten, and
the search begins again (`by_index`): with fewer entries the answers are the same, a little later. From an entry that is
proven on batch follows batch; where none does, or none did around an entry that was refuted, the log is damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TypeVar, TypeVarTuple

from strandline.protocol.records.batch import HEADER_BYTES, BatchHeader, read_header
from strandline.storage.errors import CorruptLog
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import walk_segment
from strandline.storage.segments.segment import Segment
from strandline.storage.segments.time_index import TimeIndex

_BASE_OFFSET = struct.Struct(">q")
_Found = TypeVar("_Found")
_Arguments = TypeVarTuple("_Arguments")


class WrongEntry(Exception):
    """An entry is refuted by the batch to which it leads."""

    def __init__(self, index: OffsetIndex | TimeIndex, entry: int, why: str) -> None:
        super().__init__(why)
        self.index = index
        self.entry = entry


def by_index(segment: Segment, search: Callable[[Segment, *_Arguments], _Found], *arguments: *_Arguments) -> _Found:
    """What a search finds that relies on the indexes of a segment: it raises WrongEntry, and is begun again without
    that entry. CorruptLog; IndexLost."""
    doubts: list[tuple[int, int]] = []
    while True:
        try:
            while doubts:
                _prove_batches(segment, *doubts[-1])
                doubts.pop()
            return search(segment, *arguments)
        except WrongEntry as wrong:
            doubts.append(segment.indexes.forget(wrong.index, wrong.entry, str(wrong)))


def _prove_batches(segment: Segment, offset: int, end_offset: int) -> None:
    """An entry in between was wrong, and its batch is not to blame: CorruptLog unless the batches there follow one
    another (no CRC covers a base offset). WrongEntry."""
    is_behind = False
    for _, header in headers_before(segment, offset):
        if is_behind:
            return
        is_behind = header.last_offset >= end_offset


def last_boundary(segment: Segment, start: int, limit: int) -> tuple[int, int | None]:
    """The last batch boundary in (start, limit], the end of the first batch where that is larger; and the base offset
    of the batch that begins there, if it was looked at."""
    return by_index(segment, _last_boundary, start, limit)


def _last_boundary(segment: Segment, start: int, limit: int) -> tuple[int, int | None]:
    index = segment.indexes.offset
    entry = index.entry_at_position(limit)
    if entry >= 0 and index.positions[entry] > start:
        return _boundary(segment, entry)
    end = start
    for position, header in headers_from(segment, start):
        following = position + header.size_bytes
        if following > limit and end > start:
            break
        end = following
        if end >= limit:
            break
    return end, None


def position_of(segment: Segment, offset: int) -> int:
    """Where the first batch begins that does not end before `offset`; the segment's size where all do."""
    return by_index(segment, _position_of, offset)


def _position_of(segment: Segment, offset: int) -> int:
    for position, header in headers_before(segment, offset):
        if header.base_offset + header.last_offset_delta >= offset:
            return position
    return segment.size_bytes


def position_before(segment: Segment, offset: int) -> int:
    """Where a batch begins that begins at or before `offset` (or is the first), as near as the index knows."""
    return by_index(segment, _position_before, offset)


def _position_before(segment: Segment, offset: int) -> int:
    return next((position for position, _ in headers_before(segment, offset)), 0)


def boundary_before(segment: Segment, position: int) -> int:
    """A batch boundary at or before `position`, as near as the index knows."""
    return by_index(segment, _boundary_before, position)


def _boundary_before(segment: Segment, position: int) -> int:
    entry = segment.indexes.offset.entry_at_position(position)
    return _boundary(segment, entry)[0] if entry >= 0 else 0


def _boundary(segment: Segment, entry: int) -> tuple[int, int | None]:
    """(position, base offset) of the batch of an entry of the offset index, which is proven by its header: where no
    batch begins nothing may end. No base offset where nothing had to be read for that. WrongEntry."""
    index = segment.indexes.offset
    position = index.positions[entry]
    if segment.indexes.are_built:
        return position, None
    data = segment.file.get().pread(HEADER_BYTES, position)
    if len(data) < HEADER_BYTES:
        raise WrongEntry(index, entry, f"no batch begins at byte {position}")
    header = read_header(data, 0)
    fault = index.refutes(entry, header)
    if fault or not HEADER_BYTES <= header.size_bytes <= segment.size_bytes - position:
        raise WrongEntry(index, entry, fault or f"no whole batch stands at byte {position}")
    return position, header.base_offset


def headers_before(segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the batches from one on that begins at or before `offset` (or is the first), as near as the
    index knows. Part of a search for `by_index`: WrongEntry, and as `headers_from`."""
    index = segment.indexes.offset
    entry = index.entry_for_offset(offset)
    if entry < 0:
        yield from headers_from(segment, 0)
        return
    headers = headers_from(segment, index.positions[entry])
    if not segment.indexes.are_built:
        try:
            first = next(headers)
        except CorruptLog as error:
            raise WrongEntry(index, entry, error.why) from error
        fault = index.refutes(entry, first[1])
        if fault:
            raise WrongEntry(index, entry, fault)
        yield first
    yield from headers


def prove_time(segment: Segment, entry: int) -> None:
    """WrongEntry unless an entry of the time index is true, or it and the one before are wrong. Part of a search for
    `by_index`; reads the headers between the two, as many as a search by time that lies between their times."""
    if not segment.indexes.are_built:
        time = segment.indexes.time
        between = headers_before(segment, time.offset_of(entry - 1))
        fault = time.refutes(entry, (header for _, header in between))
        if fault:
            raise WrongEntry(time, entry, fault)


def cut_at(segment: Segment, offset: int) -> tuple[int, int]:
    """Where the first batch begins that does not end before `offset` (the segment's size where all do), and where the
    one before ends: well below `offset` where compaction left a gap. The offset index that a cut there leaves is true
    at its end (`tail`)."""
    return by_index(segment, _cut_at, offset)


def _cut_at(segment: Segment, offset: int) -> tuple[int, int]:
    position, end_offset = segment.size_bytes, segment.base_offset
    for found, header in headers_before(segment, offset - 1):
        if header.last_offset >= offset:
            position = found
            break
        end_offset = header.next_offset
    _prove_last(segment, segment.indexes.offset.entry_at_position(position - 1))
    return position, end_offset


def _prove_last(segment: Segment, entry: int) -> None:
    """WrongEntry unless the batch at an entry's position ends just where it says: it will be the last one."""
    if entry >= 0 and not segment.indexes.are_built:
        index = segment.indexes.offset
        position, _ = _boundary(segment, entry)
        header = read_header(segment.file.get().pread(HEADER_BYTES, position), 0)
        if header.last_offset != index.base_offset + index.relative_offsets[entry]:
            raise WrongEntry(index, entry, f"the batch at byte {position} ends at offset {header.last_offset}")


def base_offset_at(segment: Segment, position: int) -> int | None:
    """Base offset of the batch at a boundary; None at the segment's end."""
    if segment.size_bytes - position < HEADER_BYTES:
        return None
    base_offset: int = _BASE_OFFSET.unpack(segment.file.get().pread(_BASE_OFFSET.size, position))[0]
    return base_offset


def headers_from(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the batches of a segment from a boundary on. CorruptLog where no batch stands."""
    end = position
    for found, header in walk_segment(segment.file.get(), segment.base_offset, position, segment.size_bytes):
        yield found, header
        end = found + header.size_bytes
    if end != segment.size_bytes:
        raise CorruptLog(segment.path, end, "no whole batch of the offsets that follow stands there")
