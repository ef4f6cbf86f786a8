"""Quotas on whole brokers: altered while they run, held whoever tries to dodge, and nobody else notices."""

from __future__ import annotations

from datetime import timedelta

import pytest
import trio
from trio.testing import MockClock

from strandline.client.connection import Connection
from strandline.client.errors import AnsweredError, ClientError
from strandline.client.quotas import DEFAULT_ENTITY, QuotaOwner
from strandline.protocol.api import ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import CONFIG_PATH, ConfigZnode
from strandline.runtime.network import Address, TransportClosed
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.kafka_client import KafkaClient, kafka_frame
from support.quota_cluster import (
    ANYONE,
    BATCH,
    MINUTE_S,
    RATE,
    T0,
    alter,
    cluster_of_one,
    connect,
    during,
    fetch,
    kafka_client,
    kafka_fetch,
    kafka_produce,
    log_bytes,
    produce,
)


async def test_three_producers_of_both_dialects_keep_to_the_quota_of_their_user_whatever_they_try(
    autojump_clock: MockClock,
) -> None:
    async with cluster_of_one() as cluster:
        await alter(cluster, ANYONE, producer_byte_rate=RATE)
        fair, kafka = await connect(cluster, "fair"), await kafka_client(cluster)
        many = [await connect(cluster, f"dodger-{number}") for number in range(10)]
        names = iter(range(100_000))

        async def made_anew() -> None:
            connection = await connect(cluster, f"new-{next(names)}")
            try:
                await produce(connection)
            finally:
                connection.close()

        before = log_bytes(cluster)
        await during(
            MINUTE_S,
            lambda: produce(fair),
            lambda: kafka_produce(kafka),
            *(lambda each=each: produce(each) for each in many),
            *([made_anew] * 5),
        )
        assert (log_bytes(cluster) - before) / (RATE * MINUTE_S) == pytest.approx(1, abs=0.05)


async def test_consumers_of_both_dialects_keep_to_it_whatever_they_try(autojump_clock: MockClock) -> None:
    """One of them by many connections and client ids, and as a replica."""
    async with cluster_of_one() as cluster:
        source = await connect(cluster)
        for _ in range(100):
            await produce(source)
        await alter(cluster, ANYONE, consumer_byte_rate=RATE)
        read: list[int] = []
        refused: list[int] = []

        async def consume(connection: Connection) -> None:
            read.append((await fetch(connection, 0))[1])

        async def consume_as_kafka(client: KafkaClient) -> None:
            read.append((await kafka_fetch(client))[1])

        async def forge(connection: Connection) -> None:
            answer, size_bytes = await fetch(connection, 0, replica_id=1)
            refused.append(answer.error_code)
            read.append(size_bytes)

        async def forge_as_kafka(client: KafkaClient) -> None:
            code, size_bytes = await kafka_fetch(client, replica_id=1)
            refused.append(code)
            read.append(size_bytes)

        kafka, forger, kafka_forger = await kafka_client(cluster), await connect(cluster), await kafka_client(cluster)
        connections = [await connect(cluster, f"c-{number}") for number in range(8)]
        await during(
            MINUTE_S,
            lambda: consume_as_kafka(kafka),
            lambda: forge(forger),
            lambda: forge_as_kafka(kafka_forger),
            *(lambda each=each: consume(each) for each in connections),
        )
        assert sum(read) / (RATE * MINUTE_S) == pytest.approx(1, abs=0.05)
        assert {*refused} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


async def test_who_waits_for_records_gets_them_within_the_quota(autojump_clock: MockClock) -> None:
    """Many fetches wait, one record comes, and all would be answered at once."""
    async with cluster_of_one() as cluster:
        await alter(cluster, ANYONE, consumer_byte_rate=1000)
        source, told = await connect(cluster), []

        async def wait(connection: Connection) -> None:
            told.append(await fetch(connection, 0))

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(wait, await connect(cluster, f"c-{number}"))
            await trio.sleep(0.1)
            await produce(source)
        assert sorted(size for _, size in told) == [0, 0, 0, 0, len(BATCH)]
        assert all(10_000 <= answer.throttle_time_ms <= 11_000 for answer, _ in told)
        counts = cluster.broker(1).data.replicas.traffic.rows["t"]
        assert counts.bytes_out == len(BATCH), "what is withheld is not sent"


