"""No index of a segment gets longer than `segment.index.bytes`, whatever is appended at once, rebuilt or configured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.storage.log.checked_append import append_checked
from strandline.storage.log.log import Log
from strandline.storage.segments.index_bounds import room, thin_out
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import walk_headers
from strandline.storage.segments.time_index import TimeIndex
from support.log_audit import check_log
from support.storage_site import (
    TOPIC_ID,
    TP,
    SmallLogConfig,
    StorageSite,
    offset_for_timestamp,
    offsets,
    produced,
    raw,
    wave,
)

INTERVAL = 100
LIMITS = (12, 25, 60, 61, 95, 500)
BOUNDS = st.one_of(st.integers(12, 61), st.sampled_from(LIMITS))
"""Less than one time index entry is refused: the largest timestamp of a sealed segment needs it."""


def kafka_recovers(log: Log, max_bytes: int) -> None:
    """What Kafka does after an unclean stop (LogSegment.recover): fills both indexes of each segment anew."""
    for segment in log.segments:
        entries = times = indexed = 0
        largest_ms = noted_ms = -1
        for position, header in walk_headers(segment.file.get(), 0, segment.size_bytes):
            largest_ms = max(largest_ms, header.max_timestamp_ms)
            if position - indexed > INTERVAL:
                is_full = (
                    entries >= max_bytes // OffsetIndex.ENTRY_BYTES or times >= max_bytes // TimeIndex.ENTRY_BYTES - 1
                )
                assert not is_full, "Attempt to append to a full index: Kafka would not start on this folder"
                entries, indexed = entries + 1, position
                if largest_ms > noted_ms:
                    times, noted_ms = times + 1, largest_ms


def check_files(site: StorageSite, log: Log, max_bytes: int) -> None:
    """Those of all segments, after the log was closed."""
    for segment in log.segments:
        for suffix in (OffsetIndex.SUFFIX, TimeIndex.SUFFIX):
            assert len(site.disk.read(segment.path + suffix)) <= max_bytes, segment.path + suffix


def check_memory(log: Log, first_offset: int = 0) -> None:
    for segment in log.segments:
        assert segment.size_bytes or segment is log.segments.active, "an index that is full rolls no empty segment"
        if segment.base_offset < first_offset:
            continue
        assert len(segment.indexes.offset) * OffsetIndex.ENTRY_BYTES <= segment.indexes.max_bytes
        assert len(segment.indexes.time) * TimeIndex.ENTRY_BYTES <= segment.indexes.max_bytes


Wave = tuple[int, int, int]
"""Batches, size of a value, step of the timestamp from one batch to the next."""
WAVES = st.lists(
    st.tuples(st.integers(1, 25), st.integers(0, 150), st.sampled_from([-3, 0, 1])), min_size=1, max_size=5
)


def append_waves(leader: Log, follower: Log, waves: Sequence[Wave], between: Callable[[], None]) -> None:
    """The follower gets each wave in one fetch."""
    timestamp_ms = 1000
    for count, size, step in waves:
        batches = []
        for _ in range(count):
            timestamp_ms += step
            batches += produced(1, timestamp_ms, size)
        leader.append_as_leader(batches, 0)
        follower.append_as_follower(memoryview(raw(leader, follower.log_end_offset)))
        between()


@given(waves=WAVES, max_bytes=BOUNDS, producer_size=st.integers(0, 50))
def test_any_waves_keep_each_index_within_its_bound(waves: list[Wave], max_bytes: int, producer_size: int) -> None:
    sites = StorageSite(), StorageSite()
    configured = {"segment_bytes": 10**6, "segment_index_bytes": max_bytes, "index_interval_bytes": INTERVAL}
    leader, follower = (site.log(**configured) for site in sites)

    def check() -> None:
        for log in (leader, follower):
            check_memory(log)
            kafka_recovers(log, max_bytes)

    append_waves(leader, follower, waves, check)
    count = 1 + sum(batches for batches, _, _ in waves)
    append_checked(leader, [produced(1, 1000, producer_size, producer=(1, 0, 0))], 0)
    assert offsets(leader) == list(range(count)) and offsets(follower) == list(range(count - 1))
    for site, log in zip(sites, (leader, follower), strict=True):
        check_log(log, INTERVAL)
        log.close()
        check_files(site, log, max_bytes)
        log = site.reload()
        check_log(log, INTERVAL)
        check_memory(log)


@pytest.mark.parametrize("max_bytes", LIMITS)
def test_one_wave_of_many_batches_rolls_within_itself(max_bytes: int) -> None:
    sites = StorageSite(), StorageSite()
    configured = {"segment_bytes": 10**6, "segment_index_bytes": max_bytes, "index_interval_bytes": INTERVAL}
    leader, follower = (site.log(**configured) for site in sites)
    append_waves(leader, follower, [(1, 20, 1), (120, 20, 1)], lambda: None)
    for log in (leader, follower):
        check_memory(log)
        kafka_recovers(log, max_bytes)
    assert [each.base_offset for each in follower.segments] == [each.base_offset for each in leader.segments]
    assert len(leader.segments) > 1


@given(waves=WAVES, before=BOUNDS, after=BOUNDS, how=st.integers(0, 3))
def test_a_lower_bound_holds_from_then_on(waves: list[Wave], before: int, after: int, how: int) -> None:
    """how: configured while the log is served; at a start after an orderly stop, after a kill; a smaller interval, too.
    Sealed segments keep the indexes that they have, which hinders nobody."""
    site, source = StorageSite(), StorageSite()
    configured = {"segment_bytes": 10**6, "index_interval_bytes": INTERVAL}
    site.config = replace(site.config, segment_index_bytes=before, **configured)
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    leader = source.log(segment_index_bytes=10**6, **configured)
    append_waves(leader, log, waves, lambda: None)
    there = offsets(log)
    site.config = replace(site.config, segment_index_bytes=after, index_interval_bytes=0 if how == 3 else INTERVAL)
    if how == 0:
        log.config = site.config
    elif how == 1:
        manager.close(clean=True)
        log = site.start().logs[TP]
    else:
        log = site.reload()
    active = log.segments.active
    check_memory(log, active.base_offset)
    assert active.indexes.max_bytes == after and offsets(log) == there
    append_waves(leader, log, [*waves, (1, 0, 1)], lambda: check_memory(log, active.base_offset))
    assert offsets(log) == offsets(leader)
    for timestamp_ms in (0, 1000, 1001, 1010, 1100):
        found = offset_for_timestamp(log, timestamp_ms, log.log_end_offset)
        assert found == offset_for_timestamp(leader, timestamp_ms, leader.log_end_offset)
    log.close()
    for suffix in (OffsetIndex.SUFFIX, TimeIndex.SUFFIX):
        assert len(site.disk.read(active.path + suffix)) <= after
    log = site.reload()
    check_memory(log, active.base_offset)
    assert offsets(log) == offsets(leader)


def test_a_snapshot_taken_where_an_index_got_full_has_no_producer_from_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    site = StorageSite()
    log = site.log(segment_bytes=10**6, segment_index_bytes=60, index_interval_bytes=0)
    captured: dict[int, list[int]] = {}

    def capture(offset: int, rows: Sequence[object]) -> None:
        captured[offset] = [row.last_offset for row in log.producers.states.rows()]

    monkeypatch.setattr(type(log.producers.snapshots), "capture", lambda self, offset, rows: capture(offset, rows))
    append_checked(log, [produced(1, 1000 + each, producer=(each, 0, 0)) for each in range(12)], 0)
    assert len(log.segments) > 2 and sorted(captured) == [each.base_offset for each in log.segments][1:]
    assert all(max(last_offsets) < offset for offset, last_offsets in captured.items())


@pytest.mark.parametrize("max_bytes", [0, 8, 12, 24, 40, 120, 10**6])
@pytest.mark.parametrize("is_final", [True, False])
def test_what_is_thinned_out_fits_and_keeps_its_last_entry(max_bytes: int, is_final: bool) -> None:
    offset, time = OffsetIndex(0), TimeIndex(0)
    for place in range(1, 24):
        offset.append(place, place * 100)
        time.maybe_append(place * 10, place)
    thin_out(offset, time, max_bytes, is_final=is_final)
    assert len(offset) <= max_bytes // OffsetIndex.ENTRY_BYTES and len(time) <= max(
        0, max_bytes // TimeIndex.ENTRY_BYTES - (not is_final)
    )
    there = offset.encode(), time.encode()
    thin_out(offset, time, max_bytes, is_final=is_final)
    assert (offset.encode(), time.encode()) == there
    assert not len(offset) or (offset.last_offset, offset.last_position) == (23, 2300)
    assert not len(time) or time.last_timestamp_ms == 230
    offset.check(2400)
    time.check_columns()


@pytest.mark.parametrize(("entries", "left"), [(0, 4), (1, 3), (4, 0), (5, -1)])
def test_an_index_is_full_where_the_time_index_has_one_place_left(entries: int, left: int) -> None:
    offset, time = OffsetIndex(0), TimeIndex(0)
    for place in range(1, entries + 1):
        offset.append(place, place)
        time.maybe_append(place, place)
    assert room(offset, time, 60) == left  # 7 offsets, 5 timestamps


def test_a_log_loaded_with_longer_indexes_thins_them_out_and_begins_another_segment() -> None:
    """As an earlier release left it: at an orderly stop the files are such that Kafka starts on them."""
    site = StorageSite(config=SmallLogConfig(segment_bytes=10**6, index_interval_bytes=0))
    manager = site.start()
    manager.create(TP, TOPIC_ID).append_as_leader(wave(100), 0)
    manager.close(clean=True)
    site.config = replace(site.config, segment_index_bytes=120)
    manager = site.start()
    log = manager.logs[TP]
    manager.close(clean=True)
    check_files(site, log, 120)
    manager = site.start()
    manager.logs[TP].append_as_leader(wave(1, timestamp_ms=2000), 0)
    manager.close(clean=True)
    log = site.start().logs[TP]
    assert [segment.base_offset for segment in log.segments] == [0, 100] and not site.reports.events
    assert offsets(log) == list(range(101)) and offset_for_timestamp(log, 1050, 101) == (50, 1050, 0)


@pytest.mark.parametrize("how", ["in order", "killed"])
def test_a_log_that_was_loaded_with_wider_gaps_goes_on_in_a_new_segment(how: str) -> None:
    """Logs are loaded before their topics' configurations are known."""
    topic = SmallLogConfig(segment_bytes=100_000, index_interval_bytes=INTERVAL, segment_index_bytes=95)
    site = StorageSite(config=topic)
    manager = site.start()
    manager.create(TP, TOPIC_ID).append_as_leader(wave(5), 0)
    site.config = replace(topic, index_interval_bytes=4096)
    manager.close(clean=True) if how == "in order" else site.disk.kill()
    log = site.start().logs[TP]
    log.config = topic
    for _ in range(3):
        log.append_as_leader(wave(20), 0)
    assert len(log.segments) > 2 and log.log_end_offset == 65
    kafka_recovers(log, topic.segment_index_bytes)


def test_a_wave_goes_on_with_the_gaps_of_the_segment_that_it_rolled_to() -> None:
    topic = SmallLogConfig(segment_bytes=100_000, index_interval_bytes=INTERVAL, segment_index_bytes=95)
    log = StorageSite(config=replace(topic, index_interval_bytes=4096)).log()
    log.append_as_leader(wave(1), 0)
    log.config = topic
    log.append_as_leader(wave(60), 0)
    kafka_recovers(log, topic.segment_index_bytes)
    follower = StorageSite(config=replace(topic, index_interval_bytes=4096)).log()
    batches = raw(log)
    follower.append_as_follower(memoryview(bytearray(batches[: len(batches) // 61])), 0)
    follower.config = topic
    follower.append_as_follower(memoryview(bytearray(batches[len(batches) // 61 :])), 0)
    kafka_recovers(follower, topic.segment_index_bytes)
