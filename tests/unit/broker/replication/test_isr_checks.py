"""Who lags is found in time, whatever happened before, although partitions in which nobody lags are not looked at."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.replication.isr_checks import run_isr_checks
from strandline.broker.replication.partition import Partition
from strandline.protocol.errors import ErrorCode
from strandline.runtime.config.topic import topic_config
from support.replica_site import REPLICAS, T0, ReplicaSite, batch

LAG_S = 30
IDLE_S = 3600.0


@asynccontextmanager
async def checks(site: ReplicaSite) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_isr_checks, site.replicas, site.data.burst)
        yield
        nursery.cancel_scope.cancel()


async def caught_up(site: ReplicaSite) -> Partition:
    """One committed record, all in sync, and nothing to look at."""
    partition = await site.lead()
    site.produce((T0, batch()), acks=1)
    for follower in (2, 3):
        site.follow(follower, 1)
    await trio.sleep(IDLE_S)
    assert not site.replicas.maybe_lagging
    return partition


def proposed(partition: Partition) -> tuple[int, ...] | None:
    leadership = partition.leadership
    assert leadership is not None
    return leadership.proposal.isr if leadership.proposal else None


@pytest.mark.parametrize("producer", [None, (7, 0, 0)])
async def test_a_follower_that_does_not_come_for_what_is_appended_after_an_hour_is_dropped_in_time(
    site: ReplicaSite, autojump_clock: MockClock, producer: tuple[int, int, int] | None
) -> None:
    async with checks(site):
        partition = await caught_up(site)
        waits = {n: site.follow(n, 1, wait_ms=10_000) for n in (2, 3)}
        site.produce((T0, batch(producer=producer)), acks=1)
        assert all(hand.is_answered for hand in waits.values())
        site.follow(2, 2)
        await trio.sleep(LAG_S - 1)
        assert proposed(partition) is None
        await trio.sleep(LAG_S / 2 + 2)
        assert proposed(partition) == (1, 2)


async def test_a_follower_stays_that_has_everything_and_does_not_fetch(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    async with checks(site):
        partition = await caught_up(site)
        assert proposed(partition) is None and partition.leadership and partition.leadership.isr == REPLICAS


async def test_a_member_that_lost_its_end_and_stops_is_dropped_in_time(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    async with checks(site):
        partition = await caught_up(site)
        site.follow(3, 0)
        await trio.sleep(LAG_S * 1.5 + 1)
        assert proposed(partition) == (1, 2)


async def test_a_member_that_never_fetches_from_a_new_leader_is_dropped_in_time(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    async with checks(site):
        await caught_up(site)
        partition = await site.lead(epoch=1)
        site.follow(2, 1)
        await trio.sleep(LAG_S * 1.5 + 1)
        assert proposed(partition) == (1, 2)


async def test_hw_waits_no_longer_for_an_outsider_that_was_about_to_join(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    async with checks(site):
        partition = await site.lead(isr=(1, 2))
        site.produce((T0, batch()), acks=1)
        site.follow(2, 1)
        await trio.sleep(IDLE_S)
        site.update_metadata(alive=(1, 2))  # so that it may not join
        site.follow(3, 1)
        site.produce((T0, batch()), acks=1)
        site.follow(2, 2)
        assert partition.high_watermark == 1
        await trio.sleep(LAG_S * 1.5 + 1)
        assert partition.high_watermark == 2


async def test_members_that_are_no_replicas_leave_with_the_next_look(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    async with checks(site):
        partition = await caught_up(site)
        partition.isr_committed((1, 2, 3, 9), (), 5, trio.current_time())
        await trio.sleep(LAG_S / 2 + 1)
        assert proposed(partition) == REPLICAS


async def test_a_part_of_a_wave_that_a_full_disk_ended_is_waited_for_no_longer_than_the_lag(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    """Its producer got an error, and yet the log grew."""
    async with checks(site):
        partition = await caught_up(site)
        partition.set_config(topic_config(site.config, {"segment.bytes": "300"}))
        await trio.sleep(IDLE_S)
        assert not site.replicas.maybe_lagging
        site.disk.fail("open", "/logs/t-0/*.log", errno.ENOSPC)
        hand = site.produce((T0, batch(2) + batch(9)), acks=1)
        assert hand.outcomes[0].error_code != ErrorCode.NONE and partition.log.log_end_offset > 1
        await trio.sleep(LAG_S * 1.5 + 1)
        assert proposed(partition) == (1,)


def append(site: ReplicaSite) -> None:
    site.produce((T0, batch()), acks=1)


def stop(site: ReplicaSite) -> None:
    append(site)
    site.stop(T0)


def fail(site: ReplicaSite) -> None:
    append(site)
    site.replicas.partition_failed(site.partition(T0), OSError(errno.EIO, "EIO"))


@pytest.mark.parametrize("end", [stop, fail])
async def test_who_is_led_here_no_more_is_looked_at_no_more(
    site: ReplicaSite, autojump_clock: MockClock, end: Callable[[ReplicaSite], None]
) -> None:
    async with checks(site):
        await caught_up(site)
        end(site)
        assert not site.replicas.maybe_lagging
