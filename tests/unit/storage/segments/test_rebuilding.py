"""Indexes that are damaged while their log is served: a wrong entry is forgotten, a lost file is built anew."""

from __future__ import annotations

import itertools

import pytest

from strandline.protocol.records.batch import assign_offset
from strandline.storage.errors import CorruptLog, LogStorageError
from strandline.storage.log.log import Log
from strandline.storage.log.segment_times import note_times, read_times, times_wanted
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.segments import indexes, scan, search
from strandline.storage.segments.indexes import IndexLost
from strandline.storage.segments.segment import Segment
from support.log_audit import check_indexes
from support.storage_site import FOLDER, TOPIC_ID, TP, StorageSite, fill, produced, raw, served

SEALED, ACTIVE = 1, -1
INTERVAL = 200


class Served:
    """A log of an earlier life that an event loop serves. An entry of the index of segment `number`, not the last one,
    names a byte where no batch begins; or that index is nonsense."""

    def __init__(self, site: StorageSite, number: int, *, is_lost: bool = False) -> None:
        self.site = site
        site.config = type(site.config)(segment_bytes=1600, index_interval_bytes=INTERVAL)
        manager = site.start()
        manager.mark_loss_handled()
        fill(manager.create(TP, TOPIC_ID), 50)
        manager.checkpoints.write_high_watermarks({TP: 50})
        manager.close(clean=True)
        names = [name for name in site.disk.listdir(FOLDER) if name.endswith(".index")]
        self.path = f"{FOLDER}/{names[number]}"
        self.sound = site.disk.read(self.path)
        index = bytearray(self.sound)
        index[8 + 7] ^= 1
        site.disk.write(self.path, b"nonsense" * 2 if is_lost else bytes(index))
        self.manager: LogManager = site.start()
        self.log: Log = self.manager.logs[TP]
        self.manager.rebuilds.is_elsewhere = True
        self.manager.rebuilds.on_the_spot_bytes = 0
        self.segment: Segment = list(self.log.segments)[number]
        self.offset = self.segment.base_offset + int.from_bytes(index[8:12], "big") + 1
        """Looking for it uses the wrong entry."""

    def read(self) -> object:
        return self.log.read(self.offset, 1, self.log.log_end_offset)


@pytest.mark.parametrize("number", [SEALED, ACTIVE])
def test_a_wrong_entry_is_forgotten_by_the_search_that_meets_it_and_in_the_file(site: StorageSite, number: int) -> None:
    case = Served(site, number)
    assert case.read() is not None
    assert site.reports.names() == ["index-entry-forgotten"] and case.log.failure is None
    assert case.read() is not None and len(site.reports.names()) == 1
    assert len(raw(case.log)) == case.log.size_bytes
    fill(case.log, 60, timestamp_ms=500)  # a few rolls
    case.manager.close(clean=True)
    assert site.disk.read(case.path).startswith(case.sound[:8] + case.sound[16:])
    case.log = site.start().logs[TP]
    assert case.read() is not None and site.reports.names() == []


def test_an_index_that_cannot_be_loaded_is_removed_and_an_orderly_stop_leaves_none(site: StorageSite) -> None:
    case = Served(site, SEALED, is_lost=True)
    for _ in range(2):
        with pytest.raises(IndexLost):
            case.read()
        assert not site.disk.exists(case.path) and case.log.failure is None
    assert site.reports.names() == ["index-lost"]
    case.manager.close(clean=True)
    assert not site.disk.exists(case.path) and site.disk.exists("/logs/.kafka_cleanshutdown")
    case.log = site.start().logs[TP]
    assert site.reports.names() == ["index-rebuilt"]
    assert case.read() is not None and site.disk.read(case.path) == case.sound


