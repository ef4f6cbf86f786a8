"""A minute of each quota that counts no bytes: three clients of both dialects try, and who has a quota of their own
notice nothing. (Bytes: `test_quotas`.)"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.quotas.gate import QuotaGate
from strandline.broker.replication.burst import Burst
from strandline.client.connection import Connection
from strandline.client.errors import ClientError
from strandline.client.quotas import QuotaOwner
from strandline.protocol.api import ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    ApiVersionsRequest,
    ConfigResource,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    MetadataRequest,
    MetadataResponse,
    OffsetForLeaderEpochRequest,
    Request,
)
from strandline.protocol.records.codec import build_batch
from strandline.protocol.types import ANY_REPLICA
from strandline.runtime.network import TransportClosed
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.kafka_client import KafkaClient
from support.quota_cluster import (
    ANYONE,
    BATCH,
    MINUTE_S,
    alter,
    cluster_of_one,
    connect,
    during,
    fetch,
    kafka_client,
    kafka_produce,
    produce,
)

OTHER = QuotaOwner(user="ANONYMOUS", client_id="other")
PERCENT = 10
COST_S = 0.02
"""Of the event loop, by each request that is timed."""
MUTATIONS_PER_S = 2
CONNECTIONS_PER_S = 5
SAVED_UP_S = 30
"""By then is used up what somebody may ask for at first who was quiet: what all windows give."""
SUSPECT, BYSTANDER = "10.0.0.7", "10.0.0.8"


def names() -> Iterator[str]:
    return (f"made-{number}" for number in range(100_000))


async def anew(cluster: MemoryCluster, client_ids: Iterator[str], act: Callable[[Connection], Awaitable[Any]]) -> None:
    """By a connection and a client id that were never seen: who was muted is another one."""
    connection = await connect(cluster, next(client_ids))
    try:
        await act(connection)
    finally:
        connection.close()


class CostlyHandlers:
    """The clock of a gate: what is timed by it takes COST_S, though no time passes. It is looked at when a handler
    begins and ends, when the end of its burst does, and within one of them, when it answers: three thirds."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.looks * COST_S / 3


@asynccontextmanager
async def with_a_bystander(
    cluster: MemoryCluster, begin: Callable[[], Awaitable[None]], batch: bytes = BATCH
) -> AsyncIterator[None]:
    """Somebody with another quota writes all the time, and it takes no longer from `begin` on than before."""
    other = await connect(cluster, "other")
    took_s: list[float] = []

    async def write() -> None:
        began = trio.current_time()
        assert (await produce(other, batch=batch)).throttle_time_ms == 0
        took_s.append(trio.current_time() - began)
        await trio.sleep(0.1)

    await during(10, write)
    before_s = max(took_s)
    took_s.clear()
    await begin()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(during, 10 * MINUTE_S, write))
        await trio.sleep(0.05)  # at its first write nobody else owes anything yet, and all have the same right
        yield
        nursery.cancel_scope.cancel()
    assert len(took_s) > 5 * MINUTE_S and max(took_s) == pytest.approx(before_s)


