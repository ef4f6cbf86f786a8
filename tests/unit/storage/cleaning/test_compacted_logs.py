"""What else reads a log takes one that was compacted: fetches, followers, lookups by time, starts; and what a cleaning
does when the log changes under it or cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import crc32c
import msgspec
import pytest

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import build_batch
from strandline.protocol.records.validation import validate_produced
from strandline.storage.cleaning import jobs
from strandline.storage.cleaning.cleaner import Cleaner
from strandline.storage.cleaning.facts import last_offsets_of_producers
from strandline.storage.cleaning.output import SUFFIXES
from strandline.storage.cleaning.plan import Plan, Result, Unreadable
from strandline.storage.cleaning.takeover import LentSegments, Superseded
from strandline.storage.disk.checkpoints import LEADER_EPOCHS, EpochEntry
from strandline.storage.log.checked_append import Appended, append_checked
from strandline.storage.log.leader_epochs import LeaderEpochCache
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from support.cleaning import batches, check_compacted, clean, plan_for, records_of
from support.storage_site import (
    TOPIC_ID,
    TP,
    SmallLogConfig,
    StorageSite,
    epochs,
    fill,
    offset_for_timestamp,
    offsets,
    produced,
    raw,
)


def compacted(site: StorageSite, count: int = 30) -> Log:
    """Batches of one record each, all with the same key, in segments of five; all but the end is compacted away."""
    log = site.log(segment_bytes=500, index_interval_bytes=100)
    fill(log, count)
    clean(log, site.disk, segment_bytes=1000)
    return log


def append(
    log: Log, key: bytes, value: bytes | None, timestamp_ms: int = 1000, codec: str = "none", epoch: int = 0
) -> None:
    batch = build_batch([(timestamp_ms, key, value)], codec)
    log.append_as_leader(validate_produced(memoryview(bytearray(batch)), max_batch_bytes=2**20), epoch)


def test_a_fetch_in_a_gap_begins_with_the_next_batch_that_is_there(site: StorageSite) -> None:
    log = compacted(site)
    there = [seen.header for seen in batches(log)]
    for offset in range(log.log_end_offset):
        region = log.read(offset, 1, log.log_end_offset)
        assert region is not None
        (header,) = [seen for seen in there if seen.base_offset <= offset <= seen.last_offset] or [
            next(seen for seen in there if seen.base_offset > offset)
        ]
        assert region.file.pread(region.length, region.position)[:8] == header.base_offset.to_bytes(8, "big")


@pytest.mark.parametrize("max_bytes", [1, 150, 2**20])
def test_a_follower_copies_a_compacted_log_byte_for_byte_and_serves_it_alike(max_bytes: int) -> None:
    leader_site, follower_site = StorageSite(), StorageSite()
    leader = compacted(leader_site)
    follower = follower_site.log(segment_bytes=300, index_interval_bytes=100)
    while follower.log_end_offset < leader.log_end_offset:
        region = leader.read(follower.log_end_offset, max_bytes, leader.log_end_offset)
        assert region is not None
        follower.append_as_follower(memoryview(bytearray(region.file.pread(region.length, region.position))))
    assert raw(follower) == raw(leader)
    for offset in range(leader.log_end_offset):
        ours, theirs = (log.read(offset, 1, log.log_end_offset) for log in (follower, leader))
        assert ours is not None and theirs is not None
        assert ours.file.pread(ours.length, ours.position) == theirs.file.pread(theirs.length, theirs.position)
    check_compacted(follower)
    before = raw(follower)
    assert raw(follower_site.reload()) == before


@pytest.mark.parametrize("learns", ["from the leader", "at a start", "without its checkpoint"])
def test_an_epoch_whose_first_records_were_compacted_begins_where_the_one_before_ends(learns: str) -> None:
    leader_site, follower_site = StorageSite(), StorageSite()
    leader = leader_site.log(segment_bytes=500, index_interval_bytes=100)
    fill(leader, 12, epoch=4)
    append(leader, b"once", b"v", epoch=4)
    fill(leader, 30, epoch=5)
    clean(leader, leader_site.disk)
    assert leader.epoch_end_offset(4) == (4, 13)
    follower = follower_site.log(segment_bytes=500, index_interval_bytes=100)
    while follower.log_end_offset < leader.log_end_offset:
        region = leader.read(follower.log_end_offset, 150, leader.log_end_offset)
        assert region is not None
        follower.append_as_follower(memoryview(bytearray(region.file.pread(region.length, region.position))))
    assert [seen.header.base_offset for seen in batches(follower)][:2] == [12, 39]
    if learns != "from the leader":
        follower.flush_plan()()
        path = f"{follower.segments.folder}/{LEADER_EPOCHS}"
        follower_site.disk.write(path, b"0\n1\n3 0\n" if learns == "without its checkpoint" else b"")
        follower = follower_site.reload()
    assert follower.epoch_end_offset(4) == (4, 13)


@pytest.mark.parametrize("stop", ["kill", "kill behind a recovery point", "clean", "clean without a list"])
def test_a_restart_keeps_the_epochs_that_a_leader_noted_where_compaction_took_the_batches(stop: str) -> None:
    """Else it would tell a follower that is behind what was compacted to cut committed records: epoch 4 seems to end at
    its last batch that is left, and epoch 5 not to have been there."""
    site = StorageSite(config=SmallLogConfig(segment_bytes=3000, index_interval_bytes=100))
    manager = site.start()
    leader = manager.create(TP, TOPIC_ID)
    for epoch, count in ((3, 5), (4, 20), (5, 3), (6, 60)):
        append(leader, b"once-%d" % epoch, b"v", epoch=epoch)
        fill(leader, count, epoch=epoch)
    clean(leader, site.disk)
    assert [seen.header.partition_leader_epoch for seen in batches(leader)][:4] == [3, 4, 5, 6]
    noted = epochs(leader)
    assert noted == [(3, 0), (4, 6), (5, 27), (6, 31)]
    leader.flush_plan()() if stop == "kill" else manager.flush_all()
    manager.checkpoints.write_recovery_points()
    if stop.startswith("clean"):
        manager.close(clean=True)
    else:
        site.disk.kill()
    if stop == "clean without a list":
        site.disk.unlink("/logs/.strandline_segments")
    leader = site.start().logs[TP]
    assert epochs(leader) == noted and "epochs-rebuilt" not in site.reports.names()
    for epoch, end_offset in ((3, 6), (4, 27), (5, 31)):
        assert leader.epoch_end_offset(epoch) == (epoch, end_offset)


@pytest.mark.parametrize(
    ("noted", "learned"),
    [
        ([(0, 0), (1, 50)], [(0, 0), (1, 50)]),
        ([(0, 0), (1, 46)], [(0, 0), (1, 46)]),
        ([(0, 0), (1, 55)], [(0, 0), (1, 55)]),
        ([(0, 0), (1, 56)], [(0, 0), (1, 46)]),  # the batch at 55 is of epoch 1
        ([(0, 0), (1, 45)], [(0, 0), (1, 46)]),  # the batch before is not
        ([(0, 0), (2, 50)], [(0, 0), (1, 46)]),  # of an end that was lost, or cut off later
        ([(-1, 30)], [(0, 0), (1, 46)]),
        ([], [(0, 0), (1, 46)]),
    ],
)
def test_what_was_noted_is_believed_within_a_gap_only(
    noted: list[tuple[int, int]], learned: list[tuple[int, int]]
) -> None:
    """The last batch of epoch 0 ends at 46, the first of epoch 1 begins at 55."""
    cache = LeaderEpochCache()
    cache.learn(0, 0, 0)
    cache.learn(1, 46, 55, [EpochEntry(*each) for each in noted])
    assert [(entry.epoch, entry.start_offset) for entry in cache.entries] == learned


def test_an_epoch_of_which_compaction_left_nothing_is_kept_in_its_gap() -> None:
    cache = LeaderEpochCache([EpochEntry(0, 0)])
    cache.learn(2, 46, 55, [EpochEntry(1, 50), EpochEntry(2, 53)])
    assert cache.end_offset(1, 60) == (1, 53) and cache.end_offset(0, 60) == (0, 50)


def test_an_offset_for_a_time_is_that_of_a_record_that_is_left(site: StorageSite) -> None:
    log = compacted(site)
    left = records_of(batches(log))
    for timestamp_ms in range(999, 1035):
        found = offset_for_timestamp(log, timestamp_ms, log.log_end_offset)
        expected = next((record.offset for record in left if record.timestamp_ms >= timestamp_ms), None)
        assert (found[0] if found else None) == expected


def test_a_place_that_was_remembered_for_the_next_read_is_not_looked_up_in_another_file(site: StorageSite) -> None:
    log = site.log(segment_bytes=2000, index_interval_bytes=100)
    fill(log, 60)
    log.read(0, 200, log.log_end_offset)
    log.read(2, 200, log.log_end_offset)
    clean(log, site.disk)
    assert [record.offset for record in records_of(batches(log))] == offsets(log)
    for offset in range(60):
        assert log.read(offset, 200, log.log_end_offset) is not None


def test_a_tombstone_stays_for_its_time_and_then_goes(site: StorageSite) -> None:
    log = site.log(segment_bytes=200, index_interval_bytes=100)
    append(log, b"a", b"1")
    append(log, b"a", None)
    for place in range(8):
        append(log, b"b", b"%d" % place)
    clean(log, site.disk, now_ms=10_000, delete_retention_ms=500)
    (tombstone,) = [seen for seen in batches(log) if any(record.value is None for record in seen.records)]
    assert tombstone.header.base_timestamp_ms == 10_500 and tombstone.header.attributes & 0x40
    assert tombstone.records[0].timestamp_ms == 1000 == tombstone.header.max_timestamp_ms
    for now_ms, count in ((10_499, 1), (10_500, 0)):
        clean(log, site.disk, now_ms=now_ms, delete_retention_ms=500)
        assert sum(record.value is None for record in records_of(batches(log))) == count
    assert not any(record.key == b"a" for record in records_of(batches(log)))


def test_what_has_no_timestamps_is_as_old_as_before_it_was_compacted(site: StorageSite) -> None:
    log = site.log(segment_bytes=500, index_interval_bytes=100)
    for site.disk.now_ms in (1000, 2000, 3000):
        for _ in range(7):
            append(log, b"k", b"v", timestamp_ms=-1)
    sealed = [segment for segment in log.segments if segment is not log.segments.active]
    written_ms = site.disk.stat_mtime_ms(sealed[-1].path + ".log")
    site.disk.now_ms = 900_000
    clean(log, site.disk)
    assert len(log.segments) == 2 and site.disk.stat_mtime_ms(sealed[0].path + ".log") == written_ms < 900_000
    assert site.disk.stat_mtime_ms(site.reload().segments.holding(0).path + ".log") == written_ms


# --- the log changes under a cleaning ---------------------------------------------------------------------------------


def changes(log: Log) -> dict[str, Any]:
    return {
        "truncated": lambda: log.truncate_to(7),
        "truncated and filled again": lambda: (log.truncate_to(7), fill(log, 30)),
        "truncated and filled as it was": lambda: (log.truncate_to(22), fill(log, 8, epoch=1)),
        "begun anew": lambda: log.truncate_fully_and_start_at(3),
        "without its head": lambda: log.segments.drop_head(10, 0, 10),
        "closed": log.close,
        "configured anew": lambda: configure(log, cleanup_policy=("compact", "delete")),
    }


def configure(log: Log, **changed: Any) -> None:
    log.config = replace(cast(SmallLogConfig, log.config), **changed)


@pytest.mark.parametrize(
    "change",
    [
        "truncated",
        "truncated and filled again",
        "truncated and filled as it was",
        "begun anew",
        "without its head",
        "closed",
        "configured anew",
    ],
)
def test_a_result_made_from_what_is_not_there_any_more_is_thrown_away(site: StorageSite, change: str) -> None:
    log = site.log(segment_bytes=500, index_interval_bytes=100)
    fill(log, 30)
    lent = LentSegments(log, log.log_end_offset)
    (result,) = [step.result for step in Cleaner(site.disk, plan_for(log, lent)).run() if step.result is not None]
    changes(log)[change]()
    names = site.disk.listdir(log.segments.folder)
    with pytest.raises(Superseded):
        lent.take_over(result)
    assert site.disk.listdir(log.segments.folder) == names


def cut_while_it_lives(site: StorageSite, manager: LogManager) -> Log:
    log = manager.logs[TP]
    log.truncate_to(12)
    return log


def cut_at_a_start(site: StorageSite, manager: LogManager) -> Log:
    damage(site, manager.logs[TP], 0, 1000, b"\x7f")
    return site.reload()


@pytest.mark.parametrize("cut", [cut_while_it_lives, cut_at_a_start])
def test_a_deleted_key_does_not_come_back_where_a_log_was_cut_below_what_was_compacted(
    site: StorageSite, cut: Callable[[StorageSite, LogManager], Log]
) -> None:
    site.config = replace(site.config, segment_bytes=400, index_interval_bytes=100)
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    for place in range(40):
        append(log, b"%d" % place, b"v")
    lent = LentSegments(log, log.log_end_offset)
    lent.cleaned(clean(log, site.disk).end_offset)
    manager.checkpoints.write_compacted(TP)
    compacted_below = log.segments.compacted_below
    log = cut(site, manager)
    assert log.log_end_offset < compacted_below
    end_offset = log.log_end_offset
    append(log, b"3", None)
    for place in range(40):
        append(log, b"z%d" % place, b"v")
    log = site.reload()
    first_dirty_offset = log.segments.compacted_below
    assert first_dirty_offset <= end_offset
    for now_ms in (1000, 5000):
        clean(log, site.disk, first_dirty_offset=first_dirty_offset, now_ms=now_ms, delete_retention_ms=500)
    assert not [record for record in records_of(batches(log)) if record.key == b"3"]


def test_a_cleaning_that_ends_after_a_cut_does_not_say_up_to_where_the_log_is_compacted(site: StorageSite) -> None:
    log = site.log(segment_bytes=500, index_interval_bytes=100)
    fill(log, 30)
    lent = LentSegments(log, log.log_end_offset)
    done = clean(log, site.disk)
    log.truncate_to(27)
    with pytest.raises(Superseded):
        lent.cleaned(done.end_offset)
    assert log.segments.compacted_below == 0


def test_what_was_taken_over_is_not_missed_when_a_later_group_fails(site: StorageSite) -> None:
    log = site.log(segment_bytes=500, index_interval_bytes=100)
    fill(log, 30)
    lent = LentSegments(log, log.log_end_offset)
    steps = Cleaner(site.disk, plan_for(log, lent, segment_bytes=1000)).run()
    lent.take_over(next(step.result for step in steps if step.result is not None))
    lent.check_rest()
    log.segments.drop_head(20, 0, 2)
    with pytest.raises(Superseded):
        lent.check_rest()


def test_what_is_appended_meanwhile_does_not_matter(site: StorageSite) -> None:
    log = site.log(segment_bytes=500, index_interval_bytes=100)
    fill(log, 30)
    lent = LentSegments(log, log.log_end_offset)
    (result,) = [step.result for step in Cleaner(site.disk, plan_for(log, lent)).run() if step.result is not None]
    fill(log, 30)
    lent.take_over(result)
    assert log.log_end_offset == 60 and records_of(batches(log))[-1].offset == 59
    check_compacted(log)


def test_a_disk_that_fails_while_a_result_is_taken_over_ends_the_log_and_loses_nothing(site: StorageSite) -> None:
    log = site.log(segment_bytes=500, index_interval_bytes=100)
    fill(log, 30)
    lent = LentSegments(log, log.log_end_offset)
    (result,) = [step.result for step in Cleaner(site.disk, plan_for(log, lent)).run() if step.result is not None]
    assert isinstance(result, Result)
    fault = site.disk.fail("rename", "*", 5, after=7)
    with pytest.raises(Exception, match="taking over a compacted segment failed"):
        lent.take_over(result)
    fault.cancel()
    assert log.failure is not None
    log = site.reload()
    assert records_of(batches(log))[-1].offset == 29
    check_compacted(log)


# --- producers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [[b"hot"], [b"8", b"hot"]])
def test_a_snapshot_is_believed_though_compaction_took_what_it_tells_of(site: StorageSite, keys: list[bytes]) -> None:
    site.config = replace(site.config, segment_bytes=400, index_interval_bytes=100)
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)

    def send(keys: list[bytes], producer_id: int, sequence: int) -> int | ErrorCode:
        records = [(1000 + place, key, b"v") for place, key in enumerate(keys)]
        view = memoryview(bytearray(build_batch(records, "none", (producer_id, 0, sequence))))
        (outcome,) = append_checked(log, [validate_produced(view, max_batch_bytes=2**20)], 0)
        return outcome.base_offset if isinstance(outcome, Appended) else outcome.code

    for place in range(8):
        send([b"%d" % place], 5, place)
    send(keys, 5, 8)
    for place in range(4):
        send([b"6-%d" % place], 6, place)
    log.flushed(log.flush_plan()())
    manager.checkpoints.write_recovery_points()
    snapshots = list(log.producers.snapshots.offsets)
    assert log.producers.snapshots.read(snapshots[-1])[0].last_offset == 7 + len(keys)
    for place in range(8):
        send([b"hot"], 5, 8 + len(keys) + place)
    clean(log, site.disk, segment_bytes=400, last_of_producer=last_offsets_of_producers(log, log.log_end_offset))
    assert not any(record.key == b"hot" and record.offset < 10 for record in records_of(batches(log)))
    log = site.reload()
    assert log.producers.snapshots.offsets == snapshots and "producer-snapshot-damaged" not in site.reports.names()
    assert send([b"hot"], 5, 8 + len(keys) + 7) == log.log_end_offset - 1
    assert send([b"6-3"], 6, 3) == 11 + len(keys)


@pytest.mark.parametrize("uncommitted", ["one batch", "as many as are remembered", "another epoch"])
def test_a_producers_last_committed_sequence_is_known_once_what_was_not_committed_is_cut(
    site: StorageSite, uncommitted: str
) -> None:
    log = site.log(segment_bytes=400, index_interval_bytes=100)

    def send(sequence: int, epoch: int = 0) -> int | ErrorCode:
        view = memoryview(bytearray(build_batch([(1000, b"hot", b"v")], "none", (5, epoch, sequence))))
        (outcome,) = append_checked(log, [validate_produced(view, max_batch_bytes=2**20)], 0)
        return outcome.base_offset if isinstance(outcome, Appended) else outcome.code

    for sequence in range(8):
        send(sequence)
    for _ in range(10):
        append(log, b"hot", b"w")
    high_watermark = log.log_end_offset
    for place in range(5 if uncommitted == "as many as are remembered" else 1):
        assert send(place, epoch=1) if uncommitted == "another epoch" else send(8 + place) == high_watermark + place
    known = last_offsets_of_producers(log, high_watermark)
    clean(log, site.disk, end_offset=high_watermark, segment_bytes=400, last_of_producer=known)
    assert 7 not in [record.offset for record in records_of(batches(log))]
    log.truncate_to(high_watermark)
    site.disk.kill()
    for name in site.disk.listdir(log.segments.folder):
        if name.endswith(".snapshot"):
            site.disk.unlink(f"{log.segments.folder}/{name}")
    log = site.start().logs[TP]
    assert send(7) == 7 and send(9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# --- what others keep in the folder -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["before-the-upgrade.cleaned", f"{0:020d}.cleaned", f"0{0:020d}.log.cleaned", f"{0:020d}.log.old.cleaned"]
)
def test_a_cleaning_removes_its_own_leftovers_only(site: StorageSite, name: str) -> None:
    log = site.log(segment_bytes=500, index_interval_bytes=100)
    fill(log, 30)
    folder, own = log.segments.folder, [f"{base:020d}{suffix}.cleaned" for base in (3, 900) for suffix in SUFFIXES]
    for each in [name, *own]:
        site.disk.write(f"{folder}/{each}", b"anything")
    site.disk.makedirs(f"{folder}/keep-{name}")
    site.disk.makedirs(f"{folder}/{901:020d}.log.cleaned")
    clean(log, site.disk)
    left = [each for each in site.disk.listdir(folder) if each.endswith(".cleaned")]
    assert left == sorted([name, f"keep-{name}", f"{901:020d}.log.cleaned"])
    assert site.disk.read(f"{folder}/{name}") == b"anything"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_where_its_name_is_taken_a_log_is_not_cleaned_and_not_offline(site: StorageSite, suffix: str) -> None:
    log = site.log(segment_bytes=500, index_interval_bytes=100)
    fill(log, 30)
    site.disk.makedirs(f"{log.segments.folder}/{0:020d}{suffix}.cleaned")
    memory: dict[str, Any] = {}
    jobs.begin(site.disk, memory, msgspec.to_builtins(plan_for(log, LentSegments(log, log.log_end_offset))))
    offset, why = jobs.advance(site.disk, memory, 2**30)["failure"]
    assert offset == -1 and "somebody keeps a folder" in why


# --- what cannot be read ----------------------------------------------------------------------------------------------


def damage(site: StorageSite, log: Log, number: int, position: int, content: bytes) -> int:
    """Overwrite bytes of segment `number`; returns its base offset."""
    segment = list(log.segments)[number]
    site.disk.open(segment.path + ".log").pwritev([content], position)
    return segment.base_offset


@pytest.mark.parametrize("position", [8, 16, 17, 21, 23, 57, 70])
def test_a_damaged_batch_ends_the_cleaning_before_its_segment(site: StorageSite, position: int) -> None:
    log = site.log(segment_bytes=500, index_interval_bytes=100)
    fill(log, 30)
    base = damage(site, log, 3, position, b"\x7f")
    behind = [site.disk.read(segment.path + ".log") for segment in list(log.segments)[3:]]
    done = clean(log, site.disk)
    assert done.end_offset == base == done.unreadable_offset and done.why
    assert [site.disk.read(segment.path + ".log") for segment in list(log.segments)[-len(behind) :]] == behind
    assert log.segments.holding(base).base_offset == base and log.segments.holding(0).size_bytes < 500


def test_damage_in_what_was_clean_ends_the_cleaning_and_changes_nothing(site: StorageSite) -> None:
    log = site.log(segment_bytes=500, index_interval_bytes=100)
    fill(log, 30)
    damage(site, log, 1, 70, b"\x7f")
    before = {name: site.disk.read(f"{log.segments.folder}/{name}") for name in site.disk.listdir(log.segments.folder)}
    with pytest.raises(Unreadable, match="CRC"):
        clean(log, site.disk, first_dirty_offset=list(log.segments)[3].base_offset)
    after = {name: site.disk.read(f"{log.segments.folder}/{name}") for name in site.disk.listdir(log.segments.folder)}
    assert {name: content for name, content in after.items() if not name.endswith(".cleaned")} == before


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_decodes_to_too_much_ends_the_cleaning(site: StorageSite, codec: str) -> None:
    log = site.log(segment_bytes=500, index_interval_bytes=100)
    fill(log, 20)
    first = log.log_end_offset
    append(log, b"bomb", bytes(5000), codec=codec)
    fill(log, 20)
    done = clean(log, site.disk, max_decompressed_bytes=4000)
    assert done.unreadable_offset == first >= done.end_offset > 0
    assert b"bomb" in [record.key for record in records_of(batches(log))]
    assert clean(log, site.disk, max_decompressed_bytes=6000).unreadable_offset == -1


def test_compressed_nonsense_ends_the_cleaning(site: StorageSite) -> None:
    """A producer may compress what is no records: only the header is checked of it where topics are not compacted."""
    log = site.log(segment_bytes=500, index_interval_bytes=100)
    fill(log, 20)
    batch = produced(3, codec="lz4")[0]
    batch.view[57:61] = (4).to_bytes(4, "big")
    batch.view[23:27] = (3).to_bytes(4, "big")
    batch.view[17:21] = crc32c.crc32c(batch.view[21:]).to_bytes(4, "big")
    batch.records_count = 4
    log.append_as_leader([batch], 0)
    fill(log, 20)
    assert clean(log, site.disk).unreadable_offset == 20


def test_a_plan_travels() -> None:
    site = StorageSite()
    log = compacted(site)
    plan = plan_for(log, LentSegments(log, log.log_end_offset))
    assert msgspec.convert(msgspec.to_builtins(plan), Plan) == plan
