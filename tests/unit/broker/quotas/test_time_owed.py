"""Large frames of who owes time: where their memory is counted, and what they wait for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.network.held_bytes import HELD_READ_BYTES
from strandline.broker.quotas.entities import DEFAULT, QuotaEntity
from strandline.broker.quotas.holding import ask_again, let_go
from strandline.broker.quotas.sensors import Sensor, Sensors
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.messages import (
    ApiVersionsRequest,
    MetadataRequest,
)
from strandline.runtime.network import TransportClosed
from support.pipeline import Pipeline
from support.quota_gate import Clock, gated
from support.raw_client import RawClient, produce_request, request_frame

MEBIBYTE = 1024 * 1024
HELD_BYTES = 4 * MEBIBYTE
QUEUED_BYTES = 8 * MEBIBYTE


@asynccontextmanager
async def owing(connections: int) -> AsyncIterator[tuple[Pipeline, dict[str, Sensors], list[Any], trio.Nursery]]:
    """Who is called "app" sends two large frames by each of so many connections, in sizes that tell them apart, each of
    which takes what its quota gives in half a second. 4 MiB may be held, 8 MiB be received."""
    async with gated("request_percentage", 10, max_queued_bytes=QUEUED_BYTES) as (pipeline, clock, sensors, seen):
        sensors["request_percentage"].set_bounds({QuotaEntity(client_id="app"): 10}, 0.0)
        pipeline.channel.held.most_bytes = HELD_BYTES
        clock.cost_s = 0.05
        async with trio.open_nursery() as nursery:
            for number in range(connections):
                client = await pipeline.connect()
                await client.request(ApiVersionsRequest(client_id="app"))
                frames = [large_frame(2 * MEBIBYTE + 2 * number + each) for each in range(2)]
                nursery.start_soon(send_until_closed, client, b"".join(frames))
            yield pipeline, sensors, seen, nursery
        assert pipeline.channel.held.used_bytes == queued_bytes(pipeline) == 0
        assert not any(each.line or each.unreceived for each in sensors["request_percentage"]._sensors.values())


def large_frame(size: int) -> bytes:
    return request_frame(produce_request(size), attachments=bytes(size))


async def send_until_closed(client: RawClient, data: bytes) -> None:
    with suppress(TransportClosed):
        await client.send(data)


def queued_bytes(pipeline: Pipeline) -> int:
    return pipeline.channel.budget_of(APIS[ApiKey.PRODUCE]).used_bytes


def sizes_of(seen: list[Any]) -> list[int]:
    return [each.topic_data[0].partition_data[0].records_size for each in seen]


async def test_large_frames_of_who_owes_time_take_no_memory_that_others_wait_for(autojump_clock: MockClock) -> None:
    async with owing(20) as (pipeline, _, seen, _):
        other = await pipeline.connect()
        await trio.sleep(1)
        for _ in range(10):
            began = trio.current_time()
            answer = await other.request(produce_request(2_000_000), attachments=bytes(2_000_000))
            assert answer is not None and trio.current_time() - began < 0.1
            held = pipeline.channel.held
            assert held.used_bytes <= HELD_BYTES + QUEUED_BYTES + 3 * MEBIBYTE + 20 * HELD_READ_BYTES
            assert queued_bytes(pipeline) == 0
            await trio.sleep(0.7)
        await trio.sleep(60)
        handled = [size for size in sizes_of(seen) if size != 2_000_000]
        assert sorted(handled) == [2 * MEBIBYTE + number for number in range(40)], "each once"
        assert all(handled.index(size) < handled.index(size + 1) for size in handled if size % 2 == 0)


async def test_large_frames_that_wait_for_room_are_let_go_with_their_quota(autojump_clock: MockClock) -> None:
    async with owing(20) as (_, sensors, seen, _):
        await trio.sleep(2)
        assert len(seen) < 10
        for sensor in sensors["request_percentage"].set_bounds({}, 0.0):
            let_go(sensor)
        await trio.sleep(1)
        assert len(seen) == 40


async def test_connections_that_close_or_whose_broker_stops_leave_the_line_for_room(autojump_clock: MockClock) -> None:
    async with owing(20) as (pipeline, sensors, _, nursery):
        await trio.sleep(2.2)
        [sensor] = sensors["request_percentage"]._sensors.values()
        waiting = list(sensor.unreceived)
        assert len(waiting) > 5
        waiting[0].close("a test ends it")
        waiting[2].close("a test ends it")
        await trio.sleep(0.1)
        assert list(sensor.unreceived) == [waiting[1], *waiting[3:]]
        await pipeline.processor.stop(trio.current_time() + 1)
        nursery.cancel_scope.cancel()


async def test_what_many_clients_have_under_way_when_they_begin_to_owe_is_bounded(autojump_clock: MockClock) -> None:
    """Each brings as much as may be received at once, and has its debt before the last byte."""
    async with gated("request_percentage", 10, max_queued_bytes=QUEUED_BYTES) as (pipeline, clock, sensors, seen):
        sensors["request_percentage"].set_bounds({QuotaEntity(client_id=DEFAULT): 10}, 0.0)
        held = pipeline.channel.held
        held.most_bytes = HELD_BYTES
        async with trio.open_nursery() as nursery:
            for number in range(8):
                clients = [await pipeline.connect() for _ in range(5)]
                for client in clients:
                    await client.request(ApiVersionsRequest(client_id=f"app-{number}"))
                frame = large_frame(QUEUED_BYTES // 4 - 1000)
                for client in clients[1:]:
                    nursery.start_soon(send_until_closed, client, frame[:-1])
                await trio.sleep(0.1)
                clock.cost_s = 1.0
                await clients[0].request(MetadataRequest())
                clock.cost_s = 0.0
                for client in clients[1:]:
                    nursery.start_soon(send_until_closed, client, frame[-1:])
                await trio.sleep(0.1)
                assert held.used_bytes <= HELD_BYTES + 2 * QUEUED_BYTES
            assert held.used_bytes > HELD_BYTES + QUEUED_BYTES / 2
            await trio.sleep(100)
        assert len(seen) == 8 * 5 and held.used_bytes == queued_bytes(pipeline) == 0


SIZE = 2_000_000


@asynccontextmanager
async def behind_others(connections: int) -> AsyncIterator[tuple[Pipeline, Clock, Sensor, list[Any], list[RawClient]]]:
    """Others hold all that may be held, and the client of these connections owes two seconds."""
    async with gated("request_percentage", 10) as (pipeline, clock, sensors, seen):
        pipeline.channel.held.most_bytes = HELD_BYTES
        clients = [await pipeline.connect() for _ in range(connections)]
        sensors["request_percentage"].set_bounds({QuotaEntity(client_id=DEFAULT): 10}, 0.0)
        sensor = sensors["request_percentage"].of("ANONYMOUS", "", trio.current_time())
        assert sensor is not None
        sensor.take(30, trio.current_time())
        with pipeline.channel.held.keeping(HELD_BYTES + 1):
            yield pipeline, clock, sensor, seen, clients
        await trio.sleep(100)
        assert pipeline.channel.held.used_bytes == queued_bytes(pipeline) == 0


async def test_who_owes_nothing_any_more_does_not_wait_for_what_others_hold(autojump_clock: MockClock) -> None:
    async with behind_others(1) as (_, _, _, _, [client]):
        began = trio.current_time()
        await client.request(produce_request(SIZE), attachments=bytes(SIZE))
        assert trio.current_time() - began == pytest.approx(2, abs=0.1)


async def test_who_waits_for_room_lets_all_of_its_client_pass_that_are_in_line(autojump_clock: MockClock) -> None:
    """Two requests, each of which takes what the quota gives in a second; and behind another client's frame."""
    async with behind_others(5) as (_, clock, sensor, seen, clients), trio.open_nursery() as nursery:
        owing, other, large, *small = clients
        for client in (owing, other):
            await client.request(ApiVersionsRequest(client_id="other"))
        clock.cost_s = 10
        await owing.request(MetadataRequest())
        nursery.start_soon(send_until_closed, other, large_frame(SIZE))
        clock.cost_s = 0.1
        await trio.sleep(0.3)
        nursery.start_soon(send_until_closed, large, large_frame(SIZE))
        await trio.sleep(0.2)
        for client in small:
            nursery.start_soon(client.request, MetadataRequest())
        found = []
        for _ in range(4):
            await trio.sleep(1)
            found.append((len(seen) - 1, len(sensor.unreceived)))
        assert found == [(0, 1), (1, 1), (2, 1), (3, 0)]


