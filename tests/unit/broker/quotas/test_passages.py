"""Requests that queue, of who owes time: they stand in line before, and one at a time is on its way to its handler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.quotas.entities import QuotaEntity
from strandline.broker.quotas.holding import let_go
from strandline.broker.quotas.sensors import Sensor, Sensors
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.messages import (
    ApiVersionsRequest,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
)
from strandline.runtime.network import TransportClosed
from support.pipeline import Pipeline
from support.quota_gate import Clock, gated
from support.raw_client import RawClient, request_frame

COST_S = 0.3
"""Of each request, twice: before it waits for a second, and after that."""
MEBIBYTE = 1024 * 1024


@asynccontextmanager
async def asking(
    connections: int, *, names: int = 0, num_handlers: int = 8, max_queued_bytes: int = 64 * MEBIBYTE
) -> AsyncIterator[tuple[Pipeline, Clock, Sensors, list[RawClient], list[float]]]:
    """So many connections of a client that may take a tenth of the loop, each of which asks for a creation, with so
    many names in it; when they were answered. At the end nothing of it is left."""
    async with gated("request_percentage", 10, max_queued_bytes=max_queued_bytes) as (pipeline, clock, by_key, _):
        pipeline.channel.set_num_handlers(num_handlers)
        sensors = by_key["request_percentage"]
        sensors.set_bounds({QuotaEntity(client_id="app"): 10}, 0.0)
        clients = [await app(pipeline) for _ in range(connections)]
        answered = list[float]()
        async with trio.open_nursery() as nursery:
            began = trio.current_time()

            async def ask(client: RawClient) -> None:
                with suppress(TransportClosed):
                    answer = await client.request(creation(names))
                    if answer is not None:
                        assert isinstance(answer.message, CreateTopicsResponse)
                        answered.append(trio.current_time() - began)

            clock.cost_s = COST_S
            for client in clients:
                nursery.start_soon(ask, client)
                await trio.sleep(0.001)
            yield pipeline, clock, sensors, clients, answered
        sensor = sensor_of(sensors)
        assert sensor is None or not (sensor.line or sensor.passing or sensor.unreceived)
        assert pipeline.channel.held.used_bytes == admin_bytes(pipeline) == 0


async def app(pipeline: Pipeline) -> RawClient:
    client = await pipeline.connect()
    await client.request(ApiVersionsRequest(client_id="app"))
    return client


def creation(names: int) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic("x" * 240, 1, 1)] * names)


def sensor_of(sensors: Sensors) -> Sensor | None:
    return next(iter(sensors._sensors.values()), None)


def admin_bytes(pipeline: Pipeline) -> int:
    return pipeline.channel.budget_of(APIS[ApiKey.CREATE_TOPICS]).used_bytes


async def test_requests_that_queue_pass_together_what_one_would(autojump_clock: MockClock) -> None:
    """Though all come before the first is handled, when nothing is owed."""
    async with asking(6, num_handlers=0) as (pipeline, _, _, _, answered):
        pipeline.channel.set_num_handlers(8)
        await trio.sleep(40)
        assert len(answered) == 6
        took_s = 2 * COST_S / 0.1
        assert answered[-1] == pytest.approx(5 * took_s, abs=took_s)
        counts = pipeline.channel.counts.rows[ApiKey.CREATE_TOPICS]
        assert counts.queue.total < 0.1, "it waited for no handler"
        assert counts.throttle.total > sum(answered[1:]) * 0.9


async def test_what_queues_waits_for_no_other_while_nothing_is_owed(autojump_clock: MockClock) -> None:
    async with asking(0) as (pipeline, clock, _, _, _):
        clock.cost_s = 0.001
        async with trio.open_nursery() as nursery:
            began = trio.current_time()
            for _ in range(2):
                client = await app(pipeline)
                nursery.start_soon(client.request, creation(0))
        assert trio.current_time() - began == pytest.approx(1, abs=0.1), "which is what each takes alone"


async def test_what_is_handled_in_its_burst_does_not_wait_for_what_is_on_its_way(autojump_clock: MockClock) -> None:
    """One of them waits for a handler, others of its client for that one; nothing is owed."""
    async with asking(3, num_handlers=0) as (pipeline, _, sensors, _, _):
        sensor = sensor_of(sensors)
        assert sensor is not None and len(sensor.passing) == 3
        other = await app(pipeline)
        began = trio.current_time()
        assert await other.request(MetadataRequest()) is not None and trio.current_time() == began
        pipeline.channel.set_num_handlers(2)


async def test_what_is_to_queue_is_let_go_with_its_quota(autojump_clock: MockClock) -> None:
    async with asking(6) as (_, _, sensors, _, answered):
        await trio.sleep(2)
        assert len(answered) == 1
        for sensor in sensors.set_bounds({}, 0.0):
            let_go(sensor)
        await trio.sleep(1.5)
        assert len(answered) == 6


async def test_what_is_behind_others_is_let_go_with_the_quota(autojump_clock: MockClock) -> None:
    """Though the first of them has not begun."""
    async with asking(3, num_handlers=0) as (pipeline, _, sensors, _, answered):
        assert sum(len(queue.items) for queue in pipeline.channel.queues()) == 1
        for sensor in sensors.set_bounds({}, 0.0):
            let_go(sensor)
        await trio.sleep(0.1)
        assert sum(len(queue.items) for queue in pipeline.channel.queues()) == 3
        pipeline.channel.set_num_handlers(8)
        await trio.sleep(1.5)
        assert len(answered) == 3


async def test_what_is_to_queue_goes_over_to_the_quota_that_counts(autojump_clock: MockClock) -> None:
    """All wait, in the same order, for the other one."""
    async with asking(6) as (_, _, sensors, _, answered):
        await trio.sleep(2)
        before = sensor_of(sensors)
        for sensor in sensors.set_bounds({QuotaEntity("ANONYMOUS"): 10}, 0.0):
            let_go(sensor)
        await trio.sleep(0.5)
        now = sensor_of(sensors)
        assert before is not None and now is not None and now is not before
        assert not before.passing and not before.line and len(now.passing) == 4
        await trio.sleep(2)
        assert len(answered) == 2
        await trio.sleep(40)
        assert len(answered) == 6


@pytest.mark.parametrize("by_peer", [False, True])
async def test_connections_that_end_leave_the_way(by_peer: bool, autojump_clock: MockClock) -> None:
    """The one that stands in line, and two of those behind it."""
    async with asking(6) as (_, _, sensors, clients, answered):
        await trio.sleep(2)
        sensor = sensor_of(sensors)
        assert sensor is not None
        waiting = list(sensor.passing)
        assert len(waiting) == 5 and list(sensor.line) == waiting[:1]
        for number in (0, 1, 3):
            if by_peer:
                clients[1 + number].close()
            else:
                waiting[number].close("a test ends it")
        await trio.sleep(2.5)
        assert list(sensor.passing) == [waiting[2], waiting[4]]
        await trio.sleep(20)
        assert len(answered) == 3


async def test_a_connection_that_ends_before_its_handler_has_begun_leaves_the_way(autojump_clock: MockClock) -> None:
    async with asking(2, num_handlers=0) as (pipeline, _, sensors, _, answered):
        sensor = sensor_of(sensors)
        assert sensor is not None
        first, second = sensor.passing
        first.close("a test ends it")
        await trio.sleep(0.1)
        assert list(sensor.passing) == [second]
        pipeline.channel.set_num_handlers(8)
        await trio.sleep(2)
        assert len(answered) == 1


async def test_a_broker_that_stops_ends_those_that_wait(autojump_clock: MockClock) -> None:
    async with asking(6) as (pipeline, _, sensors, _, answered):
        await trio.sleep(2)
        await pipeline.processor.stop(trio.current_time() + 1)
        sensor = sensor_of(sensors)
        assert sensor is not None and not sensor.passing and not sensor.line
        assert len(answered) == 1


@pytest.mark.parametrize("names", [1000, 8000])
async def test_large_ones_take_no_memory_that_others_wait_for(names: int, autojump_clock: MockClock) -> None:
    """Those that fit into the receive buffer, and those that do not."""
    size = len(request_frame(creation(names)))
    assert (size > 512 * 1024) == (names == 8000)
    async with asking(6, names=names, max_queued_bytes=2 * size) as (pipeline, _, _, _, answered):
        await trio.sleep(2)
        assert len(answered) == 1 and admin_bytes(pipeline) == 0
        assert 4 * size < pipeline.channel.held.used_bytes < 6 * size + MEBIBYTE
        began = trio.current_time()
        other = await pipeline.connect()
        assert await other.request(creation(names)) is not None
        assert trio.current_time() - began < 1.1, "a second is what its handler waits"
        await trio.sleep(40)
        assert len(answered) == 6


async def test_those_that_wait_do_not_keep_the_first_from_its_handler(autojump_clock: MockClock) -> None:
    """Where so much is held that large ones, which are behind it, stay in the budget, and that is full."""
    large, small = (request_frame(creation(names)) for names in (8000, 1000))
    async with asking(0, max_queued_bytes=2 * len(large)) as (pipeline, clock, _, _, _):
        clock.cost_s = COST_S
        first, *others = [await app(pipeline) for _ in range(3)]
        for other in others:
            await other.send(large[:-1])
        await trio.sleep(0.1)
        assert admin_bytes(pipeline) == 2 * len(large)
        await first.send(small)
        await trio.sleep(0.1)
        with pipeline.channel.held.keeping(pipeline.channel.held.most_bytes + 2 * len(large) + 1):
            for other in others:
                await other.send(large[-1:])
            for client in (first, *others):
                assert await client.response() is not None
