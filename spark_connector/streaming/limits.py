"""How much one trigger takes. Pure.

A limit is shared in proportion to what waits in each partition, as Spark's Kafka source does it: rounded down, but a
partition that would get nothing gets one, so that a small one never starves; so the sum may be above the limit by at
most one for each partition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.options.stream_options import TriggerLimits

Sizes = Mapping[TopicPartition, int]


def is_worth_a_batch(limits: TriggerLimits, waiting: Sizes, now_ms: int, last_batch_ms: int | None) -> bool:
    """Whether there is enough to read, or the wait for more has been long enough. `last_batch_ms` None: nobody has
    waited for this query yet, so the first batch takes what there is."""
    if limits.min_offsets is None or last_batch_ms is None or sum(waiting.values()) >= limits.min_offsets:
        return True
    return now_ms - last_batch_ms >= limits.max_trigger_delay_ms


def taken(
    limits: TriggerLimits, waiting: Sizes, bytes_per_offset: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """How many offsets of each partition the next batch takes; of what waits somewhere it takes something.
    `bytes_per_offset`: what one takes in the log, about (needed with `max_bytes` only)."""
    result = dict(waiting)
    if limits.max_offsets is not None:
        result = shared(result, limits.max_offsets)
    if limits.max_bytes is not None:
        in_bytes = {each: math.ceil(size * bytes_per_offset[each]) for each, size in result.items()}
        granted = shared(in_bytes, limits.max_bytes)
        for each, size in result.items():
            if granted[each] < in_bytes[each]:
                result[each] = min(size, max(1, int(granted[each] / bytes_per_offset[each])))
    return result


def shared(sizes: Sizes, limit: int) -> dict[TopicPartition, int]:
    """`limit` divided in proportion to the sizes, no more than each has."""
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    # Whole numbers throughout: a float would lose the last digits of large sizes.
    return {each: min(size, limit * size // total or (1 if size else 0)) for each, size in sizes.items()}
