"""Producers whose identity the program gives, on whole brokers: who comes back writes nothing twice unnoticed."""

from __future__ import annotations

import pytest
import trio

from strandline.client import KnownProducer, ProducerIdentity, TrioProducer
from strandline.client.errors import DeliveryFailed, ProducerFenced, SequenceTaken, UnknownTopic
from strandline.protocol.records.of_producer import records_of_producer
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import CLIENT, MemoryCluster, node_name
from strandline.testkit.inspection import values
from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered

ME = ProducerIdentity(4711)


def writer(cluster: MemoryCluster, identity: ProducerIdentity = ME) -> TrioProducer:
    return cluster.producer(identity=identity, linger_ms=0, batch_size=1, request_timeout_ms=2_000)


async def write(producer: TrioProducer, records: list[bytes]) -> list[Exception | None]:
    """What became of each."""
    deliveries = [await producer.send(T0.topic, value, partition=0) for value in records]
    found: list[Exception | None] = []
    for delivery in deliveries:
        try:
            await delivery
            found.append(None)
        except DeliveryFailed as error:
            found.append(error)
    return found


def log_values(cluster: MemoryCluster) -> list[bytes | None]:
    return values(cluster.partition(cluster.leader(T0), T0).log)


async def another_leads(cluster: MemoryCluster, old: int) -> None:
    cluster.crash(old)
    cluster.expire_session(old)
    await cluster.until(lambda: cluster.leader(T0) != old and cluster.leads(cluster.leader(T0), T0), "another leads")


async def test_of_two_with_one_identity_one_writes_and_the_other_is_told(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, _, ledger):
        found: dict[str, list[Exception | None]] = {}

        async def race(name: str) -> None:
            async with writer(cluster) as producer:
                found[name] = await write(producer, numbered(name, 20))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(race, "a")
            nursery.start_soon(race, "b")
        [winner] = [name for name, errors in found.items() if not any(errors)]
        [loser] = {"a", "b"} - {winner}
        assert log_values(cluster) == numbered(winner, 20)
        assert all(isinstance(error, SequenceTaken) and not error.outcome_unknown for error in found[loser])
        await check_at_the_end(cluster, ledger)


async def test_who_comes_back_is_refused_by_a_broker_that_never_led_and_goes_on_where_it_was(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, _, ledger):
        async with writer(cluster) as producer:
            assert await write(producer, numbered("m", 3)) == [None] * 3
        await another_leads(cluster, 2)
        async with writer(cluster) as producer:
            assert all(isinstance(error, SequenceTaken) for error in await write(producer, numbered("m", 5)))
        async with writer(cluster, ProducerIdentity(4711, 0, {T0: 3})) as producer:
            assert await write(producer, numbered("m", 5)[3:]) == [None] * 2
        assert log_values(cluster) == numbered("m", 5)
        await cluster.start_broker(2)
        await check_at_the_end(cluster, ledger)


async def test_records_whose_answer_died_with_the_leader_are_told_as_unknown_and_stand_once(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, _, ledger):
        async with writer(cluster) as producer:
            assert await write(producer, [b"m0"]) == [None]
            cluster.network.cut(node_name(2), CLIENT)  # requests arrive, answers do not
            lost = await producer.send(T0.topic, b"m1", partition=0)
            for broker_id in (1, 2, 3):
                await cluster.until(
                    lambda at=broker_id: cluster.partition(at, T0).log.log_end_offset == 2, "it is replicated"
                )
            await another_leads(cluster, 2)
            cluster.network.heal()
            with pytest.raises(SequenceTaken, match="at offset 1") as failure:
                await lost
            assert failure.value.outcome_unknown
            [behind] = await write(producer, [b"m2"])
            assert isinstance(behind, SequenceTaken) and not behind.outcome_unknown
        assert log_values(cluster) == [b"m0", b"m1"]
        await cluster.start_broker(2)
        await check_at_the_end(cluster, ledger)


