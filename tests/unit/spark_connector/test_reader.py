"""Planning and reading over a cluster made of real record batches in memory."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from crc32c import crc32c
from pyspark import TaskContext

from strandline.protocol.types import NO_TOPIC_ID, TopicPartition
from strandline.spark_connector.errors import CorruptRecords, DataLoss, ReadTimeout, UnknownTopic
from strandline.spark_connector.options.request import SourceOptions
from strandline.spark_connector.options.source_options import parse_options
from strandline.spark_connector.reading import arrow
from strandline.spark_connector.reading.planning import OffsetRange
from strandline.spark_connector.reading.reader import Warn, read
from strandline.spark_connector.reading.reader import plan as plan_at
from support.compacted import batches_of, compacted_log
from support.memory_source import T0, MemoryCluster


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def warnings() -> list[str]:
    return []


def options(**given: str) -> SourceOptions:
    return parse_options({"servers": "b:1", "subscribe": "t"} | given)


NOW_MS = 1_000_000


def plan(given: SourceOptions, cluster: MemoryCluster, warn: Warn) -> list[OffsetRange]:
    return plan_at(given, cluster, warn, NOW_MS)


def rows(
    cluster: MemoryCluster, wanted: OffsetRange, given: SourceOptions, warnings: list[str]
) -> list[tuple[int, Any]]:
    found = []
    for batch in read(given, wanted, cluster, warnings.append):
        assert batch.schema.equals(arrow.arrow_schema(given.columns))
        found += [(row["offset"], row["value"]) for row in batch.to_pylist()]
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_a_range_is_cut_within_batches_at_both_ends(cluster: MemoryCluster, warnings: list[str], codec: str) -> None:
    for base in (0, 4, 8):
        cluster.add(T0, base, [b"%d" % (base + index) for index in range(4)], codec)
    found = rows(cluster, OffsetRange("t", 0, 2, 9), options(), warnings)
    assert found == [(offset, b"%d" % offset) for offset in range(2, 9)]


def test_neighbouring_ranges_share_no_record_and_leave_none_out(cluster: MemoryCluster, warnings: list[str]) -> None:
    for base in range(0, 60, 6):
        cluster.add(T0, base, [b"v"] * 6)
    ranges = plan(options(minPartitions="7"), cluster, warnings.append)
    assert len(ranges) == 7
    found = [offset for each in ranges for offset, _ in rows(cluster, each, options(), warnings)]
    assert found == list(range(60))


def test_a_range_ends_by_position_where_compaction_left_gaps(cluster: MemoryCluster, warnings: list[str]) -> None:
    cluster.add(T0, 0, [b"a", b"b"])
    cluster.add(T0, 10, [b"c"])
    cluster.add(T0, 20, [b"d"])
    assert rows(cluster, OffsetRange("t", 0, 5, 15), options(), warnings) == [(10, b"c")]
    assert rows(cluster, OffsetRange("t", 0, 2, 10), options(), warnings) == []
    assert cluster.fetches < 5


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("batches_per_fetch", [1, 3])
def test_a_compacted_log_is_read_without_holes_however_it_is_split(
    cluster: MemoryCluster, warnings: list[str], codec: str, batches_per_fetch: int
) -> None:
    """Empty batches, gaps, tombstones, batches whose base timestamp is a delete horizon."""
    _, log, kept = compacted_log(codec)
    cluster.batches[T0] = batches_of(log)
    cluster.high_watermarks[T0] = log.log_end_offset
    cluster.batches_per_fetch = batches_per_fetch
    wanted = [(each.offset, each.timestamp_ms, each.key, each.value) for each in kept]
    for parts in (1, 7, 100):
        found = []
        for part in plan(options(minPartitions=str(parts)), cluster, warnings.append):
            for batch in read(options(), part, cluster, warnings.append):
                found += [
                    (row["offset"], round(row["timestamp"].timestamp() * 1000), row["key"], row["value"])
                    for row in batch.to_pylist()
                ]
        assert found == wanted
    for offset in range(log.log_end_offset):
        found = rows(cluster, OffsetRange("t", 0, offset, offset + 1), options(), warnings)
        assert found == [(each.offset, each.value) for each in kept if each.offset == offset]
    assert warnings == []


def test_a_range_that_cannot_be_fetched_in_time_is_an_error(cluster: MemoryCluster, warnings: list[str]) -> None:
    cluster.add(T0, 0, [b"a"])
    cluster.high_watermarks[T0] = 5
    with pytest.raises(ReadTimeout, match=r"t-0 from offset 1.*pollTimeoutMs"):
        rows(cluster, OffsetRange("t", 0, 0, 5), options(), warnings)


@pytest.mark.parametrize(
    ("given", "of_spark", "expected"),
    [
        ({}, None, 120_000),
        ({}, "7min", 420_000),
        ({}, "300", 300_000),
        ({}, "soon", 120_000),
        ({"kafkaConsumer.pollTimeoutMs": "55"}, "7min", 55),
    ],
)
def test_a_task_waits_as_long_as_spark_waits_for_its_network(
    cluster: MemoryCluster,
    warnings: list[str],
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    of_spark: str | None,
    expected: int,
) -> None:
    if of_spark is not None:
        task = SimpleNamespace(getLocalProperty={"spark.network.timeout": of_spark}.get)
        monkeypatch.setattr(TaskContext, "_taskContext", task)
    cluster.add(T0, 0, [b"a"])
    waited: list[int] = []
    fetch = cluster.fetch
    cluster.fetch = lambda partition, offset, timeout_ms: waited.append(timeout_ms) or fetch(partition, offset, 0)
    assert rows(cluster, OffsetRange("t", 0, 0, 1), options(**given), warnings) == [(0, b"a")]
    assert waited == [expected]


def test_records_deleted_since_the_plan_are_an_error_or_a_warning(cluster: MemoryCluster, warnings: list[str]) -> None:
    cluster.add(T0, 0, [b"a", b"b", b"c"])
    cluster.add(T0, 3, [b"d"])
    cluster.log_start[T0] = 2
    with pytest.raises(DataLoss, match="failOnDataLoss"):
        rows(cluster, OffsetRange("t", 0, 0, 4), options(), warnings)
    assert rows(cluster, OffsetRange("t", 0, 0, 4), options(failOnDataLoss="false"), warnings) == [(2, b"c"), (3, b"d")]
    assert len(warnings) == 1
    assert rows(cluster, OffsetRange("t", 0, 0, 1), options(failOnDataLoss="false"), warnings) == []
    cluster.log_start[T0], cluster.high_watermarks[T0] = 0, 2
    assert rows(cluster, OffsetRange("t", 0, 3, 4), options(failOnDataLoss="false"), warnings) == []


def test_what_is_gone_since_a_dataframe_was_planned_is_advised_to_be_loaded_again_first(
    cluster: MemoryCluster, warnings: list[str]
) -> None:
    """A DataFrame is planned once: that its plan is old is more likely than that something is wrong."""
    cluster.add(T0, 0, [b"a", b"b", b"c"])
    cluster.topic_ids["t"] = b"\x01" * 16
    (planned,) = plan(options(), cluster, warnings.append)
    cluster.log_start[T0] = 2
    advice = r"KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE.*planned once.*load\(\) it again.*failOnDataLoss to false"
    with pytest.raises(DataLoss, match=advice):
        rows(cluster, planned, options(), warnings)
    cluster.topic_ids["t"] = b"\x02" * 16
    with pytest.raises(DataLoss, match=advice):
        rows(cluster, planned, options(), warnings)


def test_large_ranges_come_in_batches_of_about_ten_thousand_rows(cluster: MemoryCluster, warnings: list[str]) -> None:
    for base in range(0, 24_000, 1000):
        cluster.add(T0, base, [b"v"] * 1000)
    cluster.batches_per_fetch = 24
    batches = list(read(options(), OffsetRange("t", 0, 0, 24_000), cluster, warnings.append))
    assert [batch.num_rows for batch in batches] == [10_000, 10_000, 4_000]


def test_small_fetches_are_put_together(cluster: MemoryCluster, warnings: list[str]) -> None:
    for base in range(0, 6_000, 100):
        cluster.add(T0, base, [b"v"] * 100)
    batches = list(read(options(), OffsetRange("t", 0, 0, 6_000), cluster, warnings.append))
    assert [batch.num_rows for batch in batches] == [2_600, 2_600, 800]


def test_large_records_come_in_batches_of_some_megabytes(cluster: MemoryCluster, warnings: list[str]) -> None:
    cluster.batches_per_fetch = 100
    for base in range(60):
        cluster.add(T0, base, [bytes(1 << 20)], "none" if base % 3 else "lz4")
    batches = list(read(options(), OffsetRange("t", 0, 0, 60), cluster, warnings.append))
    assert sum(batch.num_rows for batch in batches) == 60
    assert max(batch.nbytes for batch in batches) < arrow.BYTES_PER_BATCH + (1 << 20) + 1000


def test_tombstones_and_headers_arrive(cluster: MemoryCluster, warnings: list[str]) -> None:
    cluster.add(T0, 0, [None])
    (batch,) = read(options(includeHeaders="true"), OffsetRange("t", 0, 0, 1), cluster, warnings.append)
    assert batch.to_pylist()[0]["value"] is None
    assert batch.to_pylist()[0]["headers"] is None


def test_only_the_wanted_columns_are_read_in_the_order_in_which_they_are_named(
    cluster: MemoryCluster, warnings: list[str]
) -> None:
    cluster.add(T0, 0, [b"a", b"b", b"c"], "lz4")
    cluster.add(T0, 3, [b"d"])
    wanted = OffsetRange("t", 0, 1, 4)
    (batch,) = read(options(columns="value,offset,partition"), wanted, cluster, warnings.append)
    assert batch.schema.equals(arrow.arrow_schema(("value", "offset", "partition")))
    assert [tuple(row.values()) for row in batch.to_pylist()] == [(b"b", 1, 0), (b"c", 2, 0), (b"d", 3, 0)]
    (batch,) = read(options(columns="topic", includeHeaders="true"), wanted, cluster, warnings.append)
    assert batch.to_pylist() == [{"topic": "t", "headers": None}] * 3


def test_values_are_not_looked_at_where_nobody_wants_them(cluster: MemoryCluster, warnings: list[str]) -> None:
    cluster.add(T0, 0, [b"value"])
    batch = bytearray(cluster.batches[T0][0])
    batch[batch.index(b"value") - 1] = 126  # a length that leaves its record
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    cluster.batches[T0][0] = bytes(batch)
    (found,) = read(options(columns="offset,key"), OffsetRange("t", 0, 0, 1), cluster, warnings.append)
    assert found.to_pylist() == [{"offset": 0, "key": b"k"}]
    with pytest.raises(CorruptRecords):
        list(read(options(columns="value"), OffsetRange("t", 0, 0, 1), cluster, warnings.append))


def test_damaged_records_are_an_error(cluster: MemoryCluster, warnings: list[str]) -> None:
    cluster.add(T0, 0, [b"value"])
    damaged = bytearray(cluster.batches[T0][0])
    damaged[-3] ^= 1
    cluster.batches[T0][0] = bytes(damaged)
    with pytest.raises(CorruptRecords, match="CRC"):
        rows(cluster, OffsetRange("t", 0, 0, 1), options(), warnings)


# --- plan --------------------------------------------------------------------------------------------------------


def test_the_plan_ends_at_the_high_watermark_even_if_the_log_is_longer(
    cluster: MemoryCluster, warnings: list[str]
) -> None:
    cluster.add(T0, 0, [b"a"] * 10)
    cluster.high_watermarks[T0] = 7
    assert plan(options(), cluster, warnings.append) == [OffsetRange("t", 0, 0, 7)]


def test_several_topics_and_patterns(cluster: MemoryCluster, warnings: list[str]) -> None:
    for name in ("a1", "a2", "b1"):
        cluster.add(TopicPartition(name, 0), 0, [b"v"])
    found = plan(parse_options({"servers": "b:1", "subscribePattern": "a."}), cluster, warnings.append)
    assert [each.topic for each in found] == ["a1", "a2"]
    for pattern, topics in (("1", ["a1", "b1"]), ("^a", ["a1", "a2"]), ("^a$|^b.$", ["b1"]), ("^1|a$", [])):
        found = plan(parse_options({"servers": "b:1", "subscribePattern": pattern}), cluster, warnings.append)
        assert [each.topic for each in found] == topics, "at any place of the name, as by Spark's Kafka source"
    found = plan(options(subscribe="b1,a1"), cluster, warnings.append)
    assert [each.topic for each in found] == ["a1", "b1"]


def test_neighbouring_tasks_read_from_different_leaders(cluster: MemoryCluster, warnings: list[str]) -> None:
    for number, leader in enumerate([1, 1, 2, 2]):
        cluster.add(TopicPartition("t", number), 0, [b"v"])
        cluster.leading[TopicPartition("t", number)] = leader
    assert [each.partition for each in plan(options(), cluster, warnings.append)] == [0, 2, 1, 3]


def test_a_misspelt_topic_or_partition_fails(cluster: MemoryCluster, warnings: list[str]) -> None:
    cluster.add(T0, 0, [b"v"])
    with pytest.raises(UnknownTopic, match="'x'"):
        plan(options(subscribe="t,x"), cluster, warnings.append)
    with pytest.raises(UnknownTopic, match="t-7"):
        plan(parse_options({"servers": "b:1", "assign": '{"t":[0,7]}'}), cluster, warnings.append)


def test_times_are_looked_up_for_all_partitions(cluster: MemoryCluster, warnings: list[str]) -> None:
    cluster.add(T0, 0, [b"v"] * 9)
    cluster.timed = {T0: 4}
    assert plan(options(startingTimestamp="5"), cluster, warnings.append) == [OffsetRange("t", 0, 4, 9)]
    assert plan(options(endingTimestamp="5"), cluster, warnings.append) == [OffsetRange("t", 0, 0, 4)]


def test_a_time_ago_counts_from_when_the_query_is_planned(cluster: MemoryCluster, warnings: list[str]) -> None:
    cluster.add(T0, 0, [b"v"] * 9)
    asked: list[dict[TopicPartition, int]] = []

    def offsets_at(timestamps_ms: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        asked.append(timestamps_ms)
        return {T0: 2 if len(asked) == 1 else 6}

    cluster.offsets_at = offsets_at
    given = options(startingTimestamp="-10m", endingOffsetsByTimestamp='{"t":{"default":"-5s"}}')
    assert plan(given, cluster, warnings.append) == [OffsetRange("t", 0, 2, 6)]
    assert asked == [{T0: NOW_MS - 600_000}, {T0: NOW_MS - 5_000}]


def test_a_time_before_1970_is_the_beginning_of_time(cluster: MemoryCluster, warnings: list[str]) -> None:
    cluster.add(T0, 0, [b"v"] * 9)
    asked = []
    cluster.offsets_at = lambda timestamps_ms: asked.append(timestamps_ms) or {T0: 0}
    plan(options(startingTimestamp="-99d"), cluster, warnings.append)
    assert asked == [{T0: 0}]


def test_the_last_offsets_of_each_partition_are_planned(cluster: MemoryCluster, warnings: list[str]) -> None:
    one = TopicPartition("t", 1)
    cluster.add(T0, 0, [b"v"] * 9)
    cluster.add(one, 0, [b"v"] * 9)
    cluster.log_start[one] = 7
    assert plan(options(startingOffsets="-3"), cluster, warnings.append) == [
        OffsetRange("t", 0, 6, 9),
        OffsetRange("t", 1, 7, 9),
    ]
    given = options(startingOffsets='{"t":{"0":1,"default":"earliest"}}', endingOffsets='{"default":"-4"}')
    assert plan(given, cluster, warnings.append) == [OffsetRange("t", 0, 1, 5)]
    assert warnings == []


@pytest.mark.parametrize("is_shorter", [False, True])
def test_a_topic_that_was_created_anew_is_not_read_as_the_planned_one(
    cluster: MemoryCluster, warnings: list[str], is_shorter: bool
) -> None:
    cluster.add(T0, 0, [b"old"] * 4)
    cluster.topic_ids["t"] = b"\x01" * 16
    planned = plan(options(minPartitions="2"), cluster, warnings.append)
    assert [each.topic_id for each in planned] == [b"\x01" * 16] * 2
    cluster.topic_ids["t"] = b"\x02" * 16
    cluster.batches.clear()
    cluster.add(T0, 0, [b"new"] * (1 if is_shorter else 4))
    with pytest.raises(DataLoss, match=r"'t' was deleted and created anew .* \[2, 4\) of its old partition 0 are gone"):
        rows(cluster, planned[1], options(), warnings)
    assert warnings == []
    assert rows(cluster, planned[1], options(failOnDataLoss="false"), warnings) == []
    assert len(warnings) == 1 and warnings[0].endswith("; nothing of the new topic is read")


def test_a_topic_created_anew_during_a_task_ends_it_with_what_was_read(
    cluster: MemoryCluster, warnings: list[str]
) -> None:
    cluster.add(T0, 0, [b"old"] * 2)
    cluster.add(T0, 2, [b"new"] * 2)
    cluster.batches_per_fetch = 1
    ids = iter([b"\x01" * 16] * 2 + [b"\x02" * 16])
    cluster.topic_id = lambda topic: next(ids)
    (planned,) = plan(options(), cluster, warnings.append)
    found = rows(cluster, planned, options(failOnDataLoss="false"), warnings)
    assert found == [(0, b"old"), (1, b"old")]
    assert "offsets [2, 4)" in warnings[0]


def test_where_the_cluster_knows_no_topic_ids_everything_is_read(cluster: MemoryCluster, warnings: list[str]) -> None:
    cluster.topic_ids["t"] = b"\x01" * 16
    cluster.add(T0, 0, [b"a", b"b"])
    (planned,) = plan(options(), cluster, warnings.append)
    cluster.topic_ids.clear()
    assert len(rows(cluster, planned, options(), warnings)) == 2
    cluster.topic_ids["t"] = b"\x02" * 16
    assert len(rows(cluster, planned._replace(topic_id=NO_TOPIC_ID), options(), warnings)) == 2
