"""Making a log durable without holding its owner up: what is due, what is to be synced, what is durable then.

The log says on the event loop *that* and *what* is to be synced (`Flushes.plan`: index tails are written, files named,
epoch entries captured); the plan is called elsewhere and only syncs; `Flushes.completed` moves the recovery point. The
epoch file is part of it: it covers everything below the recovery point. So are producer snapshots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from strandline.runtime.disk import Disk
from strandline.storage.disk.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    EpochEntry,
    encode_epochs,
    remove_temporary,
    write_atomically,
)
from strandline.storage.disk.directory_health import is_about_process, is_full
from strandline.storage.disk.log_health import LogHealth
from strandline.storage.disk.storage_context import LogConfig, StorageContext
from strandline.storage.log.leader_epochs import LeaderEpochCache
from strandline.storage.producers.log_producers import LogProducers
from strandline.storage.producers.snapshots import write_snapshot
from strandline.storage.producers.states import ProducerRow
from strandline.storage.segments.segment_list import SegmentList

NEVER = math.inf


@dataclass(slots=True)
class FlushPlan:
    """Call it off the event loop; hand what it returns to `Flushes.completed`.

    LogStorageError when the disk failed: the log is told by itself (attributes are set, which is all that a thread may
    do to it) and takes no more appends; the plan is not to be tried again.
    """

    log: str
    disk: Disk
    folder: str
    offset: int
    """Everything below is durable once the plan returned."""
    health: LogHealth
    paths: Sequence[str] = ()
    """Files to sync."""
    epochs: Sequence[EpochEntry] | None = None
    """What `leader-epoch-checkpoint` shall say; None where it says so already."""
    folders: Sequence[str] = ()
    """Folders whose names are to be made durable."""
    epochs_version: int = 0
    snapshots: Sequence[tuple[int, Sequence[ProducerRow]]] = ()
    """(offset, rows) of producer snapshots that were taken since the last flush."""
    publish: Callable[[Sequence[tuple[int, Sequence[ProducerRow], str]]], None] | None = None
    """Names the snapshots right here, where nothing else happens to the log meanwhile."""
    written: list[tuple[int, Sequence[ProducerRow], str]] = field(default_factory=list, init=False)
    """The same and the file that holds it, which has its name not yet: what it tells may have been cut off."""
    is_done: bool = field(default=False, init=False)
    is_postponed: bool = field(default=False, init=False)
    """No descriptor or no space was left: another plan is due at once."""

    def __call__(self) -> int:
        try:
            for path in self.paths:
                self._sync(path)
            if self.epochs is not None:
                write_atomically(self.disk, f"{self.folder}/{LEADER_EPOCHS}", encode_epochs(self.epochs))
            for offset, rows in self.snapshots:
                self.written.append((offset, rows, write_snapshot(self.disk, self.folder, offset, rows)))
            if self.publish is not None:
                self.publish(self.written)
            for folder in self.folders:
                self.disk.fsync_dir(folder)
        except OSError as error:
            self.is_postponed = is_about_process(error) or is_full(error)
            for _, _, temporary in self.written:
                remove_temporary(self.disk, temporary)
            raise self.health.fail("flushing failed", error, syncing=True) from error
        self.is_done = True
        return self.offset

    def _sync(self, path: str) -> None:
        # Where it was truncated away or deleted meanwhile, `completed` knows.
        with suppress(FileNotFoundError), closing(self.disk.open(path)) as file:
            file.fsync()


_PLANS_MAX = 8


class Flushes:
    """The flushes of one log: when they are due, what they do, and what the plans under way are worth once they
    returned. Owns the recovery point."""

    __slots__ = (
        "_context",
        "_epochs",
        "_epochs_version",
        "_health",
        "_log",
        "_plans",
        "_producers",
        "_segments",
        "recovery_point",
    )

    def __init__(
        self,
        context: StorageContext,
        health: LogHealth,
        log: str,
        segments: SegmentList,
        epochs: LeaderEpochCache,
        producers: LogProducers,
        recovery_point: int,
    ) -> None:
        """`log`: its name, for texts."""
        self.recovery_point = recovery_point
        """First offset not known to be durable; never above the log end offset."""
        self._context = context
        self._health = health
        self._log = log
        self._segments = segments
        self._epochs = epochs
        self._producers = producers
        self._epochs_version = 0  # of the epoch cache as `leader-epoch-checkpoint` has it
        self._plans: list[FlushPlan] = []

    def due_ms(self, since_ms: int, log_end_offset: int, config: LogConfig) -> float:
        """When `plan` should be run if nothing else happens to the log (then it is one of `changed_logs`, and this is
        asked again): at once where a sealed segment is not durable or `flush.messages` is reached, by `flush.ms`, or
        NEVER. A sealed one is synced soon as in Kafka, whose roll does it; one of a life that was killed before, too.

        since_ms: of the last plan, or before the first append after it, by any clock that does not go back."""
        unflushed = log_end_offset - self.recovery_point
        if unflushed <= 0:
            return NEVER
        has_sealed = self.recovery_point < self._segments.active.base_offset
        if has_sealed or unflushed >= config.flush_messages or any(plan.is_postponed for plan in self._plans):
            return since_ms
        return NEVER if config.flush_ms is None else since_ms + config.flush_ms

    def plan(self, log_end_offset: int, *, final: bool) -> FlushPlan:
        """What makes everything up to the log end durable, to be called off the event loop. (A plan that is dropped
        counts for nothing.) final: no append follows, so the last time entry and a producer snapshot are written, the
        topic id is synced, and reserved space is given back.
        LogStorageError."""
        self._health.check()
        active = self._segments.active
        try:
            if final:
                active.finish()
                self._producers.capture(log_end_offset)
            else:
                active.indexes.flush()
        except OSError as error:
            raise self._health.fail("writing an index failed", error) from error
        folder = self._segments.folder
        named = [f"{folder}/{PARTITION_METADATA}"] if final else []  # it was not synced: nobody waits for it before
        plan = FlushPlan(
            self._log,
            self._context.disk,
            folder,
            log_end_offset,
            self._health,
            # From one below the recovery point: where that is a segment's base, the one before may have been cut there.
            [*self._segments.file_paths(self.recovery_point - 1), *named],
            self._epochs.entries if self._epochs.version != self._epochs_version else None,
            (folder, folder.rpartition("/")[0]),
            self._epochs.version,
            self._producers.snapshots.captured,
            self._producers.publish if final else None,
        )
        self._plans = [*[plan for plan in self._plans if not plan.is_postponed][-_PLANS_MAX:], plan]
        return plan

    def cut(self, offset: int) -> bool:
        """What stands from `offset` on is about to be dropped: plans under way do not vouch for what is written there
        next. Returns whether the recovery point was above, so that what the disk says of it is wrong now."""
        for plan in self._plans:
            plan.offset = min(plan.offset, offset)
        if offset >= self.recovery_point:
            return False
        self.recovery_point = offset
        return True

    def completed(self, offset: int, log_end_offset: int) -> None:
        """A plan returned `offset`: everything below is durable (but for what was cut off and written anew since).
        LogStorageError from the disk."""
        done = [plan for plan in self._plans if plan.is_done]
        self._plans = [plan for plan in self._plans if not plan.is_done]
        if not done:
            return
        self._epochs_version = max(self._epochs_version, *(plan.epochs_version for plan in done))
        try:
            for plan in done:
                if plan.publish is None:
                    self._producers.publish(plan.written)
        except OSError as error:
            raise self._health.fail("naming a producer snapshot failed", error) from error
        durable = min(offset, max(plan.offset for plan in done), log_end_offset)
        self.recovery_point = max(self.recovery_point, durable)
