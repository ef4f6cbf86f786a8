"""The file region of a fetch.

A fetch at the tail is answered from memory (`read_tail`). Elsewhere the offset index gives both ends: a batch at or
before the offset, and the last boundary within `max_bytes`; then a few headers are read at most. Nothing is changed but
what `Boundaries` remembers. OSError from the disk passes through.
"""

from __future__ import annotations

from bisect import bisect_right

from strandline.runtime.disk import FileRegion
from strandline.storage.log.boundaries import Boundaries
from strandline.storage.segments.search import base_offset_at, last_boundary, position_of
from strandline.storage.segments.segment import Segment
from strandline.storage.segments.segment_list import SegmentList


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
    next_offset: int | None = None
    if end - start > max_bytes:
        end, next_offset = last_boundary(segment, start, start + max_bytes)
    if end < segment.size_bytes:
        next_offset = base_offset_at(segment, end) if next_offset is None else next_offset
        if next_offset is not None:
            boundaries.visit(next_offset, segment, end)
    return FileRegion(segment.file.get(), start, end - start)


def _find_start(segments: SegmentList, offset: int) -> tuple[Segment, int]:
    """The segment and position of the first batch that does not end before `offset`."""
    segment: Segment | None = segments.holding(offset)
    while segment is not None:
        position = position_of(segment, offset)
        if position < segment.size_bytes:
            return segment, position
        segment = segments.after(segment)  # a gap at the end of a segment: compaction leaves them
    return segments.active, segments.active.size_bytes
