"""The option `where`: what it takes, and that exactly the rows that meet it are read."""

from __future__ import annotations

import datetime
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.records import assign_offset, build_batch
from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import InvalidOption
from strandline.spark_connector.options.request import SourceOptions
from strandline.spark_connector.options.source_options import parse_options
from strandline.spark_connector.options.stream_options import parse_stream_options
from strandline.spark_connector.options.where import condition
from strandline.spark_connector.reading import narrowing
from strandline.spark_connector.reading.planning import OffsetRange
from strandline.spark_connector.reading.reader import plan, read
from support.memory_source import MemoryCluster

COMPARISONS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
T = [TopicPartition(topic, number) for topic in ("t", "u") for number in (0, 1)]


def options(where: str, **more: str) -> SourceOptions:
    return parse_options({"servers": "b:1", "subscribe": "t,u", "where": where} | more)


class TimedCluster(MemoryCluster):
    """Finds the first offset of a time as brokers do."""

    def __init__(self, timestamps_ms: dict[TopicPartition, list[int]]) -> None:
        super().__init__()
        self.timestamps_ms = timestamps_ms
        for partition, times in timestamps_ms.items():
            self.batches[partition] = []
            self.high_watermarks[partition] = len(times)
            for offset, at in enumerate(times):
                batch = bytearray(build_batch([(at, None, b"v")]))
                assign_offset(batch, offset, 0)
                self.batches[partition].append(bytes(batch))

    def offsets_at(self, timestamps_ms: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        assert all(0 <= asked < 2**63 for asked in timestamps_ms.values()), "no broker looks for such a time"
        found = {}
        for partition, asked in timestamps_ms.items():
            later = [offset for offset, at in enumerate(self.timestamps_ms[partition]) if at >= asked]
            found[partition] = later[0] if later else None
        return found


def rows(cluster: MemoryCluster, wanted: SourceOptions) -> list[tuple[str, int, int]]:
    found = []
    for each in plan(wanted, cluster, pytest.fail, 0):
        for batch in read(wanted, each, cluster, pytest.fail):
            found += zip(*(batch[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    return sorted(found)


def written(microseconds: int) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=microseconds)
    return f"'{moment.isoformat()}'"


COMPARED: dict[str, Any] = {
    "partition": (st.integers(-1, 2), str),
    "offset": (st.integers(-2, 8), str),
    "timestamp": (st.integers(-3_000, 6_000), written),  # microseconds
}


@st.composite
def comparisons(draw: Any) -> tuple[str, Any]:
    """(SQL, whether a row (topic, partition, offset, timestamp in microseconds) meets it)."""
    column = draw(st.sampled_from(["topic", *COMPARED]))
    place = ("topic", "partition", "offset", "timestamp").index(column)
    if column == "topic":
        names = draw(st.lists(st.sampled_from("tuv"), min_size=1, max_size=2))
        return f"topic IN ({', '.join(map(repr, names))})", lambda row: row[0] in names
    numbers, write = COMPARED[column]
    kind = draw(st.sampled_from([*COMPARISONS, "in", "between", "flipped"]))
    if kind == "in":
        chosen = draw(st.lists(numbers, min_size=1, max_size=3))
        return f"`{column}` in ({', '.join(map(write, chosen))})", lambda row: row[place] in chosen
    low, high = draw(numbers), draw(numbers)
    if kind == "between":
        return f"({column} BETWEEN {write(low)} AND {write(high)})", lambda row: low <= row[place] <= high
    if kind == "flipped":
        return f"{write(low)} < {column}", lambda row: low < row[place]
    return f"{column} {kind} {write(low)}", lambda row: COMPARISONS[kind](row[place], low)


@given(
    st.lists(comparisons(), min_size=1, max_size=4),
    st.tuples(*[st.lists(st.sampled_from([-1, 0, 1, 2, 3, 5]), max_size=7)] * len(T)),
)
def test_exactly_the_rows_that_meet_the_condition_are_read(
    asked: list[tuple[str, Any]], times: tuple[list[int], ...]
) -> None:
    timestamps_ms = dict(zip(T, times, strict=True))
    found = rows(TimedCluster(timestamps_ms), options(" AND ".join(text for text, _ in asked)))
    assert found == [
        (at.topic, at.partition, offset)
        for at, stamps in timestamps_ms.items()
        for offset, stamp in enumerate(stamps)
        if all(is_met((at.topic, at.partition, offset, stamp * 1000)) for _, is_met in asked)
    ]


def test_no_more_is_planned_than_the_condition_needs() -> None:
    cluster = TimedCluster({T[0]: [5, 1, 7, 8, 9], T[1]: [1, 2]})
    wanted = options("topic = 't' AND offset < 4 AND timestamp >= '1970-01-01T00:00:00.006Z'", subscribe="t")
    (planned,) = plan(wanted, cluster, pytest.fail, 0)
    assert planned[:4] == OffsetRange("t", 0, 2, 4)[:4]
    assert not plan(options("partition = 7", subscribe="t"), cluster, pytest.fail, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "partition",
        "partition = 0 OR offset = 1",
        "NOT partition = 0",
        "partition <> 0",
        "partition = 1.5",
        "partition = '1'",
        "partition = NULL",
        "partition = offset",
        "partition IN (SELECT 1)",
        "topic > 'a'",
        "topic = 3",
        "topic LIKE 'a%'",
        "t.offset = 3",
        "key = 'a'",
        "offset = 99999999999999999999",
        "timestamp > 'soon'",
        "timestamp > current_timestamp()",
        "offset = 1; offset = 2",
        "offset = ",
        "'a' = 'a'",
        "(" * 5000 + "offset = 1" + ")" * 5000,
    ],
)
def test_what_is_no_such_condition_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(InvalidOption, match=r"where .* is not understood; give comparisons of topic, partition, "):
        options(text)


def test_times_are_in_utc_where_they_name_no_zone() -> None:
    texts = [
        "timestamp >= '2026-03-01T12:00:00'",
        "timestamp >= TIMESTAMP '2026-03-01 12:00:00'",
        "timestamp >= '2026-03-01T13:00:00+01:00'",
        "timestamp >= 1772366400000",
    ]
    assert {condition(text).timestamp.first for text in texts} == {1_772_366_400_000}
    assert condition("timestamp > DATE '2026-03-01'").timestamp.first == 1_772_323_200_001


def test_rows_are_looked_at_only_where_offsets_do_not_say_enough() -> None:
    assert not condition("topic = 't' AND partition IN (1, 2) AND offset BETWEEN 3 AND 9").is_of_rows
    assert condition("offset IN (3, 9)").is_of_rows
    assert condition("timestamp = '2026-03-01'").is_of_rows


def test_a_stream_has_no_condition_and_pushdown_is_told_to_have_no_effect() -> None:
    with pytest.raises(InvalidOption, match=r"where is not valid in streaming queries: filter\(\) the DataFrame"):
        parse_stream_options({"servers": "b:1", "subscribe": "t", "where": "partition = 0"})
    (text,) = parse_options({"servers": "b:1", "subscribe": "t", "pushdown": "true"}).warnings
    assert text == "option pushdown has no effect: Spark filters by itself; where narrows what is read"


def test_the_last_number_of_64_bits_is_a_limit_like_others() -> None:
    cluster, most = TimedCluster({T[0]: [5, 2**63 - 1]}), 2**63 - 1
    assert [offset for _, _, offset in rows(cluster, options(f"offset <= {most}", subscribe="t"))] == [0, 1]
    assert [offset for _, _, offset in rows(cluster, options(f"timestamp = {most}", subscribe="t"))] == [1]
    assert rows(cluster, options(f"timestamp > {most}", subscribe="t")) == []


def test_a_lookup_is_not_asked_of_times_before_1970() -> None:
    asked = narrowing.asked_timestamps([OffsetRange("t", 0, 0, 9)], condition("timestamp >= '1969-12-31'"))
    assert asked == {}
    assert np.iinfo(np.int64).min < condition("timestamp >= '0001-01-01'").timestamp.first
