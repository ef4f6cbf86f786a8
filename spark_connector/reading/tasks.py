"""Which task reads what: long ranges are cut, and neighbours read from different brokers. Pure.

Cutting follows Spark's KafkaOffsetRangeCalculator, on resolved offsets. Spark starts tasks in the order in which it is
given them and knows no preferred places of a Python source: so the order spreads the load.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.options.request import DEFAULT_MAX_RECORDS_PER_TASK
from strandline.spark_connector.reading.planning import OffsetRange

NO_LEADER = -1


def tasks(
    ranges: Sequence[OffsetRange],
    leaders: Mapping[TopicPartition, int],
    *,
    min_partitions: int | None,
    max_records_per_partition: int | None,
) -> list[OffsetRange]:
    """What each task reads, in the order in which Spark should start them. `leaders`: the broker that leads a
    partition, where that is known."""
    parts = split(ranges, min_partitions=min_partitions, max_records_per_partition=max_records_per_partition)
    return spread(parts, leaders)


def spread(ranges: Sequence[OffsetRange], leaders: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The same ranges, those of one leader as far apart as can be: next comes one of the leader that has most left,
    unless it has just had one. Ranges of one leader keep their order."""
    waiting: dict[int, deque[OffsetRange]] = {}
    for each in ranges:
        leader = leaders.get(TopicPartition(each.topic, each.partition), NO_LEADER)
        waiting.setdefault(leader, deque()).append(each)
    result: list[OffsetRange] = []
    last = None
    while waiting:
        others = [leader for leader in waiting if leader != last] or list(waiting)
        last = max(others, key=lambda leader: (len(waiting[leader]), -leader))
        result.append(waiting[last].popleft())
        if not waiting[last]:
            del waiting[last]
    return result


def split(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """Cut ranges so that none is longer than the maximum and that there are about `min_partitions` of them, in
    proportion to their size; a small range is never cut to make up for a large one. Where neither is given, none is
    longer than DEFAULT_MAX_RECORDS_PER_TASK."""
    if min_partitions is None and max_records_per_partition is None:
        max_records_per_partition = DEFAULT_MAX_RECORDS_PER_TASK
    whole = [each for each in ranges if each.size > 0]
    divided = whole
    if max_records_per_partition is not None:
        divided = [part for each in whole for part in _cut(each, math.ceil(each.size / max_records_per_partition))]
    if min_partitions is None or len(divided) >= min_partitions:
        return divided
    total = sum(each.size for each in divided)
    small = {each for each in divided if _share(each.size, total, min_partitions) == 1}
    large_total = total - sum(each.size for each in small)
    large_partitions = max(min_partitions - len(small), 1)
    result: list[OffsetRange] = []
    for each in divided:
        parts = 1 if each in small else _share(each.size, large_total, large_partitions)
        result += _cut(each, parts)
    return result


def _share(size: int, total: int, partitions: int) -> int:
    """How many of `partitions` a range gets: rounded half up, as in Spark, and at least one."""
    return max(math.floor(size / total * partitions + 0.5), 1)


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """`parts` ranges of nearly the same size; fewer where there are fewer offsets."""
    result = []
    start = whole.start
    for left in range(min(parts, whole.size), 0, -1):
        end = start + (whole.end - start) // left
        if end > start:
            result.append(whole._replace(start=start, end=end))
        start = end
    return result