async def test_real_consumers_read_everything_once_however_often_they_are_held(autojump_clock: MockClock) -> None:
    """Answers that leave records out must not move the positions of their sessions."""
    async with MemoryCluster(1).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", 4, 1)
        async with cluster.producer(linger_ms=0) as producer:
            for number in range(80):
                await producer.send("t", b"%d" % number + bytes(10_000), partition=number % 4)
        await alter(cluster, ANYONE, consumer_byte_rate=100_000)
        began = trio.current_time()

        async def read_all() -> None:
            async with cluster.consumer(fetch_max_wait_ms=200) as consumer:
                partitions = [TopicPartition("t", number) for number in range(4)]
                await consumer.assign(partitions)
                for partition in partitions:
                    consumer.seek(partition, 0)
                found: dict[int, list[int]] = {number: [] for number in range(4)}
                while sum(map(len, found.values())) < 80:
                    for partition, records in (await consumer.poll(timeout_ms=1000)).items():
                        found[partition.partition] += [int(each.value[:-10_000]) for each in records]
                assert found == {number: list(range(number, 80, 4)) for number in range(4)}

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(read_all)
        assert trio.current_time() - began == pytest.approx(24, abs=3)


async def test_who_exceeds_it_is_told_and_muted_and_others_notice_nothing(autojump_clock: MockClock) -> None:
    async with cluster_of_one() as cluster:
        await alter(cluster, QuotaOwner(client_id="slow"), producer_byte_rate=len(BATCH) // 2)
        slow, other = await connect(cluster, "slow"), await connect(cluster, "other")
        first = await produce(slow)
        began = trio.current_time()
        assert first.throttle_time_ms == pytest.approx(1000, abs=200)
        samples = [each for family in cluster.broker(1).metrics.collect() for each in family.samples]
        [held] = [each for each in samples if each.name == "kafka_server_quota_throttle_time"]
        assert held.labels == {"resource": "Produce", "user": "", "clientId": "slow"} and held.value > 800
        second = trio.Event()

        async def again() -> None:
            await produce(slow)
            second.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(again)
            for _ in range(20):
                assert (await produce(other)).throttle_time_ms == 0
            assert trio.current_time() - began < 0.5 and not second.is_set()
        assert trio.current_time() - began == pytest.approx(first.throttle_time_ms / 1000, abs=0.1)


async def test_a_quota_that_is_removed_lets_go_who_is_muted(autojump_clock: MockClock) -> None:
    async with cluster_of_one() as cluster:
        await alter(cluster, ANYONE, producer_byte_rate=1)
        muted, in_line = await connect(cluster), await connect(cluster)
        assert (await produce(muted)).throttle_time_ms > 10_000
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, muted)
            nursery.start_soon(produce, in_line)
            await trio.sleep(1)
            await alter(cluster, ANYONE, producer_byte_rate=None)
        assert trio.current_time() - began < 3
        assert (await produce(muted)).throttle_time_ms == 0
        channel = cluster.broker(1).channel
        assert channel.before_large is channel.debt_of is None, "nothing stands before the handlers any more"


async def test_who_gets_a_quota_of_their_own_is_let_go_and_the_others_keep_their_place(
    autojump_clock: MockClock,
) -> None:
    async with cluster_of_one() as cluster:
        await alter(cluster, ANYONE, producer_byte_rate=len(BATCH) // 10)
        muted, in_line, other = [await connect(cluster, each) for each in ("app", "app", "other")]
        assert (await produce(muted)).throttle_time_ms > 8000
        began, passed_s = trio.current_time(), dict[str, float]()

        async def go_on(name: str, connection: Connection) -> None:
            await produce(connection)
            passed_s[name] = trio.current_time() - began

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_on, "muted", muted)
            nursery.start_soon(go_on, "other", other)
            await trio.sleep(0.5)
            nursery.start_soon(go_on, "in line", in_line)
            await trio.sleep(0.5)
            await alter(cluster, QuotaOwner(user="ANONYMOUS", client_id="app"), producer_byte_rate=10**9)
        assert passed_s.pop("other") == pytest.approx(9, abs=0.5)
        assert max(passed_s.values()) < 3 and len(passed_s) == 2


async def test_one_that_is_raised_counts_at_once(autojump_clock: MockClock) -> None:
    async with cluster_of_one() as cluster:
        await alter(cluster, ANYONE, producer_byte_rate=1)
        connection = await connect(cluster)
        await produce(connection)
        await alter(cluster, ANYONE, producer_byte_rate=10**9)
        began = trio.current_time()
        assert (await produce(connection)).throttle_time_ms == 0
        assert trio.current_time() - began < 0.5