async def test_leaders_that_die_before_they_append_cost_nothing(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, _, ledger):
        async with writer(cluster) as producer:
            assert await write(producer, [b"m0"]) == [None]
            await another_leads(cluster, 2)
            assert await write(producer, [b"m1", b"m2"]) == [None] * 2
        assert log_values(cluster) == [b"m0", b"m1", b"m2"]
        await cluster.start_broker(2)
        await check_at_the_end(cluster, ledger)


async def test_a_later_epoch_ends_an_earlier_one(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, _, _), writer(cluster) as old:
        assert await write(old, [b"old"]) == [None]
        async with writer(cluster, ProducerIdentity(4711, 1)) as new:
            assert await write(new, [b"new"]) == [None]
        assert all(isinstance(error, ProducerFenced) for error in await write(old, [b"x", b"y"]))
        async with writer(cluster, ProducerIdentity(4711, 2, {T0: 5})) as skips:
            [error] = await write(skips, [b"z"])
            assert isinstance(error, SequenceTaken), "a new epoch begins with 0"
        assert log_values(cluster) == [b"old", b"new"]


async def test_leaders_tell_what_they_know_of_producers_whoever_leads(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, _, _), cluster.admin() as admin:
        await admin.create_topic("u", num_partitions=12, replication_factor=2)
        others = [TopicPartition("u", number) for number in range(12)]
        async with writer(cluster, ProducerIdentity(4711, 2, {others[5]: 7})) as producer:
            assert await write(producer, numbered("m", 3)) == [None] * 3
            await (await producer.send("u", b"x", partition=5, timestamp_ms=5000))
        async with writer(cluster, ProducerIdentity(4712)) as producer:
            assert await write(producer, [b"n"]) == [None]
        for _ in range(2):
            found = await admin.describe_producers([T0, *others])
            [mine, other] = found[T0]
            assert mine[:4] == (4711, 2, 2, 2) and other[:4] == (4712, 0, 0, 3)
            assert found[others[5]] == [KnownProducer(4711, 2, 7, 0, 5000)]
            assert not any(found[tp] for tp in others if tp != others[5])
            known = await admin.describe_producers([T0, others[5]], [4712, 1])
            assert known == {T0: [other], others[5]: []}
            if cluster.leader(T0) == 2:
                await another_leads(cluster, 2)
        absent = await admin.describe_producers([TopicPartition("absent", 0), T0], [1])
        assert isinstance(absent[TopicPartition("absent", 0)], UnknownTopic) and absent[T0] == []
        many = await admin.describe_producers([T0], range(5_000))
        found = many[T0]
        assert isinstance(found, list) and [each.producer_id for each in found] == [4711, 4712]


async def test_what_stands_under_an_identity_is_read_back_with_its_sequences(autojump_clock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, others, _):
        for number in range(3):
            async with cluster.producer(identity=ProducerIdentity(4711, 0, {T0: number * 2}), linger_ms=5) as producer:
                await producer.send_many(T0.topic, [(b"k", b"%d" % number), (None, None)], partition=0)
            await (await others.send(T0.topic, b"between", partition=0))
        async with cluster.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0])
            found = []
            while len(found) < 6:
                for chunk in await consumer.fetch_batches(timeout_ms=1000):
                    found += records_of_producer(chunk.records, 4711, 0)
        assert [(each.sequence, each.record.value, each.record.offset) for each in found] == [
            (0, b"0", 0),
            (1, None, 1),
            (2, b"1", 3),
            (3, None, 4),
            (4, b"2", 6),
            (5, None, 7),
        ]


async def test_a_leader_that_has_forgotten_the_identity_takes_it_for_a_new_one(autojump_clock) -> None:
    """What `ProducerIdentity` says of it: who may come back so late has to look into the log."""
    async with cluster_with_topic([2, 3, 1], properties={"producer.id.expiration.ms": "60000"}) as (cluster, _, _):
        async with writer(cluster) as producer:
            assert await write(producer, [b"m0"]) == [None]
        await trio.sleep(200)
        async with writer(cluster) as producer:
            assert await write(producer, [b"m0"]) == [None]
        assert log_values(cluster) == [b"m0", b"m0"]
