"""Idempotent producers and a log on disk: appends, waves, snapshots, restarts, cuts."""

from __future__ import annotations

import errno

import pytest

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records.validation import ProducedBatch
from strandline.storage.errors import DiskFull, LogStorageError, ProducerRefused
from strandline.storage.log.checked_append import Appended, append_checked
from strandline.storage.log.log import Log
from strandline.storage.producers.snapshots import decode_snapshot
from support.storage_site import FOLDER, TP, StorageSite, file_names, offsets, produced, raw

PID = 7


def idempotent(sequence: int, count: int = 1, *, pid: int = PID, epoch: int = 0, size: int = 20) -> list[ProducedBatch]:
    return produced(count, size=size, producer=(pid, epoch, sequence))


def send(log: Log, *entries: list[ProducedBatch]) -> list[int | ErrorCode]:
    """Base offset or error code of each entry of a wave."""
    outcomes = append_checked(log, entries, 0)
    return [each.base_offset if isinstance(each, Appended) else each.code for each in outcomes]


def flush(log: Log) -> None:
    log.flushed(log.flush_plan()())


def snapshot_offsets(site: StorageSite) -> list[int]:
    return [int(name.partition(".")[0]) for name in file_names(site.disk, ".snapshot")]


# --- waves -----------------------------------------------------------------------------------------------------


def test_a_repetition_is_answered_with_the_first_offset_and_appends_nothing(site: StorageSite) -> None:
    log = site.log()
    assert send(log, idempotent(0, 3)) == [0]
    assert send(log, idempotent(3, 2)) == [3]
    assert send(log, idempotent(0, 3)) == [0]
    assert log.log_end_offset == 5


def test_a_repetition_within_one_wave_is_found(site: StorageSite) -> None:
    log = site.log()
    send(log, produced(4))
    assert send(log, idempotent(0, 2), produced(3), idempotent(0, 2), idempotent(2)) == [4, 6, 4, 9]
    assert log.log_end_offset == 10 and len(offsets(log)) == 10


def test_one_bad_entry_fails_alone(site: StorageSite) -> None:
    log = site.log()
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    wave = (idempotent(0), idempotent(5), idempotent(0, pid=8), idempotent(1), produced(2))
    assert send(log, *wave) == [0, out_of_order, 1, 2, 3]
    assert log.log_end_offset == 5


def test_a_wave_of_refused_entries_writes_nothing(site: StorageSite) -> None:
    log = site.log()
    send(log, idempotent(0, epoch=3))
    before = raw(log)
    assert send(log, idempotent(1, epoch=2), idempotent(9, epoch=3)) == [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ]
    assert raw(log) == before


def test_a_repetition_tells_where_its_records_end(site: StorageSite) -> None:
    log = site.log()
    send(log, idempotent(0, 3))
    assert append_checked(log, [idempotent(0, 3)], 0) == [Appended(0, 3, 1002, is_repetition=True)]


def test_a_wave_across_a_roll_leaves_a_snapshot_of_exactly_what_stands_before(site: StorageSite) -> None:
    log = site.log(segment_bytes=1000)
    assert send(log, *(idempotent(sequence, size=200) for sequence in range(8))) == list(range(8))
    flush(log)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 1 and snapshot_offsets(site) == bases[1:]
    for base_offset in bases[1:]:
        rows = decode_snapshot(site.disk.read(f"{FOLDER}/{base_offset:020d}.snapshot"))
        assert [row.last_offset for row in rows] == [base_offset - 1]


def test_a_log_that_failed_decides_nothing(site: StorageSite) -> None:
    log = site.log()
    site.disk.fail("pwritev", "*.log", errno.ENOSPC)
    with pytest.raises(LogStorageError):
        send(log, idempotent(0))
    with pytest.raises(LogStorageError):
        send(log, idempotent(0))


