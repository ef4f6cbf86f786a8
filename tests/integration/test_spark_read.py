"""Spark reads topics of a real cluster, exactly: `spark.read.format("strandline")` without registering anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from strandline import Admin, Producer
from strandline.cli.cluster import EmbeddedCluster
from strandline.spark_connector.errors import DataLoss
from strandline.spark_connector.options.source_options import parse_options
from strandline.spark_connector.reading.reader import plan_ranges, read_range

pytestmark = pytest.mark.spark

PARTITIONS = 3
RECORDS = 5_000
FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def served(spark_cluster: EmbeddedCluster) -> EmbeddedCluster:
    """The cluster, with `numbers` (three partitions, known records) and `empty`."""
    with Admin(bootstrap_servers=spark_cluster.bootstrap_servers) as admin:
        admin.create_topic("numbers", PARTITIONS, 3, {"min.insync.replicas": "2"})
        admin.create_topic("empty", 2, 3)
    with Producer(bootstrap_servers=spark_cluster.bootstrap_servers, compression_type="lz4") as producer:
        for number in range(RECORDS):
            send(producer, number)
        producer.flush()
    return spark_cluster


def send(producer: Producer, number: int) -> None:
    key, value, headers = expected(number)
    producer.send(
        "numbers",
        value,
        key=key,
        partition=number % PARTITIONS,
        headers=headers,
        timestamp_ms=FIRST_MS + number,
    )


def expected(number: int) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Key, value and headers of a record: some keys and values are null, no value is text, some have headers."""
    key = None if number % 7 == 0 else b"key %d" % (number % 100)
    value = None if number % 11 == 0 else b"\xff\x00%d\r" % number
    return key, value, [("n", b"%d" % number), ("empty", None)] if number % 5 == 0 else []


@pytest.fixture
def load(spark: Any, served: EmbeddedCluster) -> Any:
    """`load(topic, option=value, …)`: a DataFrame; names with dots are written with underscores twice."""

    def build(topic: str | None = "numbers", **options: str) -> Any:
        reader = spark.read.format("strandline").option("servers", served.bootstrap_servers)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader.load(topic) if topic is not None else reader.load()

    return build


def offsets(frame: Any) -> dict[int, list[int]]:
    """partition → offsets in the order of the rows' offsets."""
    found: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").collect():
        found.setdefault(row.partition, []).append(row.offset)
    return {partition: sorted(rows) for partition, rows in sorted(found.items())}


def whole(first: int, end: int) -> dict[int, list[int]]:
    return {partition: list(range(first, end)) for partition in range(PARTITIONS)}


PER_PARTITION = [len(range(partition, RECORDS, PARTITIONS)) for partition in range(PARTITIONS)]


def test_every_record_arrives_once_and_unaltered(load: Any) -> None:
    rows = load(includeHeaders="true").collect()
    assert len(rows) == RECORDS
    seen = set()
    for row in rows:
        number = row.offset * PARTITIONS + row.partition
        key, value, headers = expected(number)
        assert (row.key, row.value) == (key, value)
        assert (row.headers and [tuple(each) for each in row.headers]) == (headers or None)
        assert row.topic == "numbers"
        assert row.timestampType == 0
        seen.add(number)
    assert len(seen) == RECORDS


def test_timestamps_are_those_of_the_producer(load: Any) -> None:
    from pyspark.sql.functions import col, unix_millis

    late = load().where(unix_millis(col("timestamp")) != FIRST_MS + col("offset") * PARTITIONS + col("partition"))
    assert late.count() == 0


def test_an_empty_topic_has_no_rows(load: Any) -> None:
    assert load("empty").count() == 0
    assert load(None, subscribePattern="nothing.*").count() == 0


def test_ranges_of_offsets_and_times(load: Any) -> None:
    start = '{"numbers":{"0":10,"1":-2,"2":100}}'
    end = '{"numbers":{"0":20,"1":3,"2":101}}'
    assert offsets(load(startingOffsets=start, endingOffsets=end)) == {
        0: list(range(10, 20)),
        1: [0, 1, 2],
        2: [100],
    }
    one = load(startingTimestamp=str(FIRST_MS + 30), endingTimestamp=str(FIRST_MS + 60))
    assert offsets(one) == whole(10, 20)


