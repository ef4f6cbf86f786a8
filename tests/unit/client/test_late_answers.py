"""A consumer whose partition has another leader by the time that the former one answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from strandline.protocol.messages import OffsetForLeaderEpochRequest
from strandline.protocol.records import decode_columns
from unit.client.fake_broker import ApiKey, FakeCluster, Fault
from unit.client.test_consumer import T0, consumer, read


@asynccontextmanager
async def reading(**settings: object) -> AsyncIterator[tuple[FakeCluster, Any]]:
    """A consumer at the beginning of ten records, whose leader is late with what it read for the first fetch."""
    fake = FakeCluster(2)
    fake.add_topic("t")
    fake.fill(T0, [b"old %d" % offset for offset in range(10)])
    fake.brokers[0].faults[ApiKey.FETCH].append(Fault(late_s=2))
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        async with consumer(fake, metadata_max_age_ms=200, **settings) as client:
            await client.assign([T0])
            client.seek(T0, 0)
            yield fake, client
        nursery.cancel_scope.cancel()


async def offsets_of(client: Any, what: str) -> list[int]:
    """All that is handed out in six seconds."""
    offsets: list[int] = []
    until = trio.current_time() + 6
    while trio.current_time() < until:
        taken = await getattr(client, what)(timeout_ms=500)
        if what == "poll":
            offsets += [record.offset for records in taken.values() for record in records]
        elif what == "poll_columns":
            offsets += [int(offset) for columns in taken for offset in columns.offsets]
        else:
            for batches in taken:
                assert batches.position < batches.next_offset
                found = decode_columns(batches.records).offsets
                offsets += [int(offset) for offset in found if offset >= batches.position]
    return offsets


@pytest.mark.parametrize("what", ["poll", "poll_columns", "fetch_batches"])
async def test_what_a_new_leader_has_given_is_not_taken_from_the_former_one_again(
    autojump_clock: object, what: str
) -> None:
    async with reading() as (fake, client):
        await trio.sleep(1)
        fake.move(T0, 1)
        fake.fill(T0, [b"new %d" % offset for offset in range(10, 20)])
        assert await offsets_of(client, what) == list(range(20))
        assert await client.position(T0) == 20


async def test_the_former_leader_gives_no_records_that_the_new_ones_log_does_not_have(autojump_clock: object) -> None:
    """It answers after the position was checked with the new leader, which has nothing there yet."""
    async with reading() as (fake, client):
        assert await read(client, 10) == [b"old %d" % offset for offset in range(10)]
        fake.brokers[0].faults[ApiKey.FETCH].append(Fault(late_s=2))
        fake.fill(T0, [b"lost"] * 5)
        await trio.sleep(1)  # a long poll has ended, and the next fetch, which reads them, is the one that is late
        fake.logs[T0].truncate(10)
        fake.move(T0, 1)
        assert await client.poll(timeout_ms=5000) == {}
        fake.fill(T0, [b"new %d" % offset for offset in range(10, 20)])
        assert await read(client, 10) == [b"new %d" % offset for offset in range(10, 20)]


@pytest.mark.parametrize("policy", ["earliest", "none"])
async def test_what_comes_while_the_position_is_checked_is_no_truncation(autojump_clock: object, policy: str) -> None:
    """Of the last leader but one, whose epoch ended before the records that were handed out meanwhile."""
    async with reading(auto_offset_reset=policy) as (fake, client):
        await read(client, 10)
        fake.move(T0, 1)
        await trio.sleep(2)
        fake.brokers[1].faults[ApiKey.FETCH].append(Fault(late_s=2))
        fake.fill(T0, [b"new %d" % offset for offset in range(10, 15)])
        await trio.sleep(1)  # the fetch that reads them is under way
        fake.brokers[0].faults[ApiKey.OFFSET_FOR_LEADER_EPOCH].append(Fault(apply=True, late_s=3))
        fake.move(T0, 0)
        fake.fill(T0, [b"new %d" % offset for offset in range(15, 20)])
        assert await read(client, 10) == [b"new %d" % offset for offset in range(10, 20)]
        assert len(fake.brokers[0].seen(OffsetForLeaderEpochRequest)) == 2, "it was checked for what came, too"
