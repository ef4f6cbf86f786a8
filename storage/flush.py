"""Making a log durable without holding its owner up: what is due, what is to be synced, what is durable then.

The log says on the event loop *that* and *what* is to be synced (`Log.flush_plan`: index tails are written, files
named, epoch entries captured); the plan is called elsewhere and only syncs; `Log.flushed` moves the recovery point. The
epoch file is part of it: it covers everything below the recovery point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from strandline.runtime.disk import Disk
from strandline.storage.checkpoints import LEADER_EPOCHS, encode_epochs, write_atomically
from strandline.storage.context import LogConfig
from strandline.storage.errors import LogStorageError
from strandline.storage.leader_epochs import EpochEntry


@dataclass(slots=True)
class FlushPlan:
    """Call it off the event loop; hand what it returns to `Log.flushed`.

    LogStorageError when the disk failed: the log is told by itself (one attribute is set, which is all that a thread
    may do to it) and takes no more appends; the plan is not to be tried again.
    """

    log: str
    disk: Disk
    folder: str
    offset: int
    """Everything below is durable once the plan returned."""
    fail: Callable[[LogStorageError], None]
    paths: Sequence[str] = ()
    """Files to sync."""
    epochs: Sequence[EpochEntry] | None = None
    """What `leader-epoch-checkpoint` shall say; None where it says so already."""
    folders: Sequence[str] = ()
    """Folders whose names are to be made durable."""
    epochs_version: int = 0
    is_done: bool = field(default=False, init=False)

    def __call__(self) -> int:
        try:
            for path in self.paths:
                self._sync(path)
            if self.epochs is not None:
                write_atomically(self.disk, f"{self.folder}/{LEADER_EPOCHS}", encode_epochs(self.epochs))
            for folder in self.folders:
                self.disk.fsync_dir(folder)
        except OSError as error:
            failure = LogStorageError(self.log, "flushing failed", error)
            self.fail(failure)
            raise failure from error
        self.is_done = True
        return self.offset

    def _sync(self, path: str) -> None:
        try:
            file = self.disk.open(path)
        except FileNotFoundError:  # truncated away or deleted meanwhile: `flushed` knows
            return
        try:
            file.fsync()
        finally:
            file.close()


_PLANS_MAX = 8


class FlushSchedule:
    """When a log is to be flushed, and what the plans under way are worth once they returned."""

    __slots__ = ("_last_ms", "_plans", "_sealed", "epochs_version")

    def __init__(self) -> None:
        self._sealed = False  # a segment was sealed since the last plan: it is synced soon (Kafka's roll does the same)
        self._last_ms: int | None = None
        self._plans: list[FlushPlan] = []
        self.epochs_version = 0
        """Of the epoch cache as `leader-epoch-checkpoint` has it."""

    def is_due(self, now_ms: int, unflushed: int, config: LogConfig) -> bool:
        """unflushed: offsets between recovery point and log end."""
        if self._last_ms is None or unflushed <= 0:
            self._last_ms = now_ms
        if unflushed <= 0:
            return False
        if self._sealed or unflushed >= config.flush_messages:
            due = True
        else:
            due = config.flush_ms is not None and now_ms - self._last_ms >= config.flush_ms
        if due:
            self._last_ms = now_ms
        return due

    def rolled(self) -> None:
        self._sealed = True

    def planned(self, plan: FlushPlan) -> None:
        """`plan` is about to be run (or dropped: then it counts for nothing)."""
        self._sealed = False
        self._plans = [*self._plans[-_PLANS_MAX:], plan]

    def cut(self, offset: int) -> None:
        """What stands from `offset` on was dropped: plans under way do not vouch for what is written there next."""
        for plan in self._plans:
            plan.offset = min(plan.offset, offset)

    def completed(self, offset: int) -> int:
        """A plan returned `offset`; the offset below which everything is durable now, 0 where nothing is known."""
        done = [plan for plan in self._plans if plan.is_done]
        self._plans = [plan for plan in self._plans if not plan.is_done]
        if not done:
            return 0
        self.epochs_version = max(self.epochs_version, *(plan.epochs_version for plan in done))
        return min(offset, max(plan.offset for plan in done))
