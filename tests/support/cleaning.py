"""A whole cleaning of one log in one call, and what must be true of its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from strandline.protocol.records import Record, decode_batch
from strandline.protocol.records.batch import BatchHeader, read_header, scan
from strandline.runtime.disk import Disk
from strandline.storage.cleaning.cleaner import Cleaner
from strandline.storage.cleaning.output import CLEANED_SUFFIX
from strandline.storage.cleaning.plan import Done, Plan
from strandline.storage.cleaning.rewrite import has_horizon
from strandline.storage.cleaning.takeover import LentSegments
from strandline.storage.log.log import Log
from strandline.storage.segments.scan import walk_headers
from strandline.storage.segments.segment import LOG_SUFFIX
from strandline.testkit.disk import MemoryDisk
from support.log_audit import check_epochs, check_indexes


def plan_for(
    log: Log,
    lent: LentSegments,
    *,
    first_dirty_offset: int = 0,
    now_ms: int = 0,
    delete_retention_ms: int = 1000,
    map_entries: int = 10_000,
    segment_bytes: int = 2**30,
    chunk_bytes: int = 2**19,
    max_decompressed_bytes: int = 2**20,
    last_of_producer: Mapping[int, int] | None = None,
) -> Plan:
    """A cleaning of the lent segments."""
    return Plan(
        folder=log.segments.folder,
        sources=lent.sources,
        first_dirty_offset=first_dirty_offset,
        now_ms=now_ms,
        delete_retention_ms=delete_retention_ms,
        segment_bytes=segment_bytes,
        segment_index_bytes=log.config.segment_index_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        map_bytes=24 * map_entries,
        map_load_factor=0.9,
        max_decompressed_bytes=max_decompressed_bytes,
        chunk_bytes=chunk_bytes,
        hash_seed=7,
        last_of_producer=dict(last_of_producer or {}),
    )


def foreseen(log: Log, lent: LentSegments, disk: MemoryDisk, plan: Plan) -> list[list[bytes]]:
    """What the batches of the log's files are now, and after each group that this cleaning takes over."""
    twin = disk.copy()
    versions = [[bytes(batch) for segment in log.segments for batch in _batches_in(twin, segment.path + LOG_SUFFIX)]]
    ends = {source.base_offset: source.end_offset for source in lent.sources}
    for step in Cleaner(twin, plan).run():
        if step.result is not None:
            first, end = step.result.base_offset, ends[step.result.sources[-1]]
            became = _batches_in(twin, f"{plan.folder}/{first:020d}{LOG_SUFFIX}{CLEANED_SUFFIX}")
            before = versions[-1]
            versions.append(
                [
                    *(batch for batch in before if read_header(batch).base_offset < first),
                    *became,
                    *(batch for batch in before if read_header(batch).base_offset >= end),
                ]
            )
    return versions


def _batches_in(disk: MemoryDisk, path: str) -> list[bytes]:
    data = disk.read(path)
    return [data[at : at + header.size_bytes] for at, header in scan(memoryview(data))]


def newest_of(batches_: Iterable[bytes]) -> dict[bytes | None, Record]:
    """Key → its newest record."""
    return {record.key: record for batch in batches_ for record in decode_batch(memoryview(batch))}


def clean(log: Log, disk: Disk, *, end_offset: int | None = None, **settings: Any) -> Done:
    """Clean all sealed segments below `end_offset` (default: all) at once; `settings` as `plan_for` takes them."""
    lent = LentSegments(log, log.log_end_offset if end_offset is None else end_offset)
    for step in Cleaner(disk, plan_for(log, lent, **settings)).run():
        if step.result is not None:
            lent.take_over(step.result)
        if step.done is not None:
            disk.fsync_dir(log.segments.folder)
            return step.done
    raise AssertionError("a cleaning says when it is done")


class Seen(NamedTuple):
    """A batch as a reader finds it."""

    header: BatchHeader
    records: list[Record]


def batches(log: Log) -> list[Seen]:
    """All batches of a log, read as fetches read them."""
    seen: list[Seen] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        region = log.read(offset, 2**30, log.log_end_offset)
        if region is None:
            break
        data = memoryview(region.file.pread(region.length, region.position))
        for at, header in scan(data):
            seen.append(Seen(header, decode_batch(data[at : at + header.size_bytes])))
            offset = header.next_offset
    return seen


def records_of(seen: Iterable[Seen]) -> list[Record]:
    return [record for each in seen for record in each.records]


def check_compacted(log: Log) -> None:
    """Segments, indexes and epochs of a log fit its batches. What is known of producers may be more than is left."""
    next_offset = log.segments.holding(0).base_offset
    for segment in log.segments:
        assert segment.base_offset >= next_offset, f"{segment.path} overlaps the one before"
        assert segment.file.get().size() == segment.size_bytes
        check_indexes(segment, log.config.index_interval_bytes, segment is log.segments.active)
        for _, header in walk_headers(segment.file.get(), 0, segment.size_bytes):
            assert header.base_offset >= next_offset
            next_offset = header.next_offset
    check_epochs(log)


def expected_records(
    before: Iterable[Seen], *, clean_end_offset: int, map_end_offset: int, first_dirty_offset: int, now_ms: int
) -> list[Record]:
    """The model: of all records below `clean_end_offset` (the end of the last segment that was rewritten), which ones a
    cleaning keeps. The map knows the keys of [first_dirty_offset, map_end_offset)."""
    before = list(before)
    newest = {
        record.key: record.offset
        for record in records_of(before)
        if record.key is not None and first_dirty_offset <= record.offset < map_end_offset
    }
    kept: list[Record] = []
    for header, records in before:
        deletes = has_horizon(header) and header.base_timestamp_ms <= now_ms
        for record in records:
            if record.offset < min(map_end_offset, clean_end_offset) and (
                record.key is None or record.offset < newest.get(record.key, -1) or (record.value is None and deletes)
            ):
                continue
            kept.append(record)
    return kept
