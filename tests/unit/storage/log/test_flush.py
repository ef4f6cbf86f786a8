"""When a log is to be flushed, what a flush vouches for, and what a failed one means."""

from __future__ import annotations

import errno

import pytest

from strandline.storage.disk.checkpoints import read_epochs
from strandline.storage.errors import LogStorageError
from strandline.storage.log.flush import NEVER
from strandline.storage.log.log import Log
from support.storage_site import FOLDER, TP, StorageSite, epochs, fill, offsets, raw


def flush(log: Log) -> None:
    log.flushed(log.flush_plan()())


def test_by_default_only_a_sealed_segment_is_due(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**6)
    fill(log, 1000)
    assert log.flush_due_ms(0) == NEVER
    log.roll()
    assert log.flush_due_ms(0) == 0
    flush(log)
    assert log.flush_due_ms(1) == NEVER and log.recovery_point == 1000


def test_a_segment_that_a_killed_life_had_sealed_is_due_when_the_log_is_loaded(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**6)
    fill(log, 1000)
    log.roll()
    log = site.reload()
    assert (log.recovery_point, log.flush_due_ms(0)) == (0, 0)
    flush(log)
    assert log.flush_due_ms(1) == NEVER and log.recovery_point == 1000


def test_what_stands_in_the_active_segment_only_is_not_due_when_the_log_is_loaded(site: StorageSite) -> None:
    fill(site.log(segment_bytes=10**6), 1000)
    assert site.reload().flush_due_ms(0) == NEVER


def test_a_number_of_records_is_due(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**6, flush_messages=10)
    fill(log, 3, count=3)
    assert log.flush_due_ms(0) == NEVER
    fill(log, 1)
    assert log.flush_due_ms(0) == 0
    flush(log)
    assert log.flush_due_ms(1) == NEVER


def test_an_age_is_due_counted_from_the_last_flush(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**6, flush_ms=500)
    assert log.flush_due_ms(1000) == NEVER
    fill(log, 1)
    assert log.flush_due_ms(1000) == 1500
    flush(log)
    assert log.flush_due_ms(1500) == NEVER
    fill(log, 1)
    assert log.flush_due_ms(1500) == 2000


def test_a_flush_vouches_for_what_was_there_when_it_was_planned(site: StorageSite) -> None:
    log = site.log()
    fill(log, 10)
    plan = log.flush_plan()
    fill(log, 10)
    assert plan() == 10
    log.flushed(10)
    assert log.recovery_point == 10


def test_a_flush_does_not_vouch_for_what_was_cut_and_written_anew_meanwhile(site: StorageSite) -> None:
    log = site.log()
    fill(log, 50)
    plan = log.flush_plan()
    log.truncate_to(20)
    fill(log, 50, epoch=3)
    offset = plan()
    log.flushed(offset)
    assert log.recovery_point == 20


def test_a_cut_between_the_sync_and_its_report_counts_too(site: StorageSite) -> None:
    log = site.log()
    fill(log, 50)
    offset = log.flush_plan()()
    log.truncate_to(20)
    fill(log, 50, epoch=3)
    log.flushed(offset)
    assert log.recovery_point == 20


def test_a_plan_that_was_dropped_vouches_for_nothing(site: StorageSite) -> None:
    log = site.log()
    fill(log, 10)
    log.flush_plan()
    log.flushed(10)
    assert log.recovery_point == 0
    flush(log)
    assert log.recovery_point == 10


def test_the_epoch_file_covers_everything_below_the_recovery_point(site: StorageSite) -> None:
    log = site.log()
    fill(log, 5, epoch=1)
    fill(log, 5, epoch=2)
    flush(log)
    assert [tuple(entry) for entry in read_epochs(site.disk, f"{FOLDER}/leader-epoch-checkpoint")] == epochs(log)
    written: list[str] = []
    site.disk.on_operation = lambda operation, path: (
        written.append(path) if operation == "rename" and "epoch" in path else None
    )
    fill(log, 5, epoch=2)
    flush(log)
    assert written == []  # nothing new in it


@pytest.mark.parametrize("operation", ["fsync", "fsync_dir"])
def test_after_a_failed_fsync_the_log_takes_nothing_more_and_is_not_synced_again(
    site: StorageSite, operation: str
) -> None:
    log = site.log()
    fill(log, 10)
    fault = site.disk.fail(operation, "*", errno.EIO, times=1)
    plan = log.flush_plan()
    with pytest.raises(LogStorageError, match="flushing failed"):
        plan()
    fault.cancel()
    with pytest.raises(LogStorageError, match="offline"):
        log.append_as_leader([], 0)
    with pytest.raises(LogStorageError):
        log.flush_plan()
    assert log.recovery_point == 0 and offsets(log) == list(range(10))


def test_a_failed_fsync_is_not_believed_after_a_power_failure(site: StorageSite) -> None:
    manager = site.start()
    log = manager.create(TP, bytes(16))
    fill(log, 10)
    log.flushed(log.flush_plan()())
    kept = raw(log)
    fill(log, 10)
    site.disk.fail("fsync", "*.log", errno.EIO, times=1)
    manager.flush_all()
    manager.close(clean=True)
    site.disk.crash()
    manager = site.start()
    assert manager.may_have_lost_data
    assert raw(manager.logs[TP]) == kept


def test_plans_survive_a_segment_that_goes_meanwhile(site: StorageSite) -> None:
    log = site.log()
    fill(log, 60)
    plan = log.flush_plan()
    log.truncate_to(3)
    log.flushed(plan())
    assert log.recovery_point == 3


def test_write_back_starts_long_before_the_kernel_has_to_stop_a_writer(site: StorageSite) -> None:
    log = site.log(segment_bytes=2**30, index_interval_bytes=4096)
    started: list[str] = []
    site.disk.on_operation = lambda operation, path: started.append(operation) if "writeback" in operation else None
    for _ in range(17):
        fill(log, 1, size=8 * 2**20)
    assert len(started) == 2


def test_a_cut_at_what_becomes_a_segments_beginning_is_synced_too(site: StorageSite) -> None:
    manager = site.start()
    log = manager.create(TP, bytes(16))
    fill(log, 2)
    log.flushed(log.flush_plan()())
    log.truncate_to(1)
    log.roll()
    fill(log, 1, epoch=5)
    log.flushed(log.flush_plan()())
    expected = raw(log)
    site.disk.crash()
    assert raw(site.start().logs[TP]) == expected
