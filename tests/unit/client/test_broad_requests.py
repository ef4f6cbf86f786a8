"""More partitions and topics than one request may name: several requests, turns, and what a refusal says."""

from __future__ import annotations

import pytest
import trio

from strandline.broker.network import request_bounds as limits_of_brokers
from strandline.broker.network.dialects import native
from strandline.client import TrioAdmin, TrioConsumer, request_bounds
from strandline.client.errors import AnsweredError, ClientError
from strandline.client.metadata import Metadata
from strandline.client.settings import ClientSettings
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    DeleteRecordsRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)
from strandline.protocol.messages.base import MAX_NAMED
from strandline.protocol.native.frame import FrameHeader, encode_head
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from unit.client.fake_broker import FakeCluster, Fault

MANY = [TopicPartition("t", index) for index in range(12)]


@pytest.fixture(autouse=True)
def _five_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bounds, "MAX_ASKED", 5)
    monkeypatch.setattr("strandline.client.sender.MAX_ASKED", 5)


def consumer(cluster: FakeCluster, **settings: object) -> TrioConsumer:
    return TrioConsumer(
        cluster.bootstrap, environment=cluster.environment(), **{"auto_offset_reset": "earliest", **settings}
    )


def crowded() -> FakeCluster:
    """One broker leads all twelve partitions of `t`."""
    cluster = FakeCluster()
    cluster.add_topic("t", len(MANY))
    return cluster


def refusal(header: FrameHeader) -> bytes:
    """As a broker answers what it could not read."""
    answer = APIS[header.api_key].failure(None, ErrorCode.INVALID_REQUEST, "names too many")
    return bytes(encode_head(header.api_key, header.version, header.correlation_id, answer))


def counts(requests: list[object]) -> list[int]:
    return [sum(len(topic.partitions) for topic in request.topics) for request in requests]  # type: ignore[attr-defined]


def test_brokers_take_twice_what_a_client_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert request_bounds.MAX_ASKED * 2 <= MAX_NAMED


async def test_offsets_of_many_partitions_are_looked_up_in_several_requests(autojump_clock: object) -> None:
    cluster = crowded()
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster) as client:
            assert await client.beginning_offsets(MANY) == dict.fromkeys(MANY, 0)
        nursery.cancel_scope.cancel()
    assert counts(cluster.brokers[0].seen(ListOffsetsRequest)) == [5, 5, 2]


async def test_many_partitions_take_turns_in_fetches_and_each_is_read(autojump_clock: object) -> None:
    cluster = crowded()
    for partition in MANY:
        cluster.fill(partition, [b"v"])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        broker = cluster.brokers[0]
        async with consumer(cluster, fetch_max_wait_ms=600) as client:
            await client.assign(MANY)
            started, seen = trio.current_time(), set()
            while len(seen) < len(MANY):
                seen |= set(await client.poll(timeout_ms=5000))
            assert trio.current_time() - started < 0.6
            broker.requests.clear()
            cluster.fill(MANY[-1], [b"later"])
            assert await client.poll(timeout_ms=601), "each has its turn within the wait"
            await trio.sleep(6.0)
        nursery.cancel_scope.cancel()
    fetches = broker.seen(FetchRequest)
    assert set(counts(fetches)) == {5}
    assert {fetch.max_wait_ms for fetch in fetches} == {200}  # type: ignore[attr-defined]
    asked = [part.partition for fetch in fetches for topic in fetch.topics for part in topic.partitions]  # type: ignore[attr-defined]
    times = [asked.count(partition.partition) for partition in MANY]
    assert max(times) - min(times) <= 1 and len(broker.transports) <= 3, "nobody starves, no connection is given up"


async def test_positions_after_a_leader_change_are_checked_in_several_requests(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t", len(MANY))
    for partition in MANY:
        cluster.leaders[partition] = (0, 0)
        cluster.fill(partition, [b"v"])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster) as client:
            await client.assign(MANY)
            seen: set[TopicPartition] = set()
            while len(seen) < len(MANY):
                seen |= set(await client.poll(timeout_ms=5000))
            for partition in MANY:
                cluster.move(partition, 1)
            cluster.fill(MANY[-1], [b"later"])
            assert await client.poll(timeout_ms=10_000)
            await trio.sleep(5)
        nursery.cancel_scope.cancel()
    named = counts(cluster.brokers[1].seen(OffsetForLeaderEpochRequest))
    assert max(named) <= 5 and sum(named) >= len(MANY)


async def test_many_topics_are_asked_about_in_several_requests(autojump_clock: object) -> None:
    cluster = FakeCluster()
    names = [f"t{index}" for index in range(12)]
    for name in names:
        cluster.add_topic(name)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        known = Metadata(ClientSettings(bootstrap_servers=cluster.bootstrap), cluster.environment())
        nursery.start_soon(known.run)
        for name in names:
            await known.topic(name, timeout_ms=5000, setting="x")
        async with TrioAdmin(cluster.bootstrap, environment=cluster.environment()) as admin:
            assert sorted(await admin.describe_topics(names)) == sorted(names)
            assert (await admin.describe_cluster()).brokers
        nursery.cancel_scope.cancel()
    named = [len(request.topics or ()) for request in cluster.brokers[0].seen(MetadataRequest)]  # type: ignore[attr-defined]
    assert max(named) == 5 and named[-4:-1] == [5, 5, 2]