def test_splitting_changes_the_tasks_but_not_the_rows(load: Any) -> None:
    many = load(minPartitions="10", maxRecordsPerPartition="700")
    assert many.rdd.getNumPartitions() == 9  # the minimum is a hint: three equal partitions get a third of it each
    assert offsets(many) == {number: list(range(count)) for number, count in enumerate(PER_PARTITION)}


def test_only_the_wanted_columns_come_in_their_order(load: Any) -> None:
    frame = load(columns="offset,headers,partition")
    assert frame.columns == ["offset", "headers", "partition"]
    rows = frame.where("offset < 2").collect()
    found = {(row.partition, row.offset): row.headers and [tuple(each) for each in row.headers] for row in rows}
    assert found == {
        (number % PARTITIONS, number // PARTITIONS): expected(number)[2] or None for number in range(2 * PARTITIONS)
    }
    assert load(columns="offset").count() == RECORDS


def test_a_read_begins_and_ends_relative_to_what_there_is(load: Any) -> None:
    lasts = {number: list(range(count - 10, count)) for number, count in enumerate(PER_PARTITION)}
    assert offsets(load(startingOffsets="-10")) == lasts
    start = '{"numbers":{"2":"-3","default":20}}'
    assert offsets(load(startingOffsets=start, endingOffsets='{"numbers":{"2":-1},"default":22}')) == {
        0: [20, 21],
        1: [20, 21],
        2: list(range(PER_PARTITION[2] - 3, PER_PARTITION[2])),
    }
    day = "2023-11-14T23:13:20.030+01:00"  # FIRST_MS + 30
    assert offsets(load(startingTimestamp=day, endingTimestamp="2023-11-14T22:13:20.060")) == whole(10, 20)
    assert load(endingTimestamp="-1d").count() == RECORDS
    assert load(startingTimestamp="-1d", startingOffsetsByTimestampStrategy="latest").count() == 0


def test_only_the_assigned_partitions_are_read(load: Any) -> None:
    assert list(offsets(load(None, assign='{"numbers":[2]}'))) == [2]


def test_what_is_not_there_is_an_error_with_a_remedy(load: Any) -> None:
    from pyspark.errors import PySparkException

    for options, text in (
        ({"topic": "numers"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"startingOffsets": '{"numbers":{"0":1}}'}, "Use -1 for latest, -2 for earliest"),
        ({"endingOffsets": '{"numbers":{"0":999999,"1":0,"2":0}}'}, f"beyond its end {PER_PARTITION[0]}: it holds"),
        ({"startingTimestamp": str(FIRST_MS * 2)}, "startingOffsetsByTimestampStrategy"),
    ):
        with pytest.raises(PySparkException) as caught:
            load(**options).count()
        assert text in str(caught.value)
        assert "Traceback" not in str(caught.value)


def test_nobody_at_the_address_is_told_in_one_sentence(load: Any) -> None:
    from pyspark.errors import PySparkException

    nobody = {"servers": "127.0.0.1:1", "kafka.bootstrap.timeout.ms": "1500"}
    with pytest.raises(PySparkException) as caught:
        load(**nobody).count()
    sentence = (
        r"\[STRANDLINE_READ_FAILED\] no broker has answered within 1500 ms .*: 127\.0\.0\.1:1: Connection refused;"
    )
    assert re.search(sentence, str(caught.value)) and "Traceback" not in str(caught.value)


def test_a_topic_is_no_table_of_the_catalog(spark: Any, served: EmbeddedCluster) -> None:
    from pyspark.errors import PySparkException

    options = f"USING strandline OPTIONS (servers '{served.bootstrap_servers}', subscribe 'numbers')"
    with pytest.raises(PySparkException, match=r"\[UNSUPPORTED_TABLE\] .*CREATE TEMPORARY VIEW") as caught:
        spark.sql(f"CREATE TABLE numbers_table {options}")
    assert "Traceback" not in str(caught.value)


def test_allowed_loss_reads_what_there_is(load: Any) -> None:
    frame = load(endingOffsets='{"numbers":{"0":999999,"1":0,"2":0}}', failOnDataLoss="false")
    assert frame.count() == PER_PARTITION[0]


def test_sql_sees_the_source(spark: Any, served: EmbeddedCluster) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW numbers USING strandline "
        f"OPTIONS (servers '{served.bootstrap_servers}', subscribe 'numbers')"
    )
    row = spark.sql("SELECT count(*) AS n, count(value) AS v, max(offset) AS last FROM numbers").first()
    nulls = len(range(0, RECORDS, 11))
    assert (row.n, row.v, row.last) == (RECORDS, RECORDS - nulls, max(PER_PARTITION) - 1)


