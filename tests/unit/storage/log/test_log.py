"""The log: append, roll, read, find a timestamp."""

from __future__ import annotations

import errno
import itertools
from typing import Any

import pytest

from strandline.protocol.records import read_header, scan
from strandline.protocol.records.batch import InvalidBatch
from strandline.storage.errors import DiskFull, LogStorageError, OffsetOutOfRange
from support.storage_site import (
    FOLDER,
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
    wave,
)


def test_a_wave_gets_the_next_offsets_and_the_leaders_epoch(site: StorageSite) -> None:
    log = site.log()
    assert log.append_as_leader(produced(3), leader_epoch=0) == 0
    assert log.append_as_leader([*produced(2), *produced(4)], leader_epoch=5) == 3
    headers = [header for _, header in scan(memoryview(raw(log)))]
    assert [(header.base_offset, header.last_offset, header.partition_leader_epoch) for header in headers] == [
        (0, 2, 0),
        (3, 4, 5),
        (5, 8, 5),
    ]
    assert log.log_end_offset == 9
    assert epochs(log) == [(0, 0), (5, 3)] and log.last_epoch == 5


def test_an_empty_wave_appends_nothing(site: StorageSite) -> None:
    log = site.log()
    assert log.append_as_leader([], 0) == 0
    assert log.size_bytes == 0 and log.read(0, 100, 0) is None


def test_bytes_are_stored_as_produced_but_for_offset_and_epoch(site: StorageSite) -> None:
    log = site.log()
    batches = wave(3, count=2)
    log.append_as_leader(batches, 1)
    assert raw(log) == b"".join(bytes(batch.view) for batch in batches)


def test_a_follower_stores_what_the_leader_sent_byte_for_byte(site: StorageSite) -> None:
    leader, follower = site.log(), StorageSite().log(segment_bytes=700, index_interval_bytes=0)
    for epoch in range(5):
        leader.append_as_leader(wave(4), epoch)
    end = 0
    while end < leader.log_end_offset:
        region = leader.read(end, 400, leader.log_end_offset)
        assert region is not None
        end = follower.append_as_follower(memoryview(region.file.pread(region.length, region.position)), max_epoch=4)
    assert raw(follower) == raw(leader)
    assert epochs(follower) == epochs(leader) == [(epoch, epoch * 4) for epoch in range(5)]
    assert len(follower.segments) > len(leader.segments)


def test_a_follower_refuses_a_newer_epoch_and_one_that_went_back(site: StorageSite) -> None:
    leader, follower = site.log(), StorageSite().log()
    fill(leader, 3, epoch=4)
    bytes_ = memoryview(raw(leader))
    with pytest.raises(InvalidBatch):
        follower.append_as_follower(bytes_, max_epoch=3)
    follower.epochs.assign(9, 0)
    with pytest.raises(InvalidBatch):
        follower.append_as_follower(bytes_)
    assert follower.log_end_offset == 0 and follower.size_bytes == 0


@pytest.mark.parametrize("max_bytes", [1, 150, 400, 10**6])
@pytest.mark.parametrize("forgotten", [False, True])
def test_reading_gives_every_record_once_whatever_the_chunk(site: StorageSite, max_bytes: int, forgotten: bool) -> None:
    log = site.log()
    fill(log, 40, count=3)
    if forgotten:
        log = site.reload()
    assert offsets(log, max_bytes=max_bytes) == list(range(120))
    assert offsets(log, start=50, max_bytes=max_bytes) == list(range(50, 120))


def test_a_read_is_whole_batches_within_its_bounds_but_the_first_batch_always(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**6)
    fill(log, 10, count=3, size=100)
    size = log.size_bytes // 10
    assert log.read(4, size * 3, 30).length == size * 3
    assert log.read(4, size * 3 - 1, 30).length == size * 2
    assert log.read(4, 1, 30).length == size
    assert log.read(4, 0, 30).length == size
    assert log.read(4, 10**6, 30).length == size * 9


