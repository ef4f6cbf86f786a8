"""Retention in the background: rounds over all partitions, clocks that jump, disks that refuse."""

from __future__ import annotations

import errno
from typing import Any

import trio
from trio.testing import MockClock

from strandline.broker.replication.partition import Partition
from strandline.broker.upkeep.retention_checks import RetentionChecks
from strandline.testkit.environment import EPOCH_MS
from support.replica_site import T0, T1, ReplicaSite, batch

TEN_YEARS_MS = 10 * 365 * 86_400_000
ALONE = {"replicas": (1,), "isr": (1,)}


async def site_with(**topic: str) -> ReplicaSite:
    """Two partitions that this broker leads alone, ten segments of one batch each."""
    overrides = {key.replace("_", "."): value for key, value in topic.items()}
    site = ReplicaSite(topic={"min.insync.replicas": "1", "segment.bytes": "100", **overrides})
    await site.order(site.state(T0, **ALONE), site.state(T1, **ALONE))
    for _ in range(10):
        site.produce((T0, batch(timestamp_ms=EPOCH_MS)), (T1, batch(timestamp_ms=EPOCH_MS)))
    return site


def starts(site: ReplicaSite) -> list[int]:
    return [site.partition(tp).log.log_start_offset for tp in (T0, T1)]


def checks(site: ReplicaSite) -> RetentionChecks:
    return site.retention_checks()


async def test_old_segments_go_at_the_next_check_and_their_files_a_minute_later(autojump_clock: MockClock) -> None:
    site = await site_with(retention_bytes="300")
    with trio.move_on_after(299):
        await site.retention_checks().run()
    assert starts(site) == [0, 0]
    with trio.move_on_after(303):
        await site.retention_checks().run()
    assert starts(site)[0] == starts(site)[1] > 0
    assert [name for name in site.disk.listdir("/logs/t-0") if name.endswith(".deleted")]
    with trio.move_on_after(70):
        await site.housekeeping().run()
    assert not [name for name in site.disk.listdir("/logs/t-0") if name.endswith(".deleted")]


async def test_log_starts_reach_their_checkpoint(autojump_clock: MockClock) -> None:
    site = await site_with()
    site.delete_records((T0, 3))
    with trio.move_on_after(61):
        await site.housekeeping().run()
    assert b"t 0 3\n" in site.disk.read("/logs/log-start-offset-checkpoint")


async def test_a_clock_that_jumps_ten_years_ahead_deletes_nothing_for_an_hour(autojump_clock: MockClock) -> None:
    site = await site_with(retention_ms="86400000")
    rounds = checks(site)
    await rounds.check_all()
    site.environment.wall_clock.skew_ms = TEN_YEARS_MS  # type: ignore[attr-defined]
    await trio.sleep(300)
    await rounds.check_all()
    await rounds.check_all()
    assert starts(site) == [0, 0]
    (told,) = [entry for entry in site.events.entries if entry["event"].startswith("wall clock jumped ahead")]
    assert told["log_level"] == "error"
    await trio.sleep(3600)
    await rounds.check_all()
    assert starts(site) == [10, 10], "a clock that stays ahead is believed in the end"


async def test_a_clock_far_behind_deletes_nothing_and_future_stamps_are_told_of_once(autojump_clock: MockClock) -> None:
    site = await site_with(retention_ms="1000")
    site.environment.wall_clock.skew_ms = -TEN_YEARS_MS  # type: ignore[attr-defined]
    rounds = checks(site)
    for _ in range(3):
        await rounds.check_all()
    assert starts(site) == [0, 0]
    told = [entry for entry in site.events.entries if "timestamp in the future" in entry["event"]]
    assert [entry["partition"] for entry in told] == ["t-0", "t-1"]


async def test_what_came_while_another_partition_was_checked_is_not_in_the_future(autojump_clock: MockClock) -> None:
    site = await site_with(retention_ms="86400000")
    site.delete_records((T1, 10))
    round_of_checks = checks(site)
    check = round_of_checks._check

    async def slow_check(partition: Partition, *rest: Any) -> None:
        if partition is site.partition(T0):
            await trio.sleep(60)
            for _ in range(3):
                site.produce((T1, batch(timestamp_ms=EPOCH_MS + 60_000)))
        await check(partition, *rest)

    round_of_checks._check = slow_check
    await round_of_checks.check_all()
    assert not [name for name in site.event_names() if "in the future" in name]


async def test_a_disk_that_refuses_a_rename_ends_that_replica(autojump_clock: MockClock) -> None:
    site = await site_with(retention_bytes="0")
    site.disk.fail("rename", "/logs/t-0/*.log", errno.EIO)
    await checks(site).check_all()
    assert site.partition(T0).failed and "replica failed" in site.event_names()


async def test_an_active_segment_stays_where_there_is_no_room_for_the_next_one(autojump_clock: MockClock) -> None:
    site = await site_with(retention_ms="1000")
    await trio.sleep(10)
    active = site.partition(T0).log.segments.active.base_offset
    site.disk.fail("open", "/logs/t-0/*.log", errno.ENOSPC)
    is_over = trio.Event()

    async def wait_for_a_thousand_turns(scope: trio.CancelScope) -> None:
        for _ in range(1000):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for_a_thousand_turns, nursery.cancel_scope)
        await checks(site).check_all()
        is_over.set()
    assert is_over.is_set() and starts(site) == [active, 10]
    assert site.event_names().count("old segments removed") == 2


async def test_a_disk_that_failed_with_another_log_ends_this_one_and_the_round(autojump_clock: MockClock) -> None:
    site = await site_with(retention_ms="1000")
    await trio.sleep(10)
    for segment in site.partition(T1).log.segments:
        segment.sealed_timestamp_ms = None  # as after a start
    site.disk.fail("rename", "/logs/t-0/*.log", errno.EIO)
    site.disk.fail("open", "/logs/t-1/*", errno.EIO)
    site.environment.blocking.delay_s = 1  # type: ignore[attr-defined]
    with trio.move_on_after(60):
        await checks(site).check_all()
    assert site.partition(T0).failed and site.partition(T1).failed


async def test_a_partition_that_leaves_while_ages_are_read_is_left_alone(autojump_clock: MockClock) -> None:
    site = await site_with(retention_ms="1000")
    for segment in site.partition(T0).log.segments:
        segment.sealed_timestamp_ms = None
    await trio.sleep(10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(checks(site).check_all)
        await trio.testing.wait_all_tasks_blocked()
        site.stop(T0, delete=True)
    assert site.partition(T1).log.log_start_offset == 10 and "replica failed" not in site.event_names()
