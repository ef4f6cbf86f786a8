"""A restore whose workers, executors and driver die, and one of records that the topic refuses, on real Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from strandline import Admin, Consumer, Producer
from strandline.cli.cluster import EmbeddedCluster
from strandline.protocol.messages import ConfigResource
from strandline.protocol.types import TopicPartition
from strandline.runtime.disk_posix import PosixDisk
from strandline.spark_connector.pipelines.archive import ArchiveOptions, archive
from strandline.spark_connector.pipelines.restore import RestoreOptions, restore
from strandline.spark_connector.pipelines.restore_task import Row, TopicLog, bring_up, producer_id_of, source_options
from strandline.spark_connector.reading.cluster import ClusterClient
from support import spark_job
from support.spark_faults import RESTORE_CASES, Faults

pytestmark = pytest.mark.spark

RECORDS = 600
LARGE = 3_000_000


@pytest.fixture
def admin(spark_cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(spark_cluster.bootstrap_servers) as client:
        yield client


@pytest.fixture
def archived(spark: Any, spark_cluster: EmbeddedCluster, admin: Admin, tmp_path: Path) -> Iterator[str]:
    """An archive of two partitions."""
    admin.create_topic("dying", 2, 3)
    with Producer(spark_cluster.bootstrap_servers) as producer:
        for number in range(RECORDS):
            producer.send("dying", b"%d" % (number // 2), partition=number % 2, timestamp_ms=number)
    folder = str(tmp_path / "archive")
    archive(spark, ArchiveOptions(spark_cluster.bootstrap_servers, "dying", folder), PosixDisk())
    yield folder
    admin.delete_topic("dying")


def values(cluster: EmbeddedCluster, topic: str, partition: int) -> list[bytes | None]:
    """All that the partition holds, in order."""
    at = TopicPartition(topic, partition)
    with Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        end = consumer.end_offsets([at])[at]
        consumer.assign([at])
        found: list[bytes | None] = []
        while consumer.position(at) < end:
            found += [each.value for records in consumer.poll(timeout_ms=10_000).values() for each in records]
    return found


def each_once(cluster: EmbeddedCluster, topic: str) -> bool:
    expected = [b"%d" % number for number in range(RECORDS // 2)]
    return all(values(cluster, topic, partition) == expected for partition in (0, 1))


def test_workers_and_executors_that_die_leave_each_record_once(
    spark_cluster: EmbeddedCluster, archived: str, tmp_path: Path
) -> None:
    faults = Faults(tmp_path / "faults")
    ended = spark_job.run(faults, "restores", spark_cluster.bootstrap_servers, archived, "survivor", str(faults.folder))
    assert ended.returncode == 0, ended.stderr[-4_000:]
    cases = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert [tuple(each["case"]) for each in cases if each["has_struck"]] == list(RESTORE_CASES)
    assert all(each["written"] == RECORDS for each in cases)
    assert all(each_once(spark_cluster, f"survivor-{number}") for number in range(len(RESTORE_CASES)))


def test_an_attempt_that_comes_back_writes_nothing_that_another_has_written(
    spark_cluster: EmbeddedCluster, admin: Admin
) -> None:
    """No Spark: one attempt has written its first chunk and sleeps, while others do the whole work side by side."""
    admin.create_topic("contested", 1, 3)
    at, servers = TopicPartition("contested", 0), spark_cluster.bootstrap_servers
    rows = [Row(None, b"%d" % number, (), number) for number in range(RECORDS // 2)]
    options = source_options(servers, at.topic)
    settings = {"bootstrap_servers": servers, "batch_size": 500}
    with ClusterClient(options) as cluster:
        producer_id = producer_id_of(at.topic, cluster.topic_id(at.topic))

    def attempt() -> int:
        with ClusterClient(options) as cluster, closing(TopicLog(at, options, cluster, producer_id, settings)) as log:
            log.chunk_bytes = 40
            return bring_up(iter(rows), log)

    with ClusterClient(options) as cluster, closing(TopicLog(at, options, cluster, producer_id, settings)) as sleeper:
        assert sleeper.append(rows[:20], 0) == 20
        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(lambda _: attempt(), range(3))) == [len(rows)] * 3
        assert sleeper.append(rows[20:40], 20) == 0
        with closing(TopicLog(at, options, cluster, producer_id, settings)) as late:  # it has looked, too
            assert late.append(rows[20:40], 20) == 0
    assert values(spark_cluster, at.topic, 0) == [row.value for row in rows]


def test_a_driver_that_dies_is_resumed(spark_cluster: EmbeddedCluster, archived: str, tmp_path: Path) -> None:
    faults = Faults(tmp_path / "faults")
    faults.arm("after append", 3, "jvm")
    arguments = ("restore", spark_cluster.bootstrap_servers, archived, "orphan")
    killed = spark_job.run(faults, *arguments, "fresh")
    assert killed.returncode != 0 and faults.has_struck, killed.stderr[-4_000:]
    resumed = spark_job.run(faults, *arguments, "resume")
    assert resumed.returncode == 0, resumed.stderr[-4_000:]
    done = json.loads(resumed.stdout)
    assert done["verified"] >= 100 and done["verified"] + done["written"] == RECORDS
    assert each_once(spark_cluster, "orphan")


def test_nothing_follows_a_record_that_is_too_large_and_the_restore_is_resumed_once_it_is_not(
    spark: Any, spark_cluster: EmbeddedCluster, admin: Admin, tmp_path: Path
) -> None:
    admin.create_topic("large", 1, 3, {"max.message.bytes": str(2 * LARGE)})
    large = random.Random(1).randbytes(LARGE)
    with Producer(spark_cluster.bootstrap_servers, max_request_size=2 * LARGE) as producer:
        for value in (b"before", large, b"behind"):
            producer.send("large", value, partition=0, headers=[("h", b"x")])
    folder = str(tmp_path / "large")
    archive(spark, ArchiveOptions(spark_cluster.bootstrap_servers, "large", folder), PosixDisk())
    warned: list[str] = []

    def restored(topic: str, **options: Any) -> int:
        asked = RestoreOptions(spark_cluster.bootstrap_servers, folder, topic, **options)
        return restore(spark, asked, PosixDisk(), warn=warned.append).written

    assert restored("large-again") == 3 and not warned
    with pytest.raises(Exception, match=r"RESTORE_FAILED.*large-small-0, and nothing was written behind.*max.message"):
        restored("large-small", configs={"max.message.bytes": "1000000"})
    [text] = warned
    assert "'strandline configs alter --topic large-small --add max.message.bytes=" in text
    assert values(spark_cluster, "large-small", 0) in ([], [b"before"])
    admin.alter_configs(ConfigResource.TOPIC, "large-small", {"max.message.bytes": str(2 * LARGE)})
    assert restored("large-small", resume=True) >= 2
    assert values(spark_cluster, "large-small", 0) == values(spark_cluster, "large-again", 0)
    assert values(spark_cluster, "large-small", 0) == [b"before", large, b"behind"]
