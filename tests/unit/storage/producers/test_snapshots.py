"""Producer snapshots: the format, every kind of damage, what a start makes of it; folders that Kafka wrote."""

from __future__ import annotations

import struct
from collections.abc import Callable

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.records import BatchBuilder
from strandline.storage.errors import CorruptSnapshot, LogStorageError, TransactionalLog
from strandline.storage.log.checked_append import Appended, append_checked
from strandline.storage.log.log import Log
from strandline.storage.producers.snapshots import decode_snapshot, encode_snapshot, list_snapshots
from strandline.storage.producers.states import ProducerRow
from support.storage_site import FOLDER, TP, StorageSite, file_names, produced, raw

PID = 7

ROWS = st.builds(
    lambda pid, epoch, sequence, delta, above, timestamp, coordinator, transaction: ProducerRow(
        pid, epoch, sequence, delta + above, delta, timestamp, coordinator, transaction
    ),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**40),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
)


# --- format ----------------------------------------------------------------------------------------------------


@given(st.lists(ROWS, max_size=20))
def test_what_is_written_is_read(rows: list[ProducerRow]) -> None:
    assert decode_snapshot(encode_snapshot(rows)) == rows


def test_the_bytes_are_those_of_the_specification() -> None:
    data = encode_snapshot([ProducerRow(1, 2, 3, 40, 5, 6, -1, -1)])
    body = struct.pack(">iqhiqiqiq", 1, 1, 2, 3, 40, 5, 6, -1, -1)
    assert data == struct.pack(">hI", 1, crc32c.crc32c(body)) + body
    assert len(encode_snapshot([])) == 10


@given(st.lists(ROWS, min_size=1, max_size=3), st.data())
def test_no_damaged_byte_goes_unnoticed(rows: list[ProducerRow], data: st.DataObject) -> None:
    damaged = bytearray(encode_snapshot(rows))
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(damaged))


@given(st.lists(ROWS, max_size=3), st.data())
def test_no_cut_goes_unnoticed(rows: list[ProducerRow], data: st.DataObject) -> None:
    whole = encode_snapshot(rows)
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.lists(ROWS, max_size=3), st.binary(min_size=1, max_size=100))
def test_bytes_behind_the_end_are_damage(rows: list[ProducerRow], more: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(encode_snapshot(rows) + more)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_snapshot_or_damage(data: bytes) -> None:
    try:
        decode_snapshot(data)
    except CorruptSnapshot:
        pass


@pytest.mark.parametrize(
    "row",
    [
        ProducerRow(-5, 0, 0, 0, 0, 0, -1, -1),
        ProducerRow(1, -2, 0, 0, 0, 0, -1, -1),
        ProducerRow(1, 0, 0, 5, -1, 0, -1, -1),
        ProducerRow(1, 0, 0, 5, 9, 0, -1, -1),
    ],
)
def test_an_impossible_producer_is_damage_whatever_the_crc_says(row: ProducerRow) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(encode_snapshot([row]))


def test_only_twenty_digits_name_a_snapshot() -> None:
    names = [f"{5:020d}.snapshot", "5.snapshot", f"{7:020d}.snapshot.deleted", f"{8:020d}.snapshot.3.tmp", "snapshot"]
    assert list_snapshots([*names, f"{3:020d}.snapshot"]) == [3, 5]


# --- damage at a start -----------------------------------------------------------------------------------------


def offset_of(log: Log, sequence: int) -> int:
    (outcome,) = append_checked(log, [produced(producer=(PID, 0, sequence))], 0)
    assert isinstance(outcome, Appended)
    return outcome.base_offset


def stopped(site: StorageSite, count: int = 40) -> list[str]:
    """A log of `count` batches of one producer after a clean stop; the names of its snapshots."""
    manager = site.start()
    log = manager.create(TP, bytes(16))
    for sequence in range(count):
        offset_of(log, sequence)
        if sequence % 10 == 9:
            log.flushed(log.flush_plan()())
    manager.mark_loss_handled()
    manager.close(clean=True)
    return file_names(site.disk, ".snapshot")


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 4])


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: b"", flip, lambda data: data + b"\0", lambda data: b"\0" * len(data)],
)
@pytest.mark.parametrize("how_many", [1, 2, 1000])
def test_a_damaged_snapshot_is_reported_and_replaced_by_older_ones_or_the_log(
    site: StorageSite, damage: Callable[[bytes], bytes], how_many: int
) -> None:
    names = stopped(site)
    for name in names[-how_many:]:
        site.disk.write(f"{FOLDER}/{name}", damage(site.disk.read(f"{FOLDER}/{name}")))
    log = site.start().logs[TP]
    assert len(site.reports.of("producer-snapshot-damaged")) == min(how_many, len(names))
    assert (offset_of(log, 35), offset_of(log, 39), offset_of(log, 40)) == (35, 39, 40)
    assert log.log_end_offset == 41


