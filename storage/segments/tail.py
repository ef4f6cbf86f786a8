"""Opening the end of a log for appends: the last segment's counters as if this process had written it.

Only the batches behind the last index entry are looked at (some `index.interval.bytes`), by their headers. Bytes behind
the last whole batch are left out of `size_bytes`: whoever loads the log cuts the file there.
"""

from __future__ import annotations

from strandline.storage.disk.storage_context import StorageContext
from strandline.storage.errors import CorruptIndex
from strandline.storage.segments.scan import IndexBuilder, walk_headers, walk_segment
from strandline.storage.segments.segment import Segment
from strandline.storage.segments.time_index import NO_TIMESTAMP


def activate(context: StorageContext, segment: Segment) -> int:
    """Pin the indexes of a log's last segment and set its counters. Returns the log end offset.

    An index that does not fit the file is lost: it is built anew here, whatever its size. OSError from the disk."""
    segment.indexes.pin()
    try:
        next_offset = _resume(segment)
    except CorruptIndex as error:
        with context.rebuilds.here():
            segment.indexes.replace_lost(error)
        next_offset = _resume(segment)
    segment.first_timestamp_ms = NO_TIMESTAMP
    for _, header in walk_headers(segment.file.get(), 0, segment.size_bytes):
        segment.first_timestamp_ms = header.max_timestamp_ms
        break
    segment.written_back_bytes = segment.size_bytes
    return next_offset


def _resume(segment: Segment) -> int:
    """Walk over the batches from the last one that is indexed on. CorruptIndex where that one does not stand there."""
    offset_index, time_index = segment.indexes.offset, segment.indexes.time
    builder = IndexBuilder(segment.base_offset, segment.index_interval_bytes)
    builder.offset_index, builder.time_index = offset_index, time_index
    builder.resume(time_index.last_timestamp_ms, time_index.last_offset)
    next_offset = segment.base_offset
    start = end = offset_index.last_position
    for position, header in walk_segment(segment.file.get(), segment.base_offset, start, segment.size_bytes):
        if position == start and len(offset_index) and header.last_offset != offset_index.last_offset:
            raise CorruptIndex(f"the batch at byte {position} ends at {header.last_offset}, not as the index says")
        builder.add(position, header)
        next_offset = header.next_offset
        end = position + header.size_bytes
    if end == start and len(offset_index):
        raise CorruptIndex(f"no whole batch stands at byte {start}, where the last entry points")
    segment.size_bytes = end
    segment.unindexed_bytes = builder.unindexed_bytes
    segment.max_timestamp_ms = builder.max_timestamp_ms
    segment.max_timestamp_offset = builder.max_timestamp_offset
    return next_offset