async def test_muted_connections_that_close_leave_nothing_behind(autojump_clock: MockClock) -> None:
    async with cluster_of_one() as cluster:
        await alter(cluster, ANYONE, producer_byte_rate=1)
        connections = [await connect(cluster) for _ in range(5)]
        await produce(connections[0])
        async with trio.open_nursery() as nursery:
            for each in connections[1:]:
                nursery.start_soon(produce_until_closed, each)
            await trio.sleep(1)
            for each in connections:
                each.close()
        await trio.sleep(120)
        broker = cluster.broker(1)
        [sensor] = broker.quotas.sensors["producer_byte_rate"]._sensors.values()
        assert not sensor.line and not sensor.muted
        open_ones = [each for processor in broker.listeners._processors for each in processor.connections]
        assert not [each for each in open_ones if each.context.peer.host == "client"]


async def produce_until_closed(connection: Connection) -> None:
    with pytest.raises((ClientError, TransportClosed)):
        await produce(connection)


async def test_a_broker_stops_in_time_while_connections_are_held(autojump_clock: MockClock) -> None:
    async with cluster_of_one() as cluster:
        await alter(cluster, ANYONE, producer_byte_rate=1)
        connections = [await connect(cluster) for _ in range(3)]
        await produce(connections[0])
        async with trio.open_nursery() as nursery:
            for each in connections[1:]:
                nursery.start_soon(produce_until_closed, each)
            await trio.sleep(1)
            began = trio.current_time()
            await cluster.stop(1)
            assert trio.current_time() - began < 8


async def test_acks_0_is_held_though_nobody_is_told(autojump_clock: MockClock) -> None:
    async with cluster_of_one() as cluster:
        await alter(cluster, ANYONE, producer_byte_rate=len(BATCH))
        client = await kafka_client(cluster)
        before = log_bytes(cluster)
        body = bytes.fromhex("ffff 0000 000001f4 00000001 0001 74 00000001 00000000")
        body += len(BATCH).to_bytes(4, "big") + BATCH
        frame = kafka_frame(ApiKey.PRODUCE, 3, body)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, frame * 100)
            await trio.sleep(20)
            passed = (log_bytes(cluster) - before) / len(BATCH)
            nursery.cancel_scope.cancel()
        assert passed == pytest.approx(20, abs=2), "frames that were sent ahead wait as those that were not"


async def test_what_brokers_fetch_from_each_other_is_exempt(
    autojump_clock: MockClock,
) -> None:
    async with MemoryCluster(2).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", assignments={0: [1, 2]})
        await alter(cluster, QuotaOwner(user=DEFAULT_ENTITY), consumer_byte_rate=1)
        connection = await connect(cluster)
        for _ in range(5):
            await produce(connection, acks=-1)
        assert cluster.partition(2, T0).log.log_end_offset == 5


async def test_controller_mutations_are_refused_by_topic_and_may_be_repeated(autojump_clock: MockClock) -> None:
    async with MemoryCluster(1, config={"num.partitions": "5"}).running() as cluster:
        await alter(cluster, ANYONE, controller_mutation_rate=1)
        async with cluster.admin() as admin, cluster.admin() as other:
            await admin.create_topic("a", 15, 1)
            with pytest.raises(AnsweredError) as caught:
                await other.create_topic("b", -1, 1)
            assert caught.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            await trio.sleep(5)
            await other.create_topic("b", -1, 1)
            assert await admin.list_topics() == ["a", "b"]
        client = await kafka_client(cluster)
        old = await client.ask(ApiKey.DELETE_TOPICS, 4, topic_names=("a",), timeout=timedelta(seconds=5))
        assert [each.error_code for each in old.responses] == [0], "who does not know the error is held instead"
        assert old.throttle_time > timedelta(seconds=5)


