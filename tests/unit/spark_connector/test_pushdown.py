"""Filters that narrow a read: exact where Spark is told so, never too narrow."""

from __future__ import annotations

import datetime
import operator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.reading.planning import OffsetRange
from strandline.spark_connector.reading.pushdown import push
from strandline.spark_connector.source import PushdownReader, StrandlineDataSource, fixed_schema

RANGE = OffsetRange("t", 1, 10, 50)
COMPARISONS = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


@given(st.lists(st.tuples(st.sampled_from(sorted(COMPARISONS, key=str)), st.integers(-5, 60)), max_size=4))
def test_offset_filters_leave_exactly_the_rows_that_match(asked: list[tuple[Any, int]]) -> None:
    narrowing, left = push([kind(("offset",), value) for kind, value in asked])
    assert left == []
    clipped = narrowing.clip(RANGE)
    kept = list(range(clipped.start, clipped.end)) if clipped else []
    assert kept == [
        offset
        for offset in range(RANGE.start, RANGE.end)
        if all(COMPARISONS[kind](offset, value) for kind, value in asked)
    ]


def test_topics_and_partitions_are_pruned() -> None:
    narrowing, left = push(
        [IsNotNull(("topic",)), EqualTo(("topic",), "t"), In(("partition",), [0, 1]), EqualTo(("partition",), 1)]
    )
    assert left == []
    assert narrowing.clip(RANGE) == RANGE
    assert narrowing.clip(RANGE._replace(partition=0)) is None
    assert narrowing.clip(RANGE._replace(topic="u")) is None


def test_what_is_not_understood_stays_with_spark() -> None:
    filters = [
        EqualTo(("value",), b"x"),
        IsNotNull(("key",)),
        Not(EqualTo(("partition",), 1)),
        EqualTo(("partition",), None),
        In(("partition",), [1, None]),
        GreaterThan(("partition",), 0),
        GreaterThan(("offset",), 1.5),
        EqualTo(("headers", "key"), "x"),
    ]
    narrowing, left = push(filters)
    assert left == filters
    assert narrowing.clip(RANGE) == RANGE


def test_a_timestamp_only_finds_the_start_and_spark_filters_again() -> None:
    since = datetime.datetime(2024, 2, 14, 0, 0, 0, 1999, tzinfo=datetime.UTC)
    filters = [GreaterThan(("timestamp",), since), LessThan(("timestamp",), since)]
    narrowing, left = push(filters)
    assert left == filters
    assert narrowing.asked_timestamps([RANGE]) == {TopicPartition("t", 1): 1_707_868_800_001}


def test_only_the_explicit_option_makes_a_reader_that_takes_filters() -> None:
    def reader(**options: str) -> Any:
        source = StrandlineDataSource(CaseInsensitiveDict({"servers": "b:1", "subscribe": "t"} | options))
        return source.reader(fixed_schema(include_headers=False))

    assert not isinstance(reader(), PushdownReader)
    pushed = reader(pushdown="true")
    filters = [GreaterThan(("offset",), 3), EqualTo(("key",), b"k")]
    assert list(pushed.pushFilters(filters)) == filters[1:]
    assert pushed.narrowing.first_offset == 4
