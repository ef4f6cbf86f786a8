"""What is received of connections that a gate holds: bounded together, and nothing of it is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.network.connection import Connection
from strandline.broker.network.held_bytes import HELD_READ_BYTES
from strandline.broker.network.limits import ConnectionLimits
from strandline.broker.network.request import Remainder, RequestInHand
from strandline.broker.network.request_channel import Handler, Held
from strandline.protocol.api import APIS, Api, ApiKey
from strandline.protocol.messages import ProduceRequest, ProduceResponse
from strandline.runtime.network import TransportClosed
from support.pipeline import Pipeline, open_pipeline
from support.raw_client import RawClient, produce_request, request_frame

MOST_BYTES = 2 * 1024 * 1024
RECEIVE_BUFFER_BYTES = 1024 * 1024
CLIENTS = 40


class Barrier:
    """Holds every Produce request, large frames before they are received, until it is opened."""

    def __init__(self) -> None:
        self.is_open = False
        self.waits: dict[Connection, None] = {}

    def __call__(self, api: Api, handler: Handler) -> Handler:
        return partial(self._request, handler) if api.key is ApiKey.PRODUCE else handler

    def _request(self, handler: Handler, request: RequestInHand[Any]) -> Any:
        return handler(request) if self.is_open else Held(self)

    def before_large(self, connection: Connection, api: Api, size_bytes: int) -> Barrier | None:
        return None if self.is_open else self

    async def wait(self, connection: Connection) -> None:
        self.waits[connection] = None
        await connection.wait_for_time(lambda: 0.0 if self.is_open else trio.current_time() + 1000)

    def open(self) -> None:
        self.is_open = True
        for connection in self.waits:
            connection.wake()


@asynccontextmanager
async def held_at(barrier: Barrier, *, is_inter_broker: bool = False) -> AsyncIterator[tuple[Pipeline, list[int]]]:
    """And the sizes of the records of requests that are handled."""
    sizes: list[int] = []

    def produce(request: RequestInHand[ProduceRequest]) -> None:
        sizes.append(request.header.size_bytes)
        request.respond(ProduceResponse([]))

    handlers: dict[ApiKey, Handler] = {ApiKey.PRODUCE: produce}
    async with open_pipeline(handlers, is_inter_broker=is_inter_broker) as pipeline:
        pipeline.channel.switch_gate(barrier)
        pipeline.channel.before_large = barrier.before_large
        pipeline.channel.held.most_bytes = MOST_BYTES
        yield pipeline, sizes


def frames(size: int, count: int) -> bytes:
    return request_frame(produce_request(size), attachments=bytes(size)) * count


@pytest.mark.parametrize("size", [10_000, 60_000, 100_000, 400_000, 600_000])
async def test_what_is_received_of_connections_that_are_held_is_bounded_and_comes_to_its_turn(
    size: int, autojump_clock: MockClock
) -> None:
    """Of 40 clients that send a mebibyte and a half each, in small frames or large ones."""
    count = 1_500_000 // size
    barrier = Barrier()
    async with held_at(barrier) as (pipeline, sizes), trio.open_nursery() as nursery:
        for _ in range(CLIENTS):
            nursery.start_soon((await pipeline.connect()).send, frames(size, count))
            await trio.sleep(0.01)
        await trio.sleep(1)
        received = pipeline.channel.counts.received_bytes
        assert received <= MOST_BYTES + RECEIVE_BUFFER_BYTES + CLIENTS * HELD_READ_BYTES
        assert len(barrier.waits) == CLIENTS and not sizes
        barrier.open()
        await trio.sleep(30)
        assert len(sizes) == CLIENTS * count and {*sizes} == {len(frames(size, 1))}
        assert pipeline.channel.held.used_bytes == 0


async def test_what_few_connections_have_sent_is_read_at_once(autojump_clock: MockClock) -> None:
    barrier = Barrier()
    async with held_at(barrier) as (pipeline, _):
        sent = frames(10_000, 20)
        await (await pipeline.connect()).send(sent)
        await trio.sleep(1)
        assert pipeline.channel.counts.received_bytes == len(sent) == pipeline.channel.held.used_bytes
        barrier.open()


async def test_a_large_frame_that_nobody_holds_counts_as_none_that_was_held() -> None:
    """By the real clock, on which some time passes whatever is done."""
    barrier = Barrier()
    barrier.open()
    async with held_at(barrier) as (pipeline, sizes):
        client = await pipeline.connect()
        await client.send(frames(2_000_000, 1))
        assert await client.response() is not None and len(sizes) == 1
        assert pipeline.channel.counts.rows[ApiKey.PRODUCE].throttle.total == 0


async def send_until_closed(client: RawClient, data: bytes) -> None:
    with suppress(TransportClosed):
        await client.send(data)


async def test_connections_that_close_while_they_are_held_leave_nothing_behind(autojump_clock: MockClock) -> None:
    barrier = Barrier()
    async with held_at(barrier) as (pipeline, _), trio.open_nursery() as nursery:
        for size in (10_000, 600_000):
            nursery.start_soon(send_until_closed, await pipeline.connect(), frames(size, 1))
            await trio.sleep(1)
        assert pipeline.channel.held.used_bytes > 10_000
        for connection in list(pipeline.processor.connections):
            connection.close("a test ends it")
        await trio.sleep(1)
        assert pipeline.channel.held.used_bytes == 0


async def test_a_large_frame_is_charged_to_one_place_at_a_time_until_its_handler_is_done(
    autojump_clock: MockClock,
) -> None:
    """It leaves its burst after its turn, for a worker: it is held until the budget has room for it again."""
    size, count = 600_000, 3
    frame = frames(size, 1)
    barrier, may_end, began = Barrier(), trio.Event(), list[int]()

    def produce(request: RequestInHand[ProduceRequest]) -> Remainder:
        async def work() -> None:
            began.append(request.header.size_bytes)
            await may_end.wait()
            request.respond(ProduceResponse([]))

        return work

    limits = ConnectionLimits(receive_buffer_bytes=100_000, large_frame_bytes=50_000)
    async with open_pipeline({ApiKey.PRODUCE: produce}, limits=limits, max_queued_bytes=len(frame)) as pipeline:
        pipeline.channel.switch_gate(barrier)
        budget, held = pipeline.channel.budget_of(APIS[ApiKey.PRODUCE]), pipeline.channel.held
        clients = [await pipeline.connect() for _ in range(count)]
        for client in clients:
            await client.send(frame)
        await trio.sleep(1)
        assert (budget.used_bytes, held.used_bytes) == (0, count * len(frame))
        barrier.open()
        await trio.sleep(1)
        assert (len(began), budget.used_bytes, held.used_bytes) == (1, len(frame), (count - 1) * len(frame))
        for connection in list(barrier.waits)[-1:]:
            connection.close("a test ends it")
        may_end.set()
        for client in clients[:-1]:
            assert await client.response() is not None
        await trio.sleep(1)
        assert began and budget.used_bytes == held.used_bytes == 0


async def test_a_broker_that_stops_gives_back_what_is_held_of_large_frames(autojump_clock: MockClock) -> None:
    barrier = Barrier()
    async with held_at(barrier) as (pipeline, sizes):
        pipeline.channel.before_large = None
        await (await pipeline.connect()).send(frames(2_000_000, 1))
        await trio.sleep(1)
        assert pipeline.channel.held.used_bytes > 2_000_000
        await pipeline.processor.stop(trio.current_time() + 1)
        assert pipeline.channel.budget_of(APIS[ApiKey.PRODUCE]).used_bytes == pipeline.channel.held.used_bytes == 0
        assert not sizes