async def test_the_time_of_the_event_loop_is_held_whatever_its_clients_try(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By many connections and client ids, as a replica, by cheap questions of any API, and by some that queue."""
    clock = CostlyHandlers()
    monkeypatch.setattr("strandline.broker.server.QuotaGate", partial(QuotaGate, clock=clock))
    async with cluster_of_one() as cluster:
        await alter(cluster, OTHER, request_percentage=100_000)
        fair, kafka = await connect(cluster, "fair"), await kafka_client(cluster)
        many = [await connect(cluster, f"dodger-{number}") for number in range(8)]
        forger, asker = await connect(cluster, "broker-2"), await connect(cluster, "asker")
        writer = await connect(cluster, "writer")
        sensors = cluster.broker(1).quotas.sensors["request_percentage"]
        spent_s, fresh = 0.0, names()
        looks, configs = (
            clock.looks,
            DescribeConfigsRequest([DescribeConfigsResource(ConfigResource.BROKER, "1", None)]),
        )
        await (await connect(cluster, "other")).roundtrip(configs)
        configs_cost_s = (clock.looks - looks) * COST_S / 3 / 2  # every other third is what it waits

        async def counted(ask: Callable[[], Awaitable[Any]], cost_s: float = COST_S) -> None:
            nonlocal spent_s
            await ask()
            spent_s += cost_s

        async def ask_anew(connection: Connection) -> None:
            await counted(partial(connection.roundtrip, MetadataRequest([])))

        async def queue_anew(connection: Connection) -> None:
            await counted(partial(connection.roundtrip, configs), configs_cost_s)

        loops = [
            partial(counted, partial(fair.roundtrip, MetadataRequest([]))),
            partial(counted, partial(kafka.ask, ApiKey.METADATA, 8, topics=[])),
            partial(counted, partial(fetch, forger, 0, 1)),
            partial(counted, partial(asker.roundtrip, ApiVersionsRequest())),
            partial(counted, partial(produce, writer)),
            partial(counted, partial(many[0].roundtrip, OffsetForLeaderEpochRequest([], ANY_REPLICA))),
            *(partial(counted, partial(each.roundtrip, MetadataRequest([]))) for each in many[1:]),
            *[partial(anew, cluster, fresh, ask_anew)] * 4,
            *[partial(anew, cluster, fresh, queue_anew)] * 4,
        ]
        async with with_a_bystander(cluster, partial(alter, cluster, ANYONE, request_percentage=PERCENT)):
            await during(MINUTE_S, *loops)
        assert spent_s / (MINUTE_S * PERCENT / 100) == pytest.approx(1, abs=0.05)
        assert sensors.bounds


async def test_the_time_that_writing_takes_is_held_by_however_many_connections(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers only take the batches over: what is appended is written at the end of the burst."""
    end, ended = Burst.end, list[Burst]()

    def costly_end(burst: Burst) -> None:
        end(burst)
        ended.append(burst)

    monkeypatch.setattr(Burst, "end", costly_end)
    costly_gate = partial(QuotaGate, clock=lambda: len(ended) * COST_S)
    monkeypatch.setattr("strandline.broker.server.QuotaGate", costly_gate)
    async with cluster_of_one() as cluster:
        await alter(cluster, OTHER, request_percentage=100_000)
        kafka, many = await kafka_client(cluster), [await connect(cluster, f"c-{number}") for number in range(8)]
        fresh, written = names(), list[float]()

        async def counted(write: Callable[[], Awaitable[Any]]) -> None:
            await write()
            written.append(COST_S)

        async def write_anew(connection: Connection) -> None:
            await counted(partial(produce, connection))

        loops = [partial(counted, partial(kafka_produce, kafka)), *[partial(anew, cluster, fresh, write_anew)] * 4]
        async with with_a_bystander(cluster, partial(alter, cluster, ANYONE, request_percentage=PERCENT)):
            await during(MINUTE_S, *loops, *(partial(counted, partial(produce, each)) for each in many))
        assert sum(written) / (MINUTE_S * PERCENT / 100) == pytest.approx(1, abs=0.05)


async def test_large_requests_of_who_owes_time_keep_nobody_waiting(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By many connections, far more than a broker receives at once."""
    monkeypatch.setattr("strandline.broker.server.QuotaGate", partial(QuotaGate, clock=CostlyHandlers()))
    large = build_batch([(1, None, bytes(900_000))], "none")
    async with MemoryCluster(1, config={"queued.max.request.bytes": "4000000"}).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", 1, 1)
        channel = cluster.broker(1).channel
        channel.held.most_bytes = 2_000_000
        many = [await connect(cluster, f"c-{number}") for number in range(20)]
        unreceived: list[int] = []

        async def look() -> None:
            sensors = cluster.broker(1).quotas.sensors["request_percentage"]._sensors.values()
            unreceived.append(sum(len(each.unreceived) for each in sensors))
            await trio.sleep(1)

        await alter(cluster, OTHER, request_percentage=100_000)
        async with with_a_bystander(cluster, partial(alter, cluster, ANYONE, request_percentage=PERCENT), large):
            await during(MINUTE_S, look, *(partial(produce, each, batch=large) for each in many))
        assert max(unreceived) > 5


async def test_partitions_are_created_at_the_rate_of_the_quota_whatever_its_clients_try(
    autojump_clock: MockClock,
) -> None:
    """By many connections and client ids, and by versions of which some know the error and one does not."""
    async with cluster_of_one() as cluster:
        fresh, made = names(), list[float]()

        def note(codes: list[int]) -> None:
            assert {*codes} <= {ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
            made.extend(trio.current_time() for code in codes if code == ErrorCode.NONE)

        async def create(connection: Connection) -> None:
            request = CreateTopicsRequest([CreatableTopic(next(fresh), 1, 1)])
            answer, _ = await connection.roundtrip(request)
            assert isinstance(answer, CreateTopicsResponse)
            note([each.error_code for each in answer.topics])
            await trio.sleep(0.2)

        async def create_as_kafka(client: KafkaClient, version: int) -> None:
            topic = {"name": next(fresh), "num_partitions": 1, "replication_factor": 1}
            fields = {"topics": [topic], "timeout": timedelta(seconds=30), "validate_only": False}
            answer = await client.ask(ApiKey.CREATE_TOPICS, version, **fields)
            note([each.error_code for each in answer.topics])
            await trio.sleep(0.2)

        new, old = await kafka_client(cluster), await kafka_client(cluster)
        many = [await connect(cluster, f"c-{number}") for number in range(4)]
        async with with_a_bystander(cluster, partial(alter, cluster, ANYONE, controller_mutation_rate=MUTATIONS_PER_S)):
            loops = [partial(create_as_kafka, new, 7), partial(create_as_kafka, old, 4)]
            loops += [partial(anew, cluster, fresh, create)] * 2
            began = trio.current_time() + SAVED_UP_S
            await during(SAVED_UP_S + MINUTE_S, *loops, *(partial(create, each) for each in many))
        in_a_minute = sum(at >= began for at in made)
        assert in_a_minute / (MUTATIONS_PER_S * MINUTE_S) == pytest.approx(1, abs=0.05)


async def test_topics_that_are_named_are_created_at_the_rate_of_the_quota(autojump_clock: MockClock) -> None:
    """By many connections and client ids that ask for their metadata, of both dialects, ten at a time."""
    async with cluster_of_one() as cluster:
        fresh, told_ms = names(), list[int]()

        async def ask(connection: Connection) -> None:
            answer, _ = await connection.roundtrip(MetadataRequest([next(fresh) for _ in range(10)], True))
            assert isinstance(answer, MetadataResponse)
            assert {each.error_code for each in answer.topics} == {ErrorCode.LEADER_NOT_AVAILABLE}
            told_ms.append(answer.throttle_time_ms)
            await trio.sleep(0.2)

        async def ask_as_kafka(client: KafkaClient) -> None:
            topics = [{"name": next(fresh)} for _ in range(10)]
            await client.ask(ApiKey.METADATA, 8, topics=topics, allow_auto_topic_creation=True)
            await trio.sleep(0.2)

        made, before = cluster.broker(1).data.metadata.topics, list[int]()

        async def count() -> None:
            await trio.sleep(SAVED_UP_S)
            before.append(len(made))
            await trio.sleep(MINUTE_S)

        kept, kafka = await connect(cluster), await kafka_client(cluster)
        async with with_a_bystander(cluster, partial(alter, cluster, ANYONE, controller_mutation_rate=MUTATIONS_PER_S)):
            loops = [partial(ask, kept), partial(ask_as_kafka, kafka), *[partial(anew, cluster, fresh, ask)] * 3]
            await during(SAVED_UP_S + MINUTE_S, count, *loops)
        assert (len(made) - before[0]) / (MUTATIONS_PER_S * MINUTE_S) == pytest.approx(1, abs=0.05)
        assert max(told_ms) > 0


async def test_a_topic_that_is_named_and_cannot_be_created_does_not_count(autojump_clock: MockClock) -> None:
    async with MemoryCluster(1, config={"default.replication.factor": "3"}).running() as cluster:
        await alter(cluster, ANYONE, controller_mutation_rate=0.1)
        connection = await connect(cluster)
        for number in range(5):
            answer, _ = await connection.roundtrip(MetadataRequest([f"t-{number}"], True))
            assert isinstance(answer, MetadataResponse) and answer.throttle_time_ms == 0
            await trio.sleep(0.5)
        assert "automatic creation failed" in "".join(cluster.history)


def create(topic: str, timeout_ms: int) -> Request:
    return CreateTopicsRequest([CreatableTopic(topic, 8, 1)], timeout_ms)


def grow(topic: str, timeout_ms: int) -> Request:
    return CreatePartitionsRequest([CreatePartitionsTopic(topic, 16)], timeout_ms)


def delete(topic: str, timeout_ms: int) -> Request:
    return DeleteTopicsRequest([topic], timeout_ms)


@pytest.mark.parametrize(("mutate", "results"), [(create, "topics"), (grow, "results"), (delete, "responses")])
async def test_mutations_count_that_are_not_waited_for(
    autojump_clock: MockClock, mutate: Callable[[str, int], Request], results: str
) -> None:
    """They go on when they are answered with an error."""
    async with cluster_of_one() as cluster:
        if mutate is not create:
            for number in range(4):
                await (await connect(cluster)).roundtrip(create(f"t-{number}", 30_000))
        await alter(cluster, ANYONE, controller_mutation_rate=1)
        codes = list[int]()
        for number in range(4):
            answer, _ = await (await connect(cluster)).roundtrip(mutate(f"t-{number}", 0))
            codes += [each.error_code for each in getattr(answer, results)]
        assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 2 + [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2


async def test_a_deletion_counts_that_is_named_among_doubles_and_topics_that_are_not_there(
    autojump_clock: MockClock,
) -> None:
    async with cluster_of_one() as cluster:
        for number in range(4):
            await (await connect(cluster)).roundtrip(create(f"t-{number}", 30_000))
        await alter(cluster, ANYONE, controller_mutation_rate=1)
        codes = list[list[int]]()
        for number in range(3):
            names = ["unknown", "unknown", f"t-{number}", "nowhere"]
            answer, _ = await (await connect(cluster)).roundtrip(DeleteTopicsRequest(names))
            assert isinstance(answer, DeleteTopicsResponse)
            codes.append([each.error_code for each in answer.responses])
        unknown, throttled = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert codes == [*[[unknown, ErrorCode.NONE, unknown]] * 2, [unknown, throttled, unknown]]


async def test_what_must_fail_is_told_so_while_partitions_are_owed(autojump_clock: MockClock) -> None:
    async with cluster_of_one() as cluster:
        await alter(cluster, ANYONE, controller_mutation_rate=1)
        creation = CreateTopicsRequest([CreatableTopic("owed", 30, 1)])
        failing: list[tuple[Request, str]] = [
            (CreateTopicsRequest([CreatableTopic("owed", 8, 1), CreatableTopic("in valid", 8, 1)]), "topics"),
            (CreatePartitionsRequest([CreatePartitionsTopic("owed", 30), CreatePartitionsTopic("no", 3)]), "results"),
        ]
        await (await connect(cluster)).roundtrip(creation)
        codes = list[int]()
        for request, results in failing:
            answer, _ = await (await connect(cluster)).roundtrip(request)
            assert isinstance(answer, CreateTopicsResponse | CreatePartitionsResponse) and not answer.throttle_time_ms
            codes += [each.error_code for each in getattr(answer, results)]
        assert codes == [
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


async def test_an_address_connects_at_the_rate_of_its_quota_whatever_it_tries(autojump_clock: MockClock) -> None:
    """In both dialects, by many client ids, several at once, and while quotas are described and read again; another
    address connects as before."""
    async with cluster_of_one() as cluster:
        (listener,) = cluster.broker(1).listeners.addresses.values()
        suspect = cluster.network.node("suspect", SUSPECT)
        bystander = cluster.network.node("bystander", BYSTANDER)
        fresh, served, took_s = names(), list[float](), list[float]()

        async def connect_anew() -> None:
            with suppress(ClientError):
                (await Connection.open(suspect, listener, client_id=next(fresh))).close()
                served.append(trio.current_time())

        async def connect_as_kafka() -> None:
            client = KafkaClient(await suspect.connect(listener))
            with suppress(TransportClosed):
                await client.ask(ApiKey.METADATA, 8, topics=[])
                served.append(trio.current_time())
            client.transport.close()

        async def look_on() -> None:
            began = trio.current_time()
            (await Connection.open(bystander, listener)).close()
            took_s.append(trio.current_time() - began)
            await trio.sleep(0.5)

        await during(5, look_on)
        before_s = max(took_s)
        async with cluster.admin() as admin:
            await admin.alter_quotas(QuotaOwner(ip=SUSPECT), {"connection_creation_rate": CONNECTIONS_PER_S})
            await trio.sleep(1)
            took_s.clear()

            async def describe() -> None:
                await admin.describe_quotas()
                await cluster.broker(1).quotas.read_all()
                await trio.sleep(0.5)

            async with with_a_bystander(cluster, trio.lowlevel.checkpoint):
                began = trio.current_time() + SAVED_UP_S
                clients = [*[connect_anew] * 4, connect_as_kafka, connect_as_kafka]
                await during(SAVED_UP_S + MINUTE_S, look_on, describe, *clients)
        in_a_minute = sum(at >= began for at in served)
        assert in_a_minute / (CONNECTIONS_PER_S * MINUTE_S) == pytest.approx(1, abs=0.05)
        assert len(took_s) > 100 and max(took_s) == pytest.approx(before_s)
