"""What an operator must act on: brokers tell of it, since when and what to do, until it is gone."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import trio
from prometheus_client.core import Metric
from trio.testing import MockClock

from strandline.broker.admin import remedies
from strandline.broker.admin.problem_watch import BEAT_S, FAILED
from strandline.broker.admin.problems import moment
from strandline.broker.metrics.sources import FAILING_S
from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import DiskSpace
from strandline.storage.errors import LogStorageError
from strandline.testkit.cluster import LOG_DIR, MemoryCluster
from support.at_once import at_once
from support.scenario import SESSIONS_ALONE, T0, cluster_with_topic, numbered


def problems(cluster: MemoryCluster, broker_id: int) -> list[dict[str, Any]]:
    found = at_once(cluster.broker(broker_id).health.status())["problems"]
    assert isinstance(found, list)
    return found


def told(cluster: MemoryCluster, broker_id: int) -> list[str]:
    """Lines of its log that tell of problems."""
    return [line for line in cluster.history if "problem " in line and f"broker-{broker_id} " in line]


async def test_a_follower_that_is_cut_off_is_told_of_until_it_is_back(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=SESSIONS_ALONE) as (cluster, producer, ledger):
        await trio.sleep(2 * BEAT_S)
        assert [problems(cluster, each) for each in cluster.nodes] == [[], [], []]
        cluster.cut_both(3, 1)
        await ledger.produce(producer, T0, numbered("b", 1))
        await cluster.until(lambda: len(cluster.partition(1, T0).leadership.isr) == 2, "the ISR is smaller")
        [found] = problems(cluster, 1)
        began_ms = cluster.broker(1).environment.wall_clock.now_ms()
        assert found == {
            "level": "warning",
            "kind": "under-replicated",
            "subject": "broker 3 lags",
            "what": "1 partition is under-replicated: broker 3 runs and is not in sync",
            "where": "t-0",
            "since_ms": began_ms,
            "remedy": remedies.SLOW,
            "led": {"count": 1, "first": ["t-0"]},
        }
        await trio.sleep(3 * BEAT_S)
        assert problems(cluster, 1) == [found], "since the same moment"
        assert problems(cluster, 2) == [], "its leader tells of it, nobody else"
        [began] = told(cluster, 1)
        assert all(found[part] in began for part in ("what", "where", "remedy")), began
        assert f'"since":"{moment(began_ms)}"' in began

        cluster.heal(3, 1)
        cluster.heal(1, 3)
        await cluster.until(lambda: len(cluster.partition(1, T0).leadership.isr) == 3, "the ISR is whole")
        assert problems(cluster, 1) == []
        await trio.sleep(2 * BEAT_S)
        _, ended = told(cluster, 1)
        assert "problem ended" in ended and "lasted_s" in ended and found["what"] in ended


async def test_too_few_in_sync_is_an_error(autojump_clock: MockClock) -> None:
    configs = {"min.insync.replicas": "3"}
    async with cluster_with_topic(properties=SESSIONS_ALONE, configs=configs) as (cluster, *_):
        await cluster.stop(3)
        await cluster.until(lambda: len(cluster.partition(1, T0).leadership.isr) == 2, "the ISR is smaller")
        await cluster.until(lambda: not cluster.broker(1).data.metadata.is_alive(3), "known to be gone")
        [found] = problems(cluster, 1)
        assert (found["level"], found["where"]) == ("error", "t-0") and "under min.insync.replicas" in found["what"]
        assert found["what"].endswith(": broker 3 does not run")


async def test_a_failed_disk_is_told_of_and_not_each_log_in_it(autojump_clock: MockClock) -> None:
    two = {**SESSIONS_ALONE, "log.dirs": f"{LOG_DIR},/more"}
    async with cluster_with_topic(configs={"flush.messages": "1"}, properties=two) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 3))
        failing = cluster.partition(1, T0).log_dir
        cluster.nodes[1].disk.fail("fsync", f"{failing}/t-0/*", errno.EIO)
        await ledger.produce(producer, T0, numbered("b", 3))
        await trio.sleep(5)
        [found] = problems(cluster, 1)
        assert (found["level"], found["where"]) == ("error", failing)
        assert found["what"].startswith("is offline: ")
        assert found["remedy"] == "free or replace the disk, then restart the broker"


async def test_without_zookeeper_and_without_a_controller_nothing_can_be_changed(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=SESSIONS_ALONE) as (cluster, *_):
        cluster.cut_from_zookeeper(2)
        await trio.sleep(1)
        [found] = problems(cluster, 2)
        assert (found["level"], found["where"]) == ("error", "ZooKeeper") and "zookeeper.connect" in found["remedy"]
        cluster.heal_zookeeper(2)
        await trio.sleep(60)
        assert problems(cluster, 2) == []


async def test_what_has_no_leader_is_told_by_the_controller(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=SESSIONS_ALONE) as (cluster, *_):
        async with cluster.admin() as admin:
            await admin.create_topic("alone", assignments={0: [3]})
        await cluster.stop(3)
        await trio.sleep(10)
        [teller] = [each for each in (1, 2) if any(found["where"] == "alone-0" for found in problems(cluster, each))]
        assert cluster.broker(teller).data.metadata.controller_id == teller
        whats = [found["what"] for found in problems(cluster, teller)]
        assert "1 partition is without a leader; last in sync: broker 3" in whats


async def test_a_volume_that_is_nearly_full_is_told_of_though_nobody_scrapes(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=SESSIONS_ALONE) as (cluster, *_):
        disk = cluster.nodes[1].disk
        disk.space = lambda path: DiskSpace(100 * 10**9, 5 * 10**9)
        await trio.sleep(3 * BEAT_S)
        [found] = problems(cluster, 1)
        assert (found["level"], found["where"]) == ("warning", LOG_DIR)
        assert found["what"] == "its volume has 5 % left (5.0 GB)"


async def test_a_source_of_metrics_that_fails_is_told_of_until_it_does_not(autojump_clock: MockClock) -> None:
    is_broken = True

    def source() -> Iterator[Metric]:
        if is_broken:
            raise ValueError("no such figure")
        yield from ()

    async with cluster_with_topic(properties=SESSIONS_ALONE) as (cluster, *_):
        metrics = cluster.broker(1).metrics
        metrics.add("broken", source)
        list(metrics.collect())
        [found] = problems(cluster, 1)
        assert found["where"] == "metrics of broken" and "no such figure" in found["what"]
        is_broken = False
        await trio.sleep(FAILING_S)
        list(metrics.collect())
        assert problems(cluster, 1) == []


async def test_a_broker_that_leaves_has_no_problems(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=SESSIONS_ALONE) as (cluster, *_):
        await cluster.stop(3)
        await cluster.until(lambda: len(cluster.partition(1, T0).leadership.isr) == 2, "the ISR is smaller")
        health = cluster.broker(1).health
        assert problems(cluster, 1)
        health.leave()
        assert problems(cluster, 1) == []


class Untellable(LogStorageError):
    """Why a log is refused, which a look fails to say; counts who tries."""

    looks = 0

    def __str__(self) -> str:
        self.looks += 1
        raise RuntimeError("a bug")


async def test_a_look_that_fails_leaves_the_broker_ready_and_its_other_answers_whole(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=SESSIONS_ALONE) as (cluster, *_):
        health = cluster.broker(1).health
        await cluster.until(lambda: at_once(health.waits()) == (), "ready")
        cluster.broker(1).log_manager.refused[TopicPartition("old", 0)] = Untellable("old-0", "")
        await trio.sleep(3 * BEAT_S)
        [found] = problems(cluster, 1)
        assert found["where"] == "problems" and "a bug" in found["what"]
        assert at_once(health.waits()) == () and at_once(health.status())["ready"]
        [failed, began] = [line for line in cluster.history if "broker-1 " in line and "problem" in line]
        assert FAILED in failed and "problem began" in began


async def test_a_probe_of_whether_a_broker_is_ready_looks_for_no_problems(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=SESSIONS_ALONE) as (cluster, *_):
        why = Untellable("old-0", "")
        cluster.broker(1).log_manager.refused[TopicPartition("old", 0)] = why
        at_once(cluster.broker(1).health.waits())
        assert why.looks == 0
        at_once(cluster.broker(1).health.status())
        assert why.looks == 1
