"""The head of a log: the start moves, segments go, and a crash between two disk operations is the old or new state."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any

import pytest

from strandline.storage.errors import LogStorageError
from strandline.storage.log.log import Log
from strandline.storage.log.log_start import SEGMENTS_PER_STEP, check_retention, raise_log_start, take_off_head
from strandline.storage.log.segment_times import note_times, read_times, times_wanted
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.disk import MemoryDisk
from support.storage_site import (
    FOLDER,
    TOPIC_ID,
    TP,
    SmallLogConfig,
    StorageSite,
    epochs,
    file_names,
    fill,
    offset_for_timestamp,
    offsets,
    produced,
    raw,
    records,
)

NOW_MS = 10_000_000
BATCH_BYTES = produced()[0].size_bytes


def ten_each(site: StorageSite, **config: Any) -> Log:
    """A log with segments of ten batches."""
    return site.log(segment_bytes=10 * BATCH_BYTES, **config)


def retain(log: Log, disk: MemoryDisk, high_watermark: int | None = None, now_ms: int | None = NOW_MS) -> int:
    """All that a retention check does with one log; returns how many segments went."""
    count = 0
    while True:
        mark = log.log_end_offset if high_watermark is None else high_watermark
        decision = check_retention(log, disk, mark, now_ms)
        if decision.removed:
            count += len(take_off_head(log, decision, mark))
        elif decision.needs_time_of is not None:
            wanted = times_wanted(log, decision.needs_time_of)
            note_times(log, wanted, read_times(disk, wanted))
        else:
            return count


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_segments_go_by_size_and_their_files_after_the_delay(site: StorageSite) -> None:
    log = ten_each(site, retention_bytes=25 * BATCH_BYTES)
    fill(log, 100)
    before, segments = raw(log), len(log.segments)
    assert retain(log, site.disk) > 0
    assert 25 * BATCH_BYTES <= log.size_bytes < 35 * BATCH_BYTES and len(log.segments) < segments
    assert log.log_start_offset == bases(log)[0] == offsets(log)[0]
    assert raw(log) == before[-log.size_bytes :]
    gone = file_names(site.disk, ".deleted")
    assert {name.partition(".")[0] for name in gone} == {f"{base:020d}" for base in range(0, bases(log)[0], 10)}
    assert log.size_bytes == sum(len(site.disk.read(f"{FOLDER}/{name}")) for name in file_names(site.disk, ".log"))


def test_segments_go_by_time_and_the_last_one_rolls_first(site: StorageSite) -> None:
    log = ten_each(site, retention_ms=5_000)
    fill(log, 55, timestamp_ms=NOW_MS - 5_030)  # the oldest 30 are too old: three whole segments of ten
    assert retain(log, site.disk) == 3 and log.log_start_offset == 30
    assert retain(log, site.disk, now_ms=NOW_MS + 10**6) == 3
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes, bases(log)) == (55, 55, 0, [55])
    assert epochs(log) == [(0, 55)]
    fill(log, 5, timestamp_ms=NOW_MS)
    assert offsets(log) == list(range(55, 60)) and offsets(site.reload()) == list(range(55, 60))


def test_nothing_at_or_above_the_high_watermark_goes(site: StorageSite) -> None:
    log = ten_each(site, retention_bytes=0)
    fill(log, 55)
    assert retain(log, site.disk, high_watermark=29) == 2 and log.log_start_offset == 20
    with pytest.raises(AssertionError, match="above HW"):
        raise_log_start(log, 30, 29)


def test_a_log_start_inside_a_batch_leaves_the_batch_whole(site: StorageSite) -> None:
    log = ten_each(site)
    fill(log, 20, count=3)
    before = records(log)
    assert raise_log_start(log, 31, 60) and not raise_log_start(log, 31, 60) and not raise_log_start(log, 5, 60)
    assert retain(log, site.disk) > 0 and bases(log)[0] <= 30
    assert records(log)[0].offset == 30 and records(log) == before[30:]
    assert offset_for_timestamp(log, 0, 60)[0] == 31 and epochs(log) == [(0, 31)]


def test_a_log_whose_records_were_all_deleted_keeps_its_end_and_frees_the_disk(site: StorageSite) -> None:
    log = ten_each(site)
    fill(log, 25)
    raise_log_start(log, 25, 25)
    retain(log, site.disk)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (25, 25, 0)
    log = site.reload()
    assert (log.log_start_offset, log.log_end_offset) == (25, 25)


def test_a_reader_that_is_under_way_finishes_and_the_next_one_is_refused(site: StorageSite) -> None:
    log = ten_each(site, retention_bytes=0)
    fill(log, 50)
    region, data = log.read(3, 300, 50), raw(log, 3, 10)
    retain(log, site.disk)
    assert not region.is_stale and region.file.pread(region.length, region.position) == data[: region.length]
    with pytest.raises(Exception, match="t-0 has no offset 3: it holds 50 up to 50"):
        log.read(3, 300, 50)


def test_one_step_is_bounded_and_the_rest_comes_with_the_next(site: StorageSite) -> None:
    log = ten_each(site, retention_bytes=0)
    fill(log, 10 * (SEGMENTS_PER_STEP + 5))
    decision = check_retention(log, site.disk, log.log_end_offset, NOW_MS)
    assert len(take_off_head(log, decision, log.log_end_offset)) == SEGMENTS_PER_STEP
    assert log.log_start_offset == log.log_end_offset and len(log.segments) == 6
    assert retain(log, site.disk) == 5


def test_an_index_that_is_open_elsewhere_and_a_snapshot_of_the_segment_go_with_it(site: StorageSite) -> None:
    log = ten_each(site, retention_bytes=0)
    fill(log, 30)
    log.flushed(log.flush_plan()())
    assert file_names(site.disk, ".snapshot") == [f"{10:020d}.snapshot", f"{20:020d}.snapshot"]
    site.disk.write(f"{FOLDER}/{10:020d}.txnindex", b"")
    retain(log, site.disk, high_watermark=20)
    assert file_names(site.disk, ".snapshot") == [f"{20:020d}.snapshot"]
    assert file_names(site.disk, ".txnindex") == []


# --- what another life wrote ------------------------------------------------------------------------------------------


def test_after_a_start_times_are_read_from_the_ends_of_the_files_and_no_index_is_loaded(site: StorageSite) -> None:
    log = ten_each(site, retention_ms=5_000)
    fill(log, 55, timestamp_ms=NOW_MS - 5_030)
    log = site.reload()
    assert [each.base_offset for each in times_wanted(log, 0)] == [0, 10, 20, 30, 40]
    opened: list[str] = []
    site.disk.on_operation = lambda operation, path: opened.append(path) if operation == "pread" else None
    assert retain(log, site.disk) == 3 and log.log_start_offset == 30
    assert not [path for path in opened if path.endswith((".index", ".timeindex")) and opened.count(path) > 1]


def test_a_time_index_that_lost_its_end_makes_nothing_go_too_early(site: StorageSite) -> None:
    log = ten_each(site, retention_ms=5_000)
    fill(log, 9, timestamp_ms=NOW_MS - 100_000)
    fill(log, 20, timestamp_ms=NOW_MS)
    log = site.reload()
    path = f"{FOLDER}/{0:020d}.timeindex"
    site.disk.write(path, site.disk.read(path)[:-12])
    assert retain(log, site.disk) == 0


@pytest.mark.parametrize("damage", [None, b"", b"x", b"\xff" * 12])
def test_a_damaged_time_index_is_built_anew_before_it_decides(site: StorageSite, damage: bytes | None) -> None:
    log = ten_each(site, retention_ms=5_000)
    fill(log, 15, timestamp_ms=NOW_MS - 100_000)
    fill(log, 20, timestamp_ms=NOW_MS)
    log = site.reload()
    path = f"{FOLDER}/{0:020d}.timeindex"
    if damage is None:
        site.disk.unlink(path)
    else:
        site.disk.write(path, damage)
    assert retain(log, site.disk) == 1 and log.log_start_offset == 10


def falling(site: StorageSite) -> Log:
    """A log whose first segment begins with a record that is to stay, and ends with old ones."""
    log = ten_each(site, retention_ms=5_000, index_interval_bytes=BATCH_BYTES)
    fill(log, 1, timestamp_ms=NOW_MS)
    fill(log, 19, timestamp_ms=NOW_MS - 100_000)
    return site.reload()


def test_an_empty_time_index_proves_no_age(site: StorageSite) -> None:
    log = falling(site)
    site.disk.write(f"{FOLDER}/{0:020d}.timeindex", b"")
    assert read_times(site.disk, times_wanted(log, 0))[0] is None


def test_an_index_that_is_removed_while_an_age_is_read_fails_nothing(site: StorageSite) -> None:
    log = falling(site)
    path = f"{FOLDER}/{0:020d}.index"
    opened: list[str] = []

    def remove(operation: str, name: str) -> None:
        if operation == "open" and name == path:
            opened.append(name)
            if len(opened) == 2:
                site.disk.on_operation = None
                site.disk.unlink(path)

    site.disk.on_operation = remove
    wanted = times_wanted(log, 0)
    times = read_times(site.disk, wanted)
    assert len(opened) == 2 and times[0] is None
    note_times(log, wanted, times)
    assert retain(log, site.disk) == 0 and log.failure is None


def test_a_last_time_that_names_another_batch_of_that_time_makes_nothing_go_too_early(site: StorageSite) -> None:
    log = ten_each(site, retention_ms=5_000, index_interval_bytes=BATCH_BYTES)
    fill(log, 1, timestamp_ms=NOW_MS - 100_000)
    for _ in range(4):
        fill(log, 1, timestamp_ms=NOW_MS)
    fill(log, 15, timestamp_ms=NOW_MS - 90_000)
    log = site.reload()
    path = f"{FOLDER}/{0:020d}.timeindex"
    index = bytearray(site.disk.read(path))
    assert index[-4:] == (1).to_bytes(4, "big")
    index[-1] = 3
    site.disk.write(path, bytes(index))
    assert offset_for_timestamp(log, NOW_MS, 20) is not None
    for each in (log, site.reload()):
        assert retain(each, site.disk) == 0


def test_where_no_record_has_a_timestamp_the_file_s_age_counts(site: StorageSite) -> None:
    log = ten_each(site, retention_ms=5_000)
    for age_ms in (5_001, 4_999):
        site.disk.now_ms = NOW_MS - age_ms
        for _ in range(10):
            log.append_as_leader(produced(timestamp_ms=-1), 0)
    assert retain(log, site.disk) == 1 and log.log_start_offset == 10
    assert retain(log, site.disk, now_ms=NOW_MS + 2) == 1


def test_what_was_read_of_a_segment_that_is_gone_meanwhile_counts_for_nothing(site: StorageSite) -> None:
    log = ten_each(site, retention_ms=5_000)
    fill(log, 35, timestamp_ms=NOW_MS)
    log = site.reload()
    wanted = times_wanted(log, 0)
    log.segments.drop_head(10, 0, 1)
    note_times(log, wanted, [1] * len(wanted))
    assert retain(log, site.disk) == 2 and log.log_start_offset == 30, "only of those that are as they were"


def test_what_was_read_of_a_segment_that_was_cut_and_filled_again_counts_for_nothing(site: StorageSite) -> None:
    log = ten_each(site, retention_ms=5_000)
    fill(log, 35, timestamp_ms=NOW_MS - 60_000)
    log = site.reload()
    wanted = times_wanted(log, 0)
    times = read_times(site.disk, wanted)
    log.truncate_to(15)
    fill(log, 20, timestamp_ms=NOW_MS)
    assert [(each.base_offset, each.size_bytes) for each in log.segments if each is not log.segments.active] == [
        (each.base_offset, each.size_bytes) for each in wanted
    ]
    note_times(log, wanted, times)
    assert retain(log, site.disk) == 1, "the second one has new records"


# --- failing disks ----------------------------------------------------------------------------------------------------


def test_a_disk_that_refuses_a_rename_ends_the_log(site: StorageSite) -> None:
    log = ten_each(site, retention_bytes=0)
    fill(log, 50)
    site.disk.fail("rename", f"{FOLDER}/{10:020d}.log", errno.EIO)
    with pytest.raises(LogStorageError, match="putting old segments aside failed"):
        retain(log, site.disk)
    assert log.failure is not None
    with pytest.raises(LogStorageError):
        retain(log, site.disk)
    site.disk.kill()
    assert StorageSite(disk=site.disk).start().logs[TP].log_start_offset == 10


# --- crashes ----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Here the process ends."""


