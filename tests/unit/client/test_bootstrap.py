"""A client whose cluster was never reached: calls end in `bootstrap_timeout_ms` and name the addresses and causes.
Once a broker has answered, they are as patient as their own timeouts say."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from itertools import pairwise

import pytest
import trio

from strandline.client import TrioAdmin, TrioConsumer, TrioProducer
from strandline.client.bootstrap import Bootstrap, Reaching
from strandline.client.errors import ClientError, InvalidTopic, NoBrokerReachable, RequestTimedOut, UnknownTopic
from strandline.client.strangers import who_answers
from strandline.client.sync import Admin, Consumer
from strandline.client.sync_producer import Producer
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition
from strandline.runtime.network import Address, CannotConnect
from unit.client.fake_broker import ApiKey, FakeCluster, Fault

T0, T9, ABSENT = TopicPartition("t", 0), TopicPartition("t", 9), TopicPartition("absent", 0)

REFUSES, SWALLOWS, SILENT, WEB, DROPS = range(5)
"""What is at each address of a cluster that nobody is to reach."""


async def unreachable(nursery: trio.Nursery) -> FakeCluster:
    cluster = FakeCluster(5)
    for number in (SWALLOWS, SILENT, WEB, DROPS):
        await nursery.start(cluster.brokers[number].run)
    cluster.memory.cut_both("client", f"broker-{SWALLOWS}")
    faults = {
        SILENT: Fault(hang=True),
        WEB: Fault(raw=lambda header: b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        DROPS: Fault(close=True),
    }
    for number, fault in faults.items():
        cluster.brokers[number].faults[ApiKey.API_VERSIONS].extend([fault] * 1000)
    return cluster


EXPECTED = (
    "no broker has answered within 10000 ms (bootstrap_timeout_ms): broker-0:9092: refused; broker-1:9092: no answer; "
    "broker-2:9092: it takes connections and does not answer; broker-3:9092: a web server answers there: give the port "
    "of a broker; broker-4:9092: it took the connection and dropped it at the first request, as a Kafka, a ZooKeeper "
    "or a port with TLS does, and a broker that has too many connections (connection_creation_rate, max.connections); "
    "is a broker running there, and is bootstrap_servers right?"
)


async def send(cluster: FakeCluster) -> None:
    async with TrioProducer(cluster.bootstrap, environment=cluster.environment()) as producer:
        await producer.send("t", b"x")


async def send_many(cluster: FakeCluster) -> None:
    async with TrioProducer(cluster.bootstrap, environment=cluster.environment()) as producer:
        await (await producer.send_many("t", [(None, b"x")]))


async def partitions_for(cluster: FakeCluster) -> None:
    async with TrioProducer(cluster.bootstrap, environment=cluster.environment()) as producer:
        await producer.partitions_for("t")


def consumed(call: Callable[[TrioConsumer], Awaitable[object]]) -> Callable[[FakeCluster], Awaitable[None]]:
    async def run(cluster: FakeCluster) -> None:
        settings = {"group_id": "g", "enable_auto_commit": False}
        async with TrioConsumer(cluster.bootstrap, environment=cluster.environment(), **settings) as consumer:
            await call(consumer)

    return run


async def poll_assigned(consumer: TrioConsumer) -> None:
    await consumer.assign([T0])
    await consumer.poll(timeout_ms=60_000)


async def poll_subscribed(consumer: TrioConsumer) -> None:
    consumer.subscribe(["t"])
    await consumer.poll(timeout_ms=60_000)


async def fetch_batches(consumer: TrioConsumer) -> None:
    await consumer.assign([T0])
    await consumer.fetch_batches(timeout_ms=60_000)


async def position(consumer: TrioConsumer) -> None:
    await consumer.assign([T0])
    await consumer.position(T0)


def administered(call: Callable[[TrioAdmin], Awaitable[object]]) -> Callable[[FakeCluster], Awaitable[None]]:
    async def run(cluster: FakeCluster) -> None:
        async with TrioAdmin(cluster.bootstrap, environment=cluster.environment()) as admin:
            await call(admin)

    return run


async def raise_first(results: Awaitable[dict[str, object]]) -> None:
    for result in (await results).values():
        if isinstance(result, Exception):
            raise result


CALLS: dict[str, Callable[[FakeCluster], Awaitable[None]]] = {
    "send": send,
    "send_many": send_many,
    "partitions_for": partitions_for,
    "poll of assigned": consumed(poll_assigned),
    "poll of subscribed": consumed(poll_subscribed),
    "fetch_batches": consumed(fetch_batches),
    "position": consumed(position),
    "partitions_for_topic": consumed(lambda consumer: consumer.partitions_for_topic("t")),
    "end_offsets": consumed(lambda consumer: consumer.end_offsets([T0])),
    "offsets_for_times": consumed(lambda consumer: consumer.offsets_for_times({T0: 1})),
    "committed": consumed(lambda consumer: consumer.committed([T0])),
    "commit": consumed(lambda consumer: consumer.commit({T0: 1})),
    "list_topics": administered(lambda admin: admin.list_topics()),
    "create_topic": administered(lambda admin: admin.create_topic("t")),
    "describe_cluster": administered(lambda admin: admin.describe_cluster()),
    "list_groups": administered(lambda admin: admin.list_groups()),
    "describe_groups": administered(lambda admin: raise_first(admin.describe_groups(["g"]))),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
async def test_every_call_names_each_address_and_why_it_failed(
    call: Callable[[FakeCluster], Awaitable[None]], autojump_clock: object
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = await unreachable(nursery)
        with pytest.raises(NoBrokerReachable) as failure:
            await call(cluster)
        assert str(failure.value) == EXPECTED
        assert 10 <= trio.current_time() < 11
        nursery.cancel_scope.cancel()


async def test_a_broker_that_tells_its_versions_and_nothing_more_for_a_while_is_waited_for(
    autojump_clock: object,
) -> None:
    cluster = FakeCluster()
    cluster.brokers[0].faults[ApiKey.METADATA].extend([Fault(hang=True)] * 5)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioAdmin(cluster.bootstrap, environment=cluster.environment(), bootstrap_timeout_ms=2000) as admin:
            assert await admin.list_topics(timeout_ms=60_000) == []
        nursery.cancel_scope.cancel()


HANGS = [Fault(hang=True)] * 1000


@pytest.mark.parametrize(
    ("faults", "is_silence"),
    [
        ({}, False),
        ({ApiKey.API_VERSIONS: HANGS}, False),
        ({ApiKey.API_VERSIONS: [Fault(close=True)] * 1000}, False),
        ({ApiKey.METADATA: HANGS}, True),
        ({ApiKey.CREATE_TOPICS: HANGS}, True),
        ({ApiKey.CREATE_TOPICS: [Fault(error=ErrorCode.NOT_CONTROLLER)] * 1000}, False),
    ],
    ids=["refused", "says nothing at all", "drops", "tells no layout", "never done", "no controller"],
)
async def test_an_error_tells_whether_a_broker_told_its_versions_and_nothing_more(
    faults: dict[ApiKey, list[Fault]], is_silence: bool, autojump_clock: object
) -> None:
    cluster = FakeCluster()
    async with trio.open_nursery() as nursery:
        if faults:
            await cluster.start(nursery)
        for api_key, queue in faults.items():
            cluster.brokers[0].faults[api_key].extend(queue)
        async with TrioAdmin(cluster.bootstrap, environment=cluster.environment()) as admin:
            with pytest.raises(NoBrokerReachable if ApiKey.CREATE_TOPICS not in faults else RequestTimedOut) as failure:
                await admin.create_topic("t", timeout_ms=20_000)
        assert failure.value.is_silence == is_silence
        assert admin.was_reached() == (bool(faults) and ApiKey.API_VERSIONS not in faults)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("faults", "is_silence"),
    [
        ({ApiKey.CREATE_TOPICS: [Fault(close=True)], ApiKey.API_VERSIONS: HANGS}, False),
        ({ApiKey.CREATE_TOPICS: HANGS}, True),
    ],
    ids=["hangs when it is connected to anew", "never done"],
)
async def test_where_the_time_ends_an_attempt_the_versions_count_of_the_one_that_was_asked(
    faults: dict[ApiKey, list[Fault]], is_silence: bool, autojump_clock: object
) -> None:
    """It is the controller, and has been asked before; the other broker tells the layout."""
    cluster = FakeCluster(2)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioAdmin(cluster.bootstrap, environment=cluster.environment()) as admin:
            await admin.create_topic("before", 1, 1)
            for api_key, queue in faults.items():
                cluster.brokers[cluster.controller_id].faults[api_key].extend(queue)
            with pytest.raises(RequestTimedOut) as failure:
                await admin.create_topic("t", timeout_ms=15_000)
        assert failure.value.is_silence == is_silence
        nursery.cancel_scope.cancel()


async def test_a_name_that_is_not_known_is_told(autojump_clock: object) -> None:
    class NoNames:
        async def connect(self, address: Address) -> None:
            raise CannotConnect(f"cannot connect to {address}: Name or service not known")

    cluster = FakeCluster(1, NoNames())
    async with TrioAdmin("nosuch:9092", environment=cluster.environment(), bootstrap_timeout_ms=2000) as admin:
        with pytest.raises(NoBrokerReachable, match=r"2000 ms .*: nosuch:9092: Name or service not known; is a broker"):
            await admin.list_topics()


async def test_short_polls_are_told_by_the_first_one_after_the_time(autojump_clock: object) -> None:
    cluster = FakeCluster()
    async with TrioConsumer(cluster.bootstrap, environment=cluster.environment()) as consumer:
        await consumer.assign([T0])
        polls = 0
        with pytest.raises(NoBrokerReachable):
            while True:
                assert await consumer.poll(timeout_ms=300) == {}
                polls += 1
                assert isinstance(consumer.waiting()[T0], NoBrokerReachable)
        assert polls == 33  # of 300 ms: all that ended before 10 s


async def test_who_polls_again_learns_of_another_attempt_each_time(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    cluster.fill(T0, [b"a"])
    settings = {"auto_offset_reset": "earliest", "retry_backoff_ms": 1000}
    async with (
        trio.open_nursery() as nursery,
        TrioConsumer(cluster.bootstrap, environment=cluster.environment(), **settings) as consumer,
    ):
        await consumer.assign([T0])
        with pytest.raises(NoBrokerReachable):
            await consumer.poll(timeout_ms=60_000)
        told_at = [trio.current_time()]
        for _ in range(4):
            with pytest.raises(NoBrokerReachable):
                await consumer.poll(timeout_ms=60_000)
            told_at.append(trio.current_time())
        pauses = [after - before for before, after in pairwise(told_at[1:])]
        assert all(0.8 <= pause <= 1.2 for pause in pauses), "as often as it is tried, and no oftener"
        with pytest.raises(NoBrokerReachable):
            await consumer.poll(timeout_ms=0)
        await cluster.start(nursery)
        polled = await consumer.poll(timeout_ms=60_000)
        assert [record.value for record in polled[T0]] == [b"a"]
        nursery.cancel_scope.cancel()


async def test_a_later_record_finds_the_cluster_that_has_come_up(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with (
        trio.open_nursery() as nursery,
        TrioProducer(cluster.bootstrap, environment=cluster.environment()) as producer,
    ):
        with pytest.raises(NoBrokerReachable):
            await producer.send("t", b"lost")
        before = trio.current_time()
        with pytest.raises(NoBrokerReachable):
            await producer.send("t", b"lost, too")
        assert trio.current_time() == before, "thousands may wait behind one another"
        await cluster.start(nursery)
        await trio.sleep(3)
        assert (await (await producer.send("t", b"there"))).offset == 0
        await producer.close()
        nursery.cancel_scope.cancel()


async def test_brokers_that_die_after_they_were_reached_are_waited_for(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    cluster.add_topic("u")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        environment = cluster.environment()
        async with (
            TrioProducer(cluster.bootstrap, environment=environment) as producer,
            TrioConsumer(cluster.bootstrap, environment=environment, auto_offset_reset="earliest") as consumer,
        ):
            await consumer.assign([T0])
            await (await producer.send("t", b"a"))
            assert await consumer.poll(timeout_ms=10_000)
            cluster.brokers[0].kill()
            assert await consumer.poll(timeout_ms=40_000) == {}

            async def come_back() -> None:
                await trio.sleep(15)
                await nursery.start(cluster.brokers[0].run)

            nursery.start_soon(come_back)
            assert await producer.partitions_for("u") == [0]
        nursery.cancel_scope.cancel()


async def test_assigning_asks_nobody(autojump_clock: object) -> None:
    cluster = FakeCluster()
    async with TrioConsumer(cluster.bootstrap, environment=cluster.environment()) as consumer:
        before = trio.current_time()
        await consumer.assign([T0])
        assert trio.current_time() == before and consumer.assignment == [T0]
        with pytest.raises(InvalidTopic):
            await consumer.assign([TopicPartition("no/topic", 0)])


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        (ABSENT, r"topic 'absent', which is assigned: .*no broker knows it; check the spelling, or create it"),
        (T9, r"topic 't', which is assigned, has no partition 9: .*only 2 of them; assign others, or add partitions"),
    ],
)
@pytest.mark.parametrize("call", ["poll", "position"])
async def test_what_does_not_exist_is_told_by_who_waits_for_it(
    partition: TopicPartition, expected: str, call: str, autojump_clock: object
) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 2)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioConsumer(cluster.bootstrap, environment=cluster.environment()) as consumer:
            await consumer.assign([T0, partition])
            for _ in range(2):  # until it is there, or not assigned any more
                with pytest.raises(UnknownTopic, match=expected):
                    await (consumer.poll(timeout_ms=60_000) if call == "poll" else consumer.position(partition))
            assert trio.current_time() < 25
            cluster.add_topic(partition.topic, partition.partition + 1)
            assert await consumer.position(partition) == 0
        nursery.cancel_scope.cancel()


def test_each_of_many_addresses_has_its_share_of_the_time() -> None:
    addresses = [Address("b", port) for port in range(20)]
    bootstrap = Bootstrap(addresses, 10_000)
    assert bootstrap.attempt_ms(1_000) == 500
    assert Bootstrap(addresses[:2], 10_000).attempt_ms(1_000) == 1_000
    bootstrap.answered()
    assert bootstrap.attempt_ms(1_000) == 1_000


def test_the_time_begins_with_the_first_attempt_and_ends_with_an_answer() -> None:
    bootstrap = Bootstrap([Address("b", 1)], 10_000)
    assert not bootstrap.is_over(1e9), "nobody wanted anything yet"
    bootstrap.begin(5.0)
    bootstrap.begin(12.0)
    assert (bootstrap.is_over(14.9), bootstrap.is_over(15.0)) == (False, True)
    Reaching(bootstrap, 15.0).check(15.0, deadline=20.0)
    with pytest.raises(NoBrokerReachable, match="b:1: no answer"):
        Reaching(bootstrap, 15.0).check(20.0, deadline=20.0)
    bootstrap.answered()
    assert not bootstrap.is_over(1e9)


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x46", "it speaks TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "an SSH server"),
        (b"+OK what is it", "no strandline broker (b'+OK what is it')"),
        (b"", "no strandline broker"),
    ],
)
def test_who_answers_is_told_by_the_first_bytes(received: bytes, expected: str) -> None:
    assert expected in who_answers(received)


# --- Real sockets ----------------------------------------------------------------------------------------------


@pytest.fixture
def nobody() -> Iterator[tuple[str, str, str]]:
    """An address that refuses, one that leaves packets unanswered (its queue is full), and a name without address."""
    with ExitStack() as stack:
        refusing = stack.enter_context(closing(socket.socket()))
        refusing.bind(("127.0.0.1", 0))
        full = stack.enter_context(closing(socket.socket()))
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(closing(socket.socket()))
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield f"127.0.0.1:{refusing.getsockname()[1]}", f"127.0.0.1:{full.getsockname()[1]}", "nosuch.invalid:9092"


def test_real_addresses_are_told_apart_by_each_client(nobody: tuple[str, str, str]) -> None:
    refusing, full, nameless = nobody
    servers = ",".join(nobody)

    def failure(call: Callable[[], object]) -> str:
        with pytest.raises(ClientError) as raised:
            call()
        assert type(raised.value) is NoBrokerReachable
        return str(raised.value)

    limit = {"bootstrap_timeout_ms": 1500}
    with (
        Producer(servers, **limit) as producer,
        Consumer(servers, **limit) as consumer,
        Admin(servers, **limit) as admin,
    ):
        consumer.assign([T0])
        futures = [producer.send("t", b"x") for _ in range(100)]
        texts = {
            failure(lambda: consumer.poll(timeout_ms=60_000)),
            failure(lambda: admin.list_topics()),
            *(failure(future.result) for future in futures),
        }
    for text in texts:
        assert f"{refusing}: Connection refused" in text
        assert f"{full}: no answer" in text
        assert f"{nameless}: " in text and "bootstrap_servers" in text
