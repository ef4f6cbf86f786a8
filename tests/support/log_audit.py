"""What must be true of a broker's storage that was just started, whatever happened to it before (invariants 5, 19, 21).

`audit_start` starts it twice and appends: every segment's indexes say what a rebuild says, epochs are those of the
batches, log start <= high watermark <= log end, the recovery point is not above what the disk said, nothing half done
is left lying about, the second start finds and changes nothing else, and what is appended is there afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from strandline.protocol.records.batch import read_header, scan
from strandline.protocol.types import TopicPartition
from strandline.storage.disk.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_bounds, read_offsets
from strandline.storage.log.log import Log
from strandline.storage.manager.directory_state import STATE
from strandline.storage.manager.identity import META_PROPERTIES
from strandline.storage.manager.log_directory import BOOT_ID_KEY
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.producers.states import ProducerStates
from strandline.storage.recovery.epoch_check import epochs_from_headers
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import build_indexes, walk_headers
from strandline.storage.segments.segment import Segment
from strandline.storage.segments.time_index import TimeIndex
from strandline.testkit.disk import MemoryDisk
from support.storage_site import Reports, StorageSite, produced

INDEX_SUFFIXES = (OffsetIndex.SUFFIX, TimeIndex.SUFFIX)
"""The files of a new segment's indexes are made when there is something to write, or at the next start."""
LEFTOVERS = (".deleted", ".cleaned", ".swap", ".tmp")


@dataclass(frozen=True)
class LogState:
    """What a log holds: batches byte for byte, its borders, its epochs (one without records at the end left out)."""

    start: int
    end: int
    batches: tuple[bytes, ...]
    epochs: tuple[tuple[int, int], ...]

    def describe(self) -> str:
        return f"[{self.start}, {self.end}) {len(self.batches)} batches, epochs {list(self.epochs)}"


States = Mapping[TopicPartition, LogState]


def state_of(log: Log) -> LogState:
    """Read everything, as fetches read it."""
    batches: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        region = log.read(offset, 2**30, log.log_end_offset)
        if region is None:
            break
        data = memoryview(region.file.pread(region.length, region.position))
        batches += [bytes(data[at : at + header.size_bytes]) for at, header in scan(data)]
        offset = read_header(batches[-1]).next_offset
    entries = [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]
    if entries and entries[-1][1] >= log.log_end_offset:
        entries.pop()
    return LogState(log.log_start_offset, log.log_end_offset, tuple(batches), tuple(entries))


def states_of(manager: LogManager) -> dict[TopicPartition, LogState]:
    return {tp: state_of(log) for tp, log in sorted(manager.logs.items())}


def is_run_of(found: Sequence[bytes], version: Sequence[bytes]) -> bool:
    """Whether `found` stands in `version` in one piece."""
    if not found:
        return True
    if found[0] not in version:
        return False
    first = version.index(found[0])
    return tuple(version[first : first + len(found)]) == tuple(found)


# --- checks -----------------------------------------------------------------------------------------------------------


def check_log(log: Log, interval: int, short_indexes: bool = False, compacted: bool = False) -> None:
    """Borders, segments, indexes and epochs of one log. short_indexes: the last few entries may be missing (and some
    of a producer's five batches). compacted: batches of producers may be gone, but for the last of each."""
    assert log.log_start_offset <= log.log_end_offset
    assert log.recovery_point <= log.log_end_offset
    next_offset = log.segments.holding(0).base_offset
    for segment in log.segments:
        assert segment.base_offset >= next_offset, f"{segment.path} overlaps the one before"
        assert segment.file.get().size() == segment.size_bytes
        check_indexes(segment, interval, segment is log.segments.active, short_indexes)
        for _, header in walk_headers(segment.file.get(), 0, segment.size_bytes):
            assert header.base_offset >= next_offset, f"{segment.path}: offset {header.base_offset} after {next_offset}"
            next_offset = header.next_offset
    check_epochs(log)
    check_producers(log, complete=not short_indexes, compacted=compacted)


def check_epochs(log: Log) -> None:
    """Epochs begin where their first batch does; where compaction took that one, in the gap before the next."""
    rebuilt = epochs_from_headers(log.segments, log.log_start_offset).entries
    from_headers = [(each.epoch, each.start_offset) for each in rebuilt if each.start_offset < log.log_end_offset]
    known = list(state_of(log).epochs)
    headers = [
        header for segment in log.segments for _, header in walk_headers(segment.file.get(), 0, segment.size_bytes)
    ]
    ends = [log.segments.holding(0).base_offset, *(header.next_offset for header in headers)]
    if all(header.base_offset == end for header, end in zip(headers, ends, strict=False)):
        assert known == from_headers
        return
    for header in headers:
        if header.base_offset >= log.log_start_offset:
            assert header.partition_leader_epoch == max(e for e, start in known if start <= header.base_offset)


def check_producers(log: Log, complete: bool, compacted: bool = False) -> None:
    """What is known of producers is what the batches say; of those whose batches left the head it may be more.
    complete: five batches, where there are; after a cut it may be those that are left of five."""
    told = ProducerStates()
    headers = [
        header for segment in log.segments for _, header in walk_headers(segment.file.get(), 0, segment.size_bytes)
    ]
    for header in headers:
        if header.producer_id >= 0 and header.base_sequence >= 0:
            first, last, ms = header.base_offset, header.last_offset, header.max_timestamp_ms
            told.note(header.producer_id, header.producer_epoch, header.base_sequence, first, last, ms)
    known = log.producers.states
    for producer_id in told:
        wanted, found = told.get(producer_id), known.get(producer_id)
        assert wanted is not None and found is not None, f"producer {producer_id} is not known"
        assert found.epoch == wanted.epoch
        count = len(wanted.batches) if complete else min(len(wanted.batches), len(found.batches))
        count = 1 if compacted else count
        assert count and list(found.batches)[-count:] == list(wanted.batches)[-count:], f"producer {producer_id}"
    for producer_id in sorted({*known} - {*told}):
        found = known.get(producer_id)
        assert found is not None and found.last_offset < max(log.log_start_offset, log.segments.holding(0).base_offset)


