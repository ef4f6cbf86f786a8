"""The head of a log: raising its start, and putting aside the segments that lie below it.

    check_retention ──decision──> take_off_head:  1 roll, where the active segment goes
                                                  2 log start (memory)    ──> its checkpoint, every minute, or
                                                                              before a deletion is acknowledged
                                                  3 segments below it     ──> renamed, oldest first

Rules: `log start <= high watermark` is the caller's to give and asserted here. The log start is raised first, in
memory, so nothing below it is found any more when the files go. No checkpoint has to be written before: segments go
oldest first, and a start takes the first base offset that is there as the least log start, so a crash between any two
steps leaves the head as it was, or without some whole segments of those that go. A log start is as durable as its
checkpoint (`Log.durable_log_start_offset`); before that it may come back lower after a crash, as in Kafka. After a loss
of power even whole segments may, whose renames no fsync had reached: so the checkpoint tells every log start.

A batch that holds the log start stays whole: reads begin at the batch, clients skip what lies before their offset.

What is asked per log and check is little: the time of a segment that this process sealed is known. After a start it is
read from the ends of its files, in a thread (`times_wanted`, `read_times`, `note_times`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain, pairwise
from typing import NamedTuple

from strandline.runtime.disk import Disk, File
from strandline.storage.errors import CorruptIndex, CorruptLog, DiskFull
from strandline.storage.log.log import Log
from strandline.storage.log.retention import Decision, Rule, SegmentFacts, decide
from strandline.storage.segments.index_check import is_newest_true
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import walk_headers
from strandline.storage.segments.segment import LOG_SUFFIX, Segment
from strandline.storage.segments.sparse_index import read_last_entry
from strandline.storage.segments.time_index import TimeIndex

SEGMENTS_PER_STEP = 20
"""Put aside without letting others run: three to five renames each, some 10 µs a rename."""
TIMES_PER_STEP = 64


def raise_log_start(log: Log, offset: int, high_watermark: int) -> bool:
    """Let the log begin at `offset`; never lower than before. Returns whether that changed anything."""
    assert offset <= high_watermark <= log.log_end_offset, f"{log}: log start {offset} above HW {high_watermark}"
    if offset <= log.log_start_offset:
        return False
    log.log_start_offset = offset
    log.epochs.start_at(offset)
    return True


def check_retention(log: Log, disk: Disk, high_watermark: int, now_ms: int | None) -> Decision:
    """What may leave this log now; changes nothing. `now_ms` as `retention.decide` takes it. LogStorageError."""
    config = log.config
    rule = Rule(config.retention_ms, config.retention_bytes, "delete" in config.cleanup_policy)
    try:
        return decide(
            _facts(log, disk),
            rule,
            size_bytes=log.size_bytes,
            log_start_offset=log.log_start_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
    except OSError as error:
        raise log.fail("reading a segment's age failed", error) from error


def take_off_head(log: Log, decision: Decision, high_watermark: int) -> list[Segment]:
    """Do what was decided, of a log that has not changed since; `SEGMENTS_PER_STEP` at most, oldest first, and the rest
    is decided again as below the log start. Returns what was put aside. LogStorageError: the log is offline."""
    log.health.check()
    start = decision.log_start_offset
    if decision.takes_active:
        try:
            log.roll()
        except DiskFull:  # which makes room: all but the active one
            start = min(start, log.segments.active.base_offset)
    raise_log_start(log, start, high_watermark)
    try:
        dropped = log.segments.drop_head(log.log_start_offset, log.config.file_delete_delay_ms, SEGMENTS_PER_STEP)
        if dropped:
            log.producers.drop_head(log.config.file_delete_delay_ms)
        return dropped
    except OSError as error:
        raise log.health.fail("putting old segments aside failed", error, repeatable=False) from error


def _facts(log: Log, disk: Disk) -> Iterator[SegmentFacts]:
    """Of each segment, oldest first; the disk is asked only about what has no timestamps."""
    for segment, following in pairwise(chain(log.segments, [None])):
        assert segment is not None
        time_ms = segment.sealed_timestamp_ms if following is not None else segment.max_timestamp_ms
        if time_ms is not None and time_ms < 0 and segment.size_bytes:
            time_ms = disk.stat_mtime_ms(segment.path + LOG_SUFFIX)
        end_offset = following.base_offset if following is not None else log.log_end_offset
        yield SegmentFacts(segment.base_offset, end_offset, segment.size_bytes, time_ms, following is None)


# --- the time of segments that another process wrote ------------------------------------------------------------------


class WantedTime(NamedTuple):
    """A sealed segment whose largest timestamp is not known."""

    segment: Segment
    path: str
    base_offset: int
    size_bytes: int
    cuts: int
    """How often the log had been cut: refilled, a segment may have the same size and other times."""


def times_wanted(log: Log, base_offset: int) -> list[WantedTime]:
    """The segments from `base_offset` on of which no time is known, the next few."""
    wanted: list[WantedTime] = []
    for segment in log.segments:
        if segment.base_offset >= base_offset and segment.sealed_timestamp_ms is None:
            wanted.append(WantedTime(segment, segment.path, segment.base_offset, segment.size_bytes, log.segments.cuts))
        if len(wanted) == TIMES_PER_STEP:
            break
    return [each for each in wanted if each.segment is not log.segments.active]


def read_times(disk: Disk, wanted: Sequence[WantedTime]) -> list[int | None]:
    """The largest timestamp of each, −1 where no record has one; None where the files do not tell (they were moved
    away, or an index is damaged). Blocking; touches nothing but files, by their names. OSError from the disk."""
    return [_read_time(disk, each) for each in wanted]


def note_times(log: Log, wanted: Sequence[WantedTime], times: Sequence[int | None]) -> None:
    """Remember what was read of the segments that are still as they were; nothing where the log was cut meanwhile.
    LogStorageError; IndexLost."""
    current = {segment.base_offset: segment for segment in log.segments if segment is not log.segments.active}
    for (segment, _, base_offset, _, cuts), time_ms in zip(wanted, times, strict=True):
        if current.get(base_offset) is not segment or log.segments.cuts != cuts:
            continue
        if time_ms is not None:
            segment.sealed_timestamp_ms = time_ms
            continue
        try:
            segment.largest_timestamp_ms(is_active=False)  # loads the index, which is checked and repaired
        except (OSError, CorruptLog) as error:
            raise log.fail("reading an index failed", error) from error


def _read_time(disk: Disk, wanted: WantedTime) -> int | None:
    """From the last entry of each index, and the headers that follow (there are few); that of the time index is proven
    by its batch, which is one of them unless the times fell towards the end."""
    try:
        entry = read_last_entry(disk, wanted.path + TimeIndex.SUFFIX, TimeIndex.ENTRY_BYTES)
        times = TimeIndex.decode(wanted.base_offset, entry)
        entry = read_last_entry(disk, wanted.path + OffsetIndex.SUFFIX, OffsetIndex.ENTRY_BYTES)
        offsets = OffsetIndex.decode(wanted.base_offset, entry, wanted.size_bytes)
        file = disk.open(wanted.path + LOG_SUFFIX, read_only=True)
    except (FileNotFoundError, CorruptIndex):
        return None
    try:
        first = None
        latest_ms = times.last_timestamp_ms
        is_proven = False
        for _, header in walk_headers(file, offsets.last_position, wanted.size_bytes):
            first = header if first is None else first
            latest_ms = max(latest_ms, header.max_timestamp_ms)
            is_proven |= times.newest_is_of(header)
        if not is_proven and first is not None and times.last_offset < first.base_offset:
            is_proven = _is_true(disk, wanted, file, times)
        if not len(times):  # no record has a time; or its file was being written, or a kill came in between
            is_proven = latest_ms < 0
        return latest_ms if is_proven else None
    finally:
        file.close()


def _is_true(disk: Disk, wanted: WantedTime, log: File, times: TimeIndex) -> bool:
    """Whether the last entry of the time index is, found by means of the whole offset index."""
    try:
        with closing(disk.open(wanted.path + OffsetIndex.SUFFIX, read_only=True)) as index:
            offsets = OffsetIndex.decode(wanted.base_offset, index.pread(index.size(), 0), wanted.size_bytes)
    except (FileNotFoundError, CorruptIndex):  # it was found damaged meanwhile, or is
        return False
    return is_newest_true(log, wanted.size_bytes, offsets, times)
