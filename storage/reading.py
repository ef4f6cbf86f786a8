"""Finding things in a log: the file region of a fetch, the batch of an offset.

A fetch at the tail is answered from memory (`read_tail`). Elsewhere the offset index gives both ends: a batch at or
before the offset, and the last boundary within `max_bytes`; then a few headers are read at most. Nothing is changed but
what `Boundaries` remembers. OSError from the disk passes through.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from strandline.protocol.record_batch import HEADER_BYTES, BatchHeader
from strandline.runtime.disk import Buffer, File, FileRegion
from strandline.storage.boundaries import Boundaries
from strandline.storage.errors import CorruptLog
from strandline.storage.offset_index import MAX_RELATIVE_OFFSET
from strandline.storage.scan import walk_headers
from strandline.storage.segment import Segment

if TYPE_CHECKING:
    from strandline.storage.segment_list import SegmentList

_BASE_OFFSET = struct.Struct(">q")


def read_tail(
    boundaries: Boundaries, active: Segment, offset: int, max_bytes: int, end_offset: int, log_end_offset: int
) -> tuple[int, int] | None:
    """(first, one past last) byte in the active segment of what `Log.read` asks for; equal where no whole batch lies
    below `end_offset`; None where `offset` is not among the recent batches."""
    offsets = boundaries.offsets
    if not offsets or offset < offsets[0]:
        return None
    positions = boundaries.positions
    first = bisect_right(offsets, offset) - 1
    start = positions[first]
    if end_offset >= log_end_offset:
        end = active.size_bytes
    else:
        end = positions[bisect_right(offsets, end_offset) - 1]
    if end - start > max_bytes:
        cut = bisect_right(positions, start + max_bytes) - 1
        if cut == first:  # the first batch is always whole, however large
            cut += 1
        if cut < len(positions):
            end = positions[cut]
    return start, end


def read_anywhere(
    segments: SegmentList, boundaries: Boundaries, offset: int, max_bytes: int, end_offset: int
) -> FileRegion | None:
    """The region of a read for an offset that exists and lies below `end_offset`; None where the batch that holds it
    reaches above `end_offset`."""
    segment, start = boundaries.visited.get(offset) or _find_start(segments, offset)
    following = segments.after(segment)
    if following is None or end_offset < following.base_offset:
        end = position_of(segment, end_offset)
    else:
        end = segment.size_bytes
    if end <= start:
        return None
    if end - start > max_bytes:
        end = _cut(segment, start, start + max_bytes)
    if end < segment.size_bytes:
        next_offset = base_offset_at(segment, end)
        if next_offset is not None:
            boundaries.visit(next_offset, segment, end)
    return FileRegion(segment.log.get(), start, end - start)


def _find_start(segments: SegmentList, offset: int) -> tuple[Segment, int]:
    """The segment and position of the first batch that does not end before `offset`."""
    segment: Segment | None = segments.holding(offset)
    while segment is not None:
        position = position_of(segment, offset)
        if position < segment.size_bytes:
            return segment, position
        segment = segments.after(segment)  # a gap at the end of a segment: compaction leaves them
    return segments.active, segments.active.size_bytes


def _cut(segment: Segment, start: int, limit: int) -> int:
    """The last batch boundary in (start, limit]; the end of the first batch where that is larger."""
    end = segment.indexes.offset.floor_position(limit)
    if end > start:
        return end
    end = start
    for position, header in headers_from(segment, start):
        following = position + header.size_bytes
        if following > limit and end > start:
            break
        end = following
        if end >= limit:
            break
    return end


def position_of(segment: Segment, offset: int) -> int:
    """Where the first batch begins that does not end before `offset`; the segment's size where all do."""
    known = segment.indexes.offset.position_for_offset(offset)
    for position, header in headers_from(segment, known):
        if header.base_offset + header.last_offset_delta >= offset:
            return position
    return segment.size_bytes


def base_offset_at(segment: Segment, position: int) -> int | None:
    """Base offset of the batch at a boundary; None at the segment's end."""
    if segment.size_bytes - position < HEADER_BYTES:
        return None
    base_offset: int = _BASE_OFFSET.unpack(segment.log.get().pread(_BASE_OFFSET.size, position))[0]
    return base_offset


def headers_from(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the batches of a segment from a boundary on. CorruptLog where no batch stands."""
    end, base_offset = position, segment.base_offset
    limit = base_offset + MAX_RELATIVE_OFFSET
    for found, header in walk_headers(segment.log.get(), position, segment.size_bytes):
        if header.base_offset < base_offset or header.last_offset_delta < 0 or header.last_offset > limit:
            raise CorruptLog(segment.path, found, f"a batch of offset {header.base_offset} stands there")
        yield found, header
        end = found + header.size_bytes
    if end != segment.size_bytes:
        raise CorruptLog(segment.path, end, "no whole batch stands there")


def write_rest(file: File, buffers: Sequence[Buffer], position: int, written: int) -> None:
    """Go on after a short write of `buffers` at `position`. OSError when the disk takes no more."""
    rest = memoryview(b"".join(buffers))
    while written < len(rest):
        count = file.pwritev([rest[written:]], position + written)
        if count <= 0:
            raise OSError(5, "the disk took no bytes")
        written += count