@pytest.mark.parametrize("how_many", [1, 2, 1000])
@pytest.mark.parametrize("how", ["clean", "kill", "without its segments"])
@pytest.mark.parametrize("version", [b"\0\2", b"\1\1"])
def test_snapshots_of_another_version_are_kept_aside_whatever_they_would_go_for(
    site: StorageSite, version: bytes, how: str, how_many: int
) -> None:
    kept = {name: version + site.disk.read(f"{FOLDER}/{name}")[2:] for name in stopped(site)[-how_many:]}
    for name, content in kept.items():
        site.disk.write(f"{FOLDER}/{name}", content)
    if how != "clean":
        site.disk.unlink("/logs/.kafka_cleanshutdown")
        site.disk.unlink("/logs/.strandline_state")
        site.disk.unlink("/logs/recovery-point-offset-checkpoint")
    if how == "without its segments":
        for name in [name for name in site.disk.listdir(FOLDER) if name.endswith((".log", "index"))]:
            site.disk.unlink(f"{FOLDER}/{name}")
    manager = site.start()
    if how != "without its segments":
        assert (offset_of(manager.logs[TP], 39), offset_of(manager.logs[TP], 40)) == (39, 40)
    manager.close(clean=True)
    aside = file_names(site.disk, ".damaged")
    assert {name.removesuffix(".damaged"): site.disk.read(f"{FOLDER}/{name}") for name in aside} == kept


@pytest.mark.parametrize("how_many", [1, 2, 1000])
def test_missing_snapshots_are_replaced_by_older_ones_or_the_log(site: StorageSite, how_many: int) -> None:
    names = stopped(site)
    for name in names[-how_many:]:
        site.disk.unlink(f"{FOLDER}/{name}")
    log = site.start().logs[TP]
    assert site.reports.names() == (["producers-rebuilt"] if how_many == 1000 else [])
    assert (offset_of(log, 35), offset_of(log, 39), offset_of(log, 40)) == (35, 39, 40)


def test_a_snapshot_under_a_later_name_is_found_out_by_the_headers_before_it(site: StorageSite) -> None:
    names = stopped(site)
    site.disk.rename(f"{FOLDER}/{names[-2]}", f"{FOLDER}/{names[-1]}")
    log = site.start().logs[TP]
    assert site.reports.names() == ["producer-snapshot-damaged"]
    assert (offset_of(log, 39), offset_of(log, 40)) == (39, 40)


def test_a_snapshot_under_an_earlier_name_tells_of_batches_above_it(site: StorageSite) -> None:
    names = stopped(site)
    site.disk.rename(f"{FOLDER}/{names[-1]}", f"{FOLDER}/{names[-2]}")
    log = site.start().logs[TP]
    assert site.reports.names() == ["producer-snapshot-damaged"]
    assert (offset_of(log, 39), offset_of(log, 40)) == (39, 40)


def test_a_snapshot_above_the_log_end_is_removed(site: StorageSite) -> None:
    names = stopped(site)
    site.disk.write(f"{FOLDER}/{77:020d}.snapshot", encode_snapshot([ProducerRow(9, 0, 0, 70, 0, 0, -1, -1)]))
    log = site.start().logs[TP]
    assert file_names(site.disk, ".snapshot") == names
    assert set(log.producers.states) == {PID}


