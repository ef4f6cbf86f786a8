"""Cutting the end of a log off: what remains, what readers notice, what the disk says meanwhile."""

from __future__ import annotations

import pytest

from strandline.storage.disk.checkpoints import RECOVERY_POINTS, read_offsets
from support.storage_site import (
    FOLDER,
    TP,
    StorageSite,
    epochs,
    file_names,
    fill,
    offsets,
    raw,
    records,
    wave,
)


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("offset", range(0, 61, 4))
def test_truncating_drops_the_tail_with_the_batch_that_holds_the_offset(
    site: StorageSite, offset: int, forgotten: bool
) -> None:
    log = site.log()
    fill(log, 20, count=3)
    before = records(log)
    if forgotten:
        log = site.reload()
    log.truncate_to(offset)
    end = offset // 3 * 3
    assert log.log_end_offset == end and records(log) == before[:end]
    assert log.append_as_leader(wave(30, count=3), 1) == end
    assert records(log)[:end] == before[:end] and offsets(log) == list(range(end + 90))
    assert epochs(log) == ([(0, 0), (1, end)] if end else [(1, 0)])
    expected = raw(log)
    assert raw(site.reload()) == expected


def test_truncating_at_or_above_the_end_drops_only_epochs_without_records(site: StorageSite) -> None:
    log = site.log()
    fill(log, 5)
    log.epochs.assign(9, 5)
    for offset in (5, 100):
        log.truncate_to(offset)
        assert log.log_end_offset == 5 and epochs(log) == [(0, 0)]


def test_truncating_again_lower_is_the_same_as_at_once(site: StorageSite) -> None:
    log = site.log()
    fill(log, 60)
    for offset in (55, 31, 30, 7, 0):
        log.truncate_to(offset)
        assert offsets(log) == list(range(offset))


def test_a_region_read_before_a_truncation_is_stale(site: StorageSite) -> None:
    log = site.log()
    fill(log, 60)
    sealed, active, untouched = log.read(30, 100, 60), log.read(59, 100, 60), log.read(0, 100, 60)
    assert not sealed.is_stale and not active.is_stale
    log.truncate_to(31)
    assert sealed.is_stale and active.is_stale and not untouched.is_stale
    assert active.file.pread(active.length, active.position) == b""  # its segment is gone: nothing wrong is sent


def test_a_region_stays_stale_although_the_descriptor_was_given_up_meanwhile(site: StorageSite) -> None:
    log = site.log()
    fill(log, 100)
    region = log.read(0, 10**6, 100)
    for offset in range(0, 100, 2):  # others need the descriptors
        log.read(offset, 100, 100)
    log.truncate_to(1)
    assert region.is_stale


def test_a_region_of_a_deleted_log_stays_readable(site: StorageSite) -> None:
    manager = site.start()
    log = manager.create(TP, bytes(16))
    fill(log, 5)
    region, before = log.read(0, 10**6, 5), raw(log)
    manager.delete(TP)
    manager.remove(manager.removals.due(0) + manager.removals.due(60_000))
    assert not [name for name in site.disk.listdir("/logs") if name.endswith("-delete")]
    assert not region.is_stale and region.file.pread(region.length, region.position) == before


def test_starting_anew_drops_everything(site: StorageSite) -> None:
    log = site.log()
    fill(log, 60, epoch=3)
    region = log.read(0, 100, 60)
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (1000, 1000, 0)
    assert epochs(log) == [] and log.last_epoch == -1 and region.is_stale
    assert file_names(site.disk, ".log") == [f"{1000:020d}.log"]
    fill(log, 3, epoch=5)
    assert offsets(log) == [1000, 1001, 1002] and epochs(log) == [(5, 1000)]
    log = site.reload()
    assert (log.log_start_offset, log.log_end_offset, epochs(log)) == (1000, 1003, [(5, 1000)])


def test_truncating_below_the_log_start_starts_anew_there(site: StorageSite) -> None:
    log = site.log()
    log.truncate_fully_and_start_at(1000)
    fill(log, 10)
    log.truncate_to(500)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    fill(log, 3)
    log = site.reload()
    assert (log.log_start_offset, log.log_end_offset) == (500, 503)


def test_the_recovery_point_on_the_disk_is_lowered_before_anything_is_cut(site: StorageSite) -> None:
    log = site.log()
    fill(log, 60)
    log.flushed(log.flush_plan()())
    assert log.recovery_point == 60
    seen: list[int] = []

    def watch(operation: str, path: str) -> None:
        if operation in ("truncate", "unlink") and path.startswith(FOLDER):
            seen.append(read_offsets(site.disk, f"/logs/{RECOVERY_POINTS}")[TP])

    site.disk.on_operation = watch
    log.truncate_to(31)
    assert seen and set(seen) == {31} and log.recovery_point == 31


@pytest.mark.parametrize("cut", [5, 31, 50])
def test_epochs_written_after_a_cut_below_the_recovery_point_survive_a_kill(site: StorageSite, cut: int) -> None:
    manager = site.start()
    log = manager.create(TP, bytes(16))
    fill(log, 30, epoch=1)
    fill(log, 30, epoch=2)
    log.flushed(log.flush_plan()())
    manager.checkpoints.write_recovery_points()
    log.truncate_to(cut)
    fill(log, 60, epoch=7)
    expected = epochs(log)
    assert expected[-1] == (7, cut)
    assert epochs(site.reload()) == expected


def test_a_crash_between_any_two_steps_of_a_truncation_leaves_a_prefix(site: StorageSite) -> None:
    for stop_at in range(1, 200):
        site = StorageSite()
        log = site.log()
        fill(log, 40)
        log.flushed(log.flush_plan()())
        before = records(log)
        steps = 0

        def stop(operation: str, path: str, limit: int = stop_at) -> None:
            nonlocal steps
            steps += operation in ("truncate", "unlink", "pwritev", "rename", "fsync", "fsync_dir", "open")
            if steps >= limit:
                raise KeyboardInterrupt

        site.disk.on_operation = stop
        finished = True
        try:
            log.truncate_to(7)
        except KeyboardInterrupt:
            finished = False
        site.disk.on_operation = None
        log = site.reload()
        assert 7 <= log.log_end_offset <= 40
        assert records(log) == before[: log.log_end_offset]
        if finished:
            assert log.log_end_offset == 7
            return
    raise AssertionError("the truncation never ended")
