"""Streaming queries of Spark over a real cluster: every record once, whatever happens to query and topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline import Admin, Consumer, Producer, TopicPartition
from strandline.cli.cluster import EmbeddedCluster
from strandline.client.errors import UnknownTopic

pytestmark = pytest.mark.spark

PATIENCE_S = 120


class Topic:
    """One topic of a test's own; its records are numbered."""

    def __init__(self, bootstrap: str, name: str, partitions: int) -> None:
        self.bootstrap, self.name = bootstrap, name
        self.written = 0
        self.create(partitions)

    def create(self, partitions: int) -> None:
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topic(self.name, partitions, 3)

    def write(self, count: int, partitions: int) -> None:
        with Producer(bootstrap_servers=self.bootstrap, compression_type="lz4") as producer:
            for number in range(self.written, self.written + count):
                producer.send(self.name, b"%d" % number, partition=number % partitions)
        self.written += count


class Query:
    """A query that writes to Parquet; each run goes on from its checkpoint and ends when it has read what there is."""

    def __init__(self, spark: Any, topic: Topic, folder: Path, **options: str) -> None:
        self._spark, self._topic, self._folder, self.options = spark, topic, folder, options
        self.progress: list[Any] = []

    def begin(self, **trigger: Any) -> Any:
        writer = self._writer().format("parquet").option("path", str(self._folder / "written"))
        return writer.trigger(**trigger).start()

    def begin_each(self, work: Callable[[Any, int], None]) -> Any:
        """Calls `work` with the rows of each batch, instead of writing them."""
        return self._writer().foreachBatch(work).trigger(availableNow=True).start()

    def _writer(self) -> Any:
        source = self._spark.readStream.format("strandline").option("servers", self._topic.bootstrap)
        writer = source.options(**self.options).load(self._topic.name).writeStream
        return writer.option("checkpointLocation", str(self._folder / "checkpoint"))

    def run(self) -> None:
        query = self.begin(availableNow=True)
        try:
            assert query.awaitTermination(PATIENCE_S), "the stream has not come to its end"
            self.progress = list(query.recentProgress)
        finally:
            query.stop()

    def numbers(self) -> list[int]:
        rows = self._spark.read.parquet(str(self._folder / "written")).select("value").collect()
        return sorted(int(bytes(row.value)) for row in rows)


