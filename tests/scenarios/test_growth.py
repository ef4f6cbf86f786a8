"""Topics that get more partitions, on whole brokers with clients at work."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from strandline.client.connection import Connection
from strandline.client.errors import AnsweredError
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import read_all
from support.scenario import T0, cluster_with_topic

T3 = TopicPartition(T0.topic, 3)


async def grow(cluster: MemoryCluster, broker: int, count: int) -> int:
    (address,) = cluster.broker(broker).listeners.addresses.values()
    connection = await Connection.open(cluster.network.node("client"), address)
    try:
        response, _ = await connection.roundtrip(CreatePartitionsRequest([CreatePartitionsTopic(T0.topic, count)]))
    finally:
        connection.close()
    assert isinstance(response, CreatePartitionsResponse)
    return response.results[0].error_code


async def test_clients_at_work_find_the_new_partitions(autojump_clock: MockClock) -> None:
    async with (
        cluster_with_topic() as (cluster, _, _),
        cluster.producer(linger_ms=0, metadata_max_age_ms=2_000) as producer,
        cluster.consumer(metadata_max_age_ms=2_000) as consumer,
    ):
        await (await producer.send(T0.topic, b"before"))
        assert await consumer.end_offsets([T0]) == {T0: 1}
        assert await grow(cluster, 2, 4) == ErrorCode.NOT_CONTROLLER
        assert await grow(cluster, 1, 4) == 0
        assert await grow(cluster, 1, 4) == ErrorCode.INVALID_PARTITIONS
        await trio.sleep(4)
        found = {(await (await producer.send(T0.topic, b"v", key=b"k%d" % n))).partition for n in range(50)}
        assert found == {0, 1, 2, 3}
        assert len(await read_all(consumer, T3)) > 0
        assert len(cluster.isr(T3)) == 3


@pytest.mark.parametrize("moment_ms", range(0, 40, 4))
async def test_a_controller_that_dies_meanwhile_leaves_all_or_nothing(
    moment_ms: int, autojump_clock: MockClock
) -> None:
    async with cluster_with_topic() as (cluster, _, _):
        with trio.move_on_after(moment_ms / 1000):
            await grow(cluster, 1, 4)
        cluster.crash(1)
        cluster.expire_session(1)
        await cluster.until(lambda: cluster.controller_id in (2, 3), "another controller")
        code = await grow(cluster, cluster.controller_id, 4)
        assert code in (0, ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_REPLICATION_FACTOR)
        if code == ErrorCode.INVALID_REPLICATION_FACTOR:  # nothing was written, and two brokers are too few
            await cluster.start_broker(1)
            assert await grow(cluster, cluster.controller_id, 4) == 0
        partitions = [TopicPartition(T0.topic, number) for number in range(4)]
        await cluster.until(lambda: all(cluster.leader(tp) > 1 or cluster.leads(1, tp) for tp in partitions), "led")


async def test_the_admin_client_finds_the_controller_and_repeats_what_was_lost(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, _, _), cluster.admin() as admin:
        await admin.create_partitions(T0.topic, 2)
        with pytest.raises(AnsweredError, match="Topic already has 2 partitions"):
            await admin.create_partitions(T0.topic, 2)
        await admin.create_partitions(T0.topic, 3, validate_only=True)
        await admin.create_partitions(T0.topic, 3, assignments=[[2, 3, 1]])
        assert cluster.leader(TopicPartition(T0.topic, 2)) == 2
        async with trio.open_nursery() as nursery:
            nursery.start_soon(admin.create_partitions, T0.topic, 4)
            await cluster.until(lambda: len(cluster.broker(2).data.metadata.topics[T0.topic].partitions) == 4, "grown")
            cluster.cut_both(1, 2)
            cluster.pause(1)
            cluster.expire_session(1)
        assert len((await admin.describe_topics([T0.topic]))[T0.topic].partitions) == 4
