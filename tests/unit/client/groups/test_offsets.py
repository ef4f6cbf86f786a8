"""What becomes of commits that a coordinator refuses in part, or is late with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import trio

from strandline.client.errors import RequestTimedOut, UnknownTopic
from strandline.client.groups.coordinator import Coordinator
from strandline.client.groups.offsets import UNKNOWN_FOR_S, GroupOffsets, OffsetAndMetadata
from strandline.client.settings import ConsumerSettings
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from strandline.protocol.types import TopicPartition
from strandline.runtime.client_environment import production_client_environment

GOOD, GONE, LONG = (TopicPartition(name, 0) for name in ("good", "gone", "long"))


class FakeCoordinator:
    """Has its say about each topic, and remembers what was committed."""

    def __init__(self, code: Callable[[str], int] = lambda topic: 0, delay_s: float = 0.0) -> None:
        self.code = code
        self.delay_s = delay_s
        self.asked: list[list[str]] = []
        self.numbers: list[int] = []

    is_cluster_out_of_reach = False

    def heard(self, code: int) -> None: ...

    async def ask(self, request: OffsetCommitRequest, *_: object, timeout_ms: float) -> Any:
        names = [topic.name for topic in request.topics]
        self.asked.append(names)
        self.numbers.append(request.commit_number)
        await trio.sleep(self.delay_s)
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(name, [OffsetCommitResponsePartition(0, self.code(name))]) for name in names
            ]
        )


@asynccontextmanager
async def committing(coordinator: FakeCoordinator) -> AsyncIterator[GroupOffsets]:
    offsets = GroupOffsets(
        ConsumerSettings(bootstrap_servers="b:1", group_id="g"),
        production_client_environment(),
        cast(Coordinator, coordinator),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(offsets.run)
        yield offsets
        nursery.cancel_scope.cancel()


async def test_what_one_partition_is_refused_for_hinders_no_other(autojump_clock) -> None:
    codes = {"gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "long": ErrorCode.OFFSET_METADATA_TOO_LARGE}
    coordinator = FakeCoordinator(lambda topic: codes.get(topic, ErrorCode.NONE))
    with trio.fail_after(UNKNOWN_FOR_S + 5):
        async with committing(coordinator) as offsets:
            first = offsets.submit(dict.fromkeys((GOOD, LONG, GONE), OffsetAndMetadata(1)), 60_000)
            second = offsets.submit({GOOD: OffsetAndMetadata(2)}, 60_000)
            await first.wait()
            await second.wait()
    assert isinstance(first.error, UnknownTopic)
    assert second.error is None
    assert coordinator.asked[:2] == [["good", "long", "gone"], ["gone"]]
    assert coordinator.numbers == list(range(len(coordinator.asked))), "a repetition counts, too"
    assert coordinator.asked[-1] == ["good"]


async def test_a_topic_that_the_coordinator_is_about_to_know_is_committed(autojump_clock) -> None:
    answers = iter([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3)
    async with committing(FakeCoordinator(lambda topic: next(answers, ErrorCode.NONE))) as offsets:
        commit = offsets.submit({GONE: OffsetAndMetadata(1)}, 60_000)
        await commit.wait()
        assert commit.error is None


async def test_a_commit_ends_in_time_behind_one_that_does_not(autojump_clock) -> None:
    coordinator, ended = FakeCoordinator(delay_s=50), []
    async with committing(coordinator) as offsets:
        slow = offsets.submit({GOOD: OffsetAndMetadata(1)}, 60_000)
        late = offsets.submit({LONG: OffsetAndMetadata(1)}, 1_000, ended.append)
        with trio.fail_after(2):
            await late.wait()
        assert isinstance(late.error, RequestTimedOut)
        await slow.wait()
        await offsets.submit({GOOD: OffsetAndMetadata(2)}, 60_000).wait()
    assert slow.error is None
    assert ended == [late.error], "it is told once"
    assert coordinator.asked == [["good"], ["good"]], "what is too late is not sent"
