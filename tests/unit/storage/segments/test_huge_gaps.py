"""Gaps above 2^31 offsets between two batches, as compaction may leave them: a relative offset never overflows
(KAFKA-5413)."""

from __future__ import annotations

import errno

import pytest

from strandline.protocol.records.batch import InvalidBatch, assign_offset
from strandline.storage.errors import OutOfDescriptors
from strandline.storage.log.log import Log
from strandline.storage.segments.offset_index import MAX_RELATIVE_OFFSET
from strandline.storage.segments.scan import ScanTask, scan_segment
from support.cleaning import check_compacted, clean
from support.storage_site import FOLDER, TP, StorageSite, file_names, offsets, produced

FAR = 5 * 2**31
PLACES = [0, 1, 2, FAR, FAR + 1, FAR + 2]


def batch_at(offset: int, epoch: int = 0, count: int = 1) -> bytes:
    (batch,) = produced(count, 1000 + offset % 1000)
    assign_offset(batch.view, offset, epoch)
    return bytes(batch.view)


def follow(log: Log, *places: int) -> None:
    log.append_as_follower(memoryview(bytearray(b"".join(batch_at(place) for place in places))))


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_follower_goes_on_beyond_a_gap_that_no_segment_can_bridge(site: StorageSite, at_once: bool) -> None:
    log = site.log(index_interval_bytes=0)
    if at_once:
        follow(log, *PLACES)
    else:
        for place in PLACES:
            follow(log, place)
    assert offsets(log) == PLACES and log.log_end_offset == FAR + 3
    assert bases(log) == [0, 3, FAR]
    check_compacted(log)
    assert offsets(log, start=3) == offsets(log, start=FAR - 5) == [FAR, FAR + 1, FAR + 2]


def test_a_log_may_begin_with_such_a_gap(site: StorageSite) -> None:
    log = site.log(index_interval_bytes=0)
    follow(log, FAR, FAR + 1)
    assert bases(log) == [0, FAR] and offsets(log) == [FAR, FAR + 1]
    assert offsets(site.reload()) == [FAR, FAR + 1]


@pytest.mark.parametrize("gap", [MAX_RELATIVE_OFFSET - 3, MAX_RELATIVE_OFFSET - 2, MAX_RELATIVE_OFFSET])
def test_a_gap_that_a_segment_can_bridge_begins_at_most_an_ordinary_one(site: StorageSite, gap: int) -> None:
    log = site.log(index_interval_bytes=0)
    follow(log, 0, 1, 2, 3 + gap)
    assert bases(log) == ([0] if 3 + gap <= MAX_RELATIVE_OFFSET else [0, 3])
    check_compacted(log)


@pytest.mark.parametrize("clean_stop", [True, False])
def test_it_is_found_again_after_any_stop(site: StorageSite, clean_stop: bool) -> None:
    manager = site.start()
    follow(manager.create(TP, bytes(16)), *PLACES)
    if clean_stop:
        manager.close(clean=True)
        log = site.start().logs[TP]
    else:
        log = site.reload()
    assert offsets(log) == PLACES and bases(log) == [0, 3, FAR]
    assert site.reports.names() == []
    follow(log, 2 * FAR)
    assert offsets(log) == [*PLACES, 2 * FAR]


def test_it_joins_below_the_recovery_point_too(site: StorageSite) -> None:
    manager = site.start()
    log = manager.create(TP, bytes(16))
    follow(log, *PLACES)
    log.flushed(log.flush_plan()())
    manager.checkpoints.write_recovery_points()
    assert offsets(site.reload()) == PLACES


def test_a_killed_roll_leaves_a_log_that_goes_on_behind_the_gap(site: StorageSite) -> None:
    log = site.log()
    follow(log, *PLACES[:4])
    site.disk.write(f"{FOLDER}/{FAR:020d}.log", b"")
    log = site.reload()
    assert offsets(log) == PLACES[:3]
    follow(log, *PLACES[3:])
    assert offsets(log) == PLACES


def test_cutting_in_and_behind_the_gap(site: StorageSite) -> None:
    log = site.log()
    follow(log, *PLACES)
    log.truncate_to(FAR + 1)
    assert log.log_end_offset == FAR + 1
    log.truncate_to(FAR - 100)
    assert log.log_end_offset == 3 and offsets(log) == [0, 1, 2]
    follow(log, *PLACES[3:])
    assert offsets(log) == PLACES


def test_a_lost_segment_is_no_gap_although_it_is_large(site: StorageSite) -> None:
    manager = site.start()
    log = manager.create(TP, bytes(16))
    follow(log, *PLACES)
    log.flushed(log.flush_plan()())
    manager.checkpoints.write_recovery_points()
    site.disk.unlink(f"{FOLDER}/{3:020d}.log")
    site.disk.kill()
    assert TP not in site.start().logs
    assert "are missing" in str(site.reports.of("log-refused"))


@pytest.mark.parametrize("which", [3, FAR])
def test_a_roll_that_lacks_descriptors_may_be_tried_again(site: StorageSite, which: int) -> None:
    log = site.log()
    follow(log, *PLACES[:3])
    site.disk.fail("open", f"*{which:020d}.log", errno.EMFILE, times=10)
    refusals = 0
    while log.log_end_offset < FAR:
        try:
            follow(log, *PLACES[3:])
        except OutOfDescriptors:
            refusals += 1
    assert refusals
    assert offsets(log) == PLACES and log.failure is None
    assert bases(log) == [0, 3, FAR]


def test_the_cleaner_keeps_offsets_and_the_mark_of_the_gap(site: StorageSite) -> None:
    log = site.log(index_interval_bytes=0, cleanup_policy=("compact",))
    follow(log, *PLACES, *(FAR + place for place in range(3, 30)))
    before_bases = bases(log)
    clean(log, site.disk, segment_bytes=10**6)
    assert offsets(log)[-1] == FAR + 29 and len(offsets(log)) < 10
    assert bases(log)[:3] == before_bases[:3]
    check_compacted(log)
    assert offsets(site.reload())[-1] == FAR + 29


def test_a_base_offset_that_no_index_could_hold_is_damage(site: StorageSite) -> None:
    """Base offsets lie outside of the CRC."""
    log = site.log(index_interval_bytes=0, segment_bytes=10_000)
    follow(log, *range(6))
    path = f"{FOLDER}/{file_names(site.disk, '.log')[0]}"
    size = len(batch_at(0))
    data = bytearray(site.disk.read(path))
    data[2 * size : 2 * size + 8] = FAR.to_bytes(8, "big")
    data[3 * size : 3 * size + 8] = (FAR + 1).to_bytes(8, "big")
    site.disk.write(path, bytes(data))
    found = scan_segment(site.disk, ScanTask(path, 0, len(data), 0, True))
    assert (found.next_offset, found.end_position) == (2, 2 * size) and "too high" in found.fault
    assert offsets(site.reload()) == [0, 1]


def test_a_follower_refuses_a_batch_that_lies_before_the_gap_behind_it(site: StorageSite) -> None:
    log = site.log()
    with pytest.raises(InvalidBatch):
        follow(log, 0, 50, 20)
    assert log.log_end_offset == 0
