"""A wrong digit in a checkpoint, or a batch that may be what it says: nothing goes for good, and no replica that may
have less than it had is taken for a whole one (`believed_offsets`, `scan`, `epoch_check`)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from strandline.protocol.records import build_batch
from strandline.protocol.records.batch import assign_offset
from strandline.protocol.records.validation import ProducedBatch, validate_produced
from strandline.storage.disk.checkpoints import COMPACTED_OFFSETS, LOG_START_OFFSETS
from strandline.storage.inspection.log_check import check_directories
from strandline.storage.log.log import Log
from strandline.storage.log.log_start import raise_log_start
from strandline.storage.manager.log_manager import LogManager
from support.cleaning import batches, clean, records_of
from support.damage_site import DamageSite
from support.storage_site import FOLDER, TOPIC_ID, TP, StorageSite, epochs, file_names, fill, offsets, raw


def findings(site: StorageSite) -> dict[str, str]:
    """Event → severity, as `log-check` says before a start."""
    found = check_directories(site.disk, list(site.dirs), site.config, site.clock, random.Random(1))
    return {each.event: each.severity for each in found}


def rewrite(site: StorageSite, name: str, old: bytes, new: bytes) -> None:
    content = site.disk.read(f"/logs/{name}")
    assert old in content
    site.disk.write(f"/logs/{name}", content.replace(old, new))


def forget_checksums(site: StorageSite) -> None:
    """As if a Kafka had stopped in order."""
    site.disk.write("/logs/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":-1}')


# --- the log start ----------------------------------------------------------------------------------------------------


def started_at_45(site: DamageSite) -> LogManager:
    manager = site.build(batches=60, flushed=True)
    raise_log_start(manager.logs[TP], 45, 120)
    manager.checkpoints.write_high_watermarks({TP: 120})
    manager.checkpoints.write_log_starts()
    return manager


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_a_log_start_behind_the_log_end_is_not_believed_and_costs_no_record(how: str) -> None:
    site = DamageSite()
    site.stop(started_at_45(site), how)
    if how == "clean":
        forget_checksums(site)
    rewrite(site, LOG_START_OFFSETS, b"t 0 45", b"t 0 445")
    before = {name: content for name, content in site.everything().items() if name.endswith(".log")}
    assert findings(site)["log-start-disbelieved"] == "repair"
    manager = site.start()
    log = manager.logs[TP]
    assert (log.log_start_offset, log.log_end_offset) == (0, 120) and offsets(log) == list(range(120))
    assert {name: content for name, content in site.everything().items() if name.endswith(".log")} == before
    assert not manager.may_have_lost_data
    (report,) = site.reports.of("log-start-disbelieved")
    assert (report["log_start_offset"], report["end_offset"], report["taken"]) == (445, 120, 0)
    fill(log, 200, epoch=5, count=2)
    assert site.restart().logs[TP].log_start_offset == 0  # it does not hide records later


def test_where_the_machine_stopped_it_may_be_true_and_what_was_there_is_kept_aside() -> None:
    site = DamageSite()
    site.stop(started_at_45(site), "power")
    rewrite(site, LOG_START_OFFSETS, b"t 0 45", b"t 0 445")
    before = {name: content for name, content in site.everything().items() if name.endswith(".log") and content}
    assert findings(site)["log-restarted"] == "lose"
    manager = site.start()
    log = manager.logs[TP]
    assert log.log_start_offset == log.log_end_offset == 445 and manager.may_have_lost_data
    kept = {name.removesuffix(".damaged"): content for name, content in site.everything().items() if "damaged" in name}
    assert kept == before
    fill(log, 2, epoch=5)
    assert offsets(site.restart().logs[TP]) == [445, 446]


def test_a_log_that_was_just_cut_below_its_start_begins_anew_and_counts_as_a_loss() -> None:
    site = DamageSite()
    manager = site.build(batches=60)
    raise_log_start(manager.logs[TP], 45, 120)
    manager.checkpoints.write_log_starts()
    site.stop(manager, "kill")
    data = bytearray(site.disk.read(site.path(1)))
    data[-1] ^= 1
    site.disk.write(site.path(1), bytes(data))
    for _ in range(2):
        manager = site.restart()
        assert manager.logs[TP].log_start_offset == manager.logs[TP].log_end_offset == 45
        assert manager.may_have_lost_data and site.names(".damaged")


# --- a last batch that jumps ------------------------------------------------------------------------------------------


def keyed(key: bytes, value: bytes | None = b"v" * 20) -> list[ProducedBatch]:
    return validate_produced(
        memoryview(bytearray(build_batch([(1000, key, value)], "none", None))), max_batch_bytes=2**20
    )


def compacted(leader: StorageSite) -> bytes:
    """A leader's log: offsets 0 to 4, a gap, 24."""
    log = leader.log(segment_bytes=100_000)
    for key in [b"a0", b"a1", b"a2", b"a3", b"a4"] + [b"x"] * 20:
        log.append_as_leader(keyed(key), 0)
    log.roll()
    clean(log, leader.disk)
    return raw(log)


