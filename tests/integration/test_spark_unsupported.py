"""What Spark does not hand on to sources in Python: README says what becomes of each, and here it does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline import Admin
from strandline.cli.cluster import EmbeddedCluster
from support.readme import README

pytestmark = pytest.mark.spark

NUMBERS = itertools.count()


@pytest.fixture
def topic(spark_cluster: EmbeddedCluster) -> Iterator[str]:
    name = f"unsupported-{next(NUMBERS)}"
    with Admin(bootstrap_servers=spark_cluster.bootstrap_servers) as admin:
        admin.create_topic(name, 1, 3)
        yield name
        admin.delete_topic(name)


@pytest.fixture
def rows(spark: Any) -> Any:
    return spark.range(3).selectExpr("cast(id as string) as key", "cast(id as string) as value")


@pytest.fixture
def writer(spark_cluster: EmbeddedCluster, topic: str) -> Callable[[Any], Any]:
    """Of a data frame or a stream, to the topic."""

    def to_topic(made: Any) -> Any:
        return made.format("strandline").option("servers", spark_cluster.bootstrap_servers).option("topic", topic)

    return to_topic


@pytest.fixture
def count(spark: Any, spark_cluster: EmbeddedCluster, topic: str) -> Callable[[], int]:
    reader = spark.read.format("strandline").option("servers", spark_cluster.bootstrap_servers)
    return lambda: reader.load(topic).count()


@pytest.fixture
def stream(spark: Any, spark_cluster: EmbeddedCluster, topic: str) -> Any:
    reader = spark.readStream.format("strandline").option("servers", spark_cluster.bootstrap_servers)
    return reader.option("startingOffsets", "earliest").load(topic)


@pytest.fixture
def table(spark: Any) -> Iterator[str]:
    """A name for one, which is gone afterwards."""
    name = f"table_{next(NUMBERS)}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def said(words: str) -> str:
    """Words of Spark's that README quotes, for `match`: users look for what they saw."""
    assert f"`{words}`" in README
    return words


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_modes_that_spark_refuses(rows: Any, writer: Callable[[Any], Any], mode: str) -> None:
    with pytest.raises(Exception, match=said("UNSUPPORTED_DATA_SOURCE_SAVE_MODE")):
        writer(rows.write).mode(mode).save()


def test_columns_do_not_divide_a_topic(rows: Any, writer: Callable[[Any], Any]) -> None:
    with pytest.raises(Exception, match=said("partitioning or clustering columns do not match")):
        writer(rows.write).mode("append").partitionBy("key").save()


@pytest.mark.parametrize(
    ("trigger", "mode", "words"),
    [
        ({"availableNow": True}, "update", "does not support Update mode"),
        ({"continuous": "1 second"}, "append", "does not support continuous processing"),
    ],
)
def test_streams_that_spark_refuses(
    stream: Any, writer: Callable[[Any], Any], tmp_path: Path, trigger: dict[str, Any], mode: str, words: str
) -> None:
    made = writer(stream.select("value").writeStream).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match=said(words)):
        made.outputMode(mode).trigger(**trigger).start().awaitTermination(60)


@pytest.mark.parametrize("create", [True, False], ids=["saveAsTable", "writeTo"])
def test_a_table_that_is_made_by_writing_has_its_rows_in_the_topic_and_is_read_by_nobody(
    spark: Any,
    spark_cluster: EmbeddedCluster,
    rows: Any,
    writer: Callable[[Any], Any],
    count: Callable[[], int],
    topic: str,
    table: str,
    create: bool,
) -> None:
    if create:
        writer(rows.write).saveAsTable(table)
    else:
        made = rows.writeTo(table).using("strandline").option("servers", spark_cluster.bootstrap_servers)
        made.option("topic", topic).create()
    assert count() == 3
    with pytest.raises(Exception, match=r"a table of Spark's catalog hands on no options: use CREATE TEMPORARY VIEW"):
        spark.table(table).count()


def test_a_table_with_columns_is_made_and_says_when_it_is_used_that_it_cannot_be(
    spark: Any, spark_cluster: EmbeddedCluster, table: str, topic: str
) -> None:
    options = f"OPTIONS (servers '{spark_cluster.bootstrap_servers}', topic '{topic}')"
    spark.sql(f"CREATE TABLE {table} (key BINARY, value BINARY) USING strandline {options}")
    for statement in (f"SELECT * FROM {table}", f"INSERT INTO {table} VALUES (X'01', X'02')"):
        with pytest.raises(Exception, match=r"hands on no options: use CREATE TEMPORARY VIEW .*, also for INSERT INTO"):
            spark.sql(statement).collect()


def test_a_temporary_view_takes_rows(
    spark: Any, spark_cluster: EmbeddedCluster, count: Callable[[], int], topic: str
) -> None:
    options = f"servers '{spark_cluster.bootstrap_servers}', subscribe '{topic}', topic '{topic}'"
    spark.sql(f"CREATE TEMPORARY VIEW seen USING strandline OPTIONS ({options})")
    try:
        spark.sql("INSERT INTO seen VALUES (X'01', X'02', NULL, NULL, NULL, now(), NULL)")
    finally:
        spark.catalog.dropTempView("seen")
    assert count() == 1
