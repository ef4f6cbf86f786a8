"""What `metrics()` tells of a producer and a consumer."""

from __future__ import annotations

import asyncio

import trio

from strandline import Admin, Consumer, Producer, TrioAdmin, TrioProducer
from strandline.aio import AioAdmin, AioProducer
from strandline.client import metrics
from strandline.client.samples import WINDOW_S
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    FetchRequest,
    FetchResponse,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import ApiKey, FakeCluster, Fault
from unit.client.test_consumer import consumer
from unit.client.test_sync import cluster

__all__ = ["cluster"]

T0 = TopicPartition("t", 0)


async def test_a_producer_counts_records_batches_bytes_and_retries(autojump_clock) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        settings = {"linger_ms": 0, "enable_idempotence": False}
        async with TrioProducer(fake.bootstrap, environment=fake.environment(), **settings) as client:
            before = client.metrics()
            assert set(before.values()) == {0, -1.0, before["buffer-total-bytes"]}
            await (await client.send_many("t", [(None, b"x" * 100)] * 10))
            await trio.sleep(2)
            told = client.metrics()
            assert (told["record-send-total"], told["batch-send-total"], told["records-per-request-avg"]) == (10, 1, 10)
            assert told["byte-total"] == told["batch-size-avg"] > 1000
            assert told["buffer-available-bytes"] == told["buffer-total-bytes"] == 33_554_432
            assert (told["connection-count"], told["requests-in-flight"], told["request-total"]) == (1, 0, 1)
            assert 0 <= told["request-latency-avg"] <= told["request-latency-max"]
            assert told["metadata-age"] >= 2_000
            fake.brokers[0].faults[ApiKey.PRODUCE].append(Fault(error=ErrorCode.NOT_ENOUGH_REPLICAS))
            await (await client.send("t", b"again"))
            told = client.metrics()
            assert (told["record-send-total"], told["record-retry-total"], told["record-error-total"]) == (11, 1, 0)
        nursery.cancel_scope.cancel()


async def test_an_answer_that_comes_while_a_thread_asks_is_not_taken_for_none(autojump_clock) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        async with TrioProducer(fake.bootstrap, environment=fake.environment()) as client:
            when_it_began_to_ask = trio.current_time()
            await trio.sleep(1)
            await client.partitions_for("t")
            assert metrics.of_connections(client._links, when_it_began_to_ask)["metadata-age"] == 0
        nursery.cancel_scope.cancel()


async def test_averages_and_maxima_forget_a_stall_and_totals_do_not(autojump_clock) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        settings = {"linger_ms": 0, "enable_idempotence": False}
        async with TrioProducer(fake.bootstrap, environment=fake.environment(), **settings) as client:
            fake.brokers[0].faults[ApiKey.PRODUCE].append(Fault(delay_s=2, apply=True))
            await (await client.send_many("t", [(None, b"x" * 100)] * 10))
            stalled = client.metrics()
            assert stalled["request-latency-max"] >= stalled["request-latency-avg"] >= 2_000
            await trio.sleep(2 * WINDOW_S)
            await (await client.send("t", b"x"))
            told = client.metrics()
            assert told["request-latency-avg"] <= told["request-latency-max"] < 1_000
            assert told["records-per-request-avg"] == 1 and told["batch-size-avg"] < stalled["batch-size-avg"]
            assert (told["record-send-total"], told["batch-send-total"], told["request-total"]) == (11, 2, 2)
            await trio.sleep(2 * WINDOW_S)
            told = client.metrics()
            assert told["request-latency-max"] == told["request-latency-avg"] == told["batch-size-avg"] == 0
        nursery.cancel_scope.cancel()


async def test_a_consumer_tells_how_far_it_is_behind(autojump_clock) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fake.fill(T0, [b"%d" % number for number in range(20)])
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        async with consumer(fake) as client:
            assert client.metrics()["records-lag-max"] == 0
            await client.assign([T0])
            await client.poll(timeout_ms=1_000, max_records=5)
            told = client.metrics()
            assert (told["records-lag.t-0"], told["records-lag-max"], told["assigned-partitions"]) == (15, 15, 1)
            assert told["records-consumed-total"] == 5 and told["bytes-consumed-total"] > 100
            await client.__anext__()
            assert client.metrics()["records-lag.t-0"] == 14, "a loop has read what it was given"
            await client.poll_columns(timeout_ms=1_000)
            assert client.metrics()["records-consumed-total"] == 20, "columns count, too"
        nursery.cancel_scope.cancel()


async def test_the_largest_lag_of_the_last_moments_is_told_though_it_was_made_up_for(autojump_clock) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fake.fill(T0, [b"%d" % number for number in range(20)])
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        async with consumer(fake) as client:
            await client.assign([T0])
            await client.poll(timeout_ms=1_000, max_records=5)
            await client.poll_columns(timeout_ms=1_000)
            told = client.metrics()
            assert (told["records-lag.t-0"], told["records-lag-max"]) == (0, 15)
            await trio.sleep(2 * WINDOW_S)
            assert client.metrics()["records-lag-max"] == 0
            fake.fill(T0, [b"more"] * 7)
            await client.poll(timeout_ms=1_000, max_records=2)
            await trio.sleep(2 * WINDOW_S)
            assert client.metrics()["records-lag-max"] == 5, "who takes nothing is behind now"
        nursery.cancel_scope.cancel()