async def test_wrong_values_are_named_and_the_last_good_one_counts(autojump_clock: MockClock) -> None:
    async with cluster_of_one() as cluster:
        await alter(cluster, ANYONE, producer_byte_rate=5000)
        client = cluster.zookeeper.client()
        await client.start()
        path = f"{CONFIG_PATH}/users/ANONYMOUS"
        quotas = cluster.broker(1).quotas
        for data in (ConfigZnode({"producer_byte_rate": "fast", "SCRAM-SHA-256": "x"}).encode(), b"junk"):
            await client.set(path, data, -1)
            await quotas.read_all()
            [values] = quotas.values.values()
            assert values == {"producer_byte_rate": 5000}
            assert quotas._troubled("users") == ["ANONYMOUS"]
        assert "the last good value counts" in "".join(cluster.history)
        await client.set(path, ConfigZnode({"producer_byte_rate": "7000"}).encode(), -1)
        await cluster.until(lambda: [*quotas.values.values()] == [{"producer_byte_rate": 7000}], "mended", within_s=60)
        assert quotas._troubled("users") == []


@pytest.mark.parametrize(
    ("owner", "changes", "told"),
    [
        (ANYONE, {"producer_byte_rate": 0.0}, "a whole number, 1 or more"),
        (ANYONE, {"byte_rate": 1.0}, "there is no quota 'byte_rate'"),
        (QuotaOwner(user="a", ip="1.2.3.4"), {"connection_creation_rate": 1.0}, "an ip stands alone"),
        (QuotaOwner(ip="nonsense/4"), {"connection_creation_rate": 1.0}, "'nonsense/4' is no IP address"),
        (QuotaOwner(ip="localhost"), {"connection_creation_rate": 1.0}, "names are not looked up"),
        (QuotaOwner(ip="300.1.1.1"), {"connection_creation_rate": 1.0}, "is no IP address"),
        (QuotaOwner(ip=DEFAULT_ENTITY), {"connection_creation_rate": 0.0}, "a whole number, 1 or more"),
        (QuotaOwner(), {"producer_byte_rate": 1.0}, "none is named"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_what_is_allowed(
    owner: QuotaOwner, changes: dict[str, float], told: str, autojump_clock: MockClock
) -> None:
    async with MemoryCluster(1).running() as cluster, cluster.admin() as admin:
        with pytest.raises(AnsweredError) as caught:
            await admin.alter_quotas(owner, changes)
        assert told in str(caught.value)
        await trio.sleep(1)
        assert await admin.describe_quotas() == {}


async def test_no_quota_of_connections_cuts_brokers_off_from_each_other(autojump_clock: MockClock) -> None:
    """Clients come from the address of the controller's broker, too, and are kept out altogether."""
    async with MemoryCluster(3).running() as cluster, cluster.admin() as admin:
        await admin.create_topic("t", 1, 3)
        controllers = cluster.network.node("broker-1")
        controllers.host = "10.0.0.1"
        owner = QuotaOwner(ip=controllers.host)
        await admin.alter_quotas(owner, {"connection_creation_rate": 0.0})
        await cluster.until(lambda: all(cluster.broker(n).quotas.values for n in (1, 2, 3)), "it is known everywhere")
        cluster.crash(3)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "its death is noticed", within_s=60)
        await cluster.start_broker(3)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "it is in sync again", within_s=60)
        with pytest.raises(ClientError):
            await Connection.open(controllers, Address("broker-3", 9092))
        await admin.alter_quotas(owner, {"connection_creation_rate": None})
        await cluster.until(lambda: not cluster.broker(3).quotas.values, "it is removed")
        (await Connection.open(controllers, Address("broker-3", 9092))).close()


async def test_what_others_wrote_for_an_address_or_for_a_name_is_shown_or_told_and_can_be_removed(
    autojump_clock: MockClock,
) -> None:
    async with cluster_of_one() as cluster, cluster.admin() as admin:
        client = cluster.zookeeper.client()
        await client.start()
        names = ("0:0:0:0:0:0:0:1", "%3A%3A1", "::1", "localhost", "10.0.0.7", "<default>")
        for name in names:
            data = ConfigZnode({"connection_creation_rate": "5"}).encode()
            await client.create(f"{CONFIG_PATH}/ips/{name}", data, parents=True)
        await cluster.broker(1).quotas.read_all()
        assert "'localhost' is no IP address, and names are not looked up" in "".join(cluster.history)
        found = await admin.describe_quotas(QuotaOwner(ip="0::1"))
        assert {*found} == {QuotaOwner(ip="::1"), QuotaOwner(ip="0:0:0:0:0:0:0:1")}
        for name in ("0::1", "localhost"):
            await admin.alter_quotas(QuotaOwner(ip=name), {"connection_creation_rate": None})
        assert {*await admin.describe_quotas()} == {QuotaOwner(ip="10.0.0.7"), QuotaOwner(ip=DEFAULT_ENTITY)}
        for name in names[:4]:
            assert (await client.get(f"{CONFIG_PATH}/ips/{name}")).data == ConfigZnode({}).encode()
        kafka = await kafka_client(cluster)
        answer = await kafka.ask(
            ApiKey.ALTER_CLIENT_QUOTAS,
            1,
            entries=[
                {
                    "entity": [{"entity_type": "ip", "entity_name": "localhost"}],
                    "ops": [{"key": "connection_creation_rate", "value": 9.0, "remove": False}],
                }
            ],
            validate_only=False,
        )
        [refused] = answer.entries
        assert refused.error_code == ErrorCode.INVALID_REQUEST and "names are not looked up" in refused.error_message


async def test_quotas_are_described_by_what_is_given_of_their_owner(autojump_clock: MockClock) -> None:
    async with MemoryCluster(2).running() as cluster, cluster.admin() as admin:
        pair, everybody = QuotaOwner("a b/c", "app"), QuotaOwner(DEFAULT_ENTITY)
        address = QuotaOwner(ip="1.2.3.4")
        await admin.alter_quotas(pair, {"producer_byte_rate": 5, "request_percentage": 1.5})
        await admin.alter_quotas(everybody, {"consumer_byte_rate": 7})
        await admin.alter_quotas(everybody, {"producer_byte_rate": 8}, validate_only=True)
        await admin.alter_quotas(address, {"connection_creation_rate": 3})
        await trio.sleep(1)
        values = {"producer_byte_rate": 5, "request_percentage": 1.5}
        everything = {pair: values, everybody: {"consumer_byte_rate": 7}, address: {"connection_creation_rate": 3}}
        assert await admin.describe_quotas() == everything
        assert await admin.describe_quotas(QuotaOwner("a b/c")) == {pair: values}
        assert await admin.describe_quotas(QuotaOwner("a b/c"), strict=True) == {}
        assert await admin.describe_quotas(everybody) == {everybody: {"consumer_byte_rate": 7}}
        await admin.alter_quotas(pair, {"producer_byte_rate": None, "request_percentage": None})
        await trio.sleep(1)
        assert pair not in await admin.describe_quotas()
        client = await kafka_client(cluster)
        for version in (0, 1):
            found = await client.ask(
                ApiKey.DESCRIBE_CLIENT_QUOTAS,
                version,
                components=[{"entity_type": "user", "match_type": 2, "match": None}],
                strict=False,
            )
            assert [(each.entity[0].entity_name, each.values[0].value) for each in found.entries] == [(None, 7.0)]
            entity = [{"entity_type": "user", "entity_name": f"v{version}"}]
            operations = [{"key": "consumer_byte_rate", "value": 9.0, "remove": False}]
            altered = await client.ask(
                ApiKey.ALTER_CLIENT_QUOTAS,
                version,
                entries=[{"entity": entity, "ops": operations}],
                validate_only=version == 0,
            )
            assert [each.error_code for each in altered.entries] == [0]
        await trio.sleep(1)
        assert await admin.describe_quotas(QuotaOwner("v1")) == {QuotaOwner("v1"): {"consumer_byte_rate": 9}}


async def test_quotas_are_described_as_they_stand_though_no_announcement_came_yet(autojump_clock: MockClock) -> None:
    """Whoever alters one at a broker, and asks another at once, sees it."""
    async with cluster_of_one() as cluster, cluster.admin() as admin:
        data = ConfigZnode({"producer_byte_rate": "5"}).encode()
        client = cluster.zookeeper.client()
        await client.start()
        await client.create("/config/clients/app", data, parents=True)
        assert await admin.describe_quotas() == {QuotaOwner(client_id="app"): {"producer_byte_rate": 5}}
        assert not cluster.broker(1).quotas.values, "who asks puts nothing into effect"


async def test_kafkas_tools_are_told_that_a_user_has_no_password(autojump_clock: MockClock) -> None:
    """They ask wherever they show a user's quotas, and go on at this error."""
    async with MemoryCluster(1).running() as cluster:
        client = await kafka_client(cluster)
        found = await client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": "alice"}])
        assert [(each.user, each.error_code) for each in found.results] == [("alice", ErrorCode.RESOURCE_NOT_FOUND)]
        assert (await client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)).results == ()