@pytest.fixture
def new_topic(spark_cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[Callable[..., Topic]]:
    made: list[Topic] = []

    def build(partitions: int = 2, name: str = "") -> Topic:
        name = name or f"stream-{request.node.name.removeprefix('test_')[:60]}-{len(made)}"
        made.append(Topic(spark_cluster.bootstrap_servers, name, partitions))
        return made[-1]

    yield build
    with Admin(bootstrap_servers=spark_cluster.bootstrap_servers) as admin:
        for topic in made:
            admin.delete_topic(topic.name)


@pytest.fixture
def new_query(spark: Any, tmp_path: Path) -> Callable[..., Query]:
    def build(topic: Topic, **options: str) -> Query:
        return Query(spark, topic, tmp_path, **options)

    return build


def test_limited_batches_come_to_the_end_and_a_restart_goes_on(
    new_topic: Callable[..., Topic], new_query: Callable[..., Query], spark_cluster: EmbeddedCluster
) -> None:
    topic = new_topic()
    topic.write(50, partitions=2)
    query = new_query(topic, startingOffsets="earliest", maxOffsetsPerTrigger="20", commitGroup="watched")
    query.run()
    assert query.numbers() == list(range(50))
    assert [each.numInputRows for each in query.progress if each.numInputRows] == [20, 20, 10]
    first = query.progress[0].sources[0]
    assert json.loads(first.endOffset)[topic.name] == {"0": 10, "1": 10}
    assert json.loads(first.latestOffset)[topic.name] == {"0": 25, "1": 25}, "what is left to read is to be seen"
    assert dict(first.metrics) == {}, "Spark takes none of a source in Python: driver_log.py tells the lag"
    topic.write(5, partitions=1)
    query.run()
    assert query.numbers() == list(range(55))
    partitions = [TopicPartition(topic.name, number) for number in range(2)]
    with Consumer(bootstrap_servers=spark_cluster.bootstrap_servers, group_id="watched") as consumer:
        committed = consumer.committed(partitions)
    assert {each.partition: at and at.offset for each, at in committed.items()} == {0: 30, 1: 25}


def test_nothing_is_skipped_behind_the_latest_offset_of_the_first_start(
    new_topic: Callable[..., Topic], new_query: Callable[..., Query]
) -> None:
    topic = new_topic()
    topic.write(10, partitions=2)
    query = new_query(topic)
    query.run()
    topic.write(7, partitions=2)  # while the query is away, which has read nothing so far
    query.run()
    assert query.numbers() == list(range(10, 17))


def test_a_stream_begins_with_the_last_offsets_and_reads_only_the_wanted_columns(
    new_topic: Callable[..., Topic], new_query: Callable[..., Query], spark: Any, tmp_path: Path
) -> None:
    topic = new_topic()
    topic.write(40, partitions=2)
    query = new_query(topic, startingOffsets='{"default":"-3"}', columns="value,partition")
    query.run()
    assert query.numbers() == list(range(34, 40))
    assert spark.read.parquet(str(tmp_path / "written")).columns == ["value", "partition"]
    topic.write(4, partitions=2)
    query.run()
    assert query.numbers() == list(range(34, 44))


def test_a_stream_begins_a_time_ago_and_keeps_where_it_began(
    new_topic: Callable[..., Topic], new_query: Callable[..., Query]
) -> None:
    topic = new_topic()
    topic.write(10, partitions=2)
    query = new_query(topic, startingTimestamp="-1h", startingOffsetsByTimestampStrategy="latest")
    query.run()
    assert query.numbers() == list(range(10))
    query.options["startingTimestamp"] = "-0s"
    topic.write(4, partitions=2)
    query.run()
    assert query.numbers() == list(range(14)), "the checkpoint wins"


def test_a_topic_lost_in_a_run_of_available_now_fails_it(
    new_topic: Callable[..., Topic], new_query: Callable[..., Query]
) -> None:
    """The first batch deletes it; the second one was to read the rest."""
    topic = new_topic()
    topic.write(20, partitions=2)

    def delete(frame: Any, batch_id: int) -> None:
        if batch_id == 0:
            with Admin(bootstrap_servers=topic.bootstrap) as admin:
                admin.delete_topic(topic.name)
                while _exists(admin, topic.name):
                    pass

    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10", "kafka.default.api.timeout.ms": "5000"}
    query = new_query(topic, **options)
    running = query.begin_each(delete)
    try:
        with pytest.raises(Exception, match="LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW"):
            running.awaitTermination(PATIENCE_S)
    finally:
        running.stop()
        topic.create(2)


def test_partitions_that_appear_under_a_running_query_are_read_from_their_beginning(
    new_topic: Callable[..., Topic], new_query: Callable[..., Query]
) -> None:
    topic = new_topic(partitions=1)
    topic.write(3, partitions=1)
    query = new_query(topic, startingOffsets="earliest")
    running = query.begin(processingTime="0 seconds")
    try:
        running.processAllAvailable()
        with Admin(bootstrap_servers=topic.bootstrap) as admin:
            admin.create_partitions(topic.name, 3)
        topic.write(30, partitions=3)
        while len(query.numbers()) < topic.written and running.isActive:
            running.processAllAvailable()
        assert running.exception() is None
    finally:
        running.stop()
    assert query.numbers() == list(range(33))


def test_a_topic_made_anew_fails_the_query_or_is_read_anew(
    new_topic: Callable[..., Topic], new_query: Callable[..., Query]
) -> None:
    topic = new_topic()
    topic.write(4, partitions=2)
    query = new_query(topic, startingOffsets="earliest")
    query.run()
    with Admin(bootstrap_servers=topic.bootstrap) as admin:
        admin.delete_topic(topic.name)
        while _exists(admin, topic.name):
            pass
    topic.create(2)
    topic.write(8, partitions=2)  # as many as before, and more
    with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS\.PARTITIONS_DELETED.*created anew"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    assert query.numbers() == list(range(12))


def _exists(admin: Admin, name: str) -> bool:
    try:
        return name in admin.describe_topics([name])
    except UnknownTopic:
        return False


def test_an_end_is_refused_with_the_text_that_users_know(
    new_topic: Callable[..., Topic], new_query: Callable[..., Query]
) -> None:
    with pytest.raises(Exception, match="ending offset not valid in streaming queries"):
        new_query(new_topic(), endingOffsets="latest").run()
