"""Checkpoints of the log directories: one writer at a time, and at once where waiting would cost something.

| what | when |
|---|---|
| high watermarks | `replica.high.watermark.checkpoint.interval.ms` where one moved, and soon after logs came or went |
| recovery points, log starts (`upkeep/housekeeping`) | an interval each, and at once when logs were deleted |
| what a cut or a deletion of records waits for | at once (`cuts`, `log_starts`) |

Each directory has tasks and threads of its own: a disk that does not answer holds up its own logs only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from strandline.broker.replication.replicas import Replicas
from strandline.protocol.types import TopicPartition
from strandline.runtime.environment import Blocking
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager

NEW_LOGS_INTERVAL_S = 0.5
"""Between two checkpoints that name new logs, while many are made: one of 10,000 logs takes some 10 ms."""


class CheckpointSchedule:
    """See the module."""

    def __init__(self, logs: LogManager, replicas: Replicas, blocking: Blocking) -> None:
        self._logs = logs
        self._replicas = replicas
        self._blocking = blocking
        self._locks = {directory.path: trio.Lock() for directory in logs.directories}
        self._written: dict[str, tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, Log]]] = {}
        """Log directory → high watermarks, and the logs that they are of, as they stand on its disk."""
        self._deleted = trio.Event()
        """Set when logs were deleted, and another takes its place. Checkpoints are written at once then: where a log of
        that name is created while they still tell of it, `LogManager.create` writes them, and the event loop waits."""
        self._changed = trio.Event()
        """The same, also when logs were made. High watermarks are written then: a start misses the logs that they name,
        so a folder that vanishes is a loss from then on, and not only from the next checkpoint on."""

    def note_deletion(self) -> None:
        """A log was deleted."""
        self._deleted.set()
        self._deleted = trio.Event()
        self.note_creation()

    def note_creation(self) -> None:
        """A log was made."""
        self._changed.set()
        self._changed = trio.Event()

    async def write(self, path: str, write: Callable[..., None], *args: object) -> None:
        """Write checkpoints of recovery points, log starts and compaction in one log directory. One writer at a time:
        of two, the one that looked at the logs first could be the last to replace the file."""
        async with self._locks[path]:
            await self._blocking.run_in(path, write, *args)

    async def repeat(self, interval_s: float, write: Callable[[], Awaitable[None]]) -> None:
        """Call `write` once per interval, and at once when logs were deleted; for ever."""
        deleted = self._deleted
        while True:
            with trio.move_on_after(interval_s):
                await deleted.wait()
            deleted = self._deleted  # what is deleted during the write calls for another one
            await write()

    # --- high watermarks ---------------------------------------------------------------------------------------

    async def run_high_watermarks(self) -> None:
        async with trio.open_nursery() as nursery:
            for path in self._locks:
                nursery.start_soon(self._run_high_watermarks, path)

    async def _run_high_watermarks(self, path: str) -> None:
        interval_s = self._replicas.config.replica_high_watermark_checkpoint_interval_ms / 1000
        pause_s = min(NEW_LOGS_INTERVAL_S, interval_s)
        changed = self._changed
        while True:
            with trio.move_on_after(interval_s - pause_s):
                await changed.wait()
            deleted, changed = self._deleted, self._changed
            await self._write_high_watermarks(path)
            with trio.move_on_after(pause_s):
                await deleted.wait()

    async def _write_high_watermarks(self, path: str) -> None:
        # With the logs that they are of: where one is deleted and created anew before its turn comes in the thread,
        # the new one must not have the old one's mark, which would expose what is not committed (invariant 9).
        marks, logs = self.high_watermarks(), dict(self._logs.logs)
        if self._written.get(path) == (marks, logs):
            return
        self._written.pop(path, None)
        if await self._blocking.run_in(path, self._logs.checkpoints.write_high_watermarks, marks, path, logs):
            self._written[path] = marks, logs

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """HW of every replica on this disk, hosted now or not yet."""
        marks = dict(self._logs.high_watermarks)
        for partition in self._replicas.partitions.values():
            marks[partition.topic_partition] = partition.high_watermark
        return marks
