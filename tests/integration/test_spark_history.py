"""The history of a real cluster, told by real Spark: what was done to it, and how it stands in the end."""

from __future__ import annotations

import gzip
import shutil
import time
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from integration.real_time import off_loop, until
from strandline import Admin
from strandline.cli.cluster import EmbeddedCluster
from strandline.client.metadata import PartitionView
from strandline.protocol.history.summary import HistorySummary, PartitionSummary
from strandline.protocol.znodes import encode_uuid
from strandline.runtime.disk_posix import PosixDisk
from strandline.runtime.log_files import find_change_logs
from strandline.spark_connector.errors import NoChangeLogs
from strandline.spark_connector.pipelines.history import HistoryOptions, history, told_histories, worst_first
from strandline.spark_connector.pipelines.history_page import history_page

pytestmark = pytest.mark.spark

BROKERS = (1, 2, 3)
TOLERANCE_MS = 1500
"""Between what a test sees of a kill and what brokers log, on a busy machine."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def described(cluster: EmbeddedCluster, topic: str) -> Mapping[int, PartitionView]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return admin.describe_topics([topic])[topic].partitions


def is_led(cluster: EmbeddedCluster, topic: str, *, without: int) -> bool:
    found = described(cluster, topic)
    return bool(found) and all(each.leader not in (-1, without) for each in found.values())


def is_whole(cluster: EmbeddedCluster, topic: str, partitions: int) -> bool:
    found = described(cluster, topic)
    return len(found) == partitions and all(len(each.in_sync_replicas) == 3 for each in found.values())


def controller_of(cluster: EmbeddedCluster) -> int:
    found = cluster.metadata([])
    return -1 if found is None else found.controller_id


def make(cluster: EmbeddedCluster, topic: str, partitions: int) -> str:
    """Returns the topic's id."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topic(topic, num_partitions=partitions, replication_factor=3, configs={"min.insync.replicas": "2"})
        return encode_uuid(admin.describe_topics([topic])[topic].topic_id)


def delete(cluster: EmbeddedCluster, topic: str) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_topic(topic)


async def killed_and_back(cluster: EmbeddedCluster, broker_id: int, topic: str, partitions: int) -> tuple[int, int]:
    """SIGKILL, until others lead and it is back in all ISRs. Returns when it was killed, and when it served again."""
    killed_ms = now_ms()
    await off_loop(cluster.kill_broker, broker_id)
    await until(partial(is_led, cluster, topic, without=broker_id), f"everything is led without broker {broker_id}")
    await off_loop(cluster.start_broker, broker_id)
    back_ms = now_ms()
    await until(partial(is_whole, cluster, topic, partitions), "all replicas are in sync")
    return killed_ms, back_ms


def of(summary: HistorySummary, topic_id: str, partition: int) -> PartitionSummary:
    (found,) = [each for each in summary.partitions if (each.topic_id, each.partition) == (topic_id, partition)]
    return found


def test_the_worst_partitions_come_first_and_internal_topics_last(spark: Any) -> None:
    columns = "topic string, partition int, topic_id string, unavailable_ms bigint, under_min_isr_ms bigint, "
    rows = [("__consumer_offsets", 0, "1", 9, 9, 9, 9), ("b", 1, "2", 0, 0, 0, 0), ("b", 0, "2", 0, 0, 0, 0)]
    rows += [("c", 0, "3", 5, 0, 0, 0), ("a", 0, "4", 0, 0, 0, 1)]
    df = spark.createDataFrame(rows, columns + "under_replicated_ms bigint, elections bigint")
    found = [(row.topic, row.partition) for row in df.orderBy(*worst_first()).collect()]
    assert found == [("c", 0), ("a", 0), ("b", 0), ("b", 1), ("__consumer_offsets", 0)]


