"""Whether an epoch cache tells the truth about its log, and building it anew from batch headers.

Epochs never fall along a log. So an entry is right where the first and the last batch of its range carry its epoch: two
header reads per entry prove a cache of any size.
"""

from __future__ import annotations

from strandline.storage import reading
from strandline.storage.leader_epochs import UNDEFINED_EPOCH, EpochEntry, LeaderEpochCache
from strandline.storage.segment_list import SegmentList


def epochs_agree(
    segments: SegmentList, epochs: LeaderEpochCache, log_start_offset: int, log_end_offset: int, *, thorough: bool
) -> bool:
    """Whether the batches carry the epochs that the cache says. thorough: every entry, else only the last one."""
    if log_start_offset == log_end_offset:
        return not epochs.entries
    entries = epochs.entries
    if not entries or entries[0].start_offset > log_start_offset:
        entries = (EpochEntry(UNDEFINED_EPOCH, log_start_offset), *entries)
    ends = [entry.start_offset for entry in entries[1:]] + [log_end_offset]
    ranges = list(zip(entries, ends, strict=True))
    return all(
        _epoch_at(segments, offset, end_offset) in (entry.epoch, None)
        for entry, end_offset in (ranges if thorough else ranges[-1:])
        for offset in (entry.start_offset, end_offset - 1)
    )


def _epoch_at(segments: SegmentList, offset: int, end_offset: int) -> int | None:
    """Epoch of the first batch that does not end before `offset`; None where that begins at `end_offset` or later
    (compaction left nothing)."""
    segment = segments.holding(offset)
    # Most epochs begin with a segment, or did when the older ones went: no index has to be loaded for that.
    position = reading.position_of(segment, offset) if offset > segment.base_offset else 0
    for _, header in reading.headers_from(segment, position):
        return header.partition_leader_epoch if header.base_offset < end_offset else None
    return None


def epochs_from_headers(segments: SegmentList, log_start_offset: int) -> LeaderEpochCache:
    """What the batches say, by reading every header of the log."""
    epochs = LeaderEpochCache()
    next_offset = segments.holding(0).base_offset
    for segment in segments:
        for _, header in reading.headers_from(segment, 0):
            if header.partition_leader_epoch > epochs.latest_epoch:
                epochs.assign(header.partition_leader_epoch, next_offset)
            next_offset = header.next_offset
    epochs.start_at(log_start_offset)
    return epochs
