"""Produce requests without an answer (acks=0) in line: how long they wait when their peers have left."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.quotas.entities import PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from support.pipeline import Pipeline
from support.quota_gate import gated
from support.raw_client import RawClient, produce_request, request_frame

SIZE = 900
LIVING = (901, 902, 903)
"""Sizes of the requests of those that stay."""


async def send(pipeline: Pipeline, size: int, *, acks: int) -> RawClient:
    client = await pipeline.connect()
    await client.send(request_frame(produce_request(size, acks=acks), attachments=bytes(size)))
    return client


async def send_and_leave(pipeline: Pipeline, times: int) -> None:
    for _ in range(times):
        client = await send(pipeline, SIZE, acks=0)
        client.transport.close()
        await trio.sleep(0.01)


def sizes_of(seen: list[Any]) -> list[int]:
    return [each.topic_data[0].partition_data[0].records_size for each in seen]


@pytest.mark.parametrize(("key", "bound"), [(PRODUCER_BYTE_RATE, 1000), (REQUEST_PERCENTAGE, 10)])
async def test_connections_whose_peers_have_left_do_not_wait_longer_than_all_windows(
    key: str, bound: int, autojump_clock: MockClock
) -> None:
    """300 come in three seconds, each of which takes what the quota gives in one. Those that stay have their turns,
    with an answer or without."""
    async with gated(key, bound) as (pipeline, clock, _, seen):
        clock.cost_s = 0.1
        await send_and_leave(pipeline, 5)
        with_answer = await send(pipeline, LIVING[0], acks=-1)
        await send_and_leave(pipeline, 145)
        without = await send(pipeline, LIVING[1], acks=0)
        await send_and_leave(pipeline, 150)
        last = await send(pipeline, LIVING[2], acks=-1)
        await trio.sleep(3 if key == PRODUCER_BYTE_RATE else 13)
        assert len(pipeline.processor.connections) <= 3 + 11
        assert await last.response() is not None and await with_answer.response() is not None
        sizes = sizes_of(seen)
        assert [size for size in sizes if size != SIZE] == list(LIVING)
        assert sizes.index(LIVING[0]) == 5 and 10 <= sizes.index(LIVING[1]) <= 15, "who waits no longer is handled"
        without.transport.close()


async def test_what_has_no_answer_waits_on_for_as_long_as_its_peer_is_there(autojump_clock: MockClock) -> None:
    async with gated(PRODUCER_BYTE_RATE, 1000) as (pipeline, _, _, seen):
        clients = [await send(pipeline, SIZE, acks=0) for _ in range(50)]
        await trio.sleep(20)
        clients[30].transport.close()
        await trio.sleep(40)
        assert len(seen) == 49
