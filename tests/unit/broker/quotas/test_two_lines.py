"""A client that has a quota of bytes and one of time: its requests wait in two lines, one after the other."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.quotas.entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from strandline.broker.quotas.gate import QuotaGate
from strandline.protocol.messages import FetchPartition, FetchRequest, FetchTopic, MetadataRequest, Request
from support.quota_gate import EVERYBODY, RECORDS, gated
from support.raw_client import produce_request

SIZE = 900
DURATION_S = 2000


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
    async with gated(key, bound) as (pipeline, clock, sensors, _):
        sensors[REQUEST_PERCENTAGE].set_bounds({EVERYBODY: 10}, 0.0)
        pipeline.channel.switch_gate(QuotaGate(sensors, clock=clock))
        clock.cost_s = 0.1
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
