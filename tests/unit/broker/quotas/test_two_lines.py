"""A client that has a quota of bytes and one of time: its requests wait in two lines, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.quotas.entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from strandline.broker.quotas.gate import QuotaGate
from strandline.broker.quotas.sensors import Sensors, Windows
from strandline.protocol.messages import FetchPartition, FetchRequest, FetchTopic, MetadataRequest, Request
from support.pipeline import Pipeline
from support.quota_gate import EVERYBODY, RECORDS, Clock, gated
from support.raw_client import produce_request

SIZE = 900
DURATION_S = 2000
COST_S = 0.1
"""Of each request, and what the quota of time gives in a second."""


@asynccontextmanager
async def gated_twice(bounds: dict[str, float]) -> AsyncIterator[tuple[Pipeline, Clock]]:
    """By quotas of bytes, and one of time that lets a request pass each second."""
    (key, bound), *others = bounds.items()
    async with gated(key, bound) as (pipeline, clock, sensors, _):
        for other, its_bound in others:
            sensors[other].set_bounds({EVERYBODY: its_bound}, 0.0)
        sensors[REQUEST_PERCENTAGE] = Sensors("Request", Windows(1, 11, 1, is_debt_bounded=True))
        sensors[REQUEST_PERCENTAGE].set_bounds({EVERYBODY: 100 * COST_S}, 0.0)
        gate = QuotaGate(sensors, clock=clock)
        pipeline.channel.switch_gate(gate)
        pipeline.channel.before_large, pipeline.channel.debt_of = gate.before_large, gate.debt_of
        clock.cost_s = COST_S
        yield pipeline, clock


def fetch_request() -> FetchRequest:
    return FetchRequest(0, 5000, 2**20, [FetchTopic("t", [FetchPartition(0, 0, 2**20)])])


@pytest.mark.parametrize(
    ("key", "request_", "records", "each_bytes"),
    [
        (PRODUCER_BYTE_RATE, produce_request(SIZE), bytes(SIZE), SIZE),
        (CONSUMER_BYTE_RATE, fetch_request(), b"", len(RECORDS)),
    ],
)
@pytest.mark.parametrize(("connections", "questions"), [(4, 1), (20, 2)])
async def test_connections_of_a_client_with_both_quotas_take_turns(
    key: str,
    request_: Request,
    records: bytes,
    each_bytes: int,
    connections: int,
    questions: int,
    autojump_clock: MockClock,
) -> None:
    """Questions take the time that the others would have needed, and no bytes. Per second, the quotas let one request
    pass for its time, and half of one for its bytes."""
    bound = each_bytes // 2
    async with gated_twice({key: bound}) as (pipeline, _):
        answered = Counter[int]()
        with trio.move_on_after(DURATION_S):
            async with trio.open_nursery() as nursery:

                async def repeat(number: int, message: Request, records: bytes) -> None:
                    client = await pipeline.connect()
                    while True:
                        await client.request(message, attachments=records)
                        answered[number] += 1

                for number in range(connections):
                    nursery.start_soon(repeat, number, request_, records)
                    await trio.sleep(0.07)
                for number in range(questions):
                    nursery.start_soon(repeat, connections + number, MetadataRequest(), b"")
                    await trio.sleep(0.07)
        of_bytes = [answered[number] for number in range(connections)]
        assert max(of_bytes) - min(of_bytes) <= 2, of_bytes
        assert sum(of_bytes) * each_bytes > 0.9 * bound * DURATION_S, "and all of the quota is used"


@pytest.mark.parametrize("large_bytes", [60_000, 600_000], ids=["read whole", "received at its turn"])
async def test_time_is_held_though_many_wait_meanwhile_for_bytes_that_one_took(
    large_bytes: int, autojump_clock: MockClock
) -> None:
    """For half a minute at a time no bytes may pass, and those who come for some owe no time. A question is asked
    again and again, so that no time is left."""
    async with gated_twice({PRODUCER_BYTE_RATE: large_bytes // 30}) as (pipeline, clock):
        answered = Counter[str]()
        with trio.move_on_after(DURATION_S):
            async with trio.open_nursery() as nursery:

                async def repeat(name: str, message: Request, records: bytes) -> None:
                    client = await pipeline.connect()
                    while True:
                        await client.request(message, attachments=records)
                        answered[name] += 1

                nursery.start_soon(repeat, "large", produce_request(large_bytes), bytes(large_bytes))
                nursery.start_soon(repeat, "question", MetadataRequest(), b"")
                await trio.sleep(1)
                for _ in range(200):
                    nursery.start_soon(repeat, "small", produce_request(10), bytes(10))
        assert clock.now / (DURATION_S * COST_S) == pytest.approx(1, abs=0.05)
        assert min(answered[each] for each in ("large", "question", "small")) > DURATION_S // 300, answered
