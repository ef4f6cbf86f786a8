"""`preallocate`: each new active segment has its space on the disk, and nobody else sees anything of it."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.errors import LogStorageError
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.disk import MemoryDisk
from support.cleaning import clean
from support.storage_site import FOLDER, TOPIC_ID, TP, StorageSite, fill, raw

SEGMENT_BYTES = 200_000


def reserving(site: StorageSite, **config: Any) -> Log:
    return site.log(**{"preallocate": True, "segment_bytes": SEGMENT_BYTES, **config})


def started(site: StorageSite) -> tuple[LogManager, Log]:
    site.config = replace(site.config, preallocate=True, segment_bytes=SEGMENT_BYTES)
    manager = site.start()
    manager.mark_loss_handled()
    return manager, manager.create(TP, TOPIC_ID)


def reserved(site: StorageSite, log: Log) -> list[int]:
    """Behind the end of each segment, oldest first."""
    return [site.disk.reserved(segment.path + ".log") for segment in log.segments]


def rolled(log: Log, times: int, batches: int = 3) -> None:
    for _ in range(times):
        fill(log, batches)
        log.roll()


def operations(disk: MemoryDisk) -> list[tuple[str, str]]:
    """What is done from now on, as it is done."""
    seen: list[tuple[str, str]] = []
    disk.on_operation = lambda operation, path: seen.append((operation, path))
    return seen


# --- as segments come and go ------------------------------------------------------------------------------------------


def test_each_active_segment_has_its_space_and_a_sealed_one_only_what_it_holds(site: StorageSite) -> None:
    log = reserving(site)
    assert reserved(site, log) == [SEGMENT_BYTES]
    rolled(log, 2)
    fill(log, 3)
    assert reserved(site, log) == [0, 0, SEGMENT_BYTES - log.segments.active.size_bytes]


def test_a_full_segment_is_followed_by_one_with_its_space(site: StorageSite) -> None:
    log = reserving(site, segment_bytes=500)
    fill(log, 12)
    assert len(log.segments) > 2
    assert reserved(site, log) == [0] * (len(log.segments) - 1) + [500 - log.segments.active.size_bytes]


def test_the_files_are_the_same_with_and_without_it(site: StorageSite) -> None:
    other = StorageSite()
    for each, preallocate in ((site, True), (other, False)):
        log = each.log(preallocate=preallocate, segment_bytes=500)
        fill(log, 12)
        log.truncate_to(9)
        fill(log, 2)
        log.flushed(log.flush_plan(final=True)())
        log.close()
    assert site.disk.content() == other.disk.content()


def test_without_it_nothing_is_asked_of_the_disk(site: StorageSite) -> None:
    log = site.log(preallocate=False, segment_bytes=500)
    seen = operations(site.disk)
    fill(log, 12)
    log.close()
    names = [operation for operation, _ in seen]
    assert "reserve" not in names and "truncate" not in names and "set_mtime_ms" not in names


def test_a_changed_configuration_counts_from_the_next_roll_on(site: StorageSite) -> None:
    log = site.log(preallocate=False, segment_bytes=SEGMENT_BYTES)
    log.config = site.config = replace(site.config, preallocate=True)
    assert reserved(site, log) == [0]
    rolled(log, 1)
    assert reserved(site, log) == [0, SEGMENT_BYTES]
    log.config = replace(site.config, segment_bytes=2 * SEGMENT_BYTES)
    rolled(log, 1)
    assert reserved(site, log) == [0, 0, 2 * SEGMENT_BYTES]
    log.config = replace(site.config, preallocate=False)
    assert reserved(site, log) == [0, 0, 2 * SEGMENT_BYTES]
    rolled(log, 1)
    assert reserved(site, log) == [0, 0, 0, 0]


def test_a_truncation_ends_it_until_the_next_roll(site: StorageSite) -> None:
    log = reserving(site)
    rolled(log, 2)
    fill(log, 3)
    log.truncate_to(7)
    assert reserved(site, log) == [0, 0, 0]
    log.truncate_to(2)
    assert reserved(site, log) == [0]
    rolled(log, 1)
    assert reserved(site, log) == [0, SEGMENT_BYTES]


def test_a_log_that_begins_anew_has_its_space_anew(site: StorageSite) -> None:
    log = reserving(site)
    rolled(log, 2)
    log.truncate_fully_and_start_at(500)
    assert reserved(site, log) == [SEGMENT_BYTES]


def test_what_the_cleaner_writes_reserves_nothing(site: StorageSite) -> None:
    log = reserving(site, cleanup_policy=("compact",))
    rolled(log, 3)
    seen = operations(site.disk)
    clean(log, site.disk)
    assert ("rename", f"{FOLDER}/{0:020d}.log.swap") in seen
    assert [path for operation, path in seen if operation == "reserve"] == []
    assert reserved(site, log) == [0] * (len(log.segments) - 1) + [SEGMENT_BYTES]


# --- a full disk ------------------------------------------------------------------------------------------------------


def test_where_the_space_of_one_segment_is_left_others_go_without_and_take_what_is_free(site: StorageSite) -> None:
    manager, first = started(site)
    site.disk.capacity_bytes = SEGMENT_BYTES + 10_000
    second = manager.create(TopicPartition("t", 1), TOPIC_ID)
    rolled(second, 2)
    fill(first, 3)
    assert reserved(site, second) == [0, 0, 0]
    (report,) = site.reports.of("log-dir-cannot-preallocate")
    assert report["path"] == "/logs" and str(SEGMENT_BYTES) in report["why"]
    assert manager.directories.offline_paths == []


def test_a_roll_where_the_space_is_lacking_keeps_no_batch_out(site: StorageSite) -> None:
    log = reserving(site, segment_bytes=1000)
    fault = site.disk.fail("reserve", "*.log", errno.ENOSPC)
    fill(log, 20)
    assert log.failure is None and not any(reserved(site, log))
    fault.cancel()
    rolled(log, 1)
    assert reserved(site, log)[-1] == 1000


def test_any_other_error_of_a_reservation_refuses_the_batch_and_keeps_what_was_taken(site: StorageSite) -> None:
    log = reserving(site, segment_bytes=1000)
    fill(log, 5)
    taken = raw(log)
    fault = site.disk.fail("reserve", "*.log", errno.EIO)
    with pytest.raises(LogStorageError, match=r"t-0 is offline: rolling to a new segment failed: .*EIO"):
        fill(log, 20)
    assert taken and raw(log).startswith(taken) and log.failure is not None
    taken = raw(log)
    fault.cancel()
    log = site.reload()
    assert raw(log) == taken
    fill(log, 20)


def test_a_log_is_created_where_its_space_is_lacking(site: StorageSite) -> None:
    site.config = replace(site.config, preallocate=True, segment_bytes=SEGMENT_BYTES)
    manager = site.start()
    manager.mark_loss_handled()
    site.disk.capacity_bytes = SEGMENT_BYTES
    log = manager.create(TP, TOPIC_ID)
    fill(log, 3)
    assert reserved(site, log) == [0]


def test_what_a_segment_did_not_need_serves_the_next_one(site: StorageSite) -> None:
    log = reserving(site)
    site.disk.capacity_bytes = SEGMENT_BYTES + 10_000
    rolled(log, 5)
    assert reserved(site, log) == [0] * 5 + [SEGMENT_BYTES]


# --- stops and starts -------------------------------------------------------------------------------------------------


def test_a_closed_log_keeps_nothing(site: StorageSite) -> None:
    log = reserving(site)
    fill(log, 3)
    log.close()
    assert reserved(site, log) == [0]


def test_an_orderly_stop_gives_it_back_durably_before_it_leaves_its_marker(site: StorageSite) -> None:
    manager, log = started(site)
    fill(log, 3)
    (path,) = [segment.path + ".log" for segment in log.segments]
    seen = operations(site.disk)
    manager.close(clean=True)
    marker = next(place for place, (_, changed) in enumerate(seen) if "kafka_cleanshutdown" in changed)
    assert seen.index(("truncate", path)) < seen.index(("fsync", path)) < marker
    site.disk.crash()
    assert site.disk.reserved(path) == 0


def test_any_other_stop_gives_it_back_while_nobody_else_may_have_the_folder(site: StorageSite) -> None:
    manager, log = started(site)
    path = log.segments.active.path + ".log"
    is_locked: list[bool] = []

    def watch(operation: str, changed: str) -> None:
        if (operation, changed) == ("truncate", path):
            with pytest.raises(BlockingIOError):
                site.disk.lock("/logs/.lock")
            is_locked.append(True)

    site.disk.on_operation = watch
    manager.close(clean=False)
    site.disk.lock("/logs/.lock").release()
    assert is_locked == [True] and site.disk.reserved(path) == 0


def test_a_deleted_log_does_not_keep_it_until_its_files_go(site: StorageSite) -> None:
    manager, _ = started(site)
    assert site.disk.capacity_bytes - site.disk.free_bytes > SEGMENT_BYTES
    manager.delete(TP)
    assert site.disk.capacity_bytes - site.disk.free_bytes < SEGMENT_BYTES // 2


def test_a_start_gives_back_what_a_killed_life_left_and_the_next_roll_reserves(site: StorageSite) -> None:
    log = reserving(site)
    rolled(log, 2)
    fill(log, 3)
    sealed, active = next(iter(log.segments)), log.segments.active
    site.disk.open(sealed.path + ".log").reserve(SEGMENT_BYTES)  # of a life that ended between sealing and giving back
    content = raw(log)
    log = site.reload()
    assert reserved(site, log) == [0, 0, 0] and log.segments.active.base_offset == active.base_offset
    assert raw(log) == content
    rolled(log, 1)
    assert reserved(site, log) == [0, 0, 0, SEGMENT_BYTES]


def test_a_start_after_an_orderly_stop_looks_for_nothing(site: StorageSite) -> None:
    manager, log = started(site)
    path = log.segments.active.path + ".log"
    manager.close(clean=True)
    site.disk.open(path).reserve(SEGMENT_BYTES)
    assert site.start().was_clean and site.disk.reserved(path) == SEGMENT_BYTES


def test_giving_it_back_makes_no_file_younger(site: StorageSite) -> None:
    _, log = started(site)
    ages = {}
    for now_ms, end in ((1000, log.roll), (2000, log.roll), (3000, site.disk.kill)):
        site.disk.now_ms = now_ms
        fill(log, 1)
        ages[log.segments.active.path + ".log"] = now_ms
        site.disk.now_ms = 9000
        end()
    site.start()
    assert {path: site.disk.stat_mtime_ms(path) for path in ages} == ages
    assert not any(map(site.disk.reserved, ages))


# --- where it is not offered ------------------------------------------------------------------------------------------


def test_a_directory_whose_file_system_cannot_is_named_once_and_serves_on() -> None:
    site = StorageSite(dirs=("/logs", "/more"))
    site.config = replace(site.config, preallocate=True)
    site.disk.offers_reserving = False
    manager = site.start()
    for place in range(4):
        log = manager.create(TopicPartition("t", place), TOPIC_ID)
        fill(log, 30)
        assert len(log.segments) > 2 and log.failure is None
    reports = site.reports.of("log-dir-cannot-preallocate")
    assert [report["path"] for report in reports] == ["/logs", "/more"]
    assert "preallocate does nothing there" in reports[0]["why"]


# --- on a real disk ---------------------------------------------------------------------------------------------------


def test_on_a_real_file_system_the_blocks_are_there_and_given_back(tmp_path: Path) -> None:
    probe = PosixDisk().open(str(tmp_path / "probe"), create=True)
    if not probe.reserve(2**20):
        pytest.skip("this file system does not offer it")
    disk: Any = PosixDisk()
    site = StorageSite(disk=disk, dirs=(str(tmp_path / "logs"),))
    log = site.log(preallocate=True, segment_bytes=4 * 2**20)

    def taken_bytes() -> list[int]:
        return [Path(segment.path + ".log").stat().st_blocks * 512 for segment in log.segments]

    assert taken_bytes()[0] >= 4 * 2**20
    rolled(log, 2)
    assert [count < 2**18 for count in taken_bytes()] == [True, True, False]
    content = raw(log)
    fill(log, 3)
    assert raw(log).startswith(content) and log.segments.active.file.get().size() == log.segments.active.size_bytes
    log.close()
    assert max(taken_bytes()) < 2**18