def check_indexes(segment: Segment, interval: int, is_active: bool, may_be_short: bool = False) -> None:
    """The offset index is that of a rebuild; each entry of the time index is true, and the last one is there.
    may_be_short: what was appended before a kill may lack its last entries."""
    built = build_indexes(segment.file.get(), segment.base_offset, segment.size_bytes, interval)
    built.finish()
    found, wanted = segment.indexes.offset.encode(), built.offset_index.encode()
    assert found == wanted or (may_be_short and wanted.startswith(found)), f"{segment.path}.index"
    time = segment.indexes.time
    assert segment.largest_timestamp_ms(is_active) == built.time_index.last_timestamp_ms, f"{segment.path}.timeindex"
    entries = dict(zip(time.relative_offsets, time.timestamps_ms, strict=True))
    latest_ms = -1
    for _, header in walk_headers(segment.file.get(), 0, segment.size_bytes):
        latest_ms = max(latest_ms, header.max_timestamp_ms)
        said_ms = entries.pop(header.last_offset - segment.base_offset, latest_ms)
        assert said_ms == latest_ms, f"{segment.path}.timeindex says {said_ms} at {header.last_offset}"
    assert not entries, f"{segment.path}.timeindex has entries of batches that are not there: {entries}"


def check_folders(disk: MemoryDisk, manager: LogManager) -> None:
    """What is to be removed is known, everything else has its place."""
    doomed = [path for path, content in disk.content().items() if path.endswith("-delete") and content is None]
    assert len(manager.removals) >= len(doomed), f"nobody removes {doomed}"
    left = [path for path in disk.content() if path.endswith(LEFTOVERS) and "-delete" not in path]
    assert not left, f"left lying about: {left}"


Judge = Callable[[LogManager, States], None]
"""Told what a start found; AssertionError where that is not lawful."""


def audit_start(
    site: StorageSite, disk: MemoryDisk, judge: Judge, *, may_lose: bool, short_indexes: bool = False
) -> None:
    """Start on `disk`, let `judge` see what is found, check everything; start again; append and start once more.
    may_lose: the machine lost power, so something that the page cache had may be found damaged."""
    site = replace(site, disk=disk, reports=Reports())
    on_disk = [read_offsets(disk, f"{path}/{RECOVERY_POINTS}") for path in site.dirs]
    may_lose = may_lose or _tells_of_loss(disk, site.dirs)
    damaged = _damaged(disk)
    manager = site.start()
    found = states_of(manager)
    judge(manager, found)
    found_loss = any(fields.get("is_loss") for _, fields in site.reports.events)
    assert manager.may_have_lost_data == ((may_lose and not manager.was_clean) or found_loss), "invariant 22"
    for tp, log in manager.logs.items():
        check_log(log, site.config.index_interval_bytes, short_indexes)
        assert log.log_start_offset <= manager.high_watermarks[tp] <= log.log_end_offset
        assert log.recovery_point <= max(points.get(tp, 0) for points in on_disk)
    check_folders(disk, manager)
    assert may_lose or found_loss or _damaged(disk) <= damaged
    assert not manager.was_clean or not {"checkpoint-not-as-written", "epochs-rebuilt"} & {*site.reports.names()}
    assert "log-dir-used-by-another" not in site.reports.names(), "nobody was there"
    once = _lasting(disk)
    disk.kill()
    manager = site.start()
    assert states_of(manager) == found, "the second start found something else"
    again = _lasting(disk)
    made = {path for path in again if path.endswith(INDEX_SUFFIXES) and path not in once}
    assert {path: again[path] for path in again if path not in made} == once, "the second start changed files"
    for log in manager.logs.values():
        log.append_as_leader(produced(2, 10**6), max(log.last_epoch, 0) + 1)
    grown = states_of(manager)
    disk.kill()
    assert states_of(site.start()) == grown, "what was appended after the crash is not there"


def _damaged(disk: MemoryDisk) -> set[str]:
    """What was kept aside."""
    return {path for path in disk.content() if path.endswith(".damaged")}


def _tells_of_loss(disk: MemoryDisk, paths: Sequence[str]) -> bool:
    """An earlier start noted a loss, or one of the checkpoints that say how far the logs went is damaged or gone."""
    return any(
        f"{BOOT_ID_KEY}=".encode() not in disk.read(f"{path}/{META_PROPERTIES}")
        or not all(read_bounds(disk, f"{path}/{name}")[1] for name in (RECOVERY_POINTS, HIGH_WATERMARKS))
        for path in paths
        if disk.exists(f"{path}/{META_PROPERTIES}")
    )


def _lasting(disk: MemoryDisk) -> dict[str, bytes | None]:
    """But the state, which each start replaces: with it what it knew of the high watermarks before the last ones."""
    return {path: content for path, content in disk.content().items() if not path.endswith(("/.lock", f"/{STATE}"))}
