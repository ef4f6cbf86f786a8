"""Deleting records through the admin client: every leader is asked, and each partition has its own result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio

from strandline.client import TrioAdmin
from strandline.client.errors import ClientError, RequestTimedOut, UnknownTopic
from strandline.client.metadata import ClusterView, PartitionView, TopicView
from strandline.client.owners import Attempts
from strandline.client.record_deletion import delete_records
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from strandline.protocol.native.frame import FrameHeader, encode_head
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import ApiKey, FakeCluster, Fault

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))


def nothing_deleted(header: FrameHeader) -> bytes:
    """An answer that names no partition."""
    return bytes(encode_head(header.api_key, header.version, header.correlation_id, DeleteRecordsResponse([])))


@asynccontextmanager
async def site(brokers: int = 3) -> AsyncIterator[tuple[FakeCluster, TrioAdmin]]:
    """Broker n leads partition n of `t`, which holds ten records."""
    cluster = FakeCluster(brokers)
    cluster.add_topic("t", 3)
    for tp in (T0, T1, T2):
        cluster.fill(tp, [b"v"] * 10)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioAdmin(cluster.bootstrap, environment=cluster.environment()) as client:
            yield cluster, client
        nursery.cancel_scope.cancel()


async def test_every_leader_deletes_what_it_leads(autojump_clock: object) -> None:
    async with site() as (cluster, client):
        assert await client.delete_records({T0: 3, T1: -1, T2: 0}) == {T0: 3, T1: 10, T2: 0}
        assert [cluster.logs[tp].log_start for tp in (T0, T1, T2)] == [3, 10, 0]
        asked = [len(broker.seen(DeleteRecordsRequest)) for broker in cluster.brokers]
        assert asked == [1, 1, 1]


async def test_one_partition_that_is_refused_does_not_spoil_the_others(autojump_clock: object) -> None:
    async with site() as (_, client):
        absent = TopicPartition("absent", 0)
        results = await client.delete_records({T0: 99, T1: 5, TopicPartition("t", 7): 1, absent: 1})
        assert results[T1] == 5
        assert getattr(results[T0], "code", None) == ErrorCode.OFFSET_OUT_OF_RANGE and "t-0" in str(results[T0])
        assert "only what is committed" in str(results[T0]) and "seek" not in str(results[T0])
        assert isinstance(results[TopicPartition("t", 7)], UnknownTopic) and isinstance(results[absent], UnknownTopic)
        assert list(results) == [T0, T1, TopicPartition("t", 7), absent]


@pytest.mark.parametrize(
    "fault", [Fault(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), Fault(close=True), Fault(close=True, apply=True)]
)
async def test_a_leader_that_moved_or_broke_off_is_asked_again(autojump_clock: object, fault: Fault) -> None:
    async with site() as (cluster, client):
        cluster.brokers[0].faults[ApiKey.DELETE_RECORDS].append(fault)
        assert await client.delete_records({T0: 3, T1: 4}) == {T0: 3, T1: 4}


async def test_when_the_time_is_over_what_is_known_is_returned(autojump_clock: object) -> None:
    async with site() as (cluster, client):
        cluster.brokers[0].faults[ApiKey.DELETE_RECORDS].append(Fault(hang=True))
        results = await client.delete_records({T0: 3, T1: 4}, timeout_ms=2_000)
        assert results[T1] == 4 and isinstance(results[T0], RequestTimedOut)


async def test_a_partition_without_a_leader_is_waited_for(autojump_clock: object) -> None:
    async with site() as (cluster, client), trio.open_nursery() as nursery:
        cluster.move(T0, -1)
        results: dict[TopicPartition, int | ClientError] = {}

        async def delete() -> None:
            results.update(await client.delete_records({T0: 3}))

        nursery.start_soon(delete)
        await trio.sleep(1)
        assert results == {}
        cluster.move(T0, 1)
        await trio.sleep(5)
        assert results == {T0: 3}


async def test_a_broker_that_leaves_a_partition_out_of_its_answer_is_asked_again(autojump_clock: object) -> None:
    async with site() as (cluster, client):
        cluster.brokers[0].faults[ApiKey.DELETE_RECORDS].append(Fault(raw=nothing_deleted))
        assert await client.delete_records({T0: 3, T1: 4}) == {T0: 3, T1: 4}
        assert len(cluster.brokers[0].seen(DeleteRecordsRequest)) == 2


class TopicMadeAnew:
    """told, hosted: its id by those who describe it, and by its leader, one after the other. As `Attempts`, and as what
    describes the topic."""

    last_error: Exception | None = None
    outcome_was_lost = False
    OLD, NEW = bytes(16 * [1]), bytes(16 * [2])

    def __init__(self, told: Iterable[bytes], hosted: Iterable[bytes]) -> None:
        self.told, self.hosted = [*told], [*hosted]
        self.ends = [10, 3]
        self.asked: list[tuple[bytes, int]] = []

    async def describe(self, topics: object) -> ClusterView:
        partition = PartitionView(leader=1, leader_epoch=0, replicas=(1,))
        return ClusterView(topics={"t": TopicView("t", self.told.pop(0), {0: partition})})

    def left_ms(self) -> float:
        return 1000.0

    async def learn(self) -> None: ...

    async def ask(self, broker_id: int, request: Any, answer: object) -> Any:
        [topic] = request.topics
        if isinstance(request, ListOffsetsRequest):
            part = ListOffsetsPartitionResponse(0, 0, offset=self.ends.pop(0))
            return ListOffsetsResponse([ListOffsetsTopicResponse("t", [part])])
        self.asked.append((topic.topic_id, topic.partitions[0].offset))
        code = ErrorCode.NONE if topic.topic_id == self.hosted.pop(0) else ErrorCode.UNKNOWN_TOPIC_ID
        result = DeleteRecordsPartitionResult(0, code, topic.partitions[0].offset)
        return DeleteRecordsResponse([DeleteRecordsTopicResult("t", [result])])


OLD, NEW = TopicMadeAnew.OLD, TopicMadeAnew.NEW


@pytest.mark.parametrize(("told", "hosted"), [((OLD, NEW), (NEW, NEW)), ((NEW, NEW), (OLD, NEW))])
async def test_a_topic_that_was_made_anew_is_asked_for_by_its_new_id_and_its_own_end(
    told: tuple[bytes, bytes], hosted: tuple[bytes, bytes]
) -> None:
    """Who described it first has not heard of that yet, or who led it, and told the end by its name."""
    cluster = TopicMadeAnew(told, hosted)
    assert await delete_records({T0: -1}, cast(Attempts, cluster), cluster.describe) == {T0: 3}
    assert cluster.asked == [(told[0], 10), (NEW, 3)]
