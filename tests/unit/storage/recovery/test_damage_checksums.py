"""A digit of a text checkpoint that changes between an orderly stop and the next start: it is noticed, and nothing is
lost in silence (`guarded_checkpoints`, `stored_epochs`).

Each byte of each of five files, every digit in several ways: none of it is believed by that start or a later one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from strandline.protocol.records import build_batch
from strandline.protocol.records.validation import validate_produced
from strandline.storage.disk.checkpoints import (
    COMPACTED_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from strandline.storage.inspection.log_check import Finding, check_directories
from strandline.storage.log.log_start import raise_log_start
from strandline.storage.manager.directory_state import SEGMENTS_LIST, decode_state
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.manager.orderly_stops import CLEAN_MARKER
from strandline.storage.recovery import stored_epochs
from support.cleaning import clean
from support.damage_site import OTHER, OTHER_RECORDS, DamageSite
from support.storage_site import TOPIC_ID, TP, SmallLogConfig, epochs, fill, offsets, records

EPOCHS = 20
LOG_START, HIGH_WATERMARK, END = 13, 51, 60
OFFSET_FILES = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, COMPACTED_OFFSETS)
EPOCH_FILE = f"{TP}/{LEADER_EPOCHS}"
NOT_AS_WRITTEN = "checkpoint-not-as-written"
KAFKAS_MARKER = b'{"version":0,"brokerEpoch":-1}'
TOLD = {NOT_AS_WRITTEN, "epochs-rebuilt"}


def stopped() -> tuple[DamageSite, int]:
    """Every checkpoint says something that is nowhere else; and up to where the log is compacted."""
    site = DamageSite(config=SmallLogConfig(segment_bytes=600, index_interval_bytes=100))
    manager = site.build(batches=0)
    log = manager.logs[TP]
    for epoch in range(EPOCHS):
        fill(log, 3, epoch=epoch * 7)
    raise_log_start(log, LOG_START, END)
    compacted_below = log.segments.compacted_below = [segment.base_offset for segment in log.segments][-2]
    manager.checkpoints.write_high_watermarks({TP: HIGH_WATERMARK, OTHER: OTHER_RECORDS})
    manager.close(clean=True)
    assert LOG_START < compacted_below < HIGH_WATERMARK < END == log.log_end_offset
    return site, compacted_below


def again(original: DamageSite) -> DamageSite:
    return DamageSite(disk=original.disk.copy(), config=original.config)


def changed(content: bytes) -> Iterator[bytes]:
    """Each byte, one at a time; a digit by two others and by none."""
    for place, byte in enumerate(content):
        others = [b"%d" % ((byte - 48 + by) % 10) for by in (1, 6)] + [b""] if chr(byte).isdigit() else [b"\x7f"]
        for other in others:
            yield content[:place] + other + content[place + 1 :]


def checked(site: DamageSite) -> list[Finding]:
    return check_directories(site.disk, list(site.dirs), site.config, site.clock, random.Random(1))


def told(site: DamageSite) -> list[tuple[str, str]]:
    return [(event, str(fields["path"])) for event, fields in site.reports.events if event in TOLD]


def write(site: DamageSite, name: str, content: bytes | None) -> None:
    path = f"{site.root}/{name}"
    if content is not None:
        site.disk.write(path, content)
    elif site.disk.exists(path):
        site.disk.unlink(path)


# --- each digit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*OFFSET_FILES, EPOCH_FILE])
def test_a_changed_byte_is_noticed_and_hides_no_record(name: str) -> None:
    original, compacted_below = stopped()
    content = original.disk.read(f"{original.root}/{name}")
    kept = records(again(original).start().logs[TP])
    assert [record.offset for record in kept] == list(range(LOG_START, END))
    expected = [(NOT_AS_WRITTEN, f"{original.root}/{name}")]
    expected += [("epochs-rebuilt", f"{original.root}/{name}")] if name == EPOCH_FILE else []
    log_start = 0 if name == LOG_START_OFFSETS else LOG_START
    for wrong in [None, *changed(content)]:
        site = again(original)
        write(site, name, wrong)
        findings = checked(site)
        manager = site.start()
        assert told(site) == expected and len(site.reports.events) == len(expected), wrong
        assert [(found.event, found.fields) for found in findings] == site.reports.events
        assert {found.severity for found in findings} == {"repair"} and not manager.may_have_lost_data
        for _ in range(2):  # the second start has no checksum to tell by
            log = manager.logs[TP]
            assert records(log)[-len(kept) :] == kept and log.log_end_offset == END, wrong
            assert log.log_start_offset == log_start
            assert log.segments.compacted_below == (0 if name == COMPACTED_OFFSETS else compacted_below)
            assert log.recovery_point == (0 if name == RECOVERY_POINTS else END)
            assert manager.high_watermarks[TP] == (LOG_START if name == HIGH_WATERMARKS else HIGH_WATERMARK)
            assert epochs(log) == [
                (number * 7, max(number * 3, log_start)) for number in range(EPOCHS) if number * 3 + 3 > log_start
            ]
            manager = site.restart()
        if wrong is not None:
            assert site.disk.read(f"{site.root}/{name}.damaged") == wrong


def test_a_checkpoint_that_was_put_aside_stays_when_the_next_one_is() -> None:
    site, _ = stopped()
    for number, suffix in enumerate(("", "-2", "-3")):
        site.disk.write(f"{site.root}/{HIGH_WATERMARKS}", b"%d" % number)
        site.start().close(clean=True)
        assert site.disk.read(f"{site.root}/{HIGH_WATERMARKS}{suffix}.damaged") == b"%d" % number
    assert site.disk.read(f"{site.root}/{HIGH_WATERMARKS}.damaged") == b"0"


NOT_UNDERSTOOD = {
    "another version": b"1\n1\nt 0 1 more\n",
    "no version": b"\n1\n0 0\n",
    "no text": b"\xff\xfe0\n1\n0 0\n",
    "zeros": bytes(40),
    "absurdly large": b"0\n" + bytes(2**26),
}


@pytest.mark.parametrize("how", ["clean", "kill", "power"])
@pytest.mark.parametrize("what", NOT_UNDERSTOOD)
@pytest.mark.parametrize("name", [*OFFSET_FILES, EPOCH_FILE])
def test_a_checkpoint_of_another_version_is_kept_aside(name: str, what: str, how: str) -> None:
    site = DamageSite()
    manager = site.build(flushed=True)
    kept, kept_epochs = records(manager.logs[TP]), epochs(manager.logs[TP])
    site.stop(manager, how)
    site.disk.write(f"{site.root}/.kafka_cleanshutdown", KAFKAS_MARKER) if how == "clean" else None
    site.disk.write(f"{site.root}/{name}", NOT_UNDERSTOOD[what])
    manager = site.start()
    assert [fields["path"] for fields in site.reports.of("checkpoint-not-understood")] == [f"{site.root}/{name}"]
    for _ in range(2):
        assert records(manager.logs[TP]) == kept and epochs(manager.logs[TP]) == kept_epochs
        manager.close(clean=True)
        assert site.disk.read(f"{site.root}/{name}.damaged") == NOT_UNDERSTOOD[what]
        manager = site.start()
        assert not site.reports.of("checkpoint-not-understood")


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_the_epochs_of_an_empty_log_are_kept_aside_too(how: str) -> None:
    site = DamageSite()
    site.stop(site.build(batches=0), how)
    write(site, EPOCH_FILE, NOT_UNDERSTOOD["another version"])
    site.start().close(clean=True)
    assert site.names(".damaged") == [f"{LEADER_EPOCHS}.damaged"]
    assert site.disk.read(f"{site.root}/{EPOCH_FILE}.damaged") == NOT_UNDERSTOOD["another version"]


def test_of_a_log_that_is_refused_the_epochs_stay_where_they_are() -> None:
    site = DamageSite()
    site.stop(site.build(flushed=True), "kill")
    write(site, EPOCH_FILE, NOT_UNDERSTOOD["another version"])
    site.disk.unlink(site.path(2))
    before = site.everything()
    assert TP in site.start().refused and site.everything() == before


def test_epochs_are_kept_aside_whatever_operation_a_start_is_ended_before() -> None:
    original = DamageSite()
    original.stop(original.build(flushed=True), "kill")
    write(original, EPOCH_FILE, NOT_UNDERSTOOD["another version"])
    for operations in range(10**6):
        site = again(original)
        left = operations

        def end(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt

        site.disk.on_operation = end
        is_done = False
        with suppress(KeyboardInterrupt):
            site.start()
            is_done = True
        site.disk.on_operation = None
        site.disk.kill()
        site.start()
        assert site.disk.read(f"{site.root}/{EPOCH_FILE}.damaged") == NOT_UNDERSTOOD["another version"]
        assert site.names(".damaged") == [f"{LEADER_EPOCHS}.damaged"]
        if is_done:
            break
    assert operations > 10


@pytest.mark.parametrize("name", [LOG_START_OFFSETS, COMPACTED_OFFSETS])
def test_a_checkpoint_that_nobody_wrote_is_not_believed(name: str) -> None:
    site = DamageSite()
    site.stop(site.build(), "clean")
    assert not site.disk.exists(f"{site.root}/{name}")
    write(site, name, b"0\n1\nt 0 20\n")
    log = site.start().logs[TP]
    assert log.log_start_offset == log.segments.compacted_below == 0
    assert told(site) == [(NOT_AS_WRITTEN, f"{site.root}/{name}")]


def test_an_epoch_that_no_batch_tells_of_is_not_believed_by_the_next_start_either() -> None:
    """Compaction left nothing of it: a wrong start offset contradicts no batch."""
    site = DamageSite(config=SmallLogConfig(segment_bytes=100_000))
    log = site.start().create(TP, TOPIC_ID)
    for epoch, keys in ((0, (b"a", b"b")), (3, (b"x", b"x", b"x")), (5, (b"x", b"c"))):
        for key in keys:
            batch = bytearray(build_batch([(1000, key, b"v")], "none", None))
            log.append_as_leader(validate_produced(memoryview(batch), max_batch_bytes=2**20), epoch)
    log.roll()
    clean(log, site.disk)
    assert offsets(log) == [0, 1, 5, 6] and epochs(log) == [(0, 0), (3, 2), (5, 5)]
    site.disk.kill()
    manager = site.start()
    manager.close(clean=True)
    write(site, EPOCH_FILE, b"0\n3\n0 0\n3 4\n5 5\n")
    for _ in range(2):
        assert epochs(site.restart().logs[TP]) == [(0, 0), (5, 2)]


def test_they_are_noticed_where_the_list_of_segments_is_damaged_too() -> None:
    site, _ = stopped()
    write(site, SEGMENTS_LIST, b"junk")
    write(site, LOG_START_OFFSETS, b"0\n1\nt 0 33\n")
    assert site.start().logs[TP].log_start_offset == 0


# --- what is as it was ------------------------------------------------------------------------------------------------


def no_proof(*arguments: object, **options: object) -> bool:
    raise AssertionError("the epochs were held against the batches")


def test_what_is_as_it_was_is_believed_without_a_look_at_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    site, compacted_below = stopped()
    monkeypatch.setattr(stored_epochs, "epochs_agree", no_proof)
    manager = site.start()
    log = manager.logs[TP]
    assert site.reports.events == []
    assert (log.log_start_offset, log.segments.compacted_below) == (LOG_START, compacted_below)
    assert len(epochs(log)) == EPOCHS - LOG_START // 3 and manager.high_watermarks[TP] == HIGH_WATERMARK


@pytest.mark.parametrize("marker", [KAFKAS_MARKER, b"", None])
def test_without_a_checksum_the_epochs_are_held_against_the_batches(
    marker: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, _ = stopped()
    write(site, CLEAN_MARKER, marker)
    monkeypatch.setattr(stored_epochs, "epochs_agree", no_proof)
    with pytest.raises(AssertionError, match="held against"):
        site.start()


def test_without_a_checksum_the_oldest_epoch_is_held_against_the_batches_too() -> None:
    site, _ = stopped()
    write(site, CLEAN_MARKER, KAFKAS_MARKER)
    expected = epochs(again(site).start().logs[TP])
    write(site, EPOCH_FILE, site.disk.read(f"{site.root}/{EPOCH_FILE}").replace(b"\n35 15\n", b"\n35 16\n"))
    assert epochs(site.start().logs[TP]) == expected and site.reports.names() == ["epochs-rebuilt"]


def test_epochs_are_held_against_the_batches_where_the_segments_are_not_the_listed_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, _ = stopped()
    site.disk.write(site.path(-1), site.disk.read(site.path(-1)) + b"x" * 30)
    monkeypatch.setattr(stored_epochs, "epochs_agree", no_proof)
    with pytest.raises(AssertionError, match="held against"):
        site.start()


def emptied(manager: LogManager) -> None:
    raise_log_start(manager.logs[TP], manager.logs[TP].log_end_offset, manager.logs[TP].log_end_offset)


def begun_anew(manager: LogManager) -> None:
    manager.logs[TP].truncate_fully_and_start_at(500)


def cut(manager: LogManager) -> None:
    manager.logs[TP].truncate_to(HIGH_WATERMARK + 3)


def created(manager: LogManager) -> None:
    manager.delete(TP)
    manager.create(TP, TOPIC_ID)


@pytest.mark.parametrize("change", [lambda manager: None, emptied, begun_anew, cut, created])
def test_stop_after_stop_nothing_is_taken_for_damage(change: Callable[[LogManager], None]) -> None:
    site, _ = stopped()
    manager = site.start()
    change(manager)
    for _ in range(3):
        before = {tp: (log.log_start_offset, offsets(log), epochs(log)) for tp, log in manager.logs.items()}
        manager.close(clean=True)
        assert checked(site) == []
        manager = site.start()
        assert site.reports.events == []
        assert {tp: (log.log_start_offset, offsets(log), epochs(log)) for tp, log in manager.logs.items()} == before


@pytest.mark.parametrize("name", [*OFFSET_FILES, EPOCH_FILE])
@pytest.mark.parametrize("junk", [b"nonsense\n", b"\xff", b"gone 3 x\n"])
@pytest.mark.parametrize("marker", [KAFKAS_MARKER, None])
def test_what_a_start_left_out_of_a_file_is_gone_from_it_at_the_stop(
    marker: bytes | None, name: str, junk: bytes
) -> None:
    """Not vouched for, and not taken for new damage either."""
    site, _ = stopped()
    write(site, CLEAN_MARKER, marker)
    write(site, name, site.disk.read(f"{site.root}/{name}") + junk)
    manager = site.start()
    assert site.reports.events
    manager.close(clean=True)
    assert junk not in site.disk.read(f"{site.root}/{name}")
    assert checked(site) == []


# --- the marker -------------------------------------------------------------------------------------------------------


def test_while_a_marker_stands_no_checkpoint_is_another_than_it_says() -> None:
    site, _ = stopped()
    looked = 0

    def look(operation: str, path: str) -> None:
        nonlocal looked
        marker = f"{site.root}/{CLEAN_MARKER}"
        if site.disk.exists(marker):
            site.disk.on_operation = None
            state = decode_state(site.disk.read(marker))
            assert state is not None and set(state.checkpoints) == {*OFFSET_FILES}
            twin = again(site)
            twin.disk.kill()
            twin.start()
            assert twin.reports.events == [], f"before {operation} {path}"
            site.disk.on_operation = look
            looked += 1

    site.disk.on_operation = look
    for _ in range(2):
        manager = site.start()
        log = manager.logs[TP]
        fill(log, 5, epoch=log.last_epoch + 1)
        raise_log_start(log, log.log_start_offset + 2, log.log_end_offset)
        manager.checkpoints.write_high_watermarks({TP: log.log_end_offset - 1})
        log.truncate_to(log.log_end_offset - 1)
        manager.checkpoints.write_log_starts()
        manager.close(clean=True)
    assert looked > 10


def test_a_marker_goes_where_nobody_knows_whose_folder_it_is() -> None:
    """Otherwise the stop after next, whatever it is, would count as an orderly one."""
    site, _ = stopped()
    site.disk.unlink(f"{site.root}/meta.properties")
    manager = site.start()
    assert manager.may_have_lost_data and not site.disk.exists(f"{site.root}/{CLEAN_MARKER}")
    fill(manager.logs[TP], 3, epoch=999)
    site.disk.kill()
    assert not site.start().was_clean
