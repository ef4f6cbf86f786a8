"""Which positions a consumer commits by itself, and starts from."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from strandline.client.groups.topics import GONE_AFTER_S
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import FakeBroker, FakeCluster
from unit.client.test_consumer import T0, T1, consumer, read


class FakeGroup:
    """What a group has committed, which a broker keeps."""

    def __init__(self, broker: FakeBroker) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.refusals: deque[ErrorCode] = deque()
        """Of the next commits."""
        broker.scripts[FindCoordinatorRequest] = lambda _: FindCoordinatorResponse(node_id=broker.broker_id)
        broker.scripts[OffsetCommitRequest] = self._commit
        broker.scripts[OffsetFetchRequest] = self._fetch

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        code = self.refusals.popleft() if self.refusals else ErrorCode.NONE
        topics = []
        for topic in request.topics:
            parts = topic.partitions
            if not code:
                self.committed.update(
                    {TopicPartition(topic.name, part.partition_index): part.committed_offset for part in parts}
                )
            answers = [OffsetCommitResponsePartition(part.partition_index, code) for part in parts]
            topics.append(OffsetCommitResponseTopic(topic.name, answers))
        return OffsetCommitResponse(topics)

    def _fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        topics = []
        for topic in request.topics or []:
            found = {
                index: self.committed.get(TopicPartition(topic.name, index), -1) for index in topic.partition_indexes
            }
            answers = [OffsetFetchResponsePartition(index, offset) for index, offset in found.items()]
            topics.append(OffsetFetchResponseTopic(topic.name, answers))
        return OffsetFetchResponse(topics=topics)


@asynccontextmanager
async def reading() -> AsyncIterator[tuple[FakeCluster, FakeGroup, Any]]:
    """A consumer that has read three records, and committed nothing yet."""
    fake = FakeCluster()
    fake.add_topic("t", 2)
    fake.fill(T0, [b"a", b"b", b"c"])
    group = FakeGroup(fake.brokers[0])
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        settings = {"group_id": "g", "auto_commit_interval_ms": 3_600_000, "metadata_max_age_ms": 200}
        async with consumer(fake, **settings) as client:
            await client.poll()  # the only one in an hour that commits
            await client.assign([T0])
            assert await read(client, 3) == [b"a", b"b", b"c"]
            yield fake, group, client
        nursery.cancel_scope.cancel()


async def test_what_was_read_of_a_topic_is_committed_while_a_broker_does_not_know_it_for_a_moment(
    autojump_clock: object,
) -> None:
    async with reading() as (fake, group, client):
        fake.topics = {}
        fake.brokers[0].stale_view = fake.brokers[0].metadata(MetadataRequest(["t"]))
        await trio.sleep(1)
        assert client._metadata.view.partition(T0) is None
        await client.unsubscribe()
        assert group.committed == {T0: 3}


async def test_nothing_is_committed_of_a_topic_that_stays_unknown(autojump_clock: object) -> None:
    async with reading() as (fake, group, client):
        fake.topics = {}
        fake.brokers[0].stale_view = fake.brokers[0].metadata(MetadataRequest(["t"]))
        await trio.sleep(GONE_AFTER_S + 1)
        await client.unsubscribe()
        assert group.committed == {}


async def test_that_a_topic_was_deleted_whose_positions_would_be_committed_is_no_warning(
    autojump_clock: object, recwarn: pytest.WarningsRecorder
) -> None:
    async with reading() as (fake, group, client):
        fake.topics = {}
        fake.brokers[0].stale_view = fake.brokers[0].metadata(MetadataRequest(["t"]))
        group.refusals.extend([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 100)
        await trio.sleep(1)
        await client.unsubscribe()
        assert len(group.refusals) < 100
    assert not list(recwarn)


@pytest.mark.parametrize("commits", [[], [T1]], ids=["alone", "before another one"])
async def test_what_is_assigned_again_starts_behind_its_own_commit_that_is_under_way(
    autojump_clock: object, commits: list[TopicPartition]
) -> None:
    async with reading() as (_, group, client):
        group.refusals.append(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        await client.assign([T1])
        if commits:
            client.commit_nowait(dict.fromkeys(commits, 0))
        await client.assign([T0])
        assert await client.position(T0) == 3
        assert await client.poll(timeout_ms=2000) == {}
        assert group.committed[T0] == 3


async def test_what_is_assigned_does_not_wait_for_the_commits_of_others(autojump_clock: object) -> None:
    async with reading() as (_, group, client):
        group.refusals.extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10)
        await client.assign([T1])
        assert await client.position(T1) == 0
        assert group.committed == {}