Act = Callable[[StorageSite, LogManager, Log], None]


def run(act: Act, site: StorageSite, manager: LogManager, log: Log, stop_before: int | None = None) -> int:
    """Run `act`, killed before its disk operation number `stop_before`; returns how many there were."""
    count, disk = 0, site.disk

    def on_operation(operation: str, path: str) -> None:
        nonlocal count
        if count == stop_before:
            raise Killed
        count += 1

    disk.on_operation = on_operation
    try:
        act(site, manager, log)
    except Killed:
        pass
    finally:
        disk.on_operation = None
    return count


def prepared(**config: int) -> tuple[StorageSite, LogManager, Log]:
    site = StorageSite()
    manager = site.start()
    site.config = SmallLogConfig(segment_bytes=10 * BATCH_BYTES, **config)
    log = manager.create(TP, TOPIC_ID)
    fill(log, 45)
    log.flushed(log.flush_plan()())
    manager.checkpoints.write_recovery_points()
    site.disk.sync_everything()
    return site, manager, log


def by_size(site: StorageSite, manager: LogManager, log: Log) -> None:
    retain(log, site.disk)
    manager.remove(manager.removals.due(0) + manager.removals.due(60_000))


def of_everything(site: StorageSite, manager: LogManager, log: Log) -> None:
    raise_log_start(log, 45, 45)
    by_size(site, manager, log)