def test_a_follower_takes_what_its_leader_has_checked(site: StorageSite) -> None:
    leader = StorageSite().log()
    send(leader, idempotent(0, 2), produced(1), idempotent(2))
    follower = site.log()
    follower.append_as_follower(memoryview(raw(leader)))
    assert send(follower, idempotent(0, 2), idempotent(2), idempotent(3)) == [0, 3, 4]


# --- restarts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flushed", [True, False])
def test_a_kill_forgets_no_sequence(site: StorageSite, flushed: bool) -> None:
    log = site.log(segment_bytes=500)
    for sequence in range(30):
        send(log, idempotent(sequence))
    if flushed:
        flush(log)
    log = site.reload()
    expected: list[int | ErrorCode] = [ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 25, 29, 30]
    assert send(log, idempotent(24), idempotent(25), idempotent(29), idempotent(30)) == expected


def test_a_clean_start_reads_the_snapshot_and_the_latest_headers_only(site: StorageSite) -> None:
    site.config = type(site.config)(segment_bytes=500)
    manager = site.start()
    log = manager.create(TP, bytes(16))
    for sequence in range(60):
        send(log, idempotent(sequence, size=100))
    manager.close(clean=True)
    assert snapshot_offsets(site)[-1] == 60
    log = site.start().logs[TP]
    assert site.reports.names() == []
    assert send(log, idempotent(54), idempotent(55), idempotent(60)) == [ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 55, 60]


def test_a_clean_start_without_producers_opens_no_old_segment(site: StorageSite) -> None:
    manager = site.start()
    log = manager.create(TP, bytes(16))
    for _ in range(60):
        send(log, produced(size=100))
    manager.close(clean=True)
    opened: list[str] = []
    site.disk.on_operation = lambda operation, path: opened.append(path) if operation == "pread" else None
    log = site.start().logs[TP]
    old = [segment.path for segment in log.segments][1:-1]  # the first holds the beginning of the epoch
    assert len(old) > 5 and not [path for path in opened if path.removesuffix(".log") in old]


def test_a_second_clean_stop_writes_no_second_snapshot(site: StorageSite) -> None:
    manager = site.start()
    send(manager.create(TP, bytes(16)), idempotent(0))
    manager.close(clean=True)
    manager = site.start()
    renamed: list[str] = []
    site.disk.on_operation = lambda operation, path: renamed.append(path) if operation == "rename" else None
    manager.close(clean=True)
    assert not [path for path in renamed if "snapshot" in path]


def test_power_failure_after_a_clean_stop_keeps_the_snapshot(site: StorageSite) -> None:
    manager = site.start()
    send(manager.create(TP, bytes(16)), idempotent(0, 4))
    manager.close(clean=True)
    site.disk.crash()
    assert snapshot_offsets(site) == [4]


# --- cuts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(31))
def test_after_a_cut_the_log_knows_what_is_left(site: StorageSite, cut: int) -> None:
    log = site.log(segment_bytes=500)
    for sequence in range(30):
        send(log, idempotent(sequence))
    flush(log)
    log.truncate_to(cut)
    assert send(log, idempotent(cut + 1)) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if cut else 0]
    if cut:
        assert send(log, idempotent(cut - 1), idempotent(cut)) == [cut - 1, cut]


def test_a_cut_removes_the_snapshots_above_it(site: StorageSite) -> None:
    log = site.log(segment_bytes=500)
    for sequence in range(30):
        send(log, idempotent(sequence))
    flush(log)
    above = snapshot_offsets(site)[2]
    log.truncate_to(above)
    assert snapshot_offsets(site)[-1] == above
    log.truncate_to(above - 1)
    assert snapshot_offsets(site)[-1] < above


def test_a_snapshot_that_was_being_written_while_the_log_was_cut_counts_for_nothing(site: StorageSite) -> None:
    log = site.log(segment_bytes=500)
    for sequence in range(30):
        send(log, idempotent(sequence))
    plan = log.flush_plan()
    offset = plan()
    log.truncate_to(3)
    log.flushed(offset)
    assert snapshot_offsets(site) == [] and file_names(site.disk, ".tmp") == []