async def test_a_cluster_that_was_killed_and_changed_tells_it_all(
    spark: Any, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    # --- what happens
    old_id = await off_loop(make, cluster, "clicks", 3)
    await until(partial(is_whole, cluster, "clicks", 3), "the topic is whole")
    leader = (await off_loop(described, cluster, "clicks"))[0].leader
    killed_ms, back_ms = await killed_and_back(cluster, leader, "clicks", 3)
    first_controller = await off_loop(controller_of, cluster)
    controller_killed_ms, _ = await killed_and_back(cluster, first_controller, "clicks", 3)
    deleted_ms = now_ms()
    await off_loop(delete, cluster, "clicks")
    new_id = await off_loop(make, cluster, "clicks", 2)
    await until(partial(is_whole, cluster, "clicks", 2), "the new topic is whole")
    leaving = (await off_loop(described, cluster, "clicks"))[0].leader
    await off_loop(cluster.stop_broker, leaving)
    await off_loop(cluster.start_broker, leaving)
    await until(partial(is_whole, cluster, "clicks", 2), "all replicas are in sync again")
    end = await off_loop(described, cluster, "clicks")
    acting = await off_loop(controller_of, cluster)

    # --- what is told
    found = find_change_logs(PosixDisk(), [str(cluster.data_dir)])
    assert len(found.files) == 6 and not found.missing
    warnings: list[str] = []
    summary = await off_loop(history, spark, HistoryOptions(found.files), PosixDisk(), warn=warnings.append)
    assert not warnings and summary.totals.unknown_changes == 0 and summary.unreadable_lines == 0
    assert {(each.topic_id, each.partition) for each in summary.partitions} == {
        *((old_id, number) for number in range(3)),
        *((new_id, number) for number in range(2)),
    }
    for number, now in end.items():
        last = of(summary, new_id, number).intervals[-1]
        assert (last.leader, last.leader_epoch, last.to_ms) == (now.leader, now.leader_epoch, None)
        assert (sorted(last.isr), last.replicas, last.min_isr) == (sorted(now.in_sync_replicas), now.replicas, 2)
        assert last.zk_version == of(summary, new_id, number).intervals_count - 1, "every write of the znode is told"
    for number in range(3):
        old = of(summary, old_id, number)
        assert abs((old.intervals[-1].to_ms or 0) - deleted_ms) < TOLERANCE_MS
        assert all(before.to_ms == after.from_ms for before, after in pairwise(old.intervals))
    outage = of(summary, old_id, 0).outages[0]
    assert abs(outage.from_ms - killed_ms) < TOLERANCE_MS and outage.leader_before == leader
    assert outage.to_ms is not None and outage.leader_after not in (-1, leader)
    assert outage.length_ms > 0
    assert summary.outages[0].length_ms == summary.totals.longest_outage_ms >= outage.length_ms
    away = {each.broker_id: each.away for each in summary.brokers}
    assert set(away) == set(BROKERS)
    assert any(abs(each.from_ms - killed_ms) < TOLERANCE_MS and not each.in_order for each in away[leader])
    assert any(each.to_ms is not None and each.to_ms <= back_ms for each in away[leader])
    assert away[leaving][-1].in_order and away[leaving][-1].to_ms is not None
    last_term = summary.controllers[-1]
    assert (last_term.broker_id, last_term.to_ms) == (acting, None) and last_term.acting_ms is not None
    assert [each.controller_epoch for each in summary.controllers] == list(range(1, last_term.controller_epoch + 1))
    ended = min(summary.controllers, key=lambda each: abs((each.to_ms or 0) - controller_killed_ms))
    assert abs((ended.to_ms or 0) - controller_killed_ms) < TOLERANCE_MS
    assert (ended.broker_id, ended.ended) == (first_controller, "the broker was gone")
    assert "nobody led for" in history_page(summary)

    # --- what is asked for, what is missing, what is spoilt
    def run(*files: str, **options: Any) -> HistorySummary:
        warnings.clear()
        return history(spark, HistoryOptions(files or found.files, **options), PosixDisk(), warn=warnings.append)

    created_ms = of(summary, new_id, 1).intervals[0].from_ms
    part = await off_loop(run, since_ms=created_ms, topics="clicks|x", partitions=frozenset({1}))
    assert [(each.topic_id, each.partition) for each in part.partitions] == [(new_id, 1)]
    assert [broker.led_ms for broker in part.brokers] != [broker.led_ms for broker in summary.brokers]
    again = await off_loop(run, *found.files, *found.files)
    assert (again.partitions, again.outages, again.controllers) == (
        summary.partitions,
        summary.outages,
        summary.controllers,
    )
    without = [file for file in found.files if f"broker-{leader}/" not in file]
    fewer = await off_loop(run, *without)
    assert any(f"no logs of broker {leader} were found" in text for text in warnings)
    assert {each.partition for each in fewer.partitions if each.topic_id == new_id} == {0, 1}
    spoilt = tmp_path / "a folder" / "state-change.log"
    spoilt.parent.mkdir()
    shutil.copy(found.files[1], spoilt)
    with spoilt.open("ab") as file:
        file.write(b'\xff\0{"broker_id":1,"event":"isr cha\n{"broker_id":1\n')
    cut = await off_loop(run, *found.files, str(spoilt))
    assert cut.unreadable_lines == 2 and cut.partitions == summary.partitions
    assert any(f"of them in {spoilt}" in text for text in warnings)
    packed = tmp_path / "a folder" / "state-change.log.7.gz"
    packed.write_bytes(gzip.compress(Path(found.files[1]).read_bytes())[:-4])
    half = await off_loop(run, *found.files, str(packed))
    assert (half.cut_files, half.partitions) == ((str(packed),), summary.partitions)
    assert any(f"{packed} is cut" in text for text in warnings)
    with pytest.raises(NoChangeLogs, match="none is one of a change log"):
        await off_loop(run, str(cluster.zookeeper.process.log_path))

    def leaders_of_zero() -> list[int]:
        with told_histories(spark, HistoryOptions(found.files), PosixDisk()) as told:
            rows = told.df.where(f"topic_id = '{old_id}' and partition = 0").selectExpr("explode(services.leader) as l")
            return [row.l for row in rows.collect()]

    assert (await off_loop(leaders_of_zero))[0] == leader
