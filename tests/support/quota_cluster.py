"""A cluster of one broker with quotas, and clients of both dialects that use them up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import trio

from strandline.broker.quotas.quotas import Quotas
from strandline.client.connection import Connection
from strandline.client.quotas import DEFAULT_ENTITY, QuotaOwner
from strandline.protocol.api import ApiKey
from strandline.protocol.messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from strandline.protocol.records.codec import build_batch
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.kafka_client import KafkaClient

BATCH = build_batch([(1, None, bytes(20_000))], "none")
RATE = 200_000
MINUTE_S = 60
ANYONE = QuotaOwner(user="ANONYMOUS")
T0 = TopicPartition("t", 0)


@asynccontextmanager
async def cluster_of_one() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster(1).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", 1, 1)
        yield cluster


async def alter(cluster: MemoryCluster, owner: QuotaOwner, **changes: float | None) -> None:
    async with cluster.admin() as admin:
        await admin.alter_quotas(owner, changes)

    names = ["<default>" if name is DEFAULT_ENTITY else name for name in owner]

    def counts(quotas: Quotas) -> bool:
        found = [values for entity, values in quotas.values.items() if [*entity] == names]
        return all((found[0].get(key) if found else None) == value for key, value in changes.items())

    brokers = [cluster.broker(number) for number in cluster.nodes]
    await cluster.until(lambda: all(counts(each.quotas) for each in brokers), "the quota counts")


async def connect(cluster: MemoryCluster, client_id: str = "", broker: int = 1) -> Connection:
    (address,) = cluster.broker(broker).listeners.addresses.values()
    return await Connection.open(cluster.network.node("client"), address, client_id=client_id, timeout_ms=600_000)


async def produce(connection: Connection, acks: int = 1, batch: bytes = BATCH) -> ProduceResponse:
    data = [TopicProduceData("t", [PartitionProduceData(0, len(batch))])]
    answer, _ = await connection.roundtrip(ProduceRequest(acks, 30_000, data), [batch])
    assert isinstance(answer, ProduceResponse)
    assert not answer.responses[0].partition_responses[0].error_code
    return answer


async def fetch(connection: Connection, offset: int, replica_id: int = -1) -> tuple[FetchResponse, int]:
    topics = [FetchTopic("t", [FetchPartition(0, offset, 2**20)])]
    answer, records = await connection.roundtrip(FetchRequest(500, 1, 2**24, topics, replica_id))
    assert isinstance(answer, FetchResponse)
    return answer, len(records)


async def kafka_client(cluster: MemoryCluster) -> KafkaClient:
    (address,) = cluster.broker(1).listeners.addresses.values()
    return KafkaClient(await cluster.network.node("kafka client").connect(address))


async def kafka_produce(client: KafkaClient) -> Any:
    data = [{"name": "t", "partition_data": [{"index": 0, "records": BATCH}]}]
    return await client.ask(ApiKey.PRODUCE, 9, acks=1, timeout=timedelta(seconds=30), topic_data=data)


def log_bytes(cluster: MemoryCluster) -> int:
    return cluster.partition(1, T0).log.log_end_offset * len(BATCH)


async def during(seconds: float, *loops: Callable[[], Any]) -> None:
    """Each runs again and again for so long."""

    async def repeat(act: Callable[[], Any]) -> None:
        while True:
            await act()

    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for act in loops:
                nursery.start_soon(repeat, act)


async def kafka_fetch(client: KafkaClient, replica_id: int = -1) -> tuple[int, int]:
    """(error code, bytes of records) of what is asked from the beginning on."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 2**20, "current_leader_epoch": 0}
    answer = await client.ask(
        ApiKey.FETCH,
        11,
        replica_id=replica_id,
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=2**24,
        session_epoch=-1,
        topics=[{"topic": "t", "partitions": [partition]}],
    )
    size_bytes = sum(len(data.records or b"") for topic in answer.responses for data in topic.partitions)
    return answer.error_code, size_bytes