@pytest.mark.parametrize("another_counts", [False, True])
async def test_who_waits_for_room_is_let_go_with_its_quota(another_counts: bool, autojump_clock: MockClock) -> None:
    async with behind_others(1) as (_, _, sensor, _, [client]):
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_until_closed, client, large_frame(SIZE))
            await trio.sleep(1)
            assert sensor.unreceived
            if another_counts:
                sensor.table.set_bounds({QuotaEntity(client_id=DEFAULT): 10, QuotaEntity("ANONYMOUS"): 1000}, 0.0)
                ask_again(sensor)
            else:
                let_go(sensor)
            assert await client.response() is not None
        assert trio.current_time() - began < 1.2


async def test_who_ends_while_it_waits_for_room_leaves_the_line(autojump_clock: MockClock) -> None:
    async with behind_others(1) as (_, _, sensor, seen, [client]):
        sensor.take(1000, trio.current_time())
        await client.send(large_frame(SIZE)[:200_000])
        await trio.sleep(1)
        assert sensor.unreceived
        client.close()
        await trio.sleep(3)
        assert not sensor.unreceived and not seen


async def test_what_waits_for_room_has_begun_to_be_received_and_does_not_wait_for_that(
    autojump_clock: MockClock,
) -> None:
    async with behind_others(3) as (pipeline, _, sensor, seen, clients), trio.open_nursery() as nursery:
        held = pipeline.channel.held
        sensor.take(1000, trio.current_time())
        for client in clients:
            nursery.start_soon(send_until_closed, client, large_frame(SIZE))
        await trio.sleep(0.5)
        begun_bytes = held.used_bytes - HELD_BYTES - 1
        assert len(sensor.unreceived) == 3 and begun_bytes > 2 * HELD_READ_BYTES
        held.most_bytes, room = HELD_READ_BYTES, HELD_BYTES + 1
        held.release(room)
        await trio.sleep(0.5)
        assert len(sensor.unreceived) == 2 and not seen, "one, since there is room for no more"
        held.take(room)