@pytest.mark.parametrize("forgotten", [False, True])
def test_nothing_at_or_above_the_end_offset_is_read(site: StorageSite, forgotten: bool) -> None:
    log = site.log()
    fill(log, 20, count=3)
    if forgotten:
        log = site.reload()
    for end in range(61):
        assert offsets(log, end=end) == list(range(end // 3 * 3))  # a batch across the end is left out whole
    assert log.read(30, 1000, 30) is None
    assert log.read(31, 1000, 32) is None
    assert log.read(40, 1000, 30) is None


def test_the_log_end_is_nothing_there_yet_and_beyond_it_out_of_range(site: StorageSite) -> None:
    log = site.log()
    log.truncate_fully_and_start_at(10)
    fill(log, 5)
    assert log.read(15, 100, 15) is None
    for offset in (9, 16, -1):
        with pytest.raises(OffsetOutOfRange, match=r"^t-0 has no offset .* 10 up to 15; ask ListOffsets"):
            log.read(offset, 100, 15)


def test_a_read_at_the_tail_touches_no_file(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**6)
    fill(log, 50)
    site.disk.fail("pread", "*", errno.EIO)
    for offset in range(50):
        for end in range(offset + 1, 51):
            assert log.read(offset, 500, end) is not None


def test_who_reads_on_where_the_last_read_ended_needs_no_search(site: StorageSite) -> None:
    fill(site.log(segment_bytes=10**6), 200)
    log = site.reload()
    region = log.read(0, 3000, 200)
    following = read_header(region.file.pread(61, region.position + region.length)).base_offset
    seen: list[str] = []
    site.disk.on_operation = lambda operation, path: seen.append(operation)
    assert log.read(following, 3000, 200) is not None
    assert seen.count("pread") <= 2  # the first bytes behind the region, and nothing to find its beginning


# --- roll -------------------------------------------------------------------------------------------------------------


def test_a_segment_is_rolled_before_it_would_exceed_its_size(site: StorageSite) -> None:
    log = site.log(segment_bytes=1000)
    fill(log, 60)
    sizes = [segment.size_bytes for segment in log.segments]
    assert len(sizes) > 3 and max(sizes) <= 1000 and min(sizes[:-1]) > 800
    assert log.size_bytes == sum(sizes)
    assert file_names(site.disk, ".log") == [f"{segment.base_offset:020d}.log" for segment in log.segments]
    assert offsets(log) == list(range(60))


def test_one_wave_may_fill_several_segments(site: StorageSite) -> None:
    log = site.log()
    assert log.append_as_leader(wave(60), 0) == 0
    assert len(log.segments) > 3
    assert offsets(log) == list(range(60))
    assert max(segment.size_bytes for segment in log.segments) <= 1000


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(site: StorageSite) -> None:
    log = site.log()
    for size in (10, 5000, 10, 5000, 5000):
        log.append_as_leader(produced(size=size), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3, 4]
    assert offsets(log) == [0, 1, 2, 3, 4]


def test_a_segment_is_rolled_by_the_age_that_timestamps_show(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**6, segment_ms=1000)
    for timestamp_ms in (5000, 5500, 6000, 6001, 6500, 100, 7002):
        log.append_as_leader(produced(timestamp_ms=timestamp_ms), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]


def test_records_without_a_time_roll_by_the_age_of_the_segment(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**6, segment_ms=1000)
    fill(log, 2, timestamp_ms=-1)
    site.clock.ms += 1001
    log.append_as_leader(produced(timestamp_ms=-1), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


@pytest.mark.parametrize(
    ("policy", "segment_ms", "lag_ms", "bases"),
    [
        (("compact",), 10_000, 1000, [0, 2]),
        (("compact", "delete"), 10_000, 1000, [0, 2]),
        (("delete",), 10_000, 1000, [0]),
        (("compact",), 1000, 10_000, [0, 2]),
        (("compact",), 10_000, 1001, [0]),
    ],
)
def test_a_compacted_log_rolls_at_its_longest_lag_too(
    site: StorageSite, policy: tuple[str, ...], segment_ms: int, lag_ms: int, bases: list[int]
) -> None:
    log = site.log(segment_bytes=10**6, segment_ms=segment_ms, max_compaction_lag_ms=lag_ms, cleanup_policy=policy)
    fill(log, 2)
    log.append_as_leader(produced(timestamp_ms=2001), 0)
    assert [segment.base_offset for segment in log.segments] == bases


def test_jitter_rolls_earlier_never_later(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**6, segment_ms=10_000, segment_jitter_ms=4000)
    starts = [0]
    for timestamp_ms in range(0, 100_000, 100):
        log.append_as_leader(produced(timestamp_ms=timestamp_ms), 0)
        if log.segments.active.base_offset * 100 != starts[-1]:
            starts.append(log.segments.active.base_offset * 100)
    ages = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert all(6000 <= age <= 10_200 for age in ages) and len(set(ages)) > 1


def test_a_segment_is_rolled_when_its_index_is_full(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**6, segment_index_bytes=60, index_interval_bytes=0)
    fill(log, 20)
    assert len(log.segments) == 4  # 60 bytes: 4 time entries and the last one
    log.close()
    assert max(len(site.disk.read(f"{FOLDER}/{name}")) for name in file_names(site.disk, ".timeindex")) <= 60


def test_offsets_further_apart_than_an_index_entry_reaches_roll(site: StorageSite) -> None:
    leader, log = site.log(), StorageSite().log(segment_bytes=10**6)
    leader.truncate_fully_and_start_at(2**31 + 5)
    fill(leader, 1)
    far = memoryview(bytearray(raw(leader)))
    fill(log, 1)
    log.log_end_offset = 2**31 + 5  # as compaction would leave it
    log.append_as_follower(far)
    assert [segment.base_offset for segment in log.segments] == [0, 2**31 + 5]


def test_rolling_an_empty_segment_does_nothing(site: StorageSite) -> None:
    log = site.log()
    log.roll()
    fill(log, 1)
    log.roll()
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_another_configuration_counts_from_the_next_append(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**6)
    fill(log, 20)
    log.config = SmallLogConfig(segment_bytes=500)
    fill(log, 20)
    assert len(log.segments) > 3


# --- timestamps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_timestamp_finds_the_first_record_that_is_not_older(site: StorageSite, forgotten: bool) -> None:
    log = site.log()
    times = [1000, 1010, 1005, 1020, 900, 1030, 1030, 1015, 1100] * 10
    for place, time_ms in enumerate(times):
        log.append_as_leader(produced(timestamp_ms=time_ms + place // 9 * 200, count=2), place // 30)
    if forgotten:
        log = site.reload()
    everything = records(log)
    for wanted in range(800, 3100, 7):
        expected = next((record for record in everything if record.timestamp_ms >= wanted), None)
        found = offset_for_timestamp(log, wanted, log.log_end_offset)
        if expected is None:
            assert found is None
        else:
            assert found == (expected.offset, expected.timestamp_ms, expected.offset // 60)


def test_a_timestamp_is_not_found_at_or_above_the_end_offset(site: StorageSite) -> None:
    log = site.log()
    fill(log, 10, count=2, timestamp_ms=1000)
    assert offset_for_timestamp(log, 1013, 20) == (13, 1013, 0)
    assert offset_for_timestamp(log, 1013, 13) is None
    assert offset_for_timestamp(log, 1013, 14) == (13, 1013, 0)


# --- a failing disk ---------------------------------------------------------------------------------------------------


def test_a_failed_append_leaves_the_log_as_it_was_and_offline(site: StorageSite) -> None:
    log = site.log()
    fill(log, 10)
    before, size, entries = raw(log), log.size_bytes, [*epochs(log), (7, 10)]
    fault = site.disk.fail("pwritev", "*.log", errno.EIO)
    with pytest.raises(LogStorageError, match=r"^t-0 is offline: append failed: .*; free or replace the disk, then"):
        log.append_as_leader(wave(3), 7)
    fault.cancel()
    assert (raw(log), log.size_bytes, log.log_end_offset, epochs(log)) == (before, size, 10, entries)
    assert site.disk.read(f"{log.segments.active.path}.log") == before[-log.segments.active.size_bytes :]
    for change in (
        lambda: log.append_as_leader(produced(), 7),
        lambda: log.append_as_follower(memoryview(b"")),
        lambda: log.truncate_to(3),
        log.roll,
        log.flush_plan,
    ):
        with pytest.raises(LogStorageError):
            change()
    assert site.reports.names().count("log-offline") == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("taken", [0, 150], ids=["nothing", "a part"])
@pytest.mark.parametrize("as_leader", [True, False], ids=["leader", "follower"])
def test_a_log_whose_disk_was_full_goes_on_as_if_nothing_had_been_tried(
    site: StorageSite, number: int, taken: int, as_leader: bool
) -> None:
    """Neither records nor timestamps nor index entries of what was refused are left, in no file and not in memory."""
    leader = StorageSite().log(segment_bytes=10**6, index_interval_bytes=100)
    fill(leader, 10, timestamp_ms=1000)
    leader.append_as_leader(wave(5, timestamp_ms=9000), 0)
    log = site.log(segment_bytes=10**6, index_interval_bytes=100)
    fill(log, 10, timestamp_ms=1000)

    def facts() -> tuple[Any, ...]:
        active = log.segments.active
        files = {path: data for path, data in site.disk.content().items() if path.startswith(FOLDER)}
        return (
            raw(log),
            log.log_end_offset,
            active.max_timestamp_ms,
            active.max_timestamp_offset,
            active.first_timestamp_ms,
            active.indexes.offset.encode(),
            active.indexes.time.encode(),
            log.last_epoch,
            files,
        )

    def take() -> None:
        if as_leader:
            log.append_as_leader(wave(5, timestamp_ms=9000), 0)
        else:
            log.append_as_follower(memoryview(raw(leader, start=10)))

    before = facts()
    if taken:
        site.disk.shorten_next_write(f"{FOLDER}/*.log", taken)
    fault = site.disk.fail("pwritev", f"{FOLDER}/*.log", number, after=1 if taken else 0)
    for _ in range(3):
        with pytest.raises(DiskFull, match="free space, and it goes on by itself"):
            take()
    assert fault.hits == 1, "it is asked again only when there is room"
    assert facts() == before and log.failure is None
    assert offset_for_timestamp(log, 5000, 10) is None
    fault.cancel()
    log.health._directory.full = None
    take()
    assert log.log_end_offset == 15 and offset_for_timestamp(log, 5000, 15) == (10, 9000, 0)
    log.roll()
    log.flushed(log.flush_plan()())
    expected = raw(log)
    assert raw(site.reload()) == expected == raw(leader)


def test_a_full_disk_takes_part_of_a_wave_and_it_is_taken_back(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**6)
    fill(log, 10)
    before = raw(log)
    site.disk.capacity_bytes = site.disk.space("/").total_bytes - site.disk.space("/").free_bytes + 120
    with pytest.raises(LogStorageError, match="ENOSPC"):
        log.append_as_leader(wave(5), 0)
    assert site.disk.read(f"{FOLDER}/{0:020d}.log") == before
    site.disk.capacity_bytes = 10**9
    log = site.reload()
    fill(log, 5)
    assert offsets(log) == list(range(15))


def test_a_short_write_is_finished(site: StorageSite) -> None:
    log = site.log()
    site.disk.shorten_next_write("*.log", 33)
    log.append_as_leader(wave(4), 0)
    assert offsets(log) == [0, 1, 2, 3] and log.failure is None


def test_a_roll_that_fails_takes_the_log_offline(site: StorageSite) -> None:
    log = site.log()
    fill(log, 5)
    site.disk.fail("open", "*00005.log", errno.EMFILE)
    with pytest.raises(LogStorageError, match="rolling to a new segment failed"):
        log.roll()
    assert offsets(log) == list(range(5))


def test_a_read_that_fails_takes_the_log_offline(site: StorageSite) -> None:
    log = site.log()
    fill(log, 50)
    log = site.reload()
    site.disk.fail("pread", "*.log", errno.EIO)
    with pytest.raises(LogStorageError, match="reading failed"):
        log.read(10, 100, 50)
    assert log.failure is not None


def test_a_closed_log_says_so(site: StorageSite) -> None:
    log = site.log()
    log.close()
    log.close()
    with pytest.raises(LogStorageError, match="t-0 is closed on this broker; refresh the metadata"):
        log.append_as_leader(produced(), 0)
    assert site.disk.open_files() == ["/logs/.lock"] or site.disk.open_files() == []


def test_idle_segments_hold_no_descriptor(site: StorageSite) -> None:
    site.max_open_files = 4
    log = site.log()
    fill(log, 200)
    regions = [log.read(offset, 10**6, 200) for offset in range(0, 200, 3)]
    assert len(log.segments) > 15 and all(region is not None for region in regions)
    del regions
    assert len(site.disk.open_files()) <= 5


def test_only_recent_batches_are_remembered_and_older_ones_are_found_all_the_same(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**9, index_interval_bytes=500)
    for _ in range(5):
        log.append_as_leader(wave(1000), 0)
    assert len(log._boundaries.offsets) <= 3000 and log._boundaries.offsets[-1] == 4999
    assert offsets(log, max_bytes=20_000) == list(range(5000))
    assert len(log._boundaries.visited) <= 64
    for offset in range(0, 5000, 313):
        region = log.read(offset, 1, 5000)
        assert read_header(region.file.pread(61, region.position)).base_offset == offset


def test_a_reader_that_meets_no_batch_where_one_should_stand_names_the_place(site: StorageSite) -> None:
    log = site.log()
    fill(log, 60)
    path = f"{log.segments.holding(0).path}.log"
    data = bytearray(site.disk.read(path))
    data[8:12] = b"\x7f\xff\xff\xff"
    site.disk.write(path, bytes(data))
    with pytest.raises(LogStorageError, match=r"reading failed: .* is damaged at byte 0"):
        log.read(1, 100, 60)
    assert log.failure is not None
