"""Log starts on their way to the disk: a deletion is acknowledged by what survives SIGKILL and power loss of all
(invariant 19).

    raised in memory ──add──> wanted ──one checkpoint for all of a log directory──> on the disk ──> told

A leader answers DeleteRecords by what is on its own disk and by what followers tell in their fetches, which is what is
on theirs. Whoever is elected afterwards begins there, too. A log start that only retention raised may wait for the
periodic checkpoint: who asked for nothing was promised nothing.

Each log directory has a task of its own, and nobody else waits for it: on a disk that does not answer, deletions run
into the timeouts of their requests. What could not be written is tried again; where the disk is at fault the directory
goes offline, and its logs with it.
"""

from __future__ import annotations

from functools import partial

import trio

from strandline.broker.replication.burst import Burst
from strandline.broker.replication.checkpoint_schedule import CheckpointSchedule
from strandline.broker.replication.partition import Partition
from strandline.storage.manager.log_manager import LogManager

RETRY_S = 1.0
SOON_S = 2.0
"""So long after a deletion was asked for, followers fetch in short turns, to tell at once what they have written. Then
no more: a disk may hang, or be full for days."""


class LogStartWrites:
    def __init__(self, logs: LogManager, checkpoints: CheckpointSchedule, burst: Burst) -> None:
        self._logs = logs
        self._checkpoints = checkpoints
        self._burst = burst
        self._came: dict[str, trio.Event] = {directory.path: trio.Event() for directory in logs.directories}
        self._wanted: dict[Partition, None] = {}
        self._under_way: dict[Partition, int] = {}
        """What is being written, and where the log began when that was begun."""
        self._soon_until = 0.0

    @property
    def are_due(self) -> bool:
        """Something is to be told once it is written."""
        return bool(self._wanted or self._under_way)

    @property
    def are_due_soon(self) -> bool:
        """The same, and its disk neither hangs nor is full, as far as one can say yet."""
        return self.are_due and trio.current_time() < self._soon_until

    def add(self, partition: Partition) -> None:
        """Its log begins above what the disk says; nothing happens where that is being written."""
        start = partition.log.log_start_offset
        if start > partition.log.durable_log_start_offset and self._under_way.get(partition) != start:
            if partition not in self._wanted:
                self._soon_until = trio.current_time() + SOON_S
            self._wanted[partition] = None
            self._came[partition.log_dir].set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for path in self._came:
                nursery.start_soon(self._run_in, path)

    async def _run_in(self, path: str) -> None:
        while True:
            await self._came[path].wait()
            self._came[path] = trio.Event()
            await self._write(path)

    async def _write(self, path: str) -> None:
        """Write all that is wanted by now in this directory, once."""
        wave = {each: each.log.log_start_offset for each in self._wanted if each.log_dir == path}
        self._under_way.update(wave)
        for partition in wave:
            del self._wanted[partition]
        try:
            await self._checkpoints.write(path, partial(self._logs.checkpoints.write_cuts, path, recovery_points=False))
        except OSError:
            await trio.sleep(RETRY_S)
            self._wanted.update(dict.fromkeys(each for each in wave if not each.failed))
            self._came[path].set()
        for partition in wave:
            del self._under_way[partition]
            partition.complete_deletions()
        self._burst.end()
