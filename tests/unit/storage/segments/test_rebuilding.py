"""Indexes that are built anew beside a log that goes on: what is taken over, and what is thrown away."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from strandline.protocol.records.batch import assign_offset
from strandline.storage.errors import LogStorageError
from strandline.storage.log.cutting import may_truncate_to
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.segments import rebuilding, scan
from strandline.storage.segments.rebuilding import Rebuild, RebuildFirst, Wanted, build
from strandline.storage.segments.segment import Segment
from support.log_audit import check_indexes
from support.storage_site import FOLDER, TOPIC_ID, TP, StorageSite, fill, produced, raw, served

SEALED, ACTIVE = 1, -1
INTERVAL = 200


class Served:
    """A log of an earlier life that an event loop serves. A search in segment `number` is led astray: an entry of its
    index, not the last one, names a byte where no batch begins."""

    def __init__(self, site: StorageSite, number: int) -> None:
        self.site = site
        site.config = type(site.config)(segment_bytes=1600, index_interval_bytes=INTERVAL)
        manager = site.start()
        manager.mark_loss_handled()
        fill(manager.create(TP, TOPIC_ID), 50)
        manager.checkpoints.write_high_watermarks({TP: 50})
        manager.close(clean=True)
        names = [name for name in site.disk.listdir(FOLDER) if name.endswith(".index")]
        self.path = f"{FOLDER}/{names[number]}"
        index = bytearray(site.disk.read(self.path))
        index[8 + 7] ^= 1
        site.disk.write(self.path, bytes(index))
        self.manager: LogManager = site.start()
        self.log: Log = self.manager.logs[TP]
        self.manager.rebuilds.is_elsewhere = True
        self.manager.rebuilds.on_the_spot_bytes = 0
        self.segment: Segment = list(self.log.segments)[number]
        self.offset = self.segment.base_offset + int.from_bytes(index[8:12], "big") + 1
        """Looking for it uses the wrong entry."""

    def read(self) -> object:
        return self.log.read(self.offset, 1, self.log.log_end_offset)

    def begin(self) -> tuple[Rebuild, Wanted, list[Any]]:
        with pytest.raises(RebuildFirst) as caught:
            self.read()
        rebuild = Rebuild(self.log, caught.value)
        wanted = rebuild.wanted()
        return rebuild, wanted, build(self.site.disk, {}, list(wanted))

    def check(self) -> None:
        """All indexes are as if nothing had been."""
        for segment in self.log.segments:
            check_indexes(segment, INTERVAL, segment is self.log.segments.active)


@pytest.mark.parametrize("number", [SEALED, ACTIVE])
def test_a_search_that_is_led_astray_changes_nothing_and_finds_its_way_once_the_index_is_built(
    site: StorageSite, number: int
) -> None:
    case = Served(site, number)
    files = {name: site.disk.read(f"{FOLDER}/{name}") for name in site.disk.listdir(FOLDER)}
    if number == SEALED:
        case.segment.sealed_timestamp_ms = 1  # what a wrong index may have said
    rebuild, wanted, built = case.begin()
    assert {name: site.disk.read(f"{FOLDER}/{name}") for name in site.disk.listdir(FOLDER)} == files
    assert site.reports.names() == [] and case.log.failure is None
    assert rebuild.take_over(wanted, built)
    assert case.read() is not None
    assert site.reports.names() == ["index-rebuilt"]
    case.check()
    assert len(raw(case.log)) == case.log.size_bytes


@pytest.mark.parametrize("number", [SEALED, ACTIVE])
def test_an_index_that_waits_for_its_rebuild_is_not_left_behind_by_an_orderly_stop(
    site: StorageSite, number: int
) -> None:
    case = Served(site, number)
    case.begin()
    case.manager.close(clean=True)
    assert not site.disk.exists(case.path) and site.disk.exists("/logs/.kafka_cleanshutdown")
    case.log = site.start().logs[TP]
    assert site.reports.names() == ["index-rebuilt"]
    case.check()
    assert case.read() is not None


def test_what_is_appended_meanwhile_is_in_the_index_too(site: StorageSite) -> None:
    for appended in (1, 3, 9, 60):  # the last one rolls
        case = Served(StorageSite(), ACTIVE)
        rebuild, wanted, built = case.begin()
        fill(case.log, appended, timestamp_ms=500)
        assert rebuild.is_current and rebuild.take_over(wanted, built)
        fill(case.log, 30, timestamp_ms=3000)
        case.check()
        assert served(case.log, case.read) is not None


def test_more_than_the_event_loop_walks_over_is_walked_over_elsewhere_from_there_on(
    site: StorageSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Served(site, ACTIVE)
    with pytest.raises(RebuildFirst) as caught:
        case.read()
    rebuild, memory = Rebuild(case.log, caught.value), {}
    first = rebuild.wanted()
    built = build(site.disk, memory, list(first))
    fill(case.log, 3)
    monkeypatch.setattr(rebuilding, "CATCH_UP_BYTES", 0)
    assert not rebuild.take_over(first, built)
    positions: list[int] = []
    walk = scan.walk_segment
    monkeypatch.setattr(scan, "walk_segment", lambda *args: positions.append(args[2]) or walk(*args))
    second = rebuild.wanted()
    assert rebuild.take_over(second, build(site.disk, memory, list(second)))
    assert positions == [first.size_bytes, second.size_bytes]
    case.check()


def test_a_worker_begins_anew_with_the_next_index(site: StorageSite) -> None:
    """What it remembers is of another segment, or of this one before it was cut."""
    case = Served(site, ACTIVE)
    with pytest.raises(RebuildFirst) as caught:
        case.read()
    memory: dict[str, Any] = {}
    build(site.disk, memory, list(Rebuild(case.log, caught.value).wanted()))
    cut(case)
    wanted = list(Rebuild(case.log, caught.value).wanted())
    assert build(site.disk, memory, wanted) == build(site.disk, {}, wanted)


def cut(case: Served) -> None:
    case.manager.rebuilds.is_elsewhere = False
    case.log.truncate_to(case.log.log_end_offset - 1)  # and the same again, of the same size
    case.manager.rebuilds.is_elsewhere = True
    fill(case.log, 1, timestamp_ms=70_000)


def begin_anew(case: Served) -> None:
    case.log.truncate_fully_and_start_at(case.segment.base_offset)
    fill(case.log, 50)


def delete(case: Served) -> None:
    case.manager.delete(TP)
    fill(case.manager.create(TP, TOPIC_ID), 50)


def fail(case: Served) -> None:
    case.log.fail("flushing failed", OSError(errno.EIO, "broken"))


def put_aside(case: Served) -> None:
    case.log.log_start_offset = case.log.log_end_offset
    case.log.roll()
    case.log.segments.drop_head(case.log.log_end_offset, 1000, 100)


@pytest.mark.parametrize("happens", [cut, begin_anew, delete, fail, put_aside])
@pytest.mark.parametrize("number", [SEALED, ACTIVE])
def test_what_was_built_of_a_log_that_is_another_by_now_is_thrown_away(
    site: StorageSite, happens: Callable[[Served], None], number: int
) -> None:
    case = Served(site, number)
    rebuild, wanted, built = case.begin()
    happens(case)
    files = {name: site.disk.read(f"{FOLDER}/{name}") for name in site.disk.listdir(FOLDER)}
    site.reports.events.clear()
    assert not rebuild.is_current
    assert rebuild.take_over(wanted, built)
    assert {name: site.disk.read(f"{FOLDER}/{name}") for name in site.disk.listdir(FOLDER)} == files
    assert site.reports.names() == []


def test_where_the_log_itself_is_damaged_it_goes_offline_and_its_index_stays(site: StorageSite) -> None:
    case = Served(site, SEALED)
    log_path = case.path.replace(".index", ".log")
    data, index = bytearray(site.disk.read(log_path)), site.disk.read(case.path)
    data[int.from_bytes(index[20:24], "big") + 8] ^= 0x40
    site.disk.write(log_path, bytes(data))
    rebuild, wanted, built = case.begin()
    with pytest.raises(LogStorageError):
        rebuild.take_over(wanted, built)
    assert case.log.failure is not None and site.disk.read(case.path) == index


def test_a_disk_that_takes_no_index_ends_the_log(site: StorageSite) -> None:
    case = Served(site, SEALED)
    rebuild, wanted, built = case.begin()
    site.disk.fail("pwritev", case.path, errno.EIO)
    with pytest.raises(LogStorageError, match="building an index anew failed"):
        rebuild.take_over(wanted, built)
    assert case.log.failure is not None


def test_a_cut_waits_for_the_index_before_it_changes_anything_and_then_builds_none(site: StorageSite) -> None:
    """Each low bit of the index; the others do not get past a start."""
    case = Served(site, ACTIVE)
    case.manager.close(clean=True)
    data = bytearray(site.disk.read(case.path))
    data[8 + 7] ^= 1
    waited = 0
    for bit in (8 * byte + bit for byte in range(3, len(data), 4) for bit in range(8)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        for offset in range(case.segment.base_offset + 1, 50, 4):
            each = StorageSite(disk=site.disk.copy(), config=site.config)
            each.disk.write(case.path, bytes(flipped))
            manager = each.start()
            log = manager.logs[TP]
            manager.rebuilds.is_elsewhere = True
            manager.rebuilds.on_the_spot_bytes = 0
            before = each.reports.names()
            served(log, lambda log=log, offset=offset: may_truncate_to(log, offset))
            waited += each.reports.names() != before
            manager.checkpoints.write_cuts("/logs")
            before = each.reports.names()
            log.truncate_to(offset)
            assert log.log_end_offset == offset and each.reports.names() == before, f"bit {bit}, cut at {offset}"
            fill(log, 3)
            assert len(served(log, lambda log=log: raw(log))) == log.size_bytes
    assert waited > 20


def test_a_cut_that_has_begun_builds_what_it_needs_of_producers_by_itself(site: StorageSite) -> None:
    site.config = type(site.config)(segment_bytes=1600, index_interval_bytes=INTERVAL)
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    for sequence in range(40):
        log.append_as_follower(_followed(sequence, log.log_end_offset))
    log.flushed(log.flush_plan()())
    first, second, *_ = log.segments
    first.indexes.evict()
    site.disk.write(f"{first.path}.index", b"nonsense")
    cut_at = second.base_offset + 1
    manager.rebuilds.is_elsewhere = True
    log.truncate_to(cut_at)
    assert log.log_end_offset == cut_at and manager.rebuilds.is_elsewhere
    assert log.producers.states.rows()[0].last_sequence == cut_at - 1


def _followed(sequence: int, offset: int) -> memoryview:
    (batch,) = produced(1, producer=(9, 0, sequence))
    assign_offset(batch.view, offset, 0)
    return batch.view


@pytest.mark.parametrize(("base_offsets", "taken"), [([0, 7, 9], 3), ([0, 7, 6, 9], 2), ([0, 7, 7], 2)])
def test_offsets_of_a_segment_may_leave_gaps_and_never_overlap(
    site: StorageSite, base_offsets: list[int], taken: int
) -> None:
    batches = [produced(1) for _ in base_offsets]
    for (batch,), base_offset in zip(batches, base_offsets, strict=True):
        assign_offset(batch.view, base_offset, 0)
    site.disk.write("/log", b"".join(bytes(batch.view) for (batch,) in batches))
    size_bytes = len(site.disk.read("/log"))
    file = site.disk.open("/log", read_only=True)
    found = list(scan.walk_segment(file, 0, 0, size_bytes))
    assert [header.base_offset for _, header in found] == base_offsets[:taken]
    builder = scan.IndexBuilder(0, 0)
    builder.add_all(file, found[-1][0] + found[-1][1].size_bytes)  # and the rest later
    builder.add_all(file, size_bytes)
    assert builder.next_offset == base_offsets[taken - 1] + 1