async def test_records_of_a_request_are_those_of_all_its_partitions(autojump_clock) -> None:
    fake = FakeCluster()
    fake.add_topic("t", 2)
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        async with TrioProducer(fake.bootstrap, environment=fake.environment(), linger_ms=5) as client:
            sent = [await client.send("t", b"x", partition=number % 2) for number in range(6)]
            for each in sent:
                await each
            told = client.metrics()
            assert (told["records-per-request-avg"], told["batch-send-total"]) == (6, 2)
        nursery.cancel_scope.cancel()


async def test_clients_tell_for_how_long_a_quota_holds_them(autojump_clock) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fake.fill(T0, [b"x"])
    throttle_ms = iter([0, 300])
    part = PartitionProduceResponse(0, 0, 1)
    fake.brokers[0].scripts = {
        ProduceRequest: lambda _: ProduceResponse([TopicProduceResponse("t", [part])], next(throttle_ms)),
        FetchRequest: lambda _: FetchResponse([], ErrorCode.NOT_LEADER_OR_FOLLOWER, 50),
    }
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        settings = {"linger_ms": 0, "enable_idempotence": False}
        async with TrioProducer(fake.bootstrap, environment=fake.environment(), **settings) as client:
            for _ in range(2):
                await (await client.send("t", b"x"))
            told = client.metrics()
            assert (told["produce-throttle-time-avg"], told["produce-throttle-time-max"]) == (150, 300)
            await trio.sleep(2 * WINDOW_S)
            assert client.metrics()["produce-throttle-time-max"] == 0
        async with consumer(fake) as client:
            await client.assign([T0])
            client.seek(T0, 0)
            assert await client.poll(timeout_ms=1_000) == {}
            assert client.metrics()["fetch-throttle-time-max"] == 50
        nursery.cancel_scope.cancel()


async def test_what_was_handed_out_is_counted_once(autojump_clock) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    fake.fill(T0, [b"%d" % number for number in range(100)])
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        async with consumer(fake) as client:
            await client.assign([T0])

            def counted() -> float:
                return client.metrics()["records-consumed-total"]

            await client.__anext__()
            assert counted() == 1, "a loop was lent more"
            await client.__anext__()
            await client.poll(timeout_ms=1_000, max_records=10)
            assert counted() == 12
            await client.__anext__()
            [columns] = await client.poll_columns(timeout_ms=1_000)
            assert counted() == 100
            client._give_back([columns])
            assert counted() == 13
            polled = await client.poll(timeout_ms=1_000, max_records=10)
            assert counted() == 23
            client._give_back({T0: polled[T0][5:]})
            client._give_back(polled)
            assert counted() == 13
        nursery.cancel_scope.cancel()


def test_clients_that_were_closed_tell_what_they_counted(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap) as producer:
        producer.send("t", b"x")
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as client:
        client.assign([T0])
        assert client.poll(10_000)
    told = producer.metrics()
    assert (told["record-send-total"], told["metadata-age"]) == (1, -1)
    assert client.metrics()["records-consumed-total"] == 1

    async def asyncio_too() -> float:
        async with AioProducer(cluster.bootstrap) as producer:
            await producer.send("t", b"x")
        return producer.metrics()["record-send-total"]

    assert asyncio.run(asyncio_too()) == 1


def test_threads_are_told_the_same(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap) as producer, Consumer(cluster.bootstrap) as client:
        producer.send("t", b"x").result()
        assert producer.metrics()["record-send-total"] == 1
        assert client.metrics()["records-consumed-total"] == 0


async def test_an_admin_client_counts_what_it_asks(autojump_clock) -> None:
    fake = FakeCluster(2)
    fake.add_topic("t")
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        async with TrioAdmin(fake.bootstrap, environment=fake.environment()) as client:
            assert set(client.metrics().values()) <= {0, client.metrics()["metadata-age"]}
            await client.create_topic("u", 1, 1)
            await trio.sleep(2)
            await client.delete_topic("u")
            told = client.metrics()
            assert (told["connection-count"], told["requests-in-flight"], told["request-total"]) == (1, 0, 3)
            assert 0 <= told["request-latency-avg"] <= told["request-latency-max"]
            assert told["metadata-age"] >= 2_000
            for broker in fake.brokers:
                broker.faults[ApiKey.METADATA].append(Fault(hang=True))
            nursery.start_soon(client.list_topics)
            await trio.sleep(0.5)
            assert client.metrics()["requests-in-flight"] == 1
            nursery.cancel_scope.cancel()


def test_all_admin_clients_tell_it_open_or_closed(cluster: FakeCluster) -> None:
    with Admin(cluster.bootstrap) as client:
        client.list_topics()
        assert client.metrics()["request-total"] == 1
    told = client.metrics()
    assert (told["request-total"], told["connection-count"], told["metadata-age"]) == (1, 0, -1)

    async def asyncio_too() -> float:
        async with AioAdmin(cluster.bootstrap) as client:
            await client.list_topics()
            return client.metrics()["request-total"]

    assert asyncio.run(asyncio_too()) == 1
