"""Whether the segments of a log follow one another without a hole.

A segment begins where the one before ends, always: it is named by the log end offset of the moment when it was begun.
Only the cleaner leaves gaps between segments, and then there are gaps inside of segments, too: offsets that no batch
covers, or batches with fewer records than offsets. A Kafka's also leaves segments empty. So a gap without any such
trace is a file that was taken away. A gap that no segment can bridge has an empty segment before it (`roll`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from strandline.protocol.records.batch import BatchHeader
from strandline.storage.disk.storage_context import StorageContext
from strandline.storage.errors import CorruptIndex, CorruptLog, DamagedLog
from strandline.storage.recovery.known_state import KnownState
from strandline.storage.recovery.verdicts import Fault, Verdict
from strandline.storage.segments.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from strandline.storage.segments.scan import ScannedSegment
from strandline.storage.segments.search import headers_from
from strandline.storage.segments.segment import LOG_SUFFIX, Segment
from strandline.storage.segments.sparse_index import read_last_entry


def check_listed(
    context: StorageContext,
    folder: str,
    listed: Sequence[tuple[int, int]],
    segments: Sequence[Segment],
    on_loss: Callable[[], None],
) -> bool:
    """Whether these are the segments that stood here at the clean stop, of the same sizes. One that is shorter is a
    loss, even if it ends with a whole batch. DamagedLog where one is missing."""
    if [(segment.base_offset, segment.size_bytes) for segment in segments] == list(listed):
        return True
    missing = {base for base, _ in listed} - {segment.base_offset for segment in segments}
    if missing:
        names = ", ".join(f"{base:020d}{LOG_SUFFIX}" for base in sorted(missing)[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise DamagedLog(folder, f"{names}{more} stood here when the broker stopped and is missing now")
    sizes = dict(listed)
    for segment in segments:
        listed_bytes = sizes.get(segment.base_offset, 0)
        if segment.size_bytes < listed_bytes:
            on_loss()
            context.report(
                "log-segment-shorter",
                segment=segment.path,
                size_bytes=segment.size_bytes,
                listed_bytes=listed_bytes,
            )
    return False


def check_joins(
    context: StorageContext, folder: str, segments: Sequence[Segment], first_unsafe: int, known: KnownState
) -> int:
    """Look at the ends of the segments below number `first_unsafe`. Returns the number of the first segment that is to
    be checked batch by batch: `first_unsafe`, or one before it that is not whole. DamagedLog where two do not join, or
    where that one may not be cut."""
    for place in range(min(first_unsafe, len(segments) - 1)):
        segment, following = segments[place], segments[place + 1]
        try:
            end_offset = _end_offset(context, segment)
        except CorruptLog as error:
            if known.judge(Fault.INSIDE, segment.base_offset) is Verdict.REFUSE:
                raise DamagedLog(folder, error.why) from error
            context.report("log-segment-damaged", segment=segment.path, why=str(error))
            return place
        if end_offset == following.base_offset:
            continue
        if end_offset > following.base_offset:
            raise DamagedLog(
                folder,
                f"{following.path}{LOG_SUFFIX} begins at {following.base_offset}, inside of the segment before, which "
                f"ends at {end_offset}",
            )
        if is_marked_gap(segment, following.base_offset):
            continue
        if following.base_offset > known.compacted_below and not (_has_gaps(segment) or _has_gaps(following)):
            raise DamagedLog(folder, f"the offsets from {end_offset} up to {following.base_offset} are missing")
    return first_unsafe


def _end_offset(context: StorageContext, segment: Segment) -> int:
    """Behind the last batch, by the headers from the last index entry on. CorruptLog where the file is not whole."""
    position, last_offset = _last_entry(context, segment)
    end_offset = segment.base_offset
    try:
        for found, header in headers_from(segment, position):
            if found == position and position and header.last_offset != last_offset:
                raise CorruptLog(segment.path, position, "no batch of the index stands there")
            end_offset = header.next_offset
    except CorruptLog:
        if not position:
            raise
        for _, header in headers_from(segment, 0):  # the index may be wrong; it is not built anew before all is known
            end_offset = header.next_offset
    return end_offset


def _last_entry(context: StorageContext, segment: Segment) -> tuple[int, int]:
    """(position, last offset) of the last index entry, without reading the others; (0, 0) where none can be true."""
    try:
        entry = read_last_entry(context.disk, segment.path + OffsetIndex.SUFFIX, OffsetIndex.ENTRY_BYTES)
        index = OffsetIndex.decode(segment.base_offset, entry, segment.size_bytes)
    except (FileNotFoundError, CorruptIndex):
        return 0, 0
    return index.last_position, index.last_offset


def _has_gaps(segment: Segment) -> bool:
    """Whether the cleaner left its traces; reads every header, which is only done where segments do not join."""
    expected = segment.base_offset
    try:
        for _, header in headers_from(segment, 0):
            if leaves_gap(header, expected):
                return True
            expected = header.next_offset
    except CorruptLog:
        return False
    return False


def leaves_gap(header: BatchHeader, expected_offset: int) -> bool:
    """Whether offsets are missing before or in this batch, as only the cleaner leaves them."""
    return header.base_offset != expected_offset or header.records_count != header.last_offset_delta + 1


def is_marked_gap(segment: Segment, following_base_offset: int) -> bool:
    """Whether the segment only says that the offsets up to the next one are a gap. (A batch has fewer than 2^30.)"""
    return not segment.size_bytes and following_base_offset - segment.base_offset > MAX_RELATIVE_OFFSET // 2


def trust_cleaner(segments: Sequence[Segment], known: KnownState, *, is_compacted: bool) -> KnownState:
    """With `compacted_below` behind the last hole that a Kafka's cleaner may have left: up to there it was at work,
    though it may have been stopped before it wrote that down. is_compacted: the topic is."""
    cleaned = (
        following.base_offset
        for segment, following in pairwise(segments)
        if (is_compacted or not segment.size_bytes) and known.judge(Fault.CLEANED, segment.base_offset) is Verdict.SERVE
    )
    return replace(known, compacted_below=max([known.compacted_below, *cleaned]))


def gap_is_compaction(
    segment: Segment, previous: ScannedSegment, following: ScannedSegment, base_offset: int, compacted_below: int
) -> bool:
    """Whether the gap between a segment and the one at `base_offset` is the cleaner's. previous, following: what was
    found in the two."""
    if is_marked_gap(segment, base_offset):
        return True
    return base_offset <= compacted_below or previous.has_gaps or following.has_gaps
