"""Filters of a query that narrow what is read: topic, partition, offset and timestamp. Pure.

Only with the option `pushdown=true`, and Spark must be told as well (`spark.sql.python.filterPushdown.enabled`, off by
default). A filter on topic, partition or offset is carried out exactly, so Spark need not look again. One on the
timestamp only finds the first offset that can match: timestamps of producers are in no order, so Spark filters again.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.reading.planning import OffsetRange

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What the filters leave of a read; None: no limit. `end_offset` is exclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int | None = None
    since_ms: int | None = None
    """No record before the first one with at least this timestamp can match."""

    def clip(self, whole: OffsetRange) -> OffsetRange | None:
        """What is left of the range; None: nothing."""
        if self.topics is not None and whole.topic not in self.topics:
            return None
        if self.partitions is not None and whole.partition not in self.partitions:
            return None
        start = max(whole.start, self.first_offset)
        end = whole.end if self.end_offset is None else min(whole.end, self.end_offset)
        return whole._replace(start=start, end=end) if start < end else None

    def asked_timestamps(self, ranges: Iterable[OffsetRange]) -> dict[TopicPartition, int]:
        """The times for which offsets must be looked up."""
        if self.since_ms is None:
            return {}
        return {TopicPartition(each.topic, each.partition): self.since_ms for each in ranges}


EVERYTHING = Narrowing()


def push(filters: Iterable[Any]) -> tuple[Narrowing, list[Any]]:
    """The narrowing by those filters that are understood, and the filters that Spark must still apply."""
    narrowing = EVERYTHING
    left = []
    for each in filters:
        narrower, is_exact = _narrowed(narrowing, each)
        narrowing = narrower
        if not is_exact:
            left.append(each)
    return narrowing, left


def _narrowed(narrowing: Narrowing, each: Any) -> tuple[Narrowing, bool]:
    """`narrowing` with one more filter, and whether that one is now carried out in full."""
    kind = type(each).__name__
    column: Any = getattr(each, "attribute", ())
    if len(column) != 1:
        return narrowing, False
    name: str = column[0]
    value: Any = getattr(each, "value", None)
    if kind == "IsNotNull":
        return narrowing, name in _NEVER_NULL
    if name in ("topic", "partition") and kind in ("EqualTo", "In"):
        return _among(narrowing, name, list(value) if kind == "In" else [value])
    if name == "offset":
        return _offset(narrowing, kind, value)
    if name == "timestamp" and kind in ("EqualTo", "GreaterThan", "GreaterThanOrEqual"):
        return _since(narrowing, value), False
    return narrowing, False


def _among(narrowing: Narrowing, name: str, values: list[Any]) -> tuple[Narrowing, bool]:
    wanted: type = str if name == "topic" else int
    if not all(type(value) is wanted for value in values):
        return narrowing, False
    if name == "topic":
        topics = frozenset(values)
        return replace(narrowing, topics=topics if narrowing.topics is None else narrowing.topics & topics), True
    partitions = frozenset(values)
    return (
        replace(
            narrowing,
            partitions=partitions if narrowing.partitions is None else narrowing.partitions & partitions,
        ),
        True,
    )


def _offset(narrowing: Narrowing, kind: str, value: Any) -> tuple[Narrowing, bool]:
    """Comparisons of the offset as a half-open range."""
    if type(value) is not int:
        return narrowing, False
    lowest = {"EqualTo": value, "GreaterThan": value + 1, "GreaterThanOrEqual": value}.get(kind)
    above = {"EqualTo": value + 1, "LessThan": value, "LessThanOrEqual": value + 1}.get(kind)
    if lowest is not None:
        narrowing = replace(narrowing, first_offset=max(narrowing.first_offset, lowest))
    if above is not None:
        end = above if narrowing.end_offset is None else min(narrowing.end_offset, above)
        narrowing = replace(narrowing, end_offset=end)
    return narrowing, lowest is not None or above is not None


def _since(narrowing: Narrowing, value: Any) -> Narrowing:
    """Rounded down to milliseconds: too early is only slower."""
    if not isinstance(value, datetime.datetime):
        return narrowing
    moment = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
    since_ms = max(0, (moment - _EPOCH) // datetime.timedelta(milliseconds=1))
    return replace(narrowing, since_ms=max(since_ms, narrowing.since_ms or 0))