def test_the_same_roll_after_a_cut_has_its_own_snapshot(site: StorageSite) -> None:
    log = site.log(segment_bytes=10_000)
    send(log, idempotent(0), idempotent(1))
    log.roll()
    plan = log.flush_plan()
    offset = plan()
    log.truncate_to(0)
    send(log, idempotent(0, pid=8), idempotent(1, pid=8))
    log.roll()
    log.flushed(offset)
    flush(log)
    log = site.reload()
    assert set(log.producers.states) == {8}


def test_starting_anew_forgets_all_producers(site: StorageSite) -> None:
    log = site.log(segment_bytes=500)
    for sequence in range(30):
        send(log, idempotent(sequence))
    flush(log)
    log.truncate_fully_and_start_at(100)
    assert snapshot_offsets(site) == [] and len(log.producers.states) == 0
    assert send(log, idempotent(77)) == [100]


def test_snapshots_below_the_first_segment_are_handed_out_but_the_newest(site: StorageSite) -> None:
    log = site.log(segment_bytes=500)
    for sequence in range(30):
        send(log, idempotent(sequence))
    flush(log)
    known = snapshot_offsets(site)
    base_offset = known[3]
    assert log.producers.snapshots.forget_below(base_offset) == [
        f"{FOLDER}/{offset:020d}.snapshot" for offset in known[:3]
    ]
    assert log.producers.snapshots.forget_below(base_offset) == []
    assert log.producers.snapshots.offsets == known[3:]


@pytest.mark.parametrize("taken", [0, 100], ids=["nothing", "a part"])
def test_what_a_full_disk_refused_is_no_repetition_when_it_is_sent_again(site: StorageSite, taken: int) -> None:
    """The states run ahead of the file within a wave; were they to stay so, the producer would be told that its records
    are in the log."""
    log = site.log()
    send(log, idempotent(0))
    if taken:
        site.disk.shorten_next_write("*.log", taken)
    site.disk.fail("pwritev", "*.log", errno.ENOSPC, times=1, after=1 if taken else 0)
    with pytest.raises(DiskFull):
        send(log, idempotent(1), idempotent(0, pid=8), idempotent(2))
    log.health._directory.full = None
    assert send(log, idempotent(1), idempotent(0, pid=8), idempotent(2)) == [1, 2, 3]
    assert log.log_end_offset == 4


def test_a_failed_snapshot_takes_the_log_offline(site: StorageSite) -> None:
    log = site.log(segment_bytes=500)
    for sequence in range(30):
        send(log, idempotent(sequence))
    site.disk.fail("pwritev", "*.snapshot*", errno.EIO)
    with pytest.raises(LogStorageError):
        log.flush_plan()()
    assert log.failure is not None


def test_refused_is_what_its_producer_is_told(site: StorageSite) -> None:
    log = site.log()
    send(log, idempotent(0))
    (outcome,) = append_checked(log, [idempotent(4)], 0)
    assert isinstance(outcome, ProducerRefused)
    assert str(outcome) == "producer 7 sent sequence 4 where 1 follows"


def test_a_log_that_starts_anew_believes_no_old_snapshot_whenever_it_is_killed(site: StorageSite) -> None:
    class Killed(Exception):
        """At one operation of the disk."""

    outcomes = set()
    for place in range(30):
        site.disk = type(site.disk)()
        log = site.log(segment_bytes=500)
        for sequence in range(8):
            send(log, idempotent(sequence))
        flush(log)
        left = place

        def count_down(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        site.disk.on_operation = count_down
        try:
            log.truncate_fully_and_start_at(100)
        except Killed:
            pass
        site.disk.on_operation = None
        log = site.reload()
        known = log.producers.states.get(PID)
        outcomes.add((log.log_start_offset, log.log_end_offset, known.last_offset if known else -1))
    assert (100, 100, -1) in outcomes and (0, 8, 7) in outcomes
    assert all(end == last + 1 or (start, end, last) == (end, end, -1) for start, end, last in outcomes), outcomes
