"""What clients leave behind in brokers, when they have gone: nothing, and what there is instead is found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.replication.purgatory import Waiter
from strandline.protocol.types import TopicPartition
from strandline.runtime.coordination import WatchEvent
from strandline.testkit.cluster import CLIENT, MemoryCluster
from strandline.testkit.node_tasks import NODE
from strandline.testkit.simulation.leftovers import leftovers

T0 = TopicPartition("t", 0)
CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


@asynccontextmanager
async def used_cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(3, config=CONFIG).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", 1, 3)
        yield cluster


async def join(cluster: MemoryCluster, **settings: Any) -> None:
    """A member that goes without a good-bye."""
    async with cluster.consumer(group_id="g", **settings) as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment:
            await consumer.poll(timeout_ms=100)
        cluster.network.stop(CLIENT)
        consumer.close()


async def test_clients_that_were_closed_or_vanished_leave_nothing(autojump_clock: MockClock) -> None:
    async with used_cluster() as cluster:
        async with cluster.producer(acks=-1) as producer, cluster.consumer() as consumer:
            await (await producer.send("t", b"v"))
            await consumer.assign([T0])
            await consumer.poll(timeout_ms=1_000)
        await join(cluster, session_timeout_ms=10_000)
        assert await leftovers(cluster) == []


async def test_a_connection_of_a_client_is_found(autojump_clock: MockClock) -> None:
    async with used_cluster() as cluster, cluster.consumer() as consumer:
        await consumer.assign([T0])
        await consumer.poll(timeout_ms=1_000)
        assert any("connections of client" in each for each in await leftovers(cluster))


async def test_a_member_is_found(autojump_clock: MockClock) -> None:
    async with used_cluster() as cluster:
        await join(cluster, session_timeout_ms=60_000)
        (found,) = await leftovers(cluster)
        assert found.startswith("group g is Stable") and "with 1 members" in found


async def test_a_waiter_is_found(autojump_clock: MockClock) -> None:
    async with used_cluster() as cluster:
        waiting = cluster.partition(cluster.leader(T0), T0).waiters.waiting
        waiting.append(Waiter(10, None, 0, 0))  # nobody looks at who it is
        (found,) = await leftovers(cluster)
        assert found.startswith("1 waiters (Produce)")
        waiting.clear()


async def test_who_waits_for_longer_than_it_was_to_is_found(autojump_clock: MockClock) -> None:
    class Overdue:
        due_at = 0.0

        def expire(self, now: float) -> float:
            return now - 100.0

    async with used_cluster() as cluster:
        cluster.broker(1).data.deadlines.enter(Overdue(), trio.current_time())
        (found,) = await leftovers(cluster)
        assert found.startswith("1 waiters in broker-1 whose time is over")


async def test_a_task_of_a_client_is_found(autojump_clock: MockClock) -> None:
    async with used_cluster() as cluster, trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever, name="strandline.client.producer.TrioProducer.run")
        assert await found_in(cluster) == ["a task of a client: strandline.client.producer.TrioProducer.run"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("name", "count", "found"),
    [
        ("beats", 1, "2 tasks beats"),
        ("work for a client", 2, "2 tasks work for a client"),
        ("strandline.broker.replication.follower.Followers._run_fetcher", 3, "3 tasks {name}"),
        ("strandline.broker.upkeep.housekeeping.Housekeeping._run_checkpoints", 1, "3 tasks {name}"),
        ("connection of a client", 1, "{served} tasks serve {connections} connections"),
        ("strandline.broker.network.connection.Connection.write_unsent", 1, "{served} tasks {name}"),
    ],
)
async def test_more_tasks_of_a_broker_than_it_needs_are_found(
    name: str, count: int, found: str, autojump_clock: MockClock
) -> None:
    async with used_cluster() as cluster:
        assert await found_in(cluster) == []
        connections = sum(cluster.broker(1).listeners.connections().values())
        context = copy_context()
        context.run(NODE.set, cluster.nodes[1].tasks)
        for _ in range(count):
            trio.lowlevel.spawn_system_task(trio.sleep_forever, name=name, context=context)
        text = found.format(name=name, served=connections + 1, connections=connections)
        assert await found_in(cluster) == [f"{text} in broker-1"]


async def test_descriptors_that_nobody_needs_are_found(autojump_clock: MockClock) -> None:
    async with used_cluster() as cluster:
        disk = cluster.nodes[1].disk
        disk.write("/data/gone", b"")
        again = [disk.open("/data/meta.properties", read_only=True) for _ in range(2)], disk.open("/data/gone")
        disk.unlink("/data/gone")
        assert again and await found_in(cluster) == [
            "1 descriptors in broker-1 of /data/gone, which is gone",
            "2 descriptors in broker-1 of /data/meta.properties, which is there",
        ]


async def test_watches_that_nobody_needs_are_found(autojump_clock: MockClock) -> None:
    async with used_cluster() as cluster:
        coordination = cluster.nodes[2].coordination
        assert coordination is not None
        await coordination.exists("/brokers/topics/gone", watch=lambda event: None)
        for number in range(3):
            await coordination.children("/config", watch=partial(_unheard, number))
        assert await found_in(cluster) == [
            "3 watches of /config by broker-2",
            "a watch of /brokers/topics/gone, which is gone, by broker-2",
        ]


def _unheard(number: int, event: WatchEvent) -> None:
    """One of several that differ."""


async def found_in(cluster: MemoryCluster) -> list[str]:
    return sorted(each.partition(", 30 s")[0] for each in await leftovers(cluster))