def follower(site: StorageSite, data: bytes) -> tuple[LogManager, Log]:
    site.config = replace(site.config, segment_bytes=100_000)
    manager = site.start()
    manager.mark_loss_handled()
    log = manager.create(TP, TOPIC_ID)
    log.append_as_follower(memoryview(bytearray(data)), 0)
    return manager, log


@pytest.mark.parametrize("vouched", ["high watermark", "recovery point"])
def test_a_last_batch_behind_a_gap_stays_where_a_checkpoint_knows_its_end(site: StorageSite, vouched: str) -> None:
    manager, log = follower(site, compacted(StorageSite()))
    assert offsets(log) == [0, 1, 2, 3, 4, 24]
    if vouched == "high watermark":
        manager.checkpoints.write_high_watermarks({TP: 25})
    else:
        manager.flush_all()
        manager.checkpoints.write_recovery_points()
    log = site.reload()
    assert offsets(log) == [0, 1, 2, 3, 4, 24] and log.log_end_offset == 25
    assert site.reports.names() == [] and file_names(site.disk, ".damaged") == []
    site.disk.kill()
    assert set(findings(site).values()) <= {"note"}


@pytest.mark.parametrize("high_watermark", [0, 5])
def test_a_last_batch_behind_a_gap_that_nothing_vouches_for_is_kept_aside_and_fetched_again(
    site: StorageSite, high_watermark: int
) -> None:
    data = compacted(StorageSite())
    manager, _ = follower(site, data)
    if high_watermark:
        manager.checkpoints.write_high_watermarks({TP: high_watermark})
    site.disk.kill()
    assert findings(site)["log-truncated"] == "lose"
    manager = site.start()
    log = manager.logs[TP]
    assert log.log_end_offset == 5 and manager.may_have_lost_data
    (name,) = file_names(site.disk, ".damaged")
    assert data.endswith(site.disk.read(f"{FOLDER}/{name}"))
    log.append_as_follower(memoryview(bytearray(site.disk.read(f"{FOLDER}/{name}"))), 0)
    assert offsets(log) == [0, 1, 2, 3, 4, 24]


def test_an_offset_of_a_last_batch_that_was_damaged_is_not_believed_for_the_end_that_it_had(site: StorageSite) -> None:
    manager, log = follower(site, compacted(StorageSite()))
    log.truncate_to(5)
    fill(log, 1)
    manager.checkpoints.write_high_watermarks({TP: 6})
    data = bytearray(raw(log))
    last = len(data) - len(raw(log, start=5))
    site.disk.kill()
    assign_offset(memoryview(data)[last:], 24, 0)
    site.disk.write(f"{FOLDER}/{0:020d}.log", bytes(data))
    manager = site.start()
    assert manager.logs[TP].log_end_offset == 5 and manager.may_have_lost_data
    assert len(file_names(site.disk, ".damaged")) == 1


# --- epochs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_checksums", [True, False])
@pytest.mark.parametrize("segment_bytes", [300, 700, 100_000])
@pytest.mark.parametrize("wrong", [b"3 28", b"3 12", b"3 21", b"3 19", b"4 20", b"1 20", b"2 20", None])
def test_a_wrong_entry_in_the_middle_of_the_epochs_is_found_after_a_clean_stop(
    site: StorageSite, wrong: bytes | None, segment_bytes: int, has_checksums: bool
) -> None:
    site.config = replace(site.config, segment_bytes=segment_bytes, index_interval_bytes=100)
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    for epoch in (0, 3, 5):
        fill(log, 20, epoch=epoch)
    manager.flush_all()
    manager.close(clean=True)
    if not has_checksums:
        forget_checksums(site)
    name = f"{TP}/leader-epoch-checkpoint"
    if wrong is None:
        rewrite(site, name, b"3 20\n", b"")
        rewrite(site, name, b"0\n3\n", b"0\n2\n")
    else:
        rewrite(site, name, b"3 20", wrong)
    assert findings(site)["epochs-rebuilt"] == "repair"
    log = site.start().logs[TP]
    assert epochs(log) == [(0, 0), (3, 20), (5, 40)]
    assert site.reports.names() == [*["checkpoint-not-as-written"] * has_checksums, "epochs-rebuilt"]


