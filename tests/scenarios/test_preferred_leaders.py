"""Leaderships come back to where they should be, on whole brokers: asked for by Kafka's clients, in a znode, or by
nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.client import TrioProducer
from strandline.protocol.api import ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import PREFERRED, UNCLEAN
from strandline.protocol.znodes import PreferredReplicaElectionZnode
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import Ledger
from strandline.testkit.kafka_client import KafkaClient
from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered

ALL = [1, 2, 3]


@asynccontextmanager
async def led_elsewhere(**properties: str) -> AsyncIterator[tuple[MemoryCluster, TrioProducer, Ledger]]:
    """t-0 prefers broker 2, which was away and is in sync again; another one leads. Broker 1 is controller."""
    async with cluster_with_topic([2, 3, 1], properties=properties) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        await cluster.stop(2)
        await cluster.start_broker(2)
        await cluster.until(lambda: cluster.isr(T0) == ALL, "broker 2 is in sync")
        assert cluster.leader(T0) == 3
        yield cluster, producer, ledger


async def elect(
    cluster: MemoryCluster, version: int, kind: int = PREFERRED, topics: Any = None, broker_id: int = 1
) -> tuple[int, Any]:
    """(error of the whole, (topic, partition) → error)."""
    (address,) = cluster.broker(broker_id).listeners.addresses.values()
    client = KafkaClient(await cluster.network.node("kafka client").connect(address))
    fields = {} if version == 0 else {"election_type": kind}
    timeout = timedelta(seconds=30)
    answer = await client.ask(ApiKey.ELECT_LEADERS, version, topic_partitions=topics, timeout=timeout, **fields)
    client.close()
    results = {
        (topic.topic, part.partition_id): int(part.error_code)
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }
    return int(getattr(answer, "error_code", 0)), results


@pytest.mark.parametrize("version", range(3))
async def test_kafkas_clients_ask_in_each_version(version: int, autojump_clock: MockClock) -> None:
    async with led_elsewhere() as (cluster, _, __):
        topics = [{"topic": "t", "partitions": [0, 7]}, {"topic": "absent", "partitions": [0]}]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refused = await elect(cluster, version, topics=topics[1:], broker_id=3)
        other = ErrorCode.NOT_CONTROLLER
        assert refused == (other if version else 0, {("absent", 0): other}), "version 0 has no other place for it"
        expected = {("t", 0): ErrorCode.NONE, ("t", 7): unknown, ("absent", 0): unknown}
        assert await elect(cluster, version, topics=topics) == (0, expected)
        assert cluster.leader(T0) == 2
        assert await elect(cluster, version) == (0, {}), "of all, those that are led well are left out"
        [needless] = (await elect(cluster, version, topics=topics[:1]))[1].items() - {(("t", 7), unknown)}
        assert needless == (("t", 0), ErrorCode.ELECTION_NOT_NEEDED)


async def test_kafkas_clients_ask_for_unclean_elections(autojump_clock: MockClock) -> None:
    async with led_elsewhere() as (cluster, _, __):
        topics = [{"topic": "t", "partitions": [0]}]
        assert await elect(cluster, 2, UNCLEAN, topics) == (0, {("t", 0): ErrorCode.ELECTION_NOT_NEEDED})
        assert await elect(cluster, 2, UNCLEAN) == (0, {})
        assert await elect(cluster, 2, 5, topics) == (ErrorCode.INVALID_REQUEST, {})


async def test_a_producer_sees_no_error_and_nothing_is_lost_while_a_living_leader_gives_way(
    autojump_clock: MockClock,
) -> None:
    async with led_elsewhere() as (cluster, _, ledger), trio.open_nursery() as nursery:
        epoch = cluster.state(T0).leader_epoch

        async def load(name: str) -> None:
            async with cluster.producer(linger_ms=0) as producer:
                await ledger.produce(producer, T0, numbered(name, 100), one_by_one=True)

        for name in ("a", "b", "c"):
            nursery.start_soon(load, name)
        await trio.sleep(0.2)
        assert (await elect(cluster, 2))[1] == {("t", 0): ErrorCode.NONE}
        assert (cluster.leader(T0), cluster.isr(T0)) == (2, ALL)
        assert cluster.state(T0).leader_epoch == epoch + 1
        await cluster.until(lambda: len(ledger.acked[T0]) == 305, "all is acknowledged")
        assert not ledger.unknown
        await check_at_the_end(cluster, ledger)


async def test_what_a_znode_asks_for_is_done(autojump_clock: MockClock) -> None:
    async with led_elsewhere() as (cluster, _, __):
        client = cluster.zookeeper.client()
        await client.start()
        path = PreferredReplicaElectionZnode.PATH
        await client.create(path, PreferredReplicaElectionZnode([T0]).encode())
        await cluster.until(lambda: cluster.zookeeper.tree.exists(path) is None, "it is done")
        assert cluster.leader(T0) == 2


async def test_after_a_rolling_restart_each_broker_leads_again_what_prefers_it(autojump_clock: MockClock) -> None:
    config = {"leader.imbalance.check.interval.seconds": "60"}
    async with led_elsewhere(**config) as (cluster, producer, ledger):
        async with cluster.admin() as admin:
            await admin.create_topic("many", assignments={0: [1, 2, 3], 1: [3, 1, 2], 2: [2, 3, 1]})
        for broker in ALL:
            await cluster.stop(broker)
            await cluster.start_broker(broker)
            await ledger.produce(producer, T0, numbered(f"with {broker}", 5), one_by_one=True)
            await cluster.until(lambda: cluster.isr(T0) == ALL, "it is in sync")
        many = [T0._replace(topic="many", partition=partition) for partition in range(3)]
        await cluster.until(lambda: [*map(cluster.leader, many)] == [1, 3, 2], "all lead again", within_s=150)
        assert cluster.leader(T0) == 2
        assert not ledger.unknown
        await check_at_the_end(cluster, ledger)
