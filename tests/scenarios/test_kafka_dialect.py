"""Kafka's protocol on the port of a whole broker, beside the native one: the same topics, the same handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from trio.testing import MockClock

from strandline.client.consumer import TrioConsumer
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import CreatableTopic
from strandline.protocol.records.codec import build_batch
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.kafka_client import KafkaClient, kafka_frame

WAIT = timedelta(milliseconds=500)
BATCH = build_batch([(1, b"k", b"v1"), (2, None, b"v2"), (3, b"k", None)], "none")
PRODUCE, FETCH = APIS[ApiKey.PRODUCE], APIS[ApiKey.FETCH]


@asynccontextmanager
async def asking(cluster: MemoryCluster, broker_id: int = 1) -> AsyncIterator[KafkaClient]:
    (address,) = cluster.broker(broker_id).listeners.addresses.values()
    client = KafkaClient(await cluster.network.node("kafka client").connect(address))
    try:
        yield client
    finally:
        client.close()


async def make_topic(cluster: MemoryCluster, name: str = "t", **fields: Any) -> None:
    async with cluster.admin() as admin:
        await admin.create_topics([CreatableTopic(name, **fields)])


def produced(records: bytes | None, *, acks: int = -1, name: str = "t", index: int = 0) -> dict[str, Any]:
    data = [{"name": name, "partition_data": [{"index": index, "records": records}]}]
    return {"acks": acks, "timeout": WAIT, "topic_data": data}


def fetched(version: int, offset: int, *, topic_id: Any = None, **fields: Any) -> dict[str, Any]:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 2**20}
    topic = {"topic": "t"} if version < 13 else {"topic_id": topic_id}
    fields = {"replica_id": -1, **fields} if version < 15 else fields
    return {"max_wait": WAIT, "min_bytes": 1, "topics": [{**topic, "partitions": [part]}], **fields}


async def test_what_is_produced_in_one_dialect_is_read_in_the_other(autojump_clock: MockClock) -> None:
    async with MemoryCluster(1).running() as cluster:
        await make_topic(cluster)
        async with asking(cluster) as client:
            answer = await client.ask(ApiKey.PRODUCE, 9, **produced(BATCH))
            [part] = answer.responses[0].partition_responses
            assert (part.error_code, part.base_offset) == (0, 0)
            async with cluster.producer() as producer:
                await producer.send("t", b"native")
            fetch = await client.ask(ApiKey.FETCH, 12, **fetched(12, 3))
            assert b"native" in fetch.responses[0].partitions[0].records
        async with cluster.consumer() as consumer:
            assert [record.value for record in await read_all(consumer)] == [b"v1", b"v2", None, b"native"]


async def read_all(consumer: TrioConsumer) -> list[Any]:
    await consumer.assign([TopicPartition("t", 0)])
    consumer.seek(TopicPartition("t", 0), 0)
    found: list[Any] = []
    while len(found) < 4:
        for records in (await consumer.poll(timeout_ms=1000)).values():
            found += records
    return found


@pytest.mark.parametrize("version", range(PRODUCE.kafka[0], PRODUCE.kafka[1] + 1))
async def test_every_version_of_produce_appends_and_tells_where(version: int, autojump_clock: MockClock) -> None:
    async with MemoryCluster(1).running() as cluster:
        await make_topic(cluster)
        async with asking(cluster) as client:
            for acks, offset in ((-1, 0), (1, 3)):
                answer = await client.ask(ApiKey.PRODUCE, version, **produced(BATCH, acks=acks))
                [part] = answer.responses[0].partition_responses
                assert (part.error_code, part.base_offset) == (0, offset)
            refused = await client.ask(ApiKey.PRODUCE, version, **produced(BATCH, index=7))
            assert refused.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(FETCH.kafka[0], FETCH.kafka[1] + 1))
async def test_every_version_of_fetch_gives_whole_batches(version: int, autojump_clock: MockClock) -> None:
    async with MemoryCluster(1).running() as cluster:
        await make_topic(cluster)
        async with asking(cluster) as client:
            metadata = await client.ask(ApiKey.METADATA, 12, topics=[{"name": "t", "topic_id": None}])
            topic_id = metadata.topics[0].topic_id
            for _ in range(2):
                await client.ask(ApiKey.PRODUCE, 9, **produced(BATCH))
            answer = await client.ask(ApiKey.FETCH, version, **fetched(version, 0, topic_id=topic_id))
            [part] = answer.responses[0].partitions
            assert (part.error_code, part.high_watermark, len(part.records)) == (0, 6, 2 * len(BATCH))
            empty = await client.ask(ApiKey.FETCH, version, **fetched(version, 6, topic_id=topic_id))
            assert not any(part.records for topic in empty.responses for part in topic.partitions)
            beyond = await client.ask(ApiKey.FETCH, version, **fetched(version, 7, topic_id=topic_id))
            assert beyond.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_acks_0_has_no_answer_and_later_answers_do_not_wait_for_one(autojump_clock: MockClock) -> None:
    async with MemoryCluster(1).running() as cluster:
        await make_topic(cluster)
        async with asking(cluster) as client:
            body = bytes.fromhex("ffff 0000 000001f4 00000001 0001 74 00000001 00000000")
            body += len(BATCH).to_bytes(4, "big") + BATCH
            await client.send(kafka_frame(ApiKey.PRODUCE, 3, body))
            answer = await client.ask(ApiKey.LIST_OFFSETS, 1, **latest())
            assert answer.topics[0].partitions[0].offset == 3


def latest() -> dict[str, Any]:
    return {"replica_id": -1, "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}


@pytest.mark.parametrize("version", [-1, 5, 32767])
async def test_who_asks_for_versions_in_an_unknown_one_is_told_the_real_ones(
    version: int, autojump_clock: MockClock
) -> None:
    async with MemoryCluster(1).running() as cluster, asking(cluster) as client:
        frame = await client.ask_raw(ApiKey.API_VERSIONS, version, b"anything")
        assert frame[4:] == bytes.fromhex("0023 00000001 0012 0000 0004")
        answer = await client.ask(ApiKey.API_VERSIONS, 3, client_software_name="a", client_software_version="b")
        listed = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        served = {int(key): api.kafka for key, api in APIS.items() if api.kafka is not None}
        assert listed == {**served, 0: (0, 11)}


async def test_a_version_that_is_not_served_is_refused_and_the_connection_goes_on(autojump_clock: MockClock) -> None:
    async with MemoryCluster(1).running() as cluster, asking(cluster) as client:
        old = bytes.fromhex("0001 000001f4 00000001 0001 74 00000001 00000000 00000000")
        frame = await client.ask_raw(ApiKey.PRODUCE, 2, old)
        assert ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big") in frame
        assert (await client.ask(ApiKey.METADATA, 1, topics=[])).brokers


async def test_what_cannot_be_read_ends_its_own_connection_alone(autojump_clock: MockClock) -> None:
    async with MemoryCluster(1).running() as cluster, asking(cluster) as good, asking(cluster) as bad:
        await bad.send(kafka_frame(ApiKey.METADATA, 1, b"\x7f\xff\xff\xff"))
        assert ErrorCode.INVALID_REQUEST.to_bytes(2, "big") in await bad.frame()
        assert await bad.is_closed_by_peer()
        assert (await good.ask(ApiKey.METADATA, 1, topics=[])).brokers


async def test_orders_between_brokers_are_not_spoken_in_it(autojump_clock: MockClock) -> None:
    async with MemoryCluster(1).running() as cluster:
        for key in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN):
            async with asking(cluster) as client:
                await client.send(kafka_frame(key, 0, bytes(40), flexible=False))
                assert await client.is_closed_by_peer()
