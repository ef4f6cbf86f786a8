"""Clients that say they are brokers, on the listener that brokers share with them: nothing follows from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
import trio
from trio.testing import MockClock

from strandline.broker.replication.questions import Questions
from strandline.client.connection import Connection
from strandline.client.errors import AnsweredError, UnsupportedApiVersion
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ConfigOperation,
    ConfigResource,
    ControlledShutdownRequest,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    Request,
    StopReplicaPartitionState,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.kafka_client import KafkaClient
from support.at_once import at_once
from support.raw_client import RawClient

T0 = TopicPartition("t", 0)


@asynccontextmanager
async def with_a_silent_follower() -> AsyncIterator[MemoryCluster]:
    """Broker 1 leads t-0 and has a record that broker 2, which does not reach it, lacks: it is not committed."""
    async with MemoryCluster(2).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", assignments={0: [1, 2]})
        await cluster.until(lambda: cluster.partition(1, T0).leadership is not None, "it is led")
        cluster.network.cut_both("broker-1", "broker-2")
        async with cluster.producer(acks=1) as producer:
            await producer.send("t", b"x", partition=0)
        yield cluster


async def raw(cluster: MemoryCluster, broker_id: int = 1) -> RawClient:
    (address,) = cluster.broker(broker_id).listeners.addresses.values()
    return RawClient(await cluster.network.node("client").connect(address))


@pytest.mark.parametrize("session", [(0, -1), (0, 0), (1, 7)])
async def test_a_client_that_fetches_as_a_follower_commits_nothing_and_reads_nothing(
    session: tuple[int, int], autojump_clock: MockClock
) -> None:
    async with with_a_silent_follower() as cluster:
        partition = cluster.partition(1, T0)
        leadership, client = partition.leadership, await raw(cluster)
        assert leadership is not None and (partition.high_watermark, partition.log.log_end_offset) == (0, 1)
        for offset in (0, 1):
            wanted = FetchPartition(
                0, offset, 2**20, partition.leader_epoch, partition.log.last_epoch if offset else -1
            )
            forged = FetchRequest(0, 1, 2**20, [FetchTopic("t", [wanted])], 2, 1, 0, *session)
            answer = await client.request(forged)
            assert answer is not None and isinstance(answer.message, FetchResponse)
            assert answer.message.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert not answer.attachments
        assert partition.high_watermark == 0 and leadership.followers[2].log_end_offset != 1


def orders(cluster: MemoryCluster) -> list[Request]:
    """With all that a client may guess or find out: the epochs of this broker and of its controller."""
    broker, partition = cluster.broker(1), cluster.partition(1, T0)
    sender = (2, 1000, broker.registration.broker_epoch)
    state = LeaderAndIsrPartitionState(0, 1000, 2, 1000, [2], 1000, [2])
    stop = StopReplicaPartitionState("t", partition.topic_id, 0, 1000, delete_partition=True)
    return [
        LeaderAndIsrRequest(*sender, [LeaderAndIsrTopicState("t", partition.topic_id, [state])], []),
        UpdateMetadataRequest(*sender, [], []),
        StopReplicaRequest(*sender, [stop]),
        ControlledShutdownRequest(2, cluster.broker(2).registration.broker_epoch),
    ]


@pytest.mark.parametrize("number", range(4))
async def test_a_client_that_speaks_as_the_controller_is_not_obeyed(number: int, autojump_clock: MockClock) -> None:
    async with with_a_silent_follower() as cluster:
        partition, order = cluster.partition(1, T0), orders(cluster)[number]
        answer = await (await raw(cluster)).request(order)
        assert answer is not None
        assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED in msgspec.structs.astuple(answer.message)
        assert partition.leadership is not None and cluster.partition(1, T0) is partition
        assert cluster.broker(1).data.metadata.is_alive(1) and cluster.broker(1).data.replicas.controller_epoch < 1000


async def test_the_key_of_another_broker_or_of_an_earlier_start_is_worth_nothing(autojump_clock: MockClock) -> None:
    async with MemoryCluster(2).running() as cluster:
        before = cluster.broker(1).registration.broker_key
        await cluster.stop(1)
        await cluster.start_broker(1)
        assert before != cluster.broker(1).registration.broker_key
        for key in (before, cluster.broker(2).registration.broker_key):
            (address,) = cluster.broker(1).listeners.addresses.values()
            connection = await Connection.open(cluster.network.node("client"), address, broker_key=key)
            with pytest.raises(UnsupportedApiVersion):
                await connection.roundtrip(ControlledShutdownRequest(2))
            connection.close()


async def test_a_broker_that_asks_another_one_is_known_as_a_broker(autojump_clock: MockClock) -> None:
    """What only brokers may ask is listed for it, and for no client that asks from the same place."""
    async with MemoryCluster(2).running() as cluster:
        asking = cluster.broker(1)
        await cluster.until(lambda: asking.data.metadata.is_alive(2), "the other one is known")
        answer = await Questions(asking.data.replicas, asking.environment.network).ask(2, ApiVersionsRequest())
        client = await raw(cluster, 2)
        of_client = await client.request(ApiVersionsRequest())
        assert of_client is not None
        listed = [
            ApiKey.LEADER_AND_ISR in {each.api_key for each in told.api_keys}
            for told in (answer, of_client.message)
            if isinstance(told, ApiVersionsResponse)
        ]
        assert listed == [True, False]


async def test_no_answer_to_a_client_no_status_and_no_line_of_a_log_has_a_key(autojump_clock: MockClock) -> None:
    async with MemoryCluster(2).running() as cluster:
        keys = [cluster.broker(number).registration.broker_key for number in (1, 2)]
        told: list[str] = []
        client, asked = await raw(cluster), 0
        for api in APIS.values():
            with suppress(TypeError):  # some name what they are about
                answer = await client.request(api.request())
                assert answer is not None
                told.append(repr(answer))
                asked += 1
        async with cluster.admin() as admin:
            told.append(repr(await admin.describe_configs(ConfigResource.BROKER, "1")))
        told.append(repr(at_once(cluster.broker(1).health.status())))
        told.append(repr([*cluster.broker(1).metrics.collect()]))
        told += cluster.history  # last: what is told of these questions is in it
        assert asked > 5 and "host" in "".join(told)
        assert len({*keys}) == 2 and all(len(key) == 32 for key in keys)
        assert not [line for line in told for key in keys if key in line]


async def test_a_client_on_the_listener_of_the_brokers_is_not_obeyed_and_brokers_there_are(
    autojump_clock: MockClock,
) -> None:
    """As in containers, where clients reach that one, too."""
    config = {
        "listeners": "PLAINTEXT://broker-1:9092,CLIENTS://broker-1:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT",
    }
    async with MemoryCluster(1, config=config).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", 1, 1)
        await cluster.until(lambda: cluster.partition(1, T0).leadership is not None, "the controller is obeyed")
        broker, partition = cluster.broker(1), cluster.partition(1, T0)
        client = RawClient(await cluster.network.node("client").connect(broker.listeners.addresses["PLAINTEXT"]))
        stop = StopReplicaPartitionState("t", partition.topic_id, 0, 1000, delete_partition=True)
        answer = await client.request(StopReplicaRequest(2, 1000, broker.registration.broker_epoch, [stop]))
        assert answer is not None
        assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED in msgspec.structs.astuple(answer.message)
        assert cluster.partition(1, T0) is partition and broker.data.replicas.controller_epoch < 1000


TO_THE_CLIENT = "PLAINTEXT://client:9092"
LISTENERS = "advertised.listeners"


async def native_refusals(cluster: MemoryCluster) -> list[tuple[int, str | None]]:
    client, broker = await raw(cluster, 2), (ConfigResource.BROKER, "2")
    changed = IncrementalAlterableConfig(LISTENERS, ConfigOperation.SET, TO_THE_CLIENT)
    requests: list[Request] = [
        AlterConfigsRequest([AlterConfigsResource(*broker, [AlterableConfig(LISTENERS, TO_THE_CLIENT)])]),
        IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(*broker, [changed])]),
    ]
    refusals = []
    for request in requests:
        answer = await client.request(request)
        assert answer is not None
        assert isinstance(answer.message, AlterConfigsResponse | IncrementalAlterConfigsResponse)
        [refusal] = answer.message.responses
        refusals.append((refusal.error_code, refusal.error_message))
    return refusals


async def kafka_refusals(cluster: MemoryCluster) -> list[tuple[int, str | None]]:
    (address,) = cluster.broker(2).listeners.addresses.values()
    client = KafkaClient(await cluster.network.node("client").connect(address))
    changed = {"name": LISTENERS, "value": TO_THE_CLIENT}
    refusals = []
    for api, version, of_change in (
        (ApiKey.ALTER_CONFIGS, 2, {}),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"config_operation": int(ConfigOperation.SET)}),
    ):
        resource = {"resource_type": 4, "resource_name": "2", "configs": [changed | of_change]}
        answer = await client.ask(api, version, resources=[resource], validate_only=False)
        [refusal] = answer.responses
        refusals.append((int(refusal.error_code), refusal.error_message))
    client.close()
    return refusals


@pytest.mark.parametrize("refusals_of", [native_refusals, kafka_refusals])
async def test_no_client_has_brokers_tell_their_key_to_an_address_of_its_choice(
    refusals_of: Callable[[MemoryCluster], Awaitable[list[tuple[int, str | None]]]], autojump_clock: MockClock
) -> None:
    async with MemoryCluster(2).running() as cluster:
        metadata = cluster.broker(1).data.metadata
        await cluster.until(lambda: metadata.is_alive(2), "broker 1 knows of broker 2")
        told = metadata.brokers[2].endpoints
        refusals = await refusals_of(cluster)
        assert [code for code, _ in refusals] == [ErrorCode.INVALID_REQUEST] * 2
        assert all("change it in the broker's file" in (text or "") for _, text in refusals)
        async with cluster.admin() as admin:
            with pytest.raises(AnsweredError, match="change it in the broker's file"):
                await admin.alter_configs(ConfigResource.BROKER, "2", {LISTENERS: TO_THE_CLIENT})
        await trio.sleep(5)
        assert metadata.brokers[2].endpoints == told
