"""Questions about many partitions while what else a broker does waits: for a controller that cannot be reached, or for
brokers that are down."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.network import regions
from strandline.client.connection import Connection
from strandline.protocol import messages as m
from strandline.testkit.cluster import CLIENT, MemoryCluster

MANY = range(250)
STUCK = 12
"""More than the broker has tasks for them."""
VALUE = b"cold"
FETCH_COLD = m.FetchRequest(0, 1, 2**20, [m.FetchTopic("cold", [m.FetchPartition(0, 0, 2**20)])])
SOON_S = 5.0
"""Far below the timeouts of what waits."""

QUESTIONS: list[m.Request] = [
    m.MetadataRequest(["big"]),
    m.ListOffsetsRequest([m.ListOffsetsTopic("big", [m.ListOffsetsPartition(n, -1) for n in MANY])]),
    m.OffsetForLeaderEpochRequest([m.OffsetForLeaderTopic("big", [m.OffsetForLeaderPartition(n, 0) for n in MANY])]),
    m.DeleteRecordsRequest([m.DeleteRecordsTopic("big", [m.DeleteRecordsPartition(n, 0) for n in MANY])], 1000),
]


@asynccontextmanager
async def cluster_with_many_partitions() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(3, config={"min.insync.replicas": "1"}).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("big", len(MANY), 1)
        yield cluster


async def connect(cluster: MemoryCluster, broker_id: int) -> Connection:
    (address,) = cluster.broker(broker_id).listeners.addresses.values()
    return await Connection.open(cluster.network.node(CLIENT), address, client_id="asking", timeout_ms=300_000)


async def write_cold(cluster: MemoryCluster, broker_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic with one record on that broker, whose pages are not in the cache."""
    async with cluster.admin() as admin, cluster.producer() as producer:
        await admin.create_topic("cold", assignments={0: [broker_id]})
        await producer.send("cold", VALUE)
        await producer.flush()
    monkeypatch.setattr(regions, "COLD_DISTANCE_BYTES", 0)
    cluster.nodes[broker_id].disk.cold_patterns.append("*/cold-0/*.log")


async def wait_for(cluster: MemoryCluster, request: m.Request) -> None:
    """The controller's broker, as long as the test lasts."""
    await (await connect(cluster, cluster.controller_id)).roundtrip(request)
    raise AssertionError("it was to wait")


async def ask_everything(connection: Connection) -> None:
    for question in QUESTIONS:
        with trio.fail_after(SOON_S):
            await connection.roundtrip(question)


async def existing(connection: Connection, names: list[str], *, create: bool) -> list[str]:
    told = await connection.call(m.MetadataRequest(names, create), m.MetadataResponse)
    return [topic.name for topic in told.topics if not topic.error_code]


async def test_automatic_creations_that_do_not_reach_the_controller_keep_nobody_and_are_made_up_for(
    autojump_clock,
) -> None:
    async with cluster_with_many_partitions() as cluster:
        controller = cluster.controller_id
        other = next(number for number in (1, 2, 3) if number != controller)
        creating, asking = await connect(cluster, other), await connect(cluster, other)
        cluster.cut_both(other, controller)
        names = [f"new-{number}" for number in range(90)]
        assert await existing(creating, names, create=True) == []
        await trio.sleep(1)
        await ask_everything(asking)
        cluster.heal(other, controller)
        with trio.fail_after(300):
            while await existing(creating, names, create=True) != names:
                await trio.sleep(1)


async def test_deletions_that_wait_for_a_broker_that_is_down_keep_nobody(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No question, and no read that has to wait for its disk."""
    async with cluster_with_many_partitions() as cluster, trio.open_nursery() as nursery:
        controller = cluster.controller_id
        down = next(number for number in (1, 2, 3) if number != controller)
        async with cluster.admin() as admin:
            for number in range(STUCK):
                await admin.create_topic(f"d{number}", assignments={0: [down]})
        await write_cold(cluster, controller, monkeypatch)
        cluster.crash(down)
        await cluster.until(lambda: down not in cluster.registered(), "its session is over")
        for number in range(STUCK):
            nursery.start_soon(wait_for, cluster, m.DeleteTopicsRequest([f"d{number}"], timeout_ms=60_000))
        await trio.sleep(1)
        asking = await connect(cluster, controller)
        await ask_everything(asking)
        with trio.fail_after(SOON_S):
            _, records = await asking.roundtrip(FETCH_COLD)
        assert VALUE in bytes(records)
        nursery.cancel_scope.cancel()


async def test_reads_that_wait_for_a_disk_keep_no_request_to_the_controller(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_with_many_partitions() as cluster, trio.open_nursery() as nursery:
        controller = cluster.controller_id
        other = next(number for number in (1, 2, 3) if number != controller)
        await write_cold(cluster, controller, monkeypatch)
        cluster.nodes[controller].disk_delay_s = 3600.0
        for _ in range(STUCK):
            nursery.start_soon(wait_for, cluster, FETCH_COLD)
        await trio.sleep(1)
        asking = await connect(cluster, controller)
        creation = m.CreatableTopic("new", assignments={0: [other]})
        resource = m.DescribeConfigsResource(2, "new")
        with trio.fail_after(SOON_S):
            created = await asking.call(m.CreateTopicsRequest([creation]), m.CreateTopicsResponse)
            described = await asking.call(m.DescribeConfigsRequest([resource]), m.DescribeConfigsResponse)
        assert [topic.error_code for topic in created.topics] == [0]
        assert [result.error_code for result in described.results] == [0]
        cluster.nodes[controller].disk_delay_s = 0.0
        nursery.cancel_scope.cancel()