def test_a_condition_reads_less_and_returns_what_a_filter_does(spark: Any, load: Any) -> None:
    wanted = f"partition IN (0, 2) AND offset >= 100 AND offset < 110 AND timestamp >= {FIRST_MS + 309}"
    frame = load(where=wanted)
    filtered = load().where(wanted.replace(f"{FIRST_MS + 309}", f"timestamp_millis({FIRST_MS + 309})"))
    found, expected = ({(row.partition, row.offset) for row in each.collect()} for each in (frame, filtered))
    assert found == expected == {(number, offset) for number in (0, 2) for offset in range(103, 110)}
    assert frame.rdd.getNumPartitions() == 2


def test_filters_of_one_query_do_not_count_for_another(spark: Any, load: Any) -> None:
    """Spark keeps one plan of a Python source for all scans of a DataFrame."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(pushdown="true", columns="partition")
        first, second = (frame.where(f"partition = {number}") for number in (0, 1))
        both = {row.partition: row["count"] for row in first.union(second).groupBy("partition").count().collect()}
        assert both == {0: PER_PARTITION[0], 1: PER_PARTITION[1]}
        assert frame.count() == RECORDS
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_task_does_not_take_a_topic_created_anew_for_the_one_that_was_planned(served: EmbeddedCluster) -> None:
    options = parse_options({"servers": served.bootstrap_servers, "subscribe": "anew"})
    with Admin(bootstrap_servers=served.bootstrap_servers) as admin:
        for value in (b"old", b"new"):
            admin.create_topic("anew", 1, 3)
            with Producer(bootstrap_servers=served.bootstrap_servers) as producer:
                producer.send("anew", value).result()
            if value == b"old":
                (planned,) = plan_ranges(options, print)
                (rows,) = read_range(options, planned, print)
                assert rows["value"].to_pylist() == [b"old"]
                admin.delete_topic("anew")
    with pytest.raises(DataLoss, match="'anew' was deleted and created anew after the read was planned"):
        list(read_range(options, planned, print))
    with Admin(bootstrap_servers=served.bootstrap_servers) as admin:
        admin.delete_topic("anew")


def test_records_that_are_not_committed_are_never_read(spark: Any, new_cluster: Callable[..., EmbeddedCluster]) -> None:
    """Both followers stand still: what the leader acknowledges alone stays above the high watermark."""
    # Neither the controller nor the leader is to notice, however long Spark takes: alone in the ISR the leader commits.
    cluster = new_cluster(3, properties={"replica.lag.time.max.ms": "3600000"}, session_timeout_ms=60_000)
    cluster.start()
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topic("half", configs={"min.insync.replicas": "2"}, assignments={0: [1, 2, 3]})
    leader = str(cluster.address(1))

    def append(acks: str, values: range) -> None:
        with Producer(bootstrap_servers=leader, acks=acks) as producer:
            for future in [producer.send("half", b"%d" % value) for value in values]:
                future.result()

    append("all", range(10))
    cluster.pause_broker(2)
    cluster.pause_broker(3)
    try:
        append("1", range(10, 20))
        frame = spark.read.format("strandline").option("servers", leader).load("half")
        assert sorted(int(bytes(row.value)) for row in frame.collect()) == list(range(10))
    finally:
        cluster.resume_broker(2)
        cluster.resume_broker(3)
