"""Idle connections, frames that never end, peers that stall: all by one coarse timer, on the virtual clock."""

from __future__ import annotations

import trio
import trio.testing

from strandline.broker.network.limits import ConnectionLimits
from strandline.broker.network.request import RequestInHand
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.messages import MetadataRequest, MetadataResponse
from strandline.runtime.network import TransportClosed
from support.pipeline import Pipeline, open_pipeline
from support.raw_client import RawClient, produce_request, request_frame

FRAME = request_frame(MetadataRequest())
LIMITS = ConnectionLimits(max_idle_ms=60_000, frame_deadline_ms=10_000, send_timeout_ms=5_000)
TIMER_S = 1.5
"""The timer's interval, rounded up."""


def answer(request: RequestInHand) -> None:
    request.respond(MetadataResponse([], []))


async def seconds_until_closed(client: RawClient, since: float) -> float:
    assert await client.is_closed_by_peer()
    return trio.current_time() - since


def reason_of_the_only_connection(pipeline: Pipeline) -> str:
    [connection] = pipeline.processor.connections
    return connection.why_closed


async def test_an_idle_connection_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    async with open_pipeline({ApiKey.METADATA: answer}, limits=LIMITS) as pipeline:
        client = await pipeline.connect()
        await trio.sleep(50)
        assert await client.request(MetadataRequest()) is not None  # not idle: the time starts again
        since = trio.current_time()
        assert 60 <= await seconds_until_closed(client, since) <= 60 + TIMER_S
    assert pipeline.quota.total == 0


async def test_a_connection_that_never_says_anything_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    async with open_pipeline({ApiKey.METADATA: answer}, limits=LIMITS) as pipeline:
        client = await pipeline.connect()
        assert 60 <= await seconds_until_closed(client, trio.current_time()) <= 60 + TIMER_S


async def test_who_waits_for_a_response_is_not_idle(autojump_clock: trio.testing.MockClock) -> None:
    parked: list[RequestInHand] = []
    async with open_pipeline({ApiKey.METADATA: parked.append}, limits=LIMITS) as pipeline:
        client = await pipeline.connect()
        await client.send(FRAME)
        await trio.sleep(500)
        answer(parked[0])
        pipeline.channel.flush_responses()
        assert await client.response() is not None


async def test_a_prefix_and_then_silence_is_closed_at_the_frames_deadline(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for begun in (1, 4, 20, len(FRAME) - 1):
        async with open_pipeline({ApiKey.METADATA: answer}, limits=LIMITS) as pipeline:
            client = await pipeline.connect()
            await client.send(FRAME[:begun])
            assert 10 <= await seconds_until_closed(client, trio.current_time()) <= 10 + TIMER_S


async def test_one_byte_a_second_does_not_extend_the_frames_deadline(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        open_pipeline({ApiKey.METADATA: answer}, limits=LIMITS) as pipeline,
        trio.open_nursery() as nursery,
    ):
        client = await pipeline.connect()
        since = trio.current_time()

        @nursery.start_soon
        async def drip() -> None:
            try:
                for byte in FRAME * 10:
                    await client.send(bytes([byte]))
                    await trio.sleep(1)
            except TransportClosed:
                pass

        assert 10 <= await seconds_until_closed(client, since) <= 10 + TIMER_S
        nursery.cancel_scope.cancel()


async def test_a_frame_after_frames_has_a_deadline_of_its_own(autojump_clock: trio.testing.MockClock) -> None:
    async with open_pipeline({ApiKey.METADATA: answer}, limits=LIMITS) as pipeline:
        client = await pipeline.connect()
        for _ in range(10):  # begun and finished 5 seconds later, ten times: never overdue
            await client.send(FRAME[:9])
            await trio.sleep(5)
            await client.send(FRAME[9:])
            assert await client.response() is not None


async def test_a_large_frame_has_time_for_its_size(autojump_clock: trio.testing.MockClock) -> None:
    limits = ConnectionLimits(frame_deadline_ms=10_000, receive_buffer_bytes=50_000, large_frame_bytes=20_000)
    async with open_pipeline({ApiKey.PRODUCE: answer}, limits=limits) as pipeline:
        client = await pipeline.connect()
        size = 20 * 1024 * 1024
        head = request_frame(produce_request(size), attachments=bytes(size))[:100]
        await client.send(head)
        assert 30 <= await seconds_until_closed(client, trio.current_time()) <= 31 + TIMER_S
        await trio.testing.wait_all_tasks_blocked()
        assert pipeline.channel.budget_of(APIS[ApiKey.PRODUCE]).used_bytes == 0


async def test_waiting_for_our_own_handlers_is_not_counted_against_a_frame(
    autojump_clock: trio.testing.MockClock,
) -> None:
    parked: list[RequestInHand] = []
    limits = ConnectionLimits(max_in_flight=1, frame_deadline_ms=10_000)
    async with open_pipeline({ApiKey.METADATA: parked.append}, limits=limits) as pipeline:
        client = await pipeline.connect()
        await client.send(FRAME + FRAME[:5])
        await trio.sleep(1)  # the deadline of the second frame runs
        await client.send(FRAME[5:] + FRAME[:9])
        await trio.sleep(100)  # it came in time, and waits for us
        for number in range(2):
            answer(parked[number])
            pipeline.channel.flush_responses()
            assert await client.response() is not None
            await trio.testing.wait_all_tasks_blocked()
        await client.send(FRAME[9:])
        await trio.testing.wait_all_tasks_blocked()
        assert len(parked) == 3


async def test_a_response_that_never_gets_ready_does_not_keep_a_finished_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    parked: list[RequestInHand] = []
    async with open_pipeline({ApiKey.METADATA: parked.append}, limits=LIMITS) as pipeline:
        client = await pipeline.connect()
        broken = bytearray(FRAME)
        broken[21] = 0xC1  # the body is no longer msgpack: INVALID_REQUEST behind a response that never comes
        since = trio.current_time()
        await client.send(FRAME + bytes(broken))
        assert 5 <= await seconds_until_closed(client, since) <= 5 + TIMER_S
