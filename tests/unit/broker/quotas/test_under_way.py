"""Requests that are under way while their quota is removed, another one begins to count, or their sensor goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.network.request import RequestInHand
from strandline.broker.quotas import sensors as module
from strandline.broker.quotas.entities import (
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from strandline.broker.quotas.gate import QuotaGate
from strandline.broker.quotas.holding import ask_again, let_go
from strandline.broker.quotas.sensors import Sensor, Sensors
from strandline.protocol.api import API_OF
from strandline.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    Message,
    MetadataRequest,
    ProduceResponse,
    Request,
)
from support.pipeline import Pipeline
from support.quota_gate import EVERYBODY, RECORDS, gated
from support.raw_client import produce_request, request_frame

FETCH = FetchRequest(0, 5000, 2**20, [FetchTopic("t", [FetchPartition(0, 0, 2**20)])])
FETCHED = FetchResponse([FetchTopicResponse("t", [FetchPartitionData(0, 0, 9)])])

UNDER_WAY: list[tuple[str, float, Request, bytes, Message, bytes]] = [
    (REQUEST_PERCENTAGE, 10, produce_request(), b"", ProduceResponse([]), b""),
    (REQUEST_PERCENTAGE, 10, CreateTopicsRequest([]), b"", CreateTopicsResponse([]), b""),
    (PRODUCER_BYTE_RATE, 1000, produce_request(5000), bytes(5000), ProduceResponse([]), b""),
    (CONSUMER_BYTE_RATE, 1000, FETCH, b"", FETCHED, RECORDS),
]
"""Quota, its bound, a request that exceeds it, with records, and its answer, with records."""


def remove(sensors: Sensors) -> None:
    for sensor in sensors.set_bounds({}, trio.current_time()):
        let_go(sensor)


def exempt(sensors: Sensors) -> None:
    """Others owe on, whose quota it was."""
    sensors.set_bounds({EVERYBODY: 1000, QuotaEntity("ANONYMOUS", "app"): 10**9}, trio.current_time())
    for sensor in sensors:
        sensor.take(10_000, trio.current_time())
        ask_again(sensor)


def keep(sensors: Sensors) -> None:
    """Nothing changes."""


@pytest.mark.parametrize(("alter", "is_held"), [(remove, False), (exempt, False), (keep, True)])
@pytest.mark.parametrize(("key", "bound", "asked", "records", "answer", "found"), UNDER_WAY)
async def test_a_request_counts_under_the_quota_that_counts_when_it_is_done(
    key: str,
    bound: float,
    asked: Request,
    records: bytes,
    answer: Message,
    found: bytes,
    alter: Any,
    is_held: bool,
    autojump_clock: MockClock,
) -> None:
    """It takes half a second of the loop before it waits, and another half after that."""
    async with gated(key, bound) as (pipeline, clock, sensors, _):
        parked: list[RequestInHand[Any]] = []
        done = trio.Event()

        def park(request: RequestInHand[Any]) -> None:
            clock.now += 0.5
            parked.append(request)

        async def create(request: RequestInHand[Any]) -> Message:
            park(request)
            await done.wait()
            clock.now += 0.5
            return answer

        is_queued = isinstance(asked, CreateTopicsRequest)
        pipeline.channel._behind_gates[API_OF[type(asked)].key] = create if is_queued else park
        pipeline.channel.switch_gate(QuotaGate(sensors, clock=clock))
        client = await pipeline.connect()
        await client.request(ApiVersionsRequest(client_id="app"))
        await client.send(request_frame(asked, attachments=records))
        await trio.sleep(0.2)
        alter(sensors[key])
        done.set()
        if not is_queued:
            parked[0].respond(answer, [found] if found else ())
            pipeline.channel.flush_responses()
        response = await client.response()
        assert response is not None
        told: Any = response.message
        began = trio.current_time()
        await client.request(MetadataRequest())
        assert (told.throttle_time_ms > 0, trio.current_time() - began > 1) == (is_held, is_held)


RATE = 1_000_000
LARGE_BYTES = 2 * RATE
COMES_IN_S = 9
"""It takes so long that all is saved up again when it has come."""
OTHER = "ANONYMOUS", "other"


async def large_frame(pipeline: Pipeline, meanwhile: Callable[[], object]) -> int:
    """Sent slowly by who calls itself app; returns `throttle_time_ms` of its answer."""
    client = await pipeline.connect()
    await client.request(ApiVersionsRequest(client_id="app"))
    frame = request_frame(produce_request(LARGE_BYTES), attachments=bytes(LARGE_BYTES))
    await client.send(frame[:RATE])
    await trio.sleep(COMES_IN_S)
    meanwhile()
    await client.send(frame[RATE:])
    response = await client.response()
    assert response is not None and isinstance(response.message, ProduceResponse)
    return response.message.throttle_time_ms


@pytest.mark.parametrize("has_place", [True, False], ids=["loses its place", "gets a place"])
async def test_a_large_frame_is_charged_once_though_another_sensor_counts_its_client_when_it_has_come(
    has_place: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SENSORS", 1)
    async with gated(PRODUCER_BYTE_RATE, RATE) as (pipeline, _, by_key, _):
        sensors = by_key[PRODUCER_BYTE_RATE]
        sensors.set_bounds({QuotaEntity(client_id=DEFAULT): RATE}, 0.0)
        paid_by = list[Sensor]()

        def come(amount: float) -> None:
            other = sensors.of(*OTHER, trio.current_time())
            assert other is not None
            other.take(amount, trio.current_time())

        def meanwhile() -> None:
            paid_by.extend(each for each in sensors if each.throttled and each.client_id != OTHER[1])
            come(0)

        if not has_place:
            come(LARGE_BYTES)
        assert await large_frame(pipeline, meanwhile) == 0
        counts = sensors.of("ANONYMOUS", "app", trio.current_time())
        assert counts is not None and counts.client_id == "app" and [counts] != paid_by and len(paid_by) == 1


async def test_a_large_frame_is_charged_by_the_quota_that_counts_when_it_has_come(autojump_clock: MockClock) -> None:
    async with gated(PRODUCER_BYTE_RATE, RATE) as (pipeline, _, by_key, _):
        own = QuotaEntity("ANONYMOUS", "app")
        sensors = by_key[PRODUCER_BYTE_RATE]
        told_ms = await large_frame(pipeline, lambda: sensors.set_bounds({EVERYBODY: RATE, own: RATE}, 0.0))
        assert told_ms > 0
