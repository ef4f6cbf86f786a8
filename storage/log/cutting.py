"""Before something is cut off: what the checkpoints on the disk say must be true of what will be left.

A checkpoint that vouches for more than the log has would have the next start count as one that lost data; once other
records stand there, it would keep them from being checked. So the order is

    1 prepare      in memory, on the event loop: recovery point, compacted offset and log start are not above the cut
    2 checkpoint   durable, in a thread: `Checkpoints.write_cuts`
    3 cut          on the event loop, if nothing was raised above it meanwhile (a flush, a cleaning); else from 1 again
    4 append

A crash after 1 or 2 leaves the log as it was, with more to be checked than need be; so does a cut that is given up. A
log start that is to come down (a log that begins anew below) is only written as such (`log_start_floor`): in memory it
stays until the cut, and on the disk it may always come back lower, down to the first segment (`head`).

Where a log begins anew, nothing of it is vouched for any more, since a kill may come between two of its segments, down
to the first one, which may lie below the log start. (What the high watermark's checkpoint protects would then count as
lost, which costs a replication and no record.)

What needs room comes first (the checkpoint; an index that is built anew to find the place): a full disk refuses it
there, nothing was cut, and it may be tried again. The cut itself only shortens files and removes some. The one file
that a log needs which begins anew is made last, or with its first append.

`Log.truncate_to` and `truncate_fully_and_start_at` go through all of this by themselves and wait for the disk, where
nobody asked `may_truncate_to` or `may_start_at` before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.storage.disk.context import StorageContext
from strandline.storage.disk.directory_health import is_about_process
from strandline.storage.errors import CorruptLog, LogStorageError
from strandline.storage.log.flush import Flushes
from strandline.storage.segments.segment_list import SegmentList
from strandline.storage.segments.tail import activate

if TYPE_CHECKING:
    from strandline.storage.log.log import Log
    from strandline.storage.segments.segment import Segment

NO_FLOOR = 2**63 - 1


class CheckpointFirst(Exception):
    """Nothing was cut yet: `Checkpoints.write_cuts` has to run first, then the same may be tried again."""


class Cutting:
    """How far the cuts of one log are prepared."""

    __slots__ = ("_flushes", "_segments", "log_start_floor", "lowered", "written")

    def __init__(self, segments: SegmentList, flushes: Flushes) -> None:
        self.lowered = 0
        """How often something that a checkpoint may say was lowered."""
        self.written = 0
        """The same, as far as it is durable. Set by whoever wrote the checkpoints, in any thread."""
        self.log_start_floor = NO_FLOOR
        """The log start is not checkpointed above this."""
        self._segments = segments
        self._flushes = flushes

    def prepare(self, offset: int) -> bool:
        """What stands from `offset` on is about to be dropped. Whether what the disk says allows that."""
        was_compacted = self._segments.will_be_cut(offset)
        if self._flushes.cut(offset) or was_compacted:
            self.lowered += 1
        return self.written == self.lowered

    def prepare_start(self, offset: int, log_start_offset: int) -> bool:
        """The log is about to begin anew at `offset`: segment after segment goes. Whether what the disk says allows
        that."""
        if offset < min(log_start_offset, self.log_start_floor):
            self.log_start_floor = offset
            self.lowered += 1
        return self.prepare(min(offset, self._segments.holding(0).base_offset))

    def end(self) -> None:
        """The log was cut, or it is sure that it will not be."""
        self.log_start_floor = NO_FLOOR


def may_truncate_to(log: Log, offset: int) -> bool:
    """Whether `log.truncate_to(offset)` waits for no disk; otherwise it is prepared. LogStorageError, IndexLost."""
    log.health.check()
    if offset >= log.log_end_offset:
        return True
    if offset < log.log_start_offset:
        return may_start_at(log, offset)
    try:
        return log.cutting.prepare(log.segments.locate_cut(offset)[2])
    except (OSError, CorruptLog) as error:
        raise log.fail("truncating failed", error) from error


def may_start_at(log: Log, offset: int) -> bool:
    """The same of `log.truncate_fully_and_start_at(offset)`."""
    log.health.check()
    return log.cutting.prepare_start(offset, log.log_start_offset)


def prepare_cut(log: Log, offset: int, checkpoint_now: Callable[[Log], None]) -> tuple[Segment, int, int]:
    """Where `log.truncate_to(offset)` cuts (`SegmentList.locate_cut`), once the disk allows that. LogStorageError:
    nothing was cut."""
    try:
        segment, position, end_offset = log.segments.locate_cut(offset)
        if not log.cutting.prepare(end_offset):
            checkpoint_now(log)
    except (OSError, CorruptLog) as error:
        raise log.fail("truncating failed", error) from error
    return segment, position, end_offset


def prepare_start(log: Log, offset: int, checkpoint_now: Callable[[Log], None]) -> None:
    """`log.truncate_fully_and_start_at(offset)` follows. LogStorageError: nothing was dropped."""
    try:
        if not log.cutting.prepare_start(offset, log.log_start_offset):
            checkpoint_now(log)
    except OSError as error:
        raise log.fail("truncating failed", error) from error


def make_active(log: Log) -> None:
    """The log began anew: make its file, unless there is no room for an empty one; then the first append does.
    LogStorageError from the disk."""
    try:
        log.segments.make_active(log.config)
    except OSError as error:
        failure = log.fail("beginning anew failed", error)
        if log.failure is not None:
            raise failure from error


def take_back(log: Log, context: StorageContext, failure: LogStorageError) -> LogStorageError:
    """An append failed: file, indexes, counters and producers end again where `log` ends. Nothing vouches for more, so
    no checkpoint is waited for, and nothing is written: the disk may be full. Returns the error to raise: `failure`, or
    that this failed, too. Then the next start finds the torn batch."""
    segment = log.segments.active
    try:
        segment.take_back(log.log_end_offset)
        activate(context, segment)
        log.producers.cut(log.log_end_offset)
    except (OSError, CorruptLog) as error:
        context.report("log-rollback-failed", log=str(log), error=str(error))
        return log.health.fail("append failed", error, repeatable=is_about_process(error))
    return failure


def condemn(log: Log, offset: int, position: int, why: str) -> LogStorageError:
    """What stands from `offset` on, at byte `position` of its segment, is damaged: the log goes offline. Once it was
    prepared and checkpointed, the next start checks it from there on. Returns the error to raise."""
    return log.fail("reading failed", CorruptLog(log.segments.holding(offset).path, position, why))
