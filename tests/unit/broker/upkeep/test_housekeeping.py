"""Flushing in the background: what is synced when, recovery points, and disks that refuse."""

from __future__ import annotations

import errno
import gc
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import LEADER_EPOCH_TOPIC_DELETED
from strandline.runtime.config.topic import topic_config
from strandline.storage.log.log import Log
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.environment import InlineBlocking
from support.replica_site import T0, T1, ReplicaSite, batch


async def site_with(
    topic: Mapping[str, str] | None = None, *, config: Mapping[str, str] | None = None, disk: MemoryDisk | None = None
) -> ReplicaSite:
    site = ReplicaSite(
        config={"log.dirs": "/logs,/more", **(config or {})},
        topic={"min.insync.replicas": "1", **(topic or {})},
        disk=disk,
    )
    alone = {"replicas": (1,), "isr": (1,)}
    await site.order(site.state(T0, **alone), site.state(T1, **alone))
    return site


async def run(site: ReplicaSite, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await site.housekeeping().run()


async def test_a_log_is_synced_once_flush_messages_is_reached(autojump_clock) -> None:
    site = await site_with({"flush.messages": "3"})
    site.produce((T0, batch(3)), (T1, batch(2)))
    await run(site, 3)
    assert (site.partition(T0).log.recovery_point, site.partition(T1).log.recovery_point) == (3, 0)


async def test_a_log_is_synced_at_the_age_of_flush_ms(autojump_clock) -> None:
    site = await site_with({"flush.ms": "20000"})
    site.produce((T0, batch(2)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, site, 30)
        await trio.sleep(15)
        assert site.partition(T0).log.recovery_point == 0
        await trio.sleep(10)
        assert site.partition(T0).log.recovery_point == 2


async def test_a_log_is_synced_in_time_after_long_idleness(autojump_clock) -> None:
    """A round looks at those logs only that changed or wait for their age."""
    site = await site_with({"flush.ms": "20000"})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, site, 10_000)
        for records in (2, 4):
            await trio.sleep(3600.5)
            site.produce((T0, batch(2)))
            await trio.sleep(15)
            site.produce((T1, batch(2)))
            assert site.partition(T0).log.recovery_point == records - 2
            await trio.sleep(7)
            assert [site.partition(tp).log.recovery_point for tp in (T0, T1)] == [records, records - 2]
            await trio.sleep(15)
            assert site.partition(T1).log.recovery_point == records
        nursery.cancel_scope.cancel()


async def test_a_log_is_synced_in_time_once_its_configuration_wants_that(autojump_clock) -> None:
    site = await site_with()
    site.produce((T0, batch(2)), (T1, batch(2)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, site, 10_000)
        await trio.sleep(3600.5)
        for tp, override in (T0, {"flush.messages": "2"}), (T1, {"flush.ms": "3605000"}):
            assert site.partition(tp).log.recovery_point == 0
            site.partition(tp).set_config(topic_config(site.config, override))
        await trio.sleep(3)
        assert [site.partition(tp).log.recovery_point for tp in (T0, T1)] == [2, 0]
        await trio.sleep(5)
        assert site.partition(T1).log.recovery_point == 2
        nursery.cancel_scope.cancel()


async def test_what_a_kill_left_unsynced_is_synced_by_age_without_an_append(autojump_clock) -> None:
    earlier = await site_with()
    earlier.produce((T0, batch(2)))
    earlier.disk.kill()
    site = await site_with({"flush.ms": "5000"}, disk=earlier.disk)
    assert site.partition(T0).log.recovery_point == 0
    await run(site, 10)
    assert site.partition(T0).log.recovery_point == 2


async def test_a_sync_for_which_a_full_disk_had_no_room_is_tried_again(autojump_clock) -> None:
    site = await site_with({"flush.messages": "1"})
    fault = site.disk.fail("open", "/logs/t-0/*.tmp", errno.ENOSPC, times=3)
    site.produce((T0, batch(2)))
    await run(site, 20)
    assert fault.hits == 3 and site.partition(T0).log.recovery_point == 2


async def test_a_deleted_log_that_was_not_synced_is_not_kept_in_memory(autojump_clock) -> None:
    site = await site_with(config={"log.dirs": "/logs"})
    site.produce((T0, batch(2)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, site, 1000)
        await trio.sleep(10)
        log = weakref.ref(site.partition(T0).log)
        site.stop(T0, delete=True)
        await trio.sleep(2)
        site.produce((T1, batch()))
        await trio.sleep(2)
        gc.collect()
        assert log() is None
        nursery.cancel_scope.cancel()


async def test_a_segment_that_is_sealed_without_an_append_is_synced(autojump_clock) -> None:
    site = await site_with()
    site.produce((T0, batch(2)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, site, 10_000)
        await trio.sleep(3600)
        site.partition(T0).log.roll()
        await trio.sleep(3)
        assert site.partition(T0).log.recovery_point == 2
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("prepare", [lambda log: log.may_truncate_to(1), lambda log: log.may_start_at(0)])
async def test_what_a_cut_that_was_given_up_no_more_vouches_for_is_synced_again(
    autojump_clock, prepare: Callable[[Log], bool]
) -> None:
    site = await site_with({"flush.messages": "1"})
    site.produce((T0, batch()), (T0, batch()))
    await run(site, 3)
    log = site.partition(T0).log
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, site, 1000)
        await trio.sleep(10)
        prepare(log)
        assert log.recovery_point < 2
        await trio.sleep(3)
        assert log.recovery_point == 2
        nursery.cancel_scope.cancel()


async def test_recovery_points_reach_their_checkpoint(autojump_clock) -> None:
    site = await site_with({"flush.messages": "1"})
    site.produce((T0, batch(3)))
    await run(site, 61)
    assert b"t 0 3\n" in site.disk.read("/logs/recovery-point-offset-checkpoint")


async def test_a_topic_that_was_deleted_and_is_created_again_makes_the_loop_wait_for_no_disk(autojump_clock) -> None:
    """Checkpoints of an earlier log of that name are written anew right after it was deleted."""
    site = await site_with({"flush.messages": "1"})
    site.produce((T0, batch(3)), (T1, batch(2)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, site, 1000)
        nursery.start_soon(site.data.checkpoints.run_high_watermarks)
        await trio.sleep(70)
        site.delete_records((T0, 2))
        await trio.sleep(66)
        checkpoints = [f"/logs/{name}-checkpoint" for name in ("recovery-point-offset", "log-start-offset")]
        checkpoints.append("/logs/replication-offset-checkpoint")
        assert all(b"t 0" in site.disk.read(path) for path in checkpoints)
        site.stop(T0, delete=True)
        await trio.sleep(0.1)
        assert not any(b"t 0" in site.disk.read(path) for path in checkpoints)
        synced: list[str] = []
        site.disk.on_operation = lambda operation, path: synced.append(path) if "fsync" in operation else None
        site.logs.create(T0, bytes(16))
        assert synced == []
        nursery.cancel_scope.cancel()


async def test_a_failed_sync_ends_that_replica_and_none_of_another_directory(autojump_clock) -> None:
    site = await site_with({"flush.messages": "1"})
    fault = site.disk.fail("fsync", "/logs/t-0/*", errno.EIO, times=1)
    site.produce((T0, batch()), (T1, batch()))
    parked = site.fetch((T0, 1), wait_ms=60_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.deadlines.run, site.data.burst.end)
        await run(site, 30)
        nursery.cancel_scope.cancel()
    assert fault.hits == 1, "it is never tried again as if the pages were clean"
    assert site.partition(T0).failed and site.partition(T0).log.recovery_point == 0
    assert site.produce((T0, batch())).outcomes[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert site.partition(T1).log.recovery_point == 1
    assert parked.fetched[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR, "who waits learns of it without any request"


async def test_a_sync_that_failed_under_a_deleted_log_does_not_end_the_new_one_of_its_name(autojump_clock) -> None:
    site = await site_with({"flush.messages": "1"})
    old = site.partition(T0).log
    site.produce((T0, batch()))
    assert isinstance(site.environment.blocking, InlineBlocking)
    site.environment.blocking.delay_s = 2
    fault = site.disk.fail("fsync", "/logs/t-0*/*.log", errno.EIO, times=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, site, 10)
        await trio.sleep(2)  # the sync is under way
        site.stop(T0, epoch=LEADER_EPOCH_TOPIC_DELETED, delete=True)
        await site.order(site.state(T0, replicas=(1,), isr=(1,)))
    assert fault.hits == 1 and site.partition(T0).log is not old
    assert not site.partition(T0).failed and site.partition(T0).leadership is not None


async def test_a_log_that_nobody_hosts_may_fail_too(autojump_clock) -> None:
    site = await site_with({"flush.messages": "1"})
    site.produce((T0, batch()), (T1, batch()))
    site.stop(T0)
    site.disk.fail("fsync", "/logs/t-0/*", errno.EIO)
    await run(site, 3)
    assert site.logs.logs[T0].failure is not None
    assert site.partition(T1).log.recovery_point == 1


async def test_a_checkpoint_that_fails_keeps_no_other_directory_from_getting_its_own(autojump_clock) -> None:
    site = await site_with({"flush.messages": "1"})
    site.produce((T0, batch(3)), (T1, batch(3)))
    fault = site.disk.fail("rename", "/logs/recovery-point-offset-checkpoint*", errno.EROFS)
    await run(site, 125)
    assert fault.hits == 1 and site.logs.directories.offline_paths == ["/logs"]
    assert b"t 1 3\n" in site.disk.read("/more/recovery-point-offset-checkpoint")


async def test_an_idle_producer_is_forgotten_after_producer_id_expiration_ms(autojump_clock) -> None:
    site = await site_with(config={"producer.id.expiration.ms": "3600000"})
    site.produce((T0, batch(producer=(7, 0, 0))), (T1, batch(producer=(7, 0, 0))))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, site, 7200)
        await trio.sleep(1800)
        site.produce((T1, batch(producer=(7, 0, 1))))
        await trio.sleep(2700)
        known = [len(site.partition(tp).log.producers.states) for tp in (T0, T1)]
        nursery.cancel_scope.cancel()
    assert known == [0, 1]


async def test_a_deletion_while_the_checkpoints_of_another_are_written_is_noticed_too(autojump_clock) -> None:
    site = ReplicaSite(topic={"min.insync.replicas": "1"})
    alone = {"replicas": (1,), "isr": (1,)}
    await site.order(site.state(T0, **alone), site.state(T1, **alone))
    site.produce((T0, batch(3)), (T1, batch(2)), acks=1)
    site.logs.checkpoints.write_recovery_points()
    site.logs.checkpoints.write_high_watermarks(site.data.checkpoints.high_watermarks())
    blocking = site.environment.blocking.run

    async def slow(function: Callable[..., Any], *args: object) -> Any:
        result = await blocking(function, *args)
        await trio.sleep(0.5)
        return result

    site.environment.blocking.run = slow
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, site, 1000)
        nursery.start_soon(site.data.checkpoints.run_high_watermarks)
        await wait_all_tasks_blocked()
        site.stop(T0, delete=True)
        await trio.sleep(0.1)
        site.stop(T1, delete=True)
        await trio.sleep(2)
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            assert site.disk.read(f"/logs/{name}") == b"0\n0\n", name
        nursery.cancel_scope.cancel()
