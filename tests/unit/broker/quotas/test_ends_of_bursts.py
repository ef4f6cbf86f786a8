"""Who pays for the end of a burst, where what its requests appended is written and their answers are sent."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.network.dialects.kafka import KAFKA
from strandline.broker.network.request import RequestInHand
from strandline.broker.quotas.entities import PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, QuotaEntity
from strandline.broker.quotas.gate import QuotaGate
from strandline.broker.quotas.sensors import Sensors
from strandline.protocol.api import ApiKey
from strandline.protocol.messages import ApiVersionsRequest, MetadataRequest, ProduceRequest, ProduceResponse, Request
from strandline.testkit.kafka_client import kafka_frame, read_frame
from support.quota_gate import gated
from support.raw_client import produce_request


def produce_of(client_id: str, size: int = 0) -> bytes:
    head = bytes.fromhex("ffff 0001 000001f4 00000001 0001 74 00000001 00000000")
    return kafka_frame(ApiKey.PRODUCE, 3, head + size.to_bytes(4, "big") + bytes(size), client_id=client_id.encode())


def owed_s(sensors: Sensors) -> dict[str, float]:
    now = trio.current_time()
    return {each.client_id: pytest.approx(each.meter.owed_s(now), abs=0.01) for each in sensors}


async def test_the_end_of_a_burst_counts_for_who_sent_it_and_is_told(autojump_clock: MockClock) -> None:
    async with gated(REQUEST_PERCENTAGE, 10) as (pipeline, clock, sensors, _):
        clock.end_cost_s = 0.3
        client, other = await pipeline.connect(), await pipeline.connect()
        await client.request(produce_request())
        [row] = sensors[REQUEST_PERCENTAGE].rows(trio.current_time())
        assert row.per_second == pytest.approx(30 / 10, rel=0.1), "percent, in ten windows"
        clock.end_cost_s, began = 0.0, trio.current_time()
        await other.request(MetadataRequest())
        assert trio.current_time() - began == pytest.approx(2, abs=0.01)
        await client.request(MetadataRequest())
        assert trio.current_time() - began == pytest.approx(2, abs=0.01)


async def test_an_answer_that_is_made_at_the_end_tells_of_what_that_took_by_then(autojump_clock: MockClock) -> None:
    async with gated(REQUEST_PERCENTAGE, 10) as (pipeline, clock, sensors, _):
        channel, parked = pipeline.channel, list[RequestInHand[ProduceRequest]]()

        def write_and_answer() -> None:
            clock.now += 0.3
            for request in parked:
                request.respond(ProduceResponse([]))
            clock.now += 0.1

        gate = QuotaGate(sensors, clock=clock)
        channel._behind_gates[ApiKey.PRODUCE], channel._plain_end = parked.append, write_and_answer
        channel.switch_gate(gate, gate.end_burst)
        answer = await (await pipeline.connect()).request(produce_request())
        assert answer is not None and isinstance(answer.message, ProduceResponse)
        assert answer.message.throttle_time_ms == 2000
        [sensor] = sensors[REQUEST_PERCENTAGE]
        assert sensor.meter.owed_s(trio.current_time()) == pytest.approx(3, abs=0.01), "each part of it once"


@pytest.mark.parametrize(
    ("message", "is_broker", "count", "owed"),
    [
        (produce_request(), True, 1, []),
        (ApiVersionsRequest(), False, 1, []),
        (ApiVersionsRequest(), False, 2, [2.0]),
        (produce_request(), False, 1, [2.0]),
    ],
)
async def test_the_end_of_what_is_exempt_counts_for_nobody(
    message: Request, is_broker: bool, count: int, owed: list[float], autojump_clock: MockClock
) -> None:
    async with gated(REQUEST_PERCENTAGE, 10) as (pipeline, clock, sensors, _):
        clock.end_cost_s = 0.3
        client = await pipeline.connect()
        await trio.sleep(0.1)
        for each in pipeline.processor.connections:
            each.context = replace(each.context, is_inter_broker=is_broker)
        for _ in range(count):
            await client.request(message)
        assert list(owed_s(sensors[REQUEST_PERCENTAGE]).values()) == owed


async def test_of_several_clients_in_a_burst_the_first_one_pays_that_has_a_quota(autojump_clock: MockClock) -> None:
    async with gated(REQUEST_PERCENTAGE, 10, dialects=(KAFKA,)) as (pipeline, clock, sensors, seen):
        sensors[REQUEST_PERCENTAGE].set_bounds({QuotaEntity(client_id=each): 10 for each in ("app", "other")}, 0.0)
        clock.end_cost_s = 0.3
        client = await pipeline.connect()
        await client.send(b"".join(map(produce_of, ["free", "app", "app", "other"])))
        for _ in range(4):
            assert await read_frame(client)
        assert len(seen) == 4 and clock.now == 0.3, "in one burst"
        assert owed_s(sensors[REQUEST_PERCENTAGE]) == {"app": 2.0, "other": 0.0}


async def test_a_request_that_is_held_does_not_pay_for_those_before_it(autojump_clock: MockClock) -> None:
    """It pays at its turn, for itself."""
    async with gated(PRODUCER_BYTE_RATE, 1000, dialects=(KAFKA,)) as (pipeline, clock, sensors, seen):
        for key, bound in ((PRODUCER_BYTE_RATE, 1000), (REQUEST_PERCENTAGE, 10)):
            sensors[key].set_bounds({QuotaEntity(client_id="app"): bound}, 0.0)
        pipeline.channel.switch_gate(gate := QuotaGate(sensors, clock=clock), gate.end_burst)
        client, other = await pipeline.connect(), await pipeline.connect()
        await client.send(produce_of("app", 5000))
        await trio.sleep(0.1)
        clock.end_cost_s = 0.3
        await other.send(produce_of("free") + produce_of("app"))
        await trio.sleep(0.1)
        found = [(len(seen), owed_s(sensors[REQUEST_PERCENTAGE])["app"])]
        assert await read_frame(other) and await read_frame(other)
        found.append((len(seen), owed_s(sensors[REQUEST_PERCENTAGE])["app"]))
        assert found == [(2, 0.0), (3, 2.0)]
