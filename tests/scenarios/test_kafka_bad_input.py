"""Hostile requests of Kafka's dialect against a whole broker: it answers or hangs up, and serves others as before."""

from __future__ import annotations

import random
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.api import APIS, Api, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import MetadataRequest, MetadataResponse
from strandline.runtime.network import Address
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.kafka_client import KafkaClient, kafka_frame, read_frame
from support.bad_requests import BATCHES, GOOD_BATCH, TOPIC
from support.kafka_entities import class_of, draw, written
from support.kafka_frames import answer_in, codes
from support.raw_client import RawClient

SPOKEN = [api for api in APIS.values() if api.kafka is not None]
LENGTHS = [bytes.fromhex(text) for text in ("ffffffff", "7fffffff", "80000000", "ffffffff0f", "8080808008", "ffff")]
SECOND = timedelta(seconds=1)
PATIENCE_S = 120
"""On the virtual clock; what may wait (a fetch, a join) waits for as long as a random request says, or is closed."""


async def connect(cluster: MemoryCluster, host: str, address: Address) -> RawClient:
    return RawClient(await cluster.network.node(host).connect(address))


async def is_answered_or_closed(client: RawClient, api: Api, version: int, body: bytes) -> bool:
    """False: closed without an answer."""
    is_closed = False
    await client.send(kafka_frame(api.key, version, body))
    with trio.move_on_after(PATIENCE_S):
        frame = await read_frame(client)
        is_closed = frame is None
        if frame is not None:
            assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes(answer_in(frame, api.key, version))
    client.close()
    return not is_closed


@pytest.mark.parametrize("api", SPOKEN, ids=lambda api: api.key.name)
async def test_hostile_lengths_end_no_broker_and_delay_nobody(api: Api, autojump_clock: MockClock) -> None:
    assert api.kafka is not None
    version, rng = api.kafka[1], random.Random(int(api.key))
    body = written(draw(class_of(api.key, version), rng, 0.0))
    async with MemoryCluster(1).running() as cluster:
        (address,) = cluster.broker(1).listeners.addresses.values()
        witness, other = await connect(cluster, "witness", address), await connect(cluster, "other", address)
        for place in range(0, len(body) + 1, 1 + len(body) // 12):
            for length in LENGTHS:
                hostile = body[:place] + length + body[place + len(length) :]
                await is_answered_or_closed(await connect(cluster, "client", address), api, version, hostile)
            await is_answered_or_closed(await connect(cluster, "client", address), api, version, body[:place])
        response = await witness.request(MetadataRequest())
        assert response is not None and isinstance(response.message, MetadataResponse)
        await other.send(kafka_frame(ApiKey.API_VERSIONS, 3, b"\x05name\x021\0"))
        frame = await read_frame(other)
        assert frame is not None and answer_in(frame, ApiKey.API_VERSIONS, 3).error_code == 0


LONG = "\x01" * (2**15 - 1)
"""As long as any string may be. What quotes it takes four times the room."""


@pytest.mark.parametrize("api", SPOKEN, ids=lambda api: api.key.name)
async def test_the_longest_strings_and_all_of_it_twice_are_answered_with_a_typed_error(
    api: Api, autojump_clock: MockClock
) -> None:
    assert api.kafka is not None
    async with MemoryCluster(1).running() as cluster:
        (address,) = cluster.broker(1).listeners.addresses.values()
        for version in sorted(set(api.kafka)):
            asked = twice(draw(class_of(api.key, version), random.Random(version), 0.0))
            client = await connect(cluster, "client", address)
            assert await is_answered_or_closed(client, api, version, written(asked))


def twice(asked: Any) -> Any:
    """The first element of each array two times, and each string as long as may be."""
    if is_dataclass(asked) and not isinstance(asked, type):
        return replace(asked, **{field.name: twice(getattr(asked, field.name)) for field in fields(asked)})
    if isinstance(asked, tuple):
        return (twice(asked[0]),) * 2
    return LONG if isinstance(asked, str) else asked


@pytest.mark.parametrize("version", [3, 11])
async def test_a_damaged_batch_is_refused_for_its_partition_alone(version: int, autojump_clock: MockClock) -> None:
    async with MemoryCluster(1).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic(TOPIC, 2, 1)
        partitions = cluster.broker(1).data.replicas.partitions
        (address,) = cluster.broker(1).listeners.addresses.values()
        client = KafkaClient(await cluster.network.node("client").connect(address))
        for place, row in enumerate(BATCHES):
            parts = [{"index": 0, "records": row.attachments}, {"index": 1, "records": GOOD_BATCH}]
            topics = [{"name": TOPIC, "partition_data": parts}]
            answer = await client.ask(ApiKey.PRODUCE, version, acks=1, timeout=SECOND, topic_data=topics)
            bad, good = answer.responses[0].partition_responses
            assert (bad.error_code in row.codes, bad.base_offset) == (True, -1), row
            assert (good.error_code, good.base_offset) == (0, 3 * place), row
        assert partitions[(TOPIC, 0)].log.log_end_offset == 0
