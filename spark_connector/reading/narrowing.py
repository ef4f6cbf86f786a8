"""What a condition (option `where`) leaves of a read: of ranges before they are read, of rows afterwards. Pure.

Topics, partitions and offsets are cut out of the plan. Timestamps of producers are in no order, so a time only says
where the first record is that can match; the others are left out row by row.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from strandline.protocol.records.columnar import I64, RecordColumns
from strandline.protocol.types import TopicPartition
from strandline.spark_connector.options.request import Condition, Limits
from strandline.spark_connector.options.values import MAX_LONG
from strandline.spark_connector.reading.planning import OffsetRange

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]


def clipped(whole: OffsetRange, condition: Condition) -> OffsetRange | None:
    """What is left of the range; None: nothing."""
    if not condition.topic.allows(whole.topic) or not condition.partition.allows(whole.partition):
        return None
    first, end = condition.offset.bounds()
    start = whole.start if first is None else max(whole.start, first)
    end = whole.end if end is None else min(whole.end, end)
    return whole._replace(start=start, end=end) if start < end else None


def asked_timestamps(ranges: Iterable[OffsetRange], condition: Condition) -> dict[TopicPartition, int]:
    """The times for which offsets must be looked up. None before 1970: brokers look for no such time, and records
    without a time have the last millisecond before it. Behind the last time there is no record either way."""
    since_ms, _ = condition.timestamp.bounds()
    if since_ms is None or since_ms < 0:
        return {}
    return {TopicPartition(each.topic, each.partition): min(since_ms, MAX_LONG) for each in ranges}


def matching(columns: RecordColumns, condition: Condition) -> Bools:
    """Which rows of a range that was cut out by the condition meet it."""
    return _allowed(columns.offsets, condition.offset) & _allowed(columns.timestamps_ms, condition.timestamp)


def _allowed(values: I64, limits: Limits) -> Bools:
    allowed = np.ones(len(values), np.bool_)
    first, end = limits.bounds()
    if first is not None:
        allowed &= values >= first
    if end is not None:
        allowed &= values < end
    if limits.among is not None and len(limits.among) > 1:  # one alone has bounds
        allowed &= np.isin(values, np.array(sorted(limits.among), np.int64))
    return allowed
