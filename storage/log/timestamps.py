"""Which batch holds the first record of a time, and what the largest time is: from the indexes and headers of a log,
without decoding anything.

Whoever asks decodes the batch (`first_record_from`), off the event loop where it is compressed, and asks again behind
it when none of its records will do: a producer may claim a max timestamp that no record of a compressed batch has.
"""

from __future__ import annotations

from strandline.protocol.records.batch import BatchHeader
from strandline.storage.errors import CorruptLog
from strandline.storage.log.log import Log
from strandline.storage.segments.scan import read_batch
from strandline.storage.segments.search import by_index, headers_before, prove_time
from strandline.storage.segments.segment import Segment
from strandline.storage.segments.time_index import NO_TIMESTAMP


def batch_for_timestamp(
    log: Log, timestamp_ms: int, start_offset: int, end_offset: int
) -> tuple[BatchHeader, memoryview] | None:
    """The first batch with records in [start_offset, end_offset) that claims one at least as young as `timestamp_ms`;
    None where there is none. LogStorageError from the disk; IndexLost."""
    try:
        return _search(log, timestamp_ms, start_offset, end_offset)
    except (OSError, CorruptLog) as error:
        raise log.fail("reading failed", error) from error


def _search(log: Log, timestamp_ms: int, start_offset: int, end_offset: int) -> tuple[BatchHeader, memoryview] | None:
    segments = log.segments
    for segment in segments:
        if segment.base_offset >= end_offset:
            return None
        if segment.largest_timestamp_ms(segment is segments.active) < timestamp_ms:
            continue
        found = by_index(segment, _search_segment, timestamp_ms, start_offset, end_offset)
        if found is not None:
            position, header = found
            return header, read_batch(segment.file.get(), position, header)
    return None


def _search_segment(
    segment: Segment, timestamp_ms: int, start_offset: int, end_offset: int
) -> tuple[int, BatchHeader] | None:
    time = segment.indexes.time
    entry = time.entry_before(timestamp_ms)
    start = time.offset_of(entry)
    if entry >= 0 and start > start_offset:
        prove_time(segment, entry)
    for position, header in headers_before(segment, max(start, start_offset)):
        if header.base_offset >= end_offset:
            return None
        if header.max_timestamp_ms >= timestamp_ms and header.last_offset >= start_offset:
            return position, header
    return None


def largest_timestamp(log: Log, start_offset: int, end_offset: int) -> int:
    """The largest that a batch with records in [start_offset, end_offset) claims to have, in ms; −1 where no record has
    a timestamp. LogStorageError from the disk; IndexLost."""
    try:
        return _largest(log, start_offset, end_offset)
    except (OSError, CorruptLog) as error:
        raise log.fail("reading failed", error) from error


def _largest(log: Log, start_offset: int, end_offset: int) -> int:
    """A segment whose newest batch may lie outside is looked into, but only if that batch is newer than the others."""
    largest = NO_TIMESTAMP
    for segment in log.segments:
        following = log.segments.after(segment)
        segment_end = log.log_end_offset if following is None else following.base_offset
        if segment.base_offset >= end_offset:
            break
        if segment_end <= start_offset:
            continue
        claimed = segment.largest_timestamp_ms(following is None)
        if claimed > largest and (segment.base_offset < start_offset or segment_end > end_offset):
            claimed = by_index(segment, _largest_within, start_offset, end_offset)
        largest = max(largest, claimed)
    return largest


def _largest_within(segment: Segment, start_offset: int, end_offset: int) -> int:
    """What the last entry of the time index says that notes an offset in between, and the headers behind it."""
    time = segment.indexes.time
    entry = time.entry_below(end_offset)
    largest, start = NO_TIMESTAMP, start_offset
    if entry >= 0 and time.offset_of(entry) >= start_offset:
        prove_time(segment, entry)
        largest, start = time.timestamps_ms[entry], time.offset_of(entry) + 1
    for _, header in headers_before(segment, start):
        if header.base_offset >= end_offset:
            break
        if header.last_offset >= start:
            largest = max(largest, header.max_timestamp_ms)
    return largest