def test_it_is_built_anew_slice_by_slice(site: StorageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "SLICE_BYTES", 300)
    case = Served(site, SEALED, is_lost=True)
    case.segment.sealed_timestamp_ms = 1  # what a wrong index may have said
    with pytest.raises(IndexLost):
        case.read()
    slices = list(case.segment.indexes.build_in_slices())
    assert slices[0] == 0 and all(300 <= end - start < 600 for start, end in itertools.pairwise(slices))
    assert site.reports.names() == ["index-lost", "index-rebuilt"]
    check_indexes(case.segment, INTERVAL, is_active=False)
    assert case.read() is not None and site.disk.read(case.path) == case.sound


@pytest.mark.parametrize("number", [SEALED, ACTIVE])
def test_an_index_of_which_most_is_wrong_is_not_taken_apart_entry_by_entry(site: StorageSite, number: int) -> None:
    """As one that was copied from elsewhere: it rises, and is true at its end."""
    site.config = type(site.config)(segment_bytes=8000, index_interval_bytes=INTERVAL)
    manager = site.start()
    manager.mark_loss_handled()
    fill(manager.create(TP, TOPIC_ID), 250)
    manager.checkpoints.write_high_watermarks({TP: 250})
    manager.close(clean=True)
    path = f"{FOLDER}/{[name for name in site.disk.listdir(FOLDER) if name.endswith('.index')][number]}"
    index = bytearray(site.disk.read(path))
    assert len(index) // 8 > 2 * indexes.MAX_FORGOTTEN
    for low_byte in range(7, len(index) - 8, 8):
        index[low_byte] ^= 1
    site.disk.write(path, bytes(index))
    manager = site.start()
    manager.rebuilds.is_elsewhere = True
    manager.rebuilds.on_the_spot_bytes = 0
    log = manager.logs[TP]
    segment = list(log.segments)[number]
    with pytest.raises(IndexLost, match="one entry after the other"):
        log.read(segment.base_offset + int.from_bytes(index[-16:-12], "big") + 1, 1, 250)
    names = site.reports.names()
    assert names.count("index-entry-forgotten") == indexes.MAX_FORGOTTEN and names[-1] == "index-lost"
    assert not site.disk.exists(path)
    fill(log, 3)
    segment.indexes.flush()
    assert not site.disk.exists(path), "nobody is to believe it"
    with pytest.raises(IndexLost):
        log.read(segment.base_offset + int.from_bytes(index[-24:-20], "big") + 1, 1, 250)
    assert site.reports.names().count("index-lost") == 1
    list(segment.indexes.build_in_slices())
    check_indexes(segment, INTERVAL, is_active=number == ACTIVE)
    assert len(raw(log)) == log.size_bytes
    manager.close(clean=True)
    assert len(raw(site.start().logs[TP])) == log.size_bytes and "index-rebuilt" not in site.reports.names()


def test_none_is_built_of_a_log_that_is_damaged_itself(site: StorageSite) -> None:
    case = Served(site, SEALED, is_lost=True)
    log_path = case.path.replace(".index", ".log")
    data, position = bytearray(site.disk.read(log_path)), int.from_bytes(case.sound[20:24], "big")
    data[position + 8] ^= 0x40
    site.disk.write(log_path, bytes(data))
    with pytest.raises(IndexLost):
        case.read()
    with pytest.raises(CorruptLog, match=f"damaged at byte {position}"):
        list(case.segment.indexes.build_in_slices())
    assert not site.disk.exists(case.path)


def test_a_cut_leaves_an_index_that_is_true_at_its_end_whatever_bit_was_flipped(site: StorageSite) -> None:
    """Each low bit of the index; the others do not get past a start."""
    case = Served(site, ACTIVE)
    case.manager.close(clean=True)
    data = bytearray(case.sound)
    forgotten = 0
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
            log.may_truncate_to(offset)
            forgotten += each.reports.names() != before
            manager.checkpoints.write_cuts("/logs")
            before = each.reports.names()
            log.truncate_to(offset)
            assert log.log_end_offset == offset and each.reports.names() == before, f"bit {bit}, cut at {offset}"
            fill(log, 3)
            assert len(served(log, lambda log=log: raw(log))) == log.size_bytes
    assert forgotten > 20


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