@pytest.mark.parametrize("has_checksums", [True, False])
@pytest.mark.parametrize("index_damage", [None, b"", b"\x7e" * 80, b"xyz"])
@pytest.mark.parametrize("log_start", [0, 7, 20, 33, 41])
def test_right_epochs_are_believed_wherever_they_lie(
    site: StorageSite, log_start: int, index_damage: bytes | None, has_checksums: bool
) -> None:
    site.config = replace(site.config, segment_bytes=700, index_interval_bytes=100)
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    for epoch in (0, 3, 5):
        fill(log, 5, epoch=epoch, count=4)
    raise_log_start(log, log_start, 60)
    expected = epochs(log)
    manager.flush_all()
    manager.checkpoints.write_log_starts()
    manager.close(clean=True)
    if not has_checksums:
        forget_checksums(site)
    if index_damage is not None:
        for name in file_names(site.disk, ".index"):
            site.disk.write(f"{FOLDER}/{name}", index_damage)
    log = site.start().logs[TP]
    assert log.log_start_offset == log_start and epochs(log) == expected
    assert "epochs-rebuilt" not in site.reports.names()


# --- the cleaner ------------------------------------------------------------------------------------------------------


def test_a_compacted_offset_behind_the_sealed_segments_is_not_believed_and_no_deleted_key_comes_back(
    site: StorageSite,
) -> None:
    site.config = replace(site.config, segment_bytes=500)
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    for place in range(6):
        log.append_as_leader(keyed(b"x%d" % place), 0)
    log.segments.compacted_below = log.segments.active.base_offset
    log.append_as_leader(keyed(b"gone"), 0)
    for place in range(20):
        log.append_as_leader(keyed(b"x%d" % (place % 6)), 0)
    log.append_as_leader(keyed(b"gone", None), 0)
    compacted_below, end_offset = log.segments.compacted_below, log.log_end_offset
    assert compacted_below > 0
    manager.checkpoints.write_high_watermarks({TP: end_offset})
    manager.close(clean=True)
    forget_checksums(site)
    rewrite(site, COMPACTED_OFFSETS, b"t 0 %d" % compacted_below, b"t 0 %d" % end_offset)
    assert findings(site)["compacted-offset-disbelieved"] == "repair"
    log = site.start().logs[TP]
    assert log.segments.compacted_below == 0
    assert len(site.reports.of("compacted-offset-disbelieved")) == 1
    for now_ms in (0, 10_000, 20_000):
        for place in range(12):
            log.append_as_leader(keyed(b"x%d" % (place % 6)), 0)
        first_dirty_offset = log.segments.compacted_below
        log.segments.compacted_below = clean(
            log, site.disk, first_dirty_offset=first_dirty_offset, now_ms=now_ms
        ).end_offset
    assert [record for record in records_of(batches(log)) if record.key == b"gone"] == []


@pytest.mark.parametrize("wrong", range(6, 36))
def test_a_compacted_offset_that_is_too_high_forgets_no_deletion(site: StorageSite, wrong: int) -> None:
    log = site.log(segment_bytes=500)
    for place in range(6):
        log.append_as_leader(keyed(b"x%d" % place), 0)
    clean(log, site.disk)
    for key, value in [(b"gone", b"v"), *[(b"x%d" % (place % 6), b"v") for place in range(20)], (b"gone", None)]:
        log.append_as_leader(keyed(key, value), 0)
    for now_ms in (0, 10_000, 20_000):
        for place in range(12):
            log.append_as_leader(keyed(b"x%d" % (place % 6)), 0)
        wrong = clean(log, site.disk, first_dirty_offset=wrong, now_ms=now_ms).end_offset
    left = [record.value for record in records_of(batches(log)) if record.key == b"gone"]
    assert not left or left[-1] is None


def test_what_is_compacted_after_a_cut_is_still_believed_at_the_next_start(site: StorageSite) -> None:
    log = site.log(segment_bytes=400, index_interval_bytes=100)
    fill(log, 40)
    sealed = [segment.base_offset for segment in log.segments]
    log.segments.compacted_below = log.segments.active.base_offset
    log.truncate_to(sealed[2] + 1)
    assert log.segments.compacted_below == sealed[2]
    assert site.reload().segments.compacted_below == sealed[2]
    assert site.reports.names() == []
