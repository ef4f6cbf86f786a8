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

What is asked per log and check is little: the time of a segment that this process sealed is known, after a start it is
read in a thread (`segment_times`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise

from strandline.runtime.disk import Disk
from strandline.storage.errors import DiskFull
from strandline.storage.log.log import Log
from strandline.storage.log.retention import Decision, Rule, SegmentFacts, decide
from strandline.storage.segments.segment import LOG_SUFFIX, Segment

SEGMENTS_PER_STEP = 20
"""Put aside without letting others run: three to five renames each, some 10 µs a rename."""


def raise_log_start(log: Log, offset: int, high_watermark: int) -> bool:
    """Let the log begin at `offset`; never lower than before. Returns whether that changed anything."""
    assert offset <= high_watermark <= log.log_end_offset, f"{log}: log start {offset} above HW {high_watermark}"
    if offset <= log.log_start_offset:
        return False
    log.log_start_offset = offset
    log.epochs.start_at(offset)
    return True


def check_retention(log: Log, disk: Disk, high_watermark: int, now_ms: int | None) -> Decision:
    """What may leave this log now; changes nothing. `now_ms` as `retention.decide` takes it. LogStorageError: the log
    is offline, maybe with its directory and on account of another log."""
    log.health.check()
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
