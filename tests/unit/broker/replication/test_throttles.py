"""A leader and followers that it throttles: who is held back, for how long, and who is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.replication.leadership import FollowerProgress
from support.replica_site import T0, T1, FakeConnection, Hand, ReplicaSite, batch, fetch_hand

RATE = 1000
BATCH = batch(size_bytes=30)
BEHIND = 3
WAIT_MS = 400


def site_of(replicas: str = "*", rate: int = RATE) -> ReplicaSite:
    return ReplicaSite(
        config={"leader.replication.throttled.rate": str(rate)},
        topic={"leader.replication.throttled.replicas": replicas, "min.insync.replicas": "1"},
    )


async def led(site: ReplicaSite, count: int = 50) -> None:
    """`T0` has so many batches, all of which 2 has, while 3 is not in sync."""
    await site.lead(isr=(1, 2))
    for _ in range(count):
        site.produce((T0, BATCH), acks=1)
    site.follow(2, count)


def progress_of(site: ReplicaSite, broker_id: int = BEHIND) -> FollowerProgress:
    leadership = site.partition().leadership
    assert leadership is not None
    return leadership.followers[broker_id]


def asks(site: ReplicaSite, offset: int, broker_id: int = BEHIND, wait_ms: int = WAIT_MS) -> Hand:
    return site.follow(broker_id, offset, wait_ms=wait_ms, connection=FakeConnection(is_inter_broker=True))


def count_of(hand: Hand) -> int:
    return sum(map(len, hand.sent)) // len(BATCH)


@asynccontextmanager
async def time_goes_on(site: ReplicaSite) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.deadlines.run, site.data.burst.end)
        yield
        nursery.cancel_scope.cancel()


async def test_a_follower_that_is_behind_gets_what_the_rate_has_saved_up_and_then_waits(
    autojump_clock: MockClock,
) -> None:
    site = site_of()
    await led(site)
    first = count_of(asks(site, 0))
    assert first == RATE // len(BATCH)
    async with time_goes_on(site):
        second = asks(site, first)
        assert not second.is_answered
        await trio.sleep(WAIT_MS / 1000 + 0.1)
        assert 1 <= count_of(second) <= (WAIT_MS / 1000 + 0.1) * RATE / len(BATCH) + 1


async def test_what_it_is_told_meanwhile_is_as_always(autojump_clock: MockClock) -> None:
    site = site_of()
    await led(site)
    first = count_of(asks(site, 0))
    [told] = asks(site, first, wait_ms=0).fetched
    assert (told.error_code, told.high_watermark, told.log_start_offset) == (0, 50, 0)
    assert progress_of(site).log_end_offset == first, "its fetch told how far it is"


async def test_others_get_all_there_is_all_the_time(autojump_clock: MockClock) -> None:
    """Who is in sync, who is about to join, and consumers."""
    site = site_of()
    await led(site)
    site.update_metadata(alive=(1, 2))  # 3 counts as dead, so it does not join
    offset = count_of(asks(site, 0))
    while offset < 50:
        await trio.sleep(0.5)
        offset += count_of(asks(site, offset, wait_ms=0))
    asks(site, 50, wait_ms=0)
    assert progress_of(site) in site.partition().leadership.quorum
    for _ in range(200):
        site.produce((T0, BATCH), acks=1)
    assert count_of(asks(site, 50, BEHIND, wait_ms=0)) == 200, "the high watermark waits for it"
    assert count_of(asks(site, 50, 2, wait_ms=0)) == 200
    assert count_of(site.fetch((T0, 0))) == 50


@pytest.mark.parametrize("replicas", ["0:2,1:1", "1:1"])
async def test_a_leader_that_is_not_named_throttles_nobody(replicas: str, autojump_clock: MockClock) -> None:
    site = site_of(replicas)
    await led(site)
    assert count_of(asks(site, 0)) == 50


async def test_other_partitions_of_the_same_fetch_are_sent(autojump_clock: MockClock) -> None:
    site = site_of("0:1")
    await led(site)
    await site.lead(T1, isr=(1, 2))
    site.produce((T1, BATCH), acks=1)
    first = count_of(asks(site, 0))
    hand = fetch_hand(
        (T0, first),
        (T1, 0),
        replica_id=BEHIND,
        replica_epoch=1,
        epoch=0,
        log_start=0,
        wait_ms=WAIT_MS,
        connection=FakeConnection(is_inter_broker=True),
    )
    site.burst(hand)
    assert count_of(hand) == 1
    assert len(hand.fetched) == 2


async def test_a_batch_that_is_larger_than_the_rate_goes_whole_and_is_made_up_for(autojump_clock: MockClock) -> None:
    site = site_of(rate=10)
    await led(site, 2)
    assert count_of(asks(site, 0)) == 1
    await trio.sleep(len(BATCH) / 10 - 1.2)
    assert count_of(asks(site, 1, wait_ms=0)) == 0
    await trio.sleep(0.4)
    assert count_of(asks(site, 1, wait_ms=0)) == 1


async def test_a_fetch_that_waits_is_looked_at_when_the_rate_has_room_and_not_when_the_log_grows(
    autojump_clock: MockClock,
) -> None:
    site = site_of()
    await led(site)
    offset = count_of(asks(site, 0))
    looks = 0
    read = site.data.fetch.reads.read

    def counted(*arguments: object) -> object:
        nonlocal looks
        looks += 1
        return read(*arguments)

    site.data.fetch.reads.read = counted
    async with time_goes_on(site):
        hand = asks(site, offset)
        for _ in range(100):
            site.produce((T0, BATCH), acks=1)
        assert (looks, hand.is_answered) == (1, False)
        while not hand.is_answered:
            await trio.sleep(0.01)
        assert looks <= 4


async def test_bytes_that_are_held_back_are_not_there_for_who_waits_for_many(autojump_clock: MockClock) -> None:
    site = site_of("0:1")
    await led(site, 100)
    await site.lead(T1, isr=(1, 2))
    site.produce((T1, BATCH), acks=1)
    offset = count_of(asks(site, 0))
    hand = fetch_hand(
        (T0, offset),
        (T1, 0),
        replica_id=BEHIND,
        replica_epoch=1,
        epoch=0,
        log_start=0,
        wait_ms=WAIT_MS,
        min_bytes=1000,
        connection=FakeConnection(is_inter_broker=True),
    )
    site.burst(hand)
    assert not hand.is_answered


async def test_who_is_held_back_is_not_taken_for_one_that_cannot_get_past_an_offset(autojump_clock: MockClock) -> None:
    site = site_of(rate=1)
    await led(site)
    asks(site, 0)
    for _ in range(20):
        asks(site, 1, wait_ms=0)
    assert not site.submitted, "nobody has to look at what is sent to it"
    assert progress_of(site).stalled_fetches <= 1


async def test_who_gets_something_and_does_not_get_past_it_is_noticed_under_a_throttle_too(
    autojump_clock: MockClock,
) -> None:
    site = site_of(rate=10**6)
    await led(site)
    for _ in range(5):
        assert count_of(asks(site, 0, wait_ms=0)) == 50
        await trio.sleep(1)
    assert len(site.submitted) == 1


async def test_a_fetch_that_waits_ends_with_its_connection(autojump_clock: MockClock) -> None:
    site = site_of()
    await led(site)
    hand = asks(site, count_of(asks(site, 0)))
    hand.connection.close("gone")
    async with time_goes_on(site):
        await trio.sleep(1)
    assert not hand.is_answered
    assert not site.partition().parked_fetches
    assert not len(site.data.deadlines)
