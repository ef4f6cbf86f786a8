"""Spark writes topics of a real cluster: batches and streams, what is refused and how."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline import Admin
from strandline.cli.cluster import EmbeddedCluster
from strandline.protocol.messages import ConfigResource

pytestmark = pytest.mark.spark

SCHEMA = (
    "key binary, value binary, topic string, partition int, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)
NUMBERS = itertools.count()
SOME_DAY = datetime.datetime(2026, 3, 1, 12, 0, 0, 123_000)


@pytest.fixture
def topic(spark_cluster: EmbeddedCluster) -> Iterator[str]:
    name = f"sink-{next(NUMBERS)}"
    with Admin(bootstrap_servers=spark_cluster.bootstrap_servers) as admin:
        admin.create_topic(name, 3, 3)
        yield name
        admin.delete_topic(name)


@pytest.fixture
def read(spark: Any, spark_cluster: EmbeddedCluster, topic: str) -> Callable[[], list[Any]]:
    def rows() -> list[Any]:
        reader = spark.read.format("strandline").option("servers", spark_cluster.bootstrap_servers)
        return reader.option("includeHeaders", "true").load(topic).orderBy("partition", "offset").collect()

    return rows


@pytest.fixture
def write(spark_cluster: EmbeddedCluster) -> Callable[..., None]:
    def save(frame: Any, mode: str = "append", **options: str) -> None:
        writer = frame.write.format("strandline").option("servers", spark_cluster.bootstrap_servers)
        writer.options(**options).mode(mode).save()

    return save


def test_every_column_arrives_as_it_was_written(
    spark: Any, topic: str, read: Callable[[], list[Any]], write: Callable[..., None]
) -> None:
    rows = [
        (b"k1", b"v1", topic, 2, SOME_DAY, [("a", b"1"), ("b", None)]),
        (None, b"\xff\x00", topic, 2, SOME_DAY + datetime.timedelta(milliseconds=1), None),
        (b"k1", None, topic, 2, SOME_DAY, []),
    ]
    write(spark.createDataFrame(rows, SCHEMA).coalesce(1), includeHeaders="true")
    found = [
        (row.key, row.value, row.partition, row.timestamp, row.headers and [tuple(each) for each in row.headers])
        for row in read()
    ]
    assert found == [
        (b"k1", b"v1", 2, SOME_DAY, [("a", b"1"), ("b", None)]),
        (None, b"\xff\x00", 2, SOME_DAY + datetime.timedelta(milliseconds=1), None),
        (b"k1", None, 2, SOME_DAY, None),
    ]


def test_rows_of_one_key_go_to_one_partition_and_the_option_names_the_topic(
    spark: Any, topic: str, read: Callable[[], list[Any]], write: Callable[..., None]
) -> None:
    frame = spark.range(3_000).selectExpr(
        "cast(id % 7 as string) as key", "cast(id as string) as value", "'nowhere' as topic"
    )
    write(frame, topic=topic, **{"kafka.compression.type": "zstd"})
    rows = read()
    assert sorted(int(row.value) for row in rows) == list(range(3_000))
    partitions: dict[bytes, set[int]] = {}
    for row in rows:
        partitions.setdefault(bytes(row.key), set()).add(row.partition)
    assert {len(each) for each in partitions.values()} == {1}


def test_a_stream_goes_from_one_topic_to_another(
    spark: Any, spark_cluster: EmbeddedCluster, topic: str, read: Callable[[], list[Any]], tmp_path: Path
) -> None:
    def copy(first: int, end: int) -> None:
        numbers = spark.range(first, end).selectExpr("cast(id as string) as value")
        writer = numbers.write.format("strandline").option("servers", spark_cluster.bootstrap_servers)
        writer.option("topic", f"{topic}-from").mode("append").save()
        source = spark.readStream.format("strandline").option("servers", spark_cluster.bootstrap_servers)
        frame = source.option("startingOffsets", "earliest").load(f"{topic}-from").drop("topic", "partition")
        query = frame.writeStream.format("strandline").option("servers", spark_cluster.bootstrap_servers)
        query = query.option("topic", topic).option("checkpointLocation", str(tmp_path / "checkpoint"))
        running = query.trigger(availableNow=True).start()
        try:
            assert running.awaitTermination(120)
        finally:
            running.stop()

    copy(0, 500)
    copy(500, 600)
    assert sorted(int(row.value) for row in read()) == list(range(600))


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (["'x' as key"], {}, "Required attribute 'value' not found"),
        (["1 as value"], {}, "value attribute unsupported type int"),
        (["'x' as value", "1.5 as key"], {}, "key attribute unsupported type"),
        (["'x' as value", "cast(null as string) as topic"], {"topic": ""}, "Option 'topic' is empty"),
        (["'x' as value"], {"kafka.value.serializer": "x"}, "not supported"),
        (["'x' as value", "-1 as partition"], {}, "partition -1 is negative"),
        (["'x' as value", "7 as partition"], {"kafka.max.block.ms": "500"}, "STRANDLINE_WRITE_FAILED.*no partition 7"),
    ],
)
def test_what_cannot_be_written_is_refused(
    spark: Any, topic: str, write: Callable[..., None], columns: list[str], options: dict[str, str], text: str
) -> None:
    with pytest.raises(Exception, match=text):
        write(spark.range(1).selectExpr(*columns), **{"topic": topic, **options})


def test_rows_need_a_topic_and_topics_are_not_overwritten(spark: Any, topic: str, write: Callable[..., None]) -> None:
    with pytest.raises(Exception, match="topic option required when no 'topic' attribute is present"):
        write(spark.range(1).selectExpr("'x' as value"))
    with pytest.raises(Exception, match=r"KAFKA_NULL_TOPIC_IN_DATA.*null topic present in the data"):
        write(spark.range(1).selectExpr("'x' as value", "cast(null as string) as topic"))
    with pytest.raises(Exception, match="UNSUPPORTED_SAVE_MODE"):
        write(spark.range(1).selectExpr("'x' as value"), mode="overwrite", topic=topic)


@pytest.mark.parametrize("is_exactly_once", ["true", "false"])
def test_small_rows_go_to_a_topic_that_takes_only_small_batches(
    spark: Any, spark_cluster: EmbeddedCluster, topic: str, write: Callable[..., None], is_exactly_once: str
) -> None:
    """Many rows for a partition and few; one row that is too large by itself is refused as before."""
    with Admin(bootstrap_servers=spark_cluster.bootstrap_servers) as admin:
        admin.alter_configs(ConfigResource.TOPIC, topic, {"max.message.bytes": "4000"})
    for count, columns in ((20_000, "0 as partition"), (150, "1 as partition"), (150, "cast(null as int) partition")):
        frame = spark.range(0, count, 1, 1).selectExpr("lpad(id, 60, 'x') as value", columns)
        write(frame, topic=topic, exactlyOnce=is_exactly_once)
    reader = spark.read.format("strandline").option("servers", spark_cluster.bootstrap_servers)
    assert reader.load(topic).count() == 20_300
    large = spark.range(1).selectExpr("repeat('x', 5000) as value")
    with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
        write(large, topic=topic, exactlyOnce=is_exactly_once)


def test_only_a_write_that_can_be_repeated_leaves_a_group_behind(
    spark: Any, spark_cluster: EmbeddedCluster, topic: str, read: Callable[[], list[Any]], write: Callable[..., None]
) -> None:
    frame = spark.range(100).selectExpr("cast(id as string) as value")
    with Admin(bootstrap_servers=spark_cluster.bootstrap_servers) as admin:

        def groups() -> set[str]:
            names = {each.group_id for each in admin.list_groups().groups}
            return {name for name in names if name.startswith("strandline-sink.write.")}

        before = groups()
        write(frame, topic=topic)
        # In one task: Spark says that a write has failed while other tasks of it still begin, each with a mark.
        with pytest.raises(Exception, match="no partition 7"):
            write(frame.selectExpr("value", "7 as partition").coalesce(1), topic=topic)
        assert groups() <= before, "groups of deleted topics go meanwhile, and none comes"
        for _ in range(2):
            write(frame, topic=topic, writeId=topic)
        assert groups() - before == {f"strandline-sink.write.{topic}"}
    assert len(read()) == 200


def test_a_write_that_is_repeated_without_its_rows_or_to_another_topic_is_an_error(
    spark: Any, spark_cluster: EmbeddedCluster, topic: str, write: Callable[..., None]
) -> None:
    """One that was not begun may have no rows; one whose topic was deleted may go elsewhere."""
    frame, other = spark.range(100).selectExpr("cast(id as string) as value"), f"{topic}-other"
    write(frame.where("value = 'none'"), topic=topic, writeId=topic, writeVersion="1")
    write(frame, topic=topic, writeId=topic, writeVersion="1")
    with pytest.raises(Exception, match=rf"STRANDLINE_ROWS_CHANGED.*wrote rows to '{topic}' and has none of it now"):
        write(frame.where("value = 'none'"), topic=topic, writeId=topic, writeVersion="1")
    write(frame.where("value = 'none'"), topic=topic, writeId=topic, writeVersion="2")
    with pytest.raises(Exception, match=rf"STRANDLINE_ROWS_CHANGED.*wrote rows to '{topic}' and has none of it now"):
        write(frame, topic=other, writeId=topic, writeVersion="1")
    with Admin(bootstrap_servers=spark_cluster.bootstrap_servers) as admin:
        write(frame, topic=other, writeId=f"{topic}-moved")
        admin.delete_topic(other)
        write(frame, topic=topic, writeId=f"{topic}-moved")
        assert other not in admin.list_topics()