def test_after_a_crash_no_snapshot_above_the_recovery_point_is_believed(site: StorageSite) -> None:
    """It may be of a tail that was cut off: its removal need not have reached the disk."""
    log = site.log()
    for sequence in range(40):
        offset_of(log, sequence)
    wrong = encode_snapshot([ProducerRow(PID, 0, 9, 9, 0, 1000, -1, -1)])
    site.disk.write(f"{FOLDER}/{30:020d}.snapshot", wrong)
    log = site.reload()
    assert offset_of(log, 39) == 39 and offset_of(log, 40) == 40


def test_what_a_flush_left_half_written_is_removed(site: StorageSite) -> None:
    stopped(site)
    site.disk.write(f"{FOLDER}/{20:020d}.snapshot.7.tmp", b"half")
    site.disk.write(f"{FOLDER}/{10:020d}.snapshot.deleted", b"old")
    site.start()
    assert file_names(site.disk, ".tmp") == [] and file_names(site.disk, ".deleted") == []


def test_an_idle_producer_of_a_snapshot_has_been_idle_since_its_segment_was_written(site: StorageSite) -> None:
    site.disk.now_ms = 1_000_000
    stopped(site)
    site.disk.now_ms = site.clock.ms = 1_003_000
    states = site.start().logs[TP].producers.states
    assert states.expire(999, 4000) == []
    assert states.expire(1, 4000) == [PID]


# --- transactions ----------------------------------------------------------------------------------------------


def transactional(log: Log) -> bytes:
    """A batch of a transaction at the log's end, as Kafka writes it."""
    builder = BatchBuilder(is_transactional=True)
    builder.set_producer(PID, 0, 0)
    builder.append(1000, b"k", b"v")
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, log.log_end_offset)
    struct.pack_into(">i", data, 12, 0)
    return bytes(data)


def by_kafka(site: StorageSite, clean: bool) -> None:
    """A folder as Kafka leaves it: a transaction in an old segment, checkpoints up to the end, no file of ours."""
    manager = site.start()
    log = manager.create(TP, bytes(16))
    log.append_as_follower(memoryview(transactional(log)))
    for _ in range(30):
        append_checked(log, [produced()], 0)
    log.flushed(log.flush_plan()())
    manager.close(clean=True)
    site.disk.unlink("/logs/.strandline_segments")
    if not clean:
        site.disk.unlink("/logs/.kafka_cleanshutdown")


@pytest.mark.parametrize("clean", [True, False])
def test_a_folder_with_transactions_is_refused_at_each_start(site: StorageSite, clean: bool) -> None:
    by_kafka(site, clean)
    before = site.disk.read(f"{FOLDER}/{0:020d}.log")
    for stop_clean in (True, False, True, True):
        manager = site.start()
        assert TP not in manager.logs
        with pytest.raises(LogStorageError, match="t-0 has a batch of a transaction at offset 0") as caught:
            manager.create(TP, bytes(16))
        assert isinstance(caught.value, TransactionalLog)
        manager.mark_loss_handled()
        manager.close(clean=stop_clean)
    assert site.disk.read(f"{FOLDER}/{0:020d}.log") == before


@pytest.mark.parametrize("clean", [True, False])
def test_a_kill_while_a_folder_is_taken_over_lets_no_transaction_in(site: StorageSite, clean: bool) -> None:
    by_kafka(site, clean)

    class Killed(Exception):
        """In the middle of loading."""

    def die(operation: str, path: str) -> None:
        if path.endswith(".log"):
            raise Killed

    site.disk.on_operation = die
    with pytest.raises(Killed):
        site.start()
    site.disk.on_operation = None
    site.disk.kill()
    assert TP not in site.start().logs


def test_other_logs_live_beside_a_refused_one(site: StorageSite) -> None:
    by_kafka(site, True)
    manager = site.start()
    other = manager.create(type(TP)("u", 0), bytes(16))
    append_checked(other, [produced()], 0)
    assert raw(other)