async def test_a_frame_whose_client_begins_to_owe_while_it_waits_for_memory_leaves_that_to_others(
    autojump_clock: MockClock,
) -> None:
    async with gated("request_percentage", 10, max_queued_bytes=SIZE + 1000) as (pipeline, _, sensors, _):
        pipeline.channel.held.most_bytes = HELD_BYTES
        first, second, _ = [await pipeline.connect() for _ in range(3)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_until_closed, first, large_frame(SIZE)[:-1])
            await trio.sleep(0.1)
            nursery.start_soon(send_until_closed, second, large_frame(SIZE)[:-1])
            await trio.sleep(0.1)
            with pipeline.channel.held.keeping(HELD_BYTES + 1):
                sensor = sensors["request_percentage"].of("ANONYMOUS", "", trio.current_time())
                assert sensor is not None and queued_bytes(pipeline) > SIZE and not sensor.unreceived
                sensor.take(100, trio.current_time())
                first.close()
                await trio.sleep(0.5)
                assert len(sensor.unreceived) == 1 and queued_bytes(pipeline) == 0
                second.close()


@pytest.mark.parametrize(
    ("key", "is_broker", "has_greeted", "owes"),
    [
        (ApiKey.PRODUCE, False, True, True),
        (ApiKey.METADATA, False, False, True),
        (ApiKey.PRODUCE, True, True, False),
        (ApiKey.API_VERSIONS, False, False, False),
        (ApiKey.API_VERSIONS, False, True, True),
        (ApiKey.CREATE_TOPICS, False, True, True),
    ],
)
async def test_only_what_would_stand_in_line_waits_for_room(
    key: ApiKey, is_broker: bool, has_greeted: bool, owes: bool, autojump_clock: MockClock
) -> None:
    async with behind_others(1) as (pipeline, _, _, _, [client]):
        await client.request(ApiVersionsRequest())
        [connection] = pipeline.processor.connections
        connection.context = replace(connection.context, is_inter_broker=is_broker)
        connection.has_greeted = has_greeted
        assert pipeline.channel.debt_of is not None
        assert (pipeline.channel.debt_of(connection, APIS[key]) is not None) == owes
