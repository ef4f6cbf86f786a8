"""Spark's own Kafka source reads our topics, in batches and as a stream, and gives the rows of our own source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compat.jars import KAFKA_OF_SPARK
from strandline.cli.cluster import EmbeddedCluster
from strandline.client.sync import Admin
from strandline.client.sync_producer import Producer
from support.spark import spark_session

PARTITIONS = 3
RECORDS = 600
LATER_RECORDS = 90
FIRST_MS = 1_700_000_000_000
TOPIC = "read-by-spark"

Load = Callable[..., Any]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three brokers of ours, and a topic with records."""
    cluster = EmbeddedCluster(tmp_path_factory.mktemp("cluster"), 3)
    try:
        cluster.start()
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, PARTITIONS, 3, {"retention.ms": "-1"})
        write(cluster.bootstrap_servers, TOPIC, 0, RECORDS)
        yield cluster.bootstrap_servers
    finally:
        cluster.stop(timeout_s=10)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    KAFKA_OF_SPARK.class_path()
    jars = ",".join(map(str, sorted(KAFKA_OF_SPARK.folder.glob("*.jar"))))
    with spark_session(tmp_path_factory.mktemp("spark"), spark__jars=jars) as session:
        yield session


def write(bootstrap: str, topic: str, first: int, count: int) -> None:
    """Some keys and values are null, no value is text, some records have headers; no two are alike."""
    with Producer(bootstrap, compression_type="zstd", linger_ms=50) as producer:
        for number in range(first, first + count):
            producer.send(
                topic,
                None if number % 11 == 0 else b"\xff\x00%d\r" % number,
                key=None if number % 7 == 0 else b"key %d" % number,
                partition=number % PARTITIONS,
                headers=[("n", b"%d" % number), ("empty", b"")] if number % 5 == 0 else [],
                timestamp_ms=FIRST_MS + number,
            )


@pytest.fixture
def loaded(spark: Any, bootstrap: str) -> Load:
    """loaded("kafka", option=value, …) → the rows, sorted by partition and offset."""

    def load(source: str, **options: str) -> list[tuple[Any, ...]]:
        reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap).options(**options)
        return rows_of(reader.load())

    return load


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: (row[2], row[3], row[4]))


def test_what_both_sources_read_is_alike(loaded: Load) -> None:
    theirs = loaded("kafka", subscribe=TOPIC, includeHeaders="true")
    assert theirs == loaded("strandline", subscribe=TOPIC, includeHeaders="true")
    assert len(theirs) == RECORDS
    numbers = [partition + PARTITIONS * offset for _, _, _, partition, offset, *_ in theirs]
    assert sorted(numbers) == list(range(RECORDS))
    for number, (key, value, topic, _, _, timestamp, _, headers) in zip(numbers, theirs, strict=True):
        assert topic == TOPIC
        assert (key is None, value is None) == (number % 7 == 0, number % 11 == 0)
        assert round(timestamp.timestamp() * 1000) == FIRST_MS + number
        expected = [("n", b"%d" % number), ("empty", b"")] if number % 5 == 0 else None
        assert (headers and [tuple(header) for header in headers]) == expected


def by_partition(*values: int) -> str:
    return json.dumps({TOPIC: dict(enumerate(values))})


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"startingOffsets": by_partition(10, -2, 150), "endingOffsets": by_partition(20, 5, -1)}, 10 + 5 + 50),
        ({"startingTimestamp": str(FIRST_MS + 300), "endingTimestamp": str(FIRST_MS + 360)}, 60),
        ({"startingOffsetsByTimestamp": by_partition(FIRST_MS + 300, FIRST_MS, FIRST_MS + 597)}, 100 + 200 + 1),
        ({"minPartitions": "8"}, RECORDS),
    ],
    ids=["offsets", "times", "times by partition", "more tasks than partitions"],
)
def test_parts_of_a_topic_are_the_same_parts(loaded: Load, options: dict[str, str], count: int) -> None:
    theirs = loaded("kafka", subscribe=TOPIC, **options)
    assert len(theirs) == count
    assert theirs == loaded("strandline", subscribe=TOPIC, **options)


def test_a_pattern_finds_the_topic(loaded: Load) -> None:
    assert loaded("kafka", subscribePattern="read-by-s.*") == loaded("strandline", subscribePattern="read-by-s.*")


def test_a_stream_goes_on_from_its_checkpoint(spark: Any, bootstrap: str, tmp_path: Path, loaded: Load) -> None:
    topic = f"{TOPIC}-streaming"
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS, 3)

    def stream() -> list[tuple[Any, ...]]:
        """All that the query has written, once it has read what there is."""
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        frame = source.options(subscribe=topic, startingOffsets="earliest", includeHeaders="true").load()
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(tmp_path / "written"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(120), "the stream has not come to its end"
        finally:
            query.stop()
        return rows_of(spark.read.parquet(str(tmp_path / "written")))

    for first, count in ((0, RECORDS), (RECORDS, LATER_RECORDS)):
        write(bootstrap, topic, first, count)
        found = stream()
        assert len(found) == first + count, "each record once"
    assert found == loaded("strandline", subscribe=topic, includeHeaders="true")
