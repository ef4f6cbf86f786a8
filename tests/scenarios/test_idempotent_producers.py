"""A batch of an idempotent producer lands once, whoever leads when it is sent again.

The client speaks in frames: it sends the same bytes again, as a producer does whose answer got lost.
"""

from __future__ import annotations

from typing import Any

import trio

from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from strandline.protocol.records import build_batch
from strandline.protocol.records.batch import scan
from strandline.runtime.network import Address
from strandline.testkit.cluster import CLIENT, PORT, MemoryCluster, node_name
from strandline.testkit.inspection import log_bytes, values
from support.raw_client import RawClient, request_frame
from support.scenario import T0, check_at_the_end, cluster_with_topic

PID = 4711


def batch(sequence: int, value: bytes, key: bytes | None = None, epoch: int = 0) -> bytes:
    return bytes(build_batch([(1000, key, value)], producer=(PID, epoch, sequence)))


def produce_frame(records: bytes) -> bytes:
    data = [TopicProduceData(T0.topic, [PartitionProduceData(T0.partition, len(records))])]
    return request_frame(ProduceRequest(-1, 5_000, data), attachments=records)


async def ask(cluster: MemoryCluster, broker_id: int, frame: bytes) -> Any:
    client = RawClient(await cluster.network.node(CLIENT).connect(Address(node_name(broker_id), PORT)))
    await client.send(frame)
    response = await client.response()
    client.close()
    assert response is not None
    return response.message


async def send(cluster: MemoryCluster, records: bytes) -> tuple[int, int]:
    """(error code, base offset) from whoever leads."""
    answer = await ask(cluster, cluster.leader(T0), produce_frame(records))
    (outcome,) = answer.responses[0].partition_responses
    return outcome.error_code, outcome.base_offset


async def new_producer_id(cluster: MemoryCluster, broker_id: int) -> int:
    answer = await ask(cluster, broker_id, request_frame(InitProducerIdRequest()))
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    return answer.producer_id


def sequences(cluster: MemoryCluster, broker_id: int) -> list[int]:
    log = cluster.partition(broker_id, T0).log
    data = log_bytes(log, log.log_end_offset)
    return [header.base_sequence for _, header in scan(memoryview(data)) if header.producer_id == PID]


async def test_every_broker_gives_out_producer_ids_that_no_other_does(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, _, _):
        given = [await new_producer_id(cluster, broker_id) for broker_id in (1, 2, 3, 1, 2, 3)]
        cluster.crash(2)
        cluster.expire_session(2)
        await cluster.start_broker(2)
        given.append(await new_producer_id(cluster, 2))
    assert given == [0, 1000, 2000, 1, 1001, 2001, 3000], "blocks follow one another, one that was begun is lost"


async def test_a_producer_begins_while_zookeeper_is_away(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, _, _):
        cluster.zookeeper.stop()
        async with cluster.producer() as producer:
            assert (await (await producer.send(T0.topic, b"x"))).offset == 0
        cluster.zookeeper.start()


async def test_a_producer_whose_answers_get_lost_while_leaders_die_has_each_record_in_the_log_once(
    autojump_clock,
) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, _, ledger):
        sent = [b"%04d" % number for number in range(300)]
        retried: list[bool] = []
        async with cluster.producer(linger_ms=0, batch_size=100, request_timeout_ms=2_000) as producer:
            deliveries = []
            for number, value in enumerate(sent):
                deliveries.append(await producer.send(T0.topic, value, partition=0))
                if number % 100 == 50:
                    old = cluster.leader(T0)
                    cluster.network.cut(node_name(old), CLIENT)  # requests arrive, answers do not
                    end = cluster.partition(old, T0).log.log_end_offset
                    await cluster.until(
                        lambda old=old, end=end: cluster.partition(old, T0).log.log_end_offset > end, "it is appended"
                    )
                    cluster.crash(old)
                    cluster.expire_session(old)
                    cluster.network.heal()
                    await cluster.until(lambda old=old: cluster.leader(T0) != old, "a successor")
                    await cluster.start_broker(old)
                await trio.sleep(0.02)
            retried = [(await delivery).retried for delivery in deliveries]
        await check_at_the_end(cluster, ledger)
        for broker_id in (1, 2, 3):
            assert values(cluster.partition(broker_id, T0).log) == sent, "in order, one copy each"
        assert not any(retried)


async def test_r17_a_batch_is_known_after_compaction_took_it(autojump_clock) -> None:
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": "500",
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "0",
    }
    properties = {"log.cleaner.backoff.ms": "500"}
    async with cluster_with_topic([2, 3, 1], configs=configs, properties=properties) as (cluster, producer, _):
        for sequence in range(3):
            assert await send(cluster, batch(sequence, b"gone%d" % sequence, b"k")) == (0, sequence)
        for number in range(8):
            await (await producer.send(T0.topic, b"x" * 200 + b"%d" % number, key=b"k", partition=0))
        await trio.sleep(60)
        for broker_id in (1, 2, 3):
            assert sequences(cluster, broker_id) == [2], "compaction keeps the last batch of a producer, and no other"
        for broker_id in (2, 3):
            assert [await send(cluster, batch(sequence, b"gone%d" % sequence, b"k")) for sequence in range(3)] == [
                (0, sequence) for sequence in range(3)
            ]
            await cluster.stop(broker_id)
            await cluster.until(
                lambda left=broker_id: cluster.leader(T0) != left and cluster.leads(cluster.leader(T0), T0),
                "another leads",
            )
            await cluster.start_broker(broker_id)
            await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "it is back")
        assert await send(cluster, batch(4, b"gap", b"k")) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await send(cluster, batch(3, b"next", b"k")) == (0, 11)


async def test_a_producer_that_was_idle_for_too_long_may_go_on_anywhere_as_with_kafka(autojump_clock) -> None:
    """Its records are acknowledged: there is nothing of it under way that could be doubled or overtaken."""
    async with cluster_with_topic([2, 3, 1], properties={"producer.id.expiration.ms": "60000"}) as (cluster, _, _):
        assert await send(cluster, batch(0, b"m0")) == (0, 0)
        assert await send(cluster, batch(7, b"gap")) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        await trio.sleep(200)
        assert await send(cluster, batch(7, b"m7")) == (0, 1)
        assert await send(cluster, batch(7, b"m7")) == (0, 1)
        assert await send(cluster, batch(0, b"m0")) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


async def test_a_new_leader_fences_the_epochs_that_the_old_one_saw_replaced(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, _, _):
        assert await send(cluster, batch(0, b"old")) == (0, 0)
        assert await send(cluster, batch(1, b"new", epoch=1)) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await send(cluster, batch(0, b"new", epoch=1)) == (0, 1)
        cluster.crash(2)
        cluster.expire_session(2)
        await cluster.until(lambda: cluster.leader(T0) != 2 and cluster.leads(cluster.leader(T0), T0), "another leads")
        assert await send(cluster, batch(1, b"old")) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert await send(cluster, batch(0, b"new", epoch=1)) == (0, 1)
        assert await send(cluster, batch(1, b"new", epoch=1)) == (0, 2)
