"""When the active segment is full: pure rules.

A segment is rolled before a batch that would make it larger than `segment.bytes`, whose timestamp lies `segment.ms`
(less the segment's jitter) after that of the segment's first batch, whose last offset does not fit an index entry
(int32 relative to the base offset: invariant 25), or when an index is full (`index_bounds`) or has wider gaps than
`index.interval.bytes` says by now: logs are loaded before their topics' configurations are known, and a Kafka that
recovers such a segment writes more entries than there may be.

In a compacted log `max.compaction.lag.ms` counts as `segment.ms` does, the shorter one (KIP-354): what stands in the
active segment cannot be compacted. As in Kafka only an append rolls: a log that nobody writes to keeps its last one.

A segment begins where the one before ends. Only before a batch that even such a one could not hold, since the leader's
log has a gap above 2^31 offsets there (compaction may leave it), a second one is begun, at the batch itself. The empty
segment between the two says that nothing is missing (`segment_joins`).
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.protocol.records.batch import HEADER_BYTES
from strandline.storage.disk.storage_context import LogConfig
from strandline.storage.segments.offset_index import MAX_RELATIVE_OFFSET
from strandline.storage.segments.segment import Segment

_NEVER = 2**63 - 1
_ASK = -(2**63)


class RollLimits(NamedTuple):
    """What the append loops compare with: a batch within all of these does not roll, else `must_roll` decides."""

    bytes: int
    timestamp_ms: int
    last_offset: int

    def may_be_exceeded(self, size_bytes: int, timestamp_ms: int, last_offset: int) -> bool:
        """By a segment of that size, whose latest batches reach to that timestamp and offset."""
        return size_bytes > self.bytes or timestamp_ms > self.timestamp_ms or last_offset > self.last_offset


FULL = RollLimits(_ASK, _NEVER, 0)
"""Of a segment whose index has just become full: `must_roll` is asked before the next batch."""


def roll_limits(segment: Segment, config: LogConfig) -> RollLimits:
    """For the next batches of `segment`, which is the active one."""
    last_offset = segment.base_offset + MAX_RELATIVE_OFFSET
    if segment.size_bytes == 0 or _takes_no_entries(segment, config) or segment.first_timestamp_ms < 0:
        return RollLimits(_ASK, _NEVER, last_offset)
    oldest_ms = segment.first_timestamp_ms + max_age_ms(segment, config)
    return RollLimits(config.segment_bytes, oldest_ms, last_offset)


def index_interval_bytes(segment: Segment, config: LogConfig) -> int:
    """Of the active segment, when its log is configured: one that has batches keeps the gaps that it began with."""
    return config.index_interval_bytes if segment.size_bytes == 0 else segment.index_interval_bytes


def may_fill_an_index(segment: Segment, size_bytes: int) -> bool:
    """Whether further batches of `size_bytes` together may take all the room that the indexes have."""
    gap_bytes = max(segment.index_interval_bytes + 1, HEADER_BYTES)
    return (segment.unindexed_bytes + size_bytes) // gap_bytes >= segment.indexes.room


def _takes_no_entries(segment: Segment, config: LogConfig) -> bool:
    return segment.indexes.room <= 0 or segment.index_interval_bytes > config.index_interval_bytes


def max_age_ms(segment: Segment, config: LogConfig) -> int:
    """How long a segment stays the active one."""
    age_ms = config.segment_ms - segment.roll_jitter_ms
    if "compact" in config.cleanup_policy:
        return min(age_ms, config.max_compaction_lag_ms)
    return age_ms


def must_roll(
    segment: Segment,
    config: LogConfig,
    position: int,
    size_bytes: int,
    timestamp_ms: int,
    last_offset: int,
    now_ms: int,
) -> bool:
    """Whether a batch that would stand at `position` goes to a new segment instead.

    A batch larger than a segment gets one of its own: a follower has to take what its leader has. An empty segment is
    rolled only for offsets that it cannot hold. Where records carry no time (−1) the segment's own age counts."""
    if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        return True
    if position == 0:
        return False
    if position + size_bytes > config.segment_bytes or _takes_no_entries(segment, config):
        return True
    if segment.first_timestamp_ms < 0 or timestamp_ms < 0:
        waited_ms = now_ms - segment.created_ms
    else:
        waited_ms = timestamp_ms - segment.first_timestamp_ms
    return waited_ms > max_age_ms(segment, config)
