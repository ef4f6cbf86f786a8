"""Whether an epoch cache tells the truth about its log, and building it anew from batch headers.

Epochs never fall along a log. So a cache of any size is right where at each boundary the batches on both sides carry
the epochs that it says, and the last batch that of its last entry. A boundary costs a walk over the headers of one
index interval; the place is found in the index *file*, by bisection, because to load an index of some megabytes per
epoch would take longer than the whole start. Warm that is 20 µs each, cold some reads. Where a checksum tells that the
file is the one of an orderly stop (`stored_epochs`), nothing of it is done.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

from strandline.protocol.records.batch import BatchHeader
from strandline.runtime.disk import Disk
from strandline.storage.disk.checkpoints import EpochEntry
from strandline.storage.errors import CorruptLog
from strandline.storage.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochCache
from strandline.storage.segments import search
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import walk_segment
from strandline.storage.segments.segment import Segment
from strandline.storage.segments.segment_list import SegmentList

MAX_OFFSET = 2**63 - 1
_ENTRY = struct.Struct(">ii")


def epochs_agree(segments: SegmentList, epochs: LeaderEpochCache, log_start_offset: int, log_end_offset: int) -> bool:
    """Whether the batches carry the epochs that the cache says. OSError from the disk."""
    if log_start_offset == log_end_offset:
        last, _ = _neighbours(segments, log_end_offset)
        return last is None or last.partition_leader_epoch == epochs.latest_epoch
    entries = epochs.entries
    if not entries or entries[0].start_offset > log_start_offset:
        entries = (EpochEntry(UNDEFINED_EPOCH, log_start_offset), *entries)
    ends = [*(entry.start_offset for entry in entries[1:]), log_end_offset]
    if not all(_begins_there(segments, *each) for each in zip([None, *entries], entries, ends, strict=False)):
        return False
    last, _ = _neighbours(segments, log_end_offset)
    return last is None or last.next_offset <= log_start_offset or last.partition_leader_epoch == entries[-1].epoch


def _begins_there(segments: SegmentList, before: EpochEntry | None, entry: EpochEntry, end_offset: int) -> bool:
    """Whether the batches on both sides of an entry's start are of the epochs that they should be; before: the entry
    before it; end_offset: where its range ends. Compaction may have left nothing of a range."""
    last, first = _neighbours(segments, entry.start_offset)
    if first is not None and first.base_offset < end_offset and first.partition_leader_epoch != entry.epoch:
        return False
    if before is None:  # the log start: it may lie within a batch, and what stands before counts no more
        return True
    if first is not None and first.base_offset < entry.start_offset:
        return False
    if last is None or last.next_offset <= before.start_offset:
        return True
    return last.partition_leader_epoch == before.epoch


def _neighbours(segments: SegmentList, offset: int) -> tuple[BatchHeader | None, BatchHeader | None]:
    """The last batch that ends at or below `offset`, and the first that does not; None where there is none, or where
    the headers are damaged: whoever reads there finds that."""
    last: BatchHeader | None = None
    segment: Segment | None = segments.holding(offset)
    assert segment is not None
    try:
        position = _position_near(segments.disk, segment, offset, is_active=segment is segments.active)
        if not position and segment.base_offset > segments.holding(0).base_offset:
            last = _last_batch_before(segments, segment.base_offset)
        while segment is not None:
            for _, header in search.headers_from(segment, position):
                if header.last_offset >= offset:
                    return last, header
                last = header
            segment, position = segments.after(segment), 0
    except CorruptLog:
        pass
    return last, None


def _last_batch_before(segments: SegmentList, base_offset: int) -> BatchHeader | None:
    """The last batch of the segments before the one at `base_offset`."""
    while base_offset > segments.holding(0).base_offset:
        segment = segments.holding(base_offset - 1)
        last: BatchHeader | None = None
        try:
            for _, header in search.headers_from(segment, _position_near(segments.disk, segment, base_offset)):
                last = header
        except CorruptLog:
            return None
        if last is not None:
            return last
        base_offset = segment.base_offset
    return None


def _position_near(disk: Disk, segment: Segment, offset: int, *, is_active: bool = False) -> int:
    """Where a batch begins that ends at or below `offset`, as near as the index knows; 0 where it knows none.
    CorruptLog where a batch that the search meets is damaged."""
    if offset <= segment.base_offset or not segment.size_bytes:
        return 0
    if not is_active:
        with suppress(FileNotFoundError):
            position, last_offset = _look_up(disk, segment, offset - 1)
            if position == 0 or _may_end_at(segment, position, last_offset):
                return position
    return search.position_before(segment, offset - 1)  # an entry in the file that is wrong is mended by this


def _may_end_at(segment: Segment, position: int, last_offset: int) -> bool:
    """Whether an index entry may be true: no batch that ends behind the offset that it notes stands there."""
    if not 0 < position < segment.size_bytes:
        return False
    walk = walk_segment(segment.file.get(), segment.base_offset, position, segment.size_bytes)
    return any(header.last_offset <= last_offset for _, header in islice(walk, 1))


def _look_up(disk: Disk, segment: Segment, offset: int) -> tuple[int, int]:
    """(position, last offset) of the last index entry at or below `offset`; (0, 0) where there is none."""
    file = disk.open(segment.path + OffsetIndex.SUFFIX, read_only=True)
    found = 0, 0
    try:
        low, high = 0, file.size() // _ENTRY.size
        while low < high:
            middle = (low + high) // 2
            relative_offset, position = _ENTRY.unpack(file.pread(_ENTRY.size, middle * _ENTRY.size))
            if segment.base_offset + relative_offset <= offset:
                low, found = middle + 1, (position, segment.base_offset + relative_offset)
            else:
                high = middle
    finally:
        file.close()
    return found


def epochs_from_headers(
    segments: SegmentList, log_start_offset: int, noted: Sequence[EpochEntry] = (), end_offset: int = MAX_OFFSET
) -> LeaderEpochCache:
    """What the batches below `end_offset` say, by reading their headers, and `noted` where they leave it open."""
    epochs = LeaderEpochCache()
    next_offset = segments.holding(0).base_offset
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        for _, header in search.headers_from(segment, 0):
            if header.base_offset >= end_offset:
                break
            if header.partition_leader_epoch > epochs.latest_epoch:
                epochs.learn(header.partition_leader_epoch, next_offset, header.base_offset, noted)
            next_offset = header.next_offset
    epochs.start_at(log_start_offset)
    return epochs
