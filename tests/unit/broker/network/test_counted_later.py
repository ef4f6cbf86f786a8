"""Whatever waits, and leaves in whatever order of events, is counted as if each request had been followed by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest
import trio
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_counts import RequestCounts
from strandline.broker.network.response_slot import ResponseSlot
from strandline.protocol.api import ApiKey
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    DeleteTopicsRequest,
    Message,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    Request,
    TopicProduceResponse,
)
from strandline.testkit.network import MemoryNetwork
from support.pipeline import Pipeline, open_pipeline
from support.raw_client import RawClient, produce_request, request_frame

FAILED = ErrorCode.REQUEST_TIMED_OUT
STEP_S = 0.010
"""So that nothing is quick but what takes no time: of quick ones few are timed."""

BURSTS = st.lists(
    st.sampled_from(["wait", "wait", "wait", "now", "wrong now", "silent", "ask", "ask now", "refused"]),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), BURSTS, st.booleans()),
        st.tuples(st.just("answer"), st.integers(0, 30), st.booleans()),
        st.tuples(st.just("answer"), st.integers(0, 30), st.booleans()),
        st.tuples(st.just("sleep"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("go on"), st.just(0), st.booleans()),
    ),
    max_size=25,
)


@dataclass(eq=False)
class Followed:
    """One request that has an answer."""

    request: RequestInHand[Request]
    taken_at: float
    answered_at: float = -1.0
    is_wrong: bool = False
    left_at: float = -1.0


class Site:
    """A pipeline whose handlers do what the request says, and follow each by itself."""

    def __init__(self) -> None:
        self.followed: list[Followed] = []
        self.silent = 0
        self.may_go_on = trio.Event()
        self.is_queued_wrong = False

    def handle(self, request: RequestInHand[Request]) -> None:
        if not request.message.has_answer:
            self.silent += 1
            request.no_response()
            return
        self.followed.append(Followed(request, trio.current_time()))
        what = request.header.correlation_id
        if what in (1, 2):
            self.answer(self.followed[-1], is_wrong=what == 2)

    async def delete(self, request: RequestInHand[DeleteTopicsRequest]) -> Message:
        each = Followed(request, trio.current_time())
        self.followed.append(each)
        await self.may_go_on.wait()
        each.answered_at, each.is_wrong = trio.current_time(), self.is_queued_wrong
        if each.is_wrong:
            raise BrokerError(FAILED, "no")
        return request.api.failure(request.message, ErrorCode.NONE, "")

    def answer(self, each: Followed, *, is_wrong: bool) -> None:
        each.answered_at, each.is_wrong = trio.current_time(), is_wrong
        each.request.respond(answer_to(each.request.message, FAILED if is_wrong else ErrorCode.NONE))

    def parked(self) -> list[Followed]:
        return [each for each in self.followed if each.answered_at < 0 and not is_queued(each)]

    def leave(self) -> None:
        """Those that nothing is in front of any more."""
        for each in self.followed:
            if each.answered_at < 0:
                break
            if each.left_at < 0:
                each.left_at = trio.current_time()


def is_queued(each: Followed) -> bool:
    return each.request.api.key is ApiKey.DELETE_TOPICS


def answer_to(message: Request, code: ErrorCode) -> Message:
    if isinstance(message, ProduceRequest):
        return ProduceResponse([TopicProduceResponse("t", [PartitionProduceResponse(0, code)])])
    return MetadataResponse([], [MetadataTopic(code, "t", [])])


def frame(kind: str) -> bytes:
    match kind:
        case "silent":
            return request_frame(produce_request(acks=0))
        case "refused":
            return request_frame(produce_request(), version=99)
        case "ask" | "ask now":
            return request_frame(MetadataRequest([]), correlation_id=int(kind == "ask now"))
        case "queued":
            return request_frame(DeleteTopicsRequest(["t"], 1000))
    return request_frame(produce_request(), correlation_id={"wait": 0, "now": 1, "wrong now": 2}[kind])


@given(steps=STEPS, closes=st.booleans())
@example(steps=[("send", ["wait", "ask", "wait"], False), ("answer", 0, False)], closes=True)
@example(steps=[*2 * [("send", ["wait"], False)], ("answer", 0, True), ("answer", 0, False)], closes=False)
@example(steps=[("send", ["wait"], False), ("send", ["silent", "wait"], False)], closes=False)
@example(steps=[("send", ["wait", "silent"], True)], closes=False)
@example(steps=[("send", ["wait", "wrong now"], False)], closes=False)
@example(steps=[("send", ["wait"], True), ("go on", 0, True), ("sleep", 1, False)], closes=False)
@settings(max_examples=300)
def test_each_request_is_counted_with_its_own_times(steps: list[tuple], closes: bool) -> None:
    trio.run(follow, steps, closes, clock=trio.testing.MockClock(autojump_threshold=0))


async def follow(steps: list[tuple], closes: bool) -> None:
    site, refused = Site(), 0
    handlers = {ApiKey.PRODUCE: site.handle, ApiKey.METADATA: site.handle, ApiKey.DELETE_TOPICS: site.delete}
    async with open_pipeline(handlers) as pipeline:
        client = await pipeline.connect()
        for what, value, flag in [*steps, ("go on", 0, False), ("sleep", 1, False)]:
            if what == "send":
                await client.send(b"".join(map(frame, value)) + (frame("queued") if flag else b""))
                refused += value.count("refused")
            elif what == "sleep":
                await trio.sleep(value * STEP_S)
            elif what == "go on":
                site.is_queued_wrong = flag
                site.may_go_on.set()
                await trio.testing.wait_all_tasks_blocked()
                site.may_go_on = trio.Event()
            elif parked := site.parked():
                site.answer(parked[value % len(parked)], is_wrong=flag)
                pipeline.channel.flush_responses()
            await trio.testing.wait_all_tasks_blocked()
            site.leave()
        await end(site, pipeline, client, closes)
        check(site, pipeline, refused)


async def end(site: Site, pipeline: Pipeline, client: RawClient, closes: bool) -> None:
    """Close, with whatever is open, or answer all of it."""
    if closes:
        if site.followed:
            site.followed[0].request.connection.close("test")
        return
    while any(each.answered_at < 0 for each in site.followed):
        for each in site.parked():
            site.answer(each, is_wrong=False)
        pipeline.channel.flush_responses()
        site.may_go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        site.leave()


def check(site: Site, pipeline: Pipeline, refused: int) -> None:
    by_name = {ApiKey.PRODUCE: "Produce", ApiKey.METADATA: "Metadata", ApiKey.DELETE_TOPICS: "DeleteTopics"}
    for key, name in by_name.items():
        counts = counts_of(pipeline, name)
        left = [each for each in site.followed if each.request.api.key is key and each.left_at >= 0]
        is_produce = key is ApiKey.PRODUCE
        assert counts.answered == len(left) + (site.silent if is_produce else 0)
        assert counts.failed == sum(each.is_wrong for each in left)
        waited_s = sum(each.answered_at - each.taken_at for each in left)
        assert (counts.local if is_queued_key(key) else counts.remote).total == pytest.approx(waited_s)
        assert counts.response_queue.total == pytest.approx(sum(each.left_at - each.answered_at for each in left))
        assert counts.total.total == pytest.approx(sum(each.left_at - each.taken_at for each in left))
        if is_produce:
            open_ = sum(each.request.api.key is key for each in site.followed)
            assert counts.requests == open_ + site.silent + refused


def is_queued_key(key: ApiKey) -> bool:
    return key is ApiKey.DELETE_TOPICS


class NeverSearched(deque[ResponseSlot]):
    """May be large: what is done for one answer must not look at all."""

    def __contains__(self, slot: object) -> bool:
        raise AssertionError("a search")

    def __iter__(self) -> Iterator[ResponseSlot]:
        raise AssertionError("a walk")

    def index(self, *_: object) -> int:
        raise AssertionError("a search")


@pytest.mark.parametrize("is_wrong", [False, True])
async def test_an_answer_is_noted_without_a_look_at_those_that_wait(
    autojump_clock: trio.testing.MockClock, is_wrong: bool
) -> None:
    site = Site()
    async with open_pipeline({ApiKey.PRODUCE: site.handle}) as pipeline:
        client = await pipeline.connect()
        for _ in range(20):
            await client.send(frame("wait"))
            await trio.testing.wait_all_tasks_blocked()
        connection = site.followed[0].request.connection
        connection.slots = NeverSearched(connection.slots)
        for each in reversed(site.followed):
            site.answer(each, is_wrong=is_wrong)
            pipeline.channel.flush_responses()
            await trio.sleep(STEP_S)
        site.leave()
        assert counts_of(pipeline, "Produce").response_queue.total == pytest.approx(sum(range(20)) * STEP_S)
        assert counts_of(pipeline, "Produce").failed == 20 * is_wrong


def counts_of(pipeline: Pipeline, name: str) -> RequestCounts:
    for _ in pipeline.channel.counts.settle():
        pass
    return dict(pipeline.channel.counts.named())[name]


async def test_what_is_dropped_before_its_turn_is_not_answered(autojump_clock: trio.testing.MockClock) -> None:
    """It stands behind a request that left its burst when the broker stops, and no handler ever sees it."""
    is_done = trio.Event()

    async def finish(request: RequestInHand[Request]) -> None:
        await is_done.wait()
        request.respond(answer_to(request.message, ErrorCode.NONE))

    handlers = {ApiKey.METADATA: lambda request: partial(finish, request), ApiKey.DELETE_TOPICS: Site().delete}
    async with open_pipeline(handlers) as pipeline:
        client = await pipeline.connect()
        await client.send(frame("ask") + frame("queued"))
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pipeline.processor.stop, trio.current_time() + 10)
            await trio.testing.wait_all_tasks_blocked()
            is_done.set()
        counts = counts_of(pipeline, "DeleteTopics")
        assert (counts.requests, counts.answered, counts.failed) == (1, 0, 0)


async def test_what_has_no_answer_waits_for_no_peer_that_reads_slowly(autojump_clock: trio.testing.MockClock) -> None:
    large = MetadataResponse([], [], -1, "c" * 200_000)
    handlers = {
        ApiKey.METADATA: lambda request: request.respond(large),
        ApiKey.PRODUCE: lambda request: request.no_response(),
    }
    async with open_pipeline(handlers, network=MemoryNetwork(window_bytes=64 * 1024)) as pipeline:
        client = await pipeline.connect()
        await client.send(frame("ask") + frame("silent"))
        await trio.testing.wait_all_tasks_blocked()
        assert counts_of(pipeline, "Produce").answered == 1
        await client.send(frame("silent"))
        await trio.testing.wait_all_tasks_blocked()
        assert counts_of(pipeline, "Produce").answered == 2


async def test_what_has_no_answer_takes_as_long_as_its_handler_also_behind_what_left_its_burst(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def finish(request: RequestInHand[Request]) -> None:
        await trio.sleep(1)
        request.respond(answer_to(request.message, ErrorCode.NONE))

    def handle(request: RequestInHand[Request]) -> None:
        autojump_clock.jump(3)
        request.no_response()

    handlers = {ApiKey.METADATA: lambda request: partial(finish, request), ApiKey.PRODUCE: handle}
    async with open_pipeline(handlers) as pipeline:
        client = await pipeline.connect()
        await client.send(frame("ask") + frame("silent"))
        await trio.sleep(5)
        counts = counts_of(pipeline, "Produce")
        assert (counts.answered, counts.local.total, counts.total.total) == (1, 3, 4)