def by_order(site: StorageSite, manager: LogManager, log: Log) -> None:
    raise_log_start(log, 33, 45)
    manager.checkpoints.write_log_starts()
    by_size(site, manager, log)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize(
    ("act", "config", "new_start"),
    [(by_size, {"retention_bytes": 20 * BATCH_BYTES}, 20), (of_everything, {}, 45), (by_order, {}, 33)],
)
def test_killed_between_any_two_disk_operations_the_head_is_the_old_or_the_new_one(
    act: Act, config: dict[str, int], new_start: int, power: bool
) -> None:
    site, manager, log = prepared(**config)
    before = records(log)
    total = run(act, site, manager, log)
    assert log.log_start_offset == new_start and total > 10
    starts = set()
    for stop_before in range(total + 1):
        for seed in range(5 if power else 1):
            site, manager, log = prepared(**config)
            run(act, site, manager, log, stop_before)
            if power:
                site.disk.crash(random.Random(seed).randrange)
            else:
                site.disk.kill()
            log = site.start().logs[TP]
            starts.add(log.log_start_offset)
            assert log.log_start_offset in {0, 10, 20, 30, 40, new_start} and log.log_start_offset <= new_start
            assert log.log_end_offset == 45, "nothing that was not to go is lost"
            assert records(log) == before[log.log_start_offset :]
            fill(log, 3)
            assert offsets(log)[-3:] == [45, 46, 47]
            assert not [name for name in site.disk.listdir(FOLDER) if name.endswith(".deleted")]
    assert {0, new_start} <= starts
