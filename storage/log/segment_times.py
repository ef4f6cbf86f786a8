"""The times of segments that another process wrote, by which retention and compaction decide what is old.

They are read from the ends of each segment's files, in a thread, some segments at a time, and noted only where the log
is still as it was: `times_wanted`, `read_times`, `note_times`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from strandline.runtime.disk import Disk, File
from strandline.storage.errors import CorruptIndex, CorruptLog
from strandline.storage.log.log import Log
from strandline.storage.segments.index_check import is_newest_true
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import walk_headers
from strandline.storage.segments.segment import LOG_SUFFIX, Segment
from strandline.storage.segments.sparse_index import read_entries, read_last_entry
from strandline.storage.segments.time_index import TimeIndex

TIMES_PER_STEP = 64


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
            offsets = OffsetIndex.decode(wanted.base_offset, read_entries(index), wanted.size_bytes)
    except (FileNotFoundError, CorruptIndex):  # it was found damaged meanwhile, or is
        return False
    return is_newest_true(log, wanted.size_bytes, offsets, times)
