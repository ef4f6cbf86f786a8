"""Any flipped bit of an index, of a sealed or the active segment: the same answers by offset and by time.

2,944 cases, of which `make test` tries every 13th: each bit of four files, after a clean stop, in a log whose times
rise, and in one whose times stand still and fall.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from strandline.protocol.records.batch import scan
from strandline.storage.disk.checkpoints import LEADER_EPOCHS
from strandline.storage.errors import LogStorageError
from strandline.storage.log import segment_times
from strandline.storage.log.log import Log
from strandline.storage.log.timestamps import batch_for_timestamp
from strandline.storage.segments import sparse_index
from strandline.testkit.disk import MemoryDisk
from support.log_audit import check_indexes
from support.sampling import sampled
from support.storage_site import FOLDER, TOPIC_ID, TP, StorageSite, epochs, fill, produced, raw, records, served

BATCHES = 50
TIMES: dict[str, Callable[[int], int]] = {
    "rising": lambda place: 1000 + 3 * place,
    "standing still and falling": lambda place: 1000 + 10 * (place // 7 % 4),
}
SUFFIXES = (".index", ".timeindex")


def answers(
    log: Log, ask: Callable[[Log, Callable[[], Any]], Any] = lambda _, ask: ask()
) -> dict[tuple[str, int], object]:
    """What a consumer is told: which batch holds each offset, whether a read of some ends where one does, which batch
    is the first of a time."""
    found: dict[tuple[str, int], object] = {}
    end = log.log_end_offset
    for max_bytes in (1, 500):
        for offset in range(end):
            region = ask(log, partial(log.read, offset, max_bytes, end))
            assert region is not None
            batches = [header for _, header in scan(region.file.pread(region.length, region.position))]
            is_whole = sum(header.size_bytes for header in batches) == region.length
            found[f"{max_bytes} bytes from offset", offset] = (batches[0].base_offset, is_whole)
    for timestamp_ms in range(995, 1000 + 3 * BATCHES + 5, 2):
        batch = ask(log, partial(batch_for_timestamp, log, timestamp_ms, 0, end))
        found["time", timestamp_ms] = batch and batch[0].base_offset
    return found


def stopped(times: str) -> tuple[StorageSite, dict[tuple[str, int], object]]:
    site = StorageSite()
    site.config = replace(site.config, segment_bytes=1600, index_interval_bytes=150)
    manager = site.start()
    manager.mark_loss_handled()
    log = manager.create(TP, TOPIC_ID)
    for place in range(BATCHES):
        log.append_as_leader(produced(2, TIMES[times](place)), 0)
    told = answers(log)
    manager.checkpoints.write_high_watermarks({TP: log.log_end_offset})
    manager.close(clean=True)
    return site, told


def segment_names(disk: MemoryDisk) -> list[str]:
    return [name.removesuffix(".log") for name in disk.listdir(FOLDER) if name.endswith(".log")]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("number", [1, -1])
@pytest.mark.parametrize("times", TIMES)
def test_any_flipped_bit_of_an_index_changes_no_answer(times: str, number: int, suffix: str) -> None:
    site, told = stopped(times)
    disk = site.disk
    path = f"{FOLDER}/{segment_names(disk)[number]}{suffix}"
    data = disk.read(path)
    assert len(data) >= 24, "too few entries"
    for bit in sampled(range(len(data) * 8), 13):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged = replace(site, disk=disk.copy())
        damaged.disk.write(path, bytes(flipped))
        manager = damaged.start()
        log = manager.logs[TP]
        if bit % 2:  # the ages of segments are known before their indexes are used
            wanted = segment_times.times_wanted(log, 0)
            segment_times.note_times(log, wanted, segment_times.read_times(damaged.disk, wanted))
        found = answers(log)
        wrong = {question: (found[question], told[question]) for question in told if found[question] != told[question]}
        assert not wrong, f"bit {bit}"
        if damaged.reports.names():  # what was mended stays mended
            manager.close(clean=True)
            assert answers(damaged.start().logs[TP]) == told, f"bit {bit}"


@pytest.mark.parametrize("are_epochs_right", [True, False])
@pytest.mark.parametrize("number", [1, -1])
def test_nor_does_it_where_leader_epochs_begin_in_that_segment_and_the_broker_was_killed(
    number: int, are_epochs_right: bool
) -> None:
    site = StorageSite()
    site.config = replace(site.config, segment_bytes=1600, index_interval_bytes=150)
    manager = site.start()
    manager.mark_loss_handled()
    log = manager.create(TP, TOPIC_ID)
    for place in range(BATCHES):
        fill(log, 1, epoch=place // 4, count=2)
    manager.flush_all()
    manager.checkpoints.write_recovery_points()
    expected = records(log), epochs(log)
    site.disk.kill()
    name = segment_names(site.disk)[number]
    if not are_epochs_right:  # one is said to begin a batch later than it does
        noted, wrong = f"{FOLDER}/{LEADER_EPOCHS}", next(at for _, at in expected[1] if at > int(name) + 8)
        site.disk.write(noted, site.disk.read(noted).replace(b" %d\n" % wrong, b" %d\n" % (wrong + 2)))
    path = f"{FOLDER}/{name}.index"
    data = site.disk.read(path)
    for bit in sampled(range(len(data) * 8), 5):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged = replace(site, disk=site.disk.copy())
        damaged.disk.write(path, bytes(flipped))
        found = damaged.start().logs.get(TP)
        assert found is not None, f"bit {bit}: {damaged.reports.of('log-refused')}"
        is_as_before = (records(found), epochs(found)) == expected
        assert is_as_before, f"bit {bit}"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("number", [1, -1])
@pytest.mark.parametrize("times", TIMES)
def test_nor_does_it_where_an_event_loop_serves_the_log(times: str, number: int, suffix: str) -> None:
    site, told = stopped(times)
    disk = site.disk
    path = f"{FOLDER}/{segment_names(disk)[number]}{suffix}"
    data = disk.read(path)
    for bit in sampled(range(len(data) * 8), 5):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged = replace(site, disk=disk.copy())
        damaged.disk.write(path, bytes(flipped))
        manager = damaged.start()
        reports = damaged.reports.names()
        manager.rebuilds.is_elsewhere = True
        manager.rebuilds.on_the_spot_bytes = 0
        assert answers(manager.logs[TP], served) == told, f"bit {bit}"
        assert len(damaged.reports.names()) <= len(reports) + 2, f"bit {bit}"
        if "index-rebuilt" in damaged.reports.names():
            for segment in manager.logs[TP].segments:
                check_indexes(segment, 150, segment is manager.logs[TP].segments.active)


def test_an_index_that_is_sparse_by_configuration_is_not_built_anew() -> None:
    site = StorageSite()
    default = site.config
    site.config = replace(site.config, segment_bytes=2_000_000, index_interval_bytes=300_000)
    manager = site.start()
    manager.mark_loss_handled()
    log = manager.create(TP, TOPIC_ID)
    fill(log, 90, size=60_000)
    before = raw(log, max_bytes=100_000)
    indexes = {name: site.disk.read(f"{FOLDER}/{name}") for name in site.disk.listdir(FOLDER) if "index" in name}
    manager.checkpoints.write_high_watermarks({TP: log.log_end_offset})
    manager.close(clean=True)
    site.config = default
    manager = site.start()
    log = manager.logs[TP]
    assert raw(log, max_bytes=100_000) == before
    assert site.reports.of("index-rebuilt") == []
    manager.close(clean=True)
    assert {name: site.disk.read(f"{FOLDER}/{name}") for name in indexes if name.endswith(".index")} == {
        name: data for name, data in indexes.items() if name.endswith(".index") and data
    } | {name: b"" for name, data in indexes.items() if name.endswith(".index") and not data}


def test_an_active_segment_whose_index_forgot_an_entry_goes_on_as_if_nothing_had_been() -> None:
    site, told = stopped("rising")
    name = segment_names(site.disk)[-1]
    data = bytearray(site.disk.read(f"{FOLDER}/{name}.index"))
    data[11] ^= 1
    site.disk.write(f"{FOLDER}/{name}.index", bytes(data))
    log = site.start().logs[TP]
    assert answers(log) == told
    (report,) = site.reports.of("index-entry-forgotten")
    assert report["segment"].endswith(name) and "does not stand at byte" in report["why"]
    for place in range(60):
        log.append_as_leader(produced(2, 2000 + place), 0)
    damaged, *others = (segment for segment in log.segments if segment.base_offset >= int(name))
    assert len(damaged.indexes.offset) == len(data) // 8, "one less, and the next one"
    for segment in others:
        check_indexes(segment, 150, segment is log.segments.active)


def test_where_the_log_itself_is_damaged_the_log_goes_offline() -> None:
    site, _ = stopped("rising")
    name = segment_names(site.disk)[1]
    index = site.disk.read(f"{FOLDER}/{name}.index")
    position = int.from_bytes(index[12:16], "big")
    data = bytearray(site.disk.read(f"{FOLDER}/{name}.log"))
    data[position + 8] ^= 0x40  # the length
    site.disk.write(f"{FOLDER}/{name}.log", bytes(data))
    log = site.start().logs[TP]
    with pytest.raises(LogStorageError, match=f"damaged at byte {position}"):
        for offset in range(log.log_end_offset):
            log.read(offset, 1, log.log_end_offset)
    assert log.failure is not None


def test_the_age_of_a_segment_is_never_a_flipped_one() -> None:
    """Retention would remove it too early, or never: times are read from the ends of the files."""
    for times in ([1000, 1500, 2000, *[1100] * 20], [1000 + 3 * place for place in range(23)]):
        site = StorageSite()
        log = site.log(segment_bytes=2500, index_interval_bytes=150)
        for place in times:
            log.append_as_leader(produced(2, place), 0)
        true_ms = log.segments.holding(0).largest_timestamp_ms(is_active=False)
        log.roll()
        log.segments.holding(0).sealed_timestamp_ms = None
        wanted = segment_times.times_wanted(log, 0)
        path = f"{FOLDER}/{0:020d}.timeindex"
        data = site.disk.read(path)
        for bit in range(len(data) * 8 - 96, len(data) * 8):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            site.disk.write(path, bytes(flipped))
            assert segment_times.read_times(site.disk, wanted) in ([true_ms], [None]), f"bit {bit}"
        site.disk.write(path, data)
        assert segment_times.read_times(site.disk, wanted) == [true_ms]


def test_an_index_file_that_is_too_long_for_any_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks: for a search, or for the age of a segment whose newest record stands in its middle."""
    site = StorageSite()
    log = site.log(segment_bytes=2500, index_interval_bytes=150)
    for time_ms in [1000, 1500, 2000, *[1100] * 20]:
        log.append_as_leader(produced(2, time_ms), 0)
    log.roll()
    segment = log.segments.holding(0)
    segment.sealed_timestamp_ms = None
    segment.indexes.evict()
    wanted = segment_times.times_wanted(log, 0)
    size_bytes = len(site.disk.read(f"{FOLDER}/{0:020d}.index"))
    monkeypatch.setattr(sparse_index, "MAX_INDEX_BYTES_READ", size_bytes)
    assert segment_times.read_times(site.disk, wanted) == [2001]
    monkeypatch.setattr(sparse_index, "MAX_INDEX_BYTES_READ", size_bytes - 1)
    assert segment_times.read_times(site.disk, wanted) == [None]
    assert log.read(5, 1, log.log_end_offset) is not None
    assert site.reports.names() == ["index-rebuilt"]