async def test_records_of_many_partitions_are_deleted_in_several_requests(autojump_clock: object) -> None:
    cluster = crowded()
    for partition in MANY:
        cluster.fill(partition, [b"v"] * 3)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioAdmin(cluster.bootstrap, environment=cluster.environment()) as admin:
            assert await admin.delete_records(dict.fromkeys(MANY, 2)) == dict.fromkeys(MANY, 2)
            cluster.brokers[0].faults[ApiKey.DELETE_RECORDS].append(Fault(raw=refusal))
            results = await admin.delete_records(dict.fromkeys(MANY, 3))
        nursery.cancel_scope.cancel()
    assert counts(cluster.brokers[0].seen(DeleteRecordsRequest))[:3] == [5, 5, 2]
    assert [isinstance(results[partition], AnsweredError) for partition in MANY] == [True] * 5 + [False] * 7
    assert "INVALID_REQUEST" in str(results[MANY[0]])


async def test_a_refused_lookup_ends_at_once_with_the_brokers_reason(autojump_clock: object) -> None:
    cluster = crowded()
    cluster.brokers[0].faults[ApiKey.LIST_OFFSETS].append(Fault(raw=refusal))
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster) as client:
            started = trio.current_time()
            with pytest.raises(AnsweredError, match="an offset: INVALID_REQUEST from broker 0: names too many"):
                await client.beginning_offsets(MANY)
            assert trio.current_time() - started < 1.0
            cluster.brokers[0].faults[ApiKey.LIST_OFFSETS].append(Fault(raw=refusal))
            await client.assign(MANY)
            with pytest.raises(AnsweredError, match="INVALID_REQUEST"):
                await client.poll(timeout_ms=10_000)
        nursery.cancel_scope.cancel()


async def test_refused_metadata_are_an_error_and_no_cluster_without_brokers(autojump_clock: object) -> None:
    cluster = crowded()
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        known = Metadata(ClientSettings(bootstrap_servers=cluster.bootstrap), cluster.environment())
        nursery.start_soon(known.run)
        await known.topic("t", timeout_ms=5000, setting="x")
        cluster.brokers[0].stale_view = APIS[ApiKey.METADATA].failure(None, ErrorCode.INVALID_REQUEST, None)
        with pytest.raises(ClientError, match="INVALID_REQUEST"):
            await known.topic("other", timeout_ms=2000, setting="x")
        assert known.view.brokers and "" not in known.view.topics
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("call", ["create", "delete", "describe"])
async def test_a_refused_call_of_the_admin_client_ends_with_the_brokers_reason(
    call: str, autojump_clock: object
) -> None:
    cluster = crowded()
    broker = cluster.brokers[0]
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioAdmin(cluster.bootstrap, environment=cluster.environment()) as admin:
            await admin.describe_cluster()
            with pytest.raises(AnsweredError, match="INVALID_REQUEST"):
                if call == "create":
                    broker.faults[ApiKey.CREATE_TOPICS].append(Fault(raw=refusal))
                    await admin.create_topic("new")
                elif call == "delete":
                    broker.faults[ApiKey.DELETE_TOPICS].append(Fault(raw=refusal))
                    await admin.delete_topic("t")
                else:
                    broker.faults[ApiKey.METADATA].append(Fault(raw=refusal))
                    await admin.list_topics()
        nursery.cancel_scope.cancel()


async def test_producer_and_consumer_work_with_more_partitions_than_a_broker_takes_at_a_time(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MemoryCluster(1, config={"min.insync.replicas": "1"}).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", assignments={index: [1] for index in range(30)})
        partitions = [TopicPartition("t", index) for index in range(30)]
        monkeypatch.setattr(limits_of_brokers, "MAX_NAMED", 20)
        monkeypatch.setattr(native, "BROAD_BODY_BYTES", 20)
        async with cluster.producer(linger_ms=50, delivery_timeout_ms=20_000) as producer:
            futures = [await producer.send("t", b"v", partition=item.partition) for item in partitions]
            await producer.flush()
            assert len(futures) == 30
        async with cluster.consumer(auto_offset_reset="earliest") as client:
            await client.assign(partitions)
            seen: set[TopicPartition] = set()
            while len(seen) < 30:
                polled = await client.poll(timeout_ms=10_000)
                assert polled
                seen |= set(polled)


async def test_partitions_that_wait_for_their_turn_cost_no_connection(autojump_clock: object) -> None:
    cluster = crowded()
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, fetch_max_wait_ms=600) as client:
            await client.assign(MANY)
            assert not await client.poll(timeout_ms=50)
            client.resume(*MANY)
            assert not await client.poll(timeout_ms=2950)
            assert len(cluster.brokers[0].transports) == 3, "metadata, lookups, fetches"
            assert 12 <= len(cluster.brokers[0].seen(FetchRequest)) <= 16
        nursery.cancel_scope.cancel()