@pytest.mark.parametrize("is_missing", [False, True])
@pytest.mark.parametrize("is_stopping", [False, True])
def test_none_is_built_up_to_damage_since_the_segment_would_look_older(
    site: StorageSite, is_missing: bool, is_stopping: bool
) -> None:
    """is_missing: its file is, when the broker starts. is_stopping: no event loop needs the log any more."""
    site.config = type(site.config)(segment_bytes=1000, index_interval_bytes=4096)
    manager = site.start()
    manager.mark_loss_handled()
    log = manager.create(TP, TOPIC_ID)
    for place in range(30):
        log.append_as_leader(produced(1, 1000 * (place + 1)), 0)
    manager.checkpoints.write_high_watermarks({TP: 30})
    manager.close(clean=True)
    path = min(f"{FOLDER}/{name}" for name in site.disk.listdir(FOLDER) if name.endswith(".log"))
    content = bytearray(site.disk.read(path))
    content[12 + int.from_bytes(content[8:12], "big") + 10] ^= 1  # how long the second batch is
    site.disk.write(path, bytes(content))
    if is_missing:
        site.disk.unlink(path.removesuffix(".log") + ".timeindex")
    manager = site.start()
    log, manager.rebuilds.is_elsewhere = manager.logs[TP], not is_stopping
    wanted = times_wanted(log, 0)
    with pytest.raises(LogStorageError, match="damaged at byte"):
        note_times(log, wanted, read_times(site.disk, wanted))
    assert log.failure is not None and next(iter(log.segments)).sealed_timestamp_ms is None


def test_at_a_start_a_search_by_one_that_ends_at_damage_comes_to_an_end(site: StorageSite) -> None:
    """It is made anew for each search, and the last batch that it names may be the damaged one."""
    site.config = type(site.config)(segment_bytes=3000, index_interval_bytes=INTERVAL)
    manager = site.start()
    manager.mark_loss_handled()
    fill(manager.create(TP, TOPIC_ID), 80)
    manager.close(clean=True)
    path = min(f"{FOLDER}/{name}" for name in site.disk.listdir(FOLDER) if name.endswith(".log"))
    index = site.disk.read(path.removesuffix(".log") + ".index")
    behind = int.from_bytes(index[-4:], "big") + 14  # offset and length of the last batch that the index names
    content = site.disk.read(path)
    site.disk.write(path, content[:behind] + bytes(len(content) - behind))
    segment = next(iter(site.start().logs[TP].segments))
    with pytest.raises(CorruptLog):
        search.boundary_before(segment, segment.size_bytes - 1)
    assert [name for name in site.reports.names() if name.startswith("index")] == ["index-ends-at-damage"]


def test_that_of_an_active_segment_with_a_torn_end_is_whole_once_the_end_is_cut(site: StorageSite) -> None:
    site.config = type(site.config)(segment_bytes=100_000, index_interval_bytes=INTERVAL)
    manager = site.start()
    manager.mark_loss_handled()
    log = manager.create(TP, TOPIC_ID)
    fill(log, 60)
    manager.close(clean=True)
    path = log.segments.active.path
    site.disk.write(f"{path}.log", site.disk.read(f"{path}.log") + bytes(100))
    site.disk.unlink(f"{path}.timeindex")
    log = site.start().logs[TP]
    assert site.reports.names() == ["index-rebuilt", "log-truncated"]
    assert log.log_end_offset == 60 and log.segments.active.indexes.damaged_at is None
    assert site.disk.exists(f"{path}.timeindex")
    check_indexes(log.segments.active, INTERVAL, True)


class Killed(BaseException):
    """The program ends here."""


def test_a_kill_while_an_entry_is_forgotten_leaves_an_empty_file(site: StorageSite) -> None:
    """Of a time index with the first entries alone somebody would believe how old the segment is."""
    case = Served(site, SEALED)

    def die(operation: str, path: str) -> None:
        if operation == "pwritev" and path == case.path:
            raise Killed

    site.disk.on_operation = die
    with pytest.raises(Killed):
        case.read()
    site.disk.on_operation = None
    assert site.disk.read(case.path) == b""
