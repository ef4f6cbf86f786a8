"""Tails that followers may only cut once a checkpoint no longer vouches for them (`storage/log/truncation_guard`).

A fetcher that is told to cut below what a checkpoint says drops the answer and leaves the partition out. Here the
checkpoints of its log directory are written, once for all logs that wait by then, and nobody else waits for that disk.
Then the fetcher asks for the partition again: it gets the same answer if the leader is still the same, and cuts.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from strandline.broker.replication.checkpoint_schedule import CheckpointSchedule
from strandline.broker.replication.partition import Partition
from strandline.storage.manager.log_manager import LogManager

Done = Callable[[list[Partition], bool], None]
"""Takes partitions and whether their checkpoints were written."""


class CutCheckpoints:
    def __init__(self, logs: LogManager, checkpoints: CheckpointSchedule) -> None:
        self._logs = logs
        self._checkpoints = checkpoints
        self._waiting: dict[str, dict[Done, list[Partition]]] = {}
        self._running: set[str] = set()

    def add(self, nursery: trio.Nursery, partition: Partition, done: Done) -> None:
        """Have the checkpoints written that this partition waits for. `done` is called once for all of its callers'
        partitions that waited together."""
        path = partition.log_dir
        self._waiting.setdefault(path, {}).setdefault(done, []).append(partition)
        if path not in self._running:
            self._running.add(path)
            nursery.start_soon(self._run, path)

    async def _run(self, path: str) -> None:
        while waiting := self._waiting.pop(path, None):
            try:
                await self._checkpoints.write(path, self._logs.checkpoints.write_cuts, path)
                written = True
            except OSError:  # the directory is offline, which its logs tell; or no descriptor is left
                written = False
            for done, partitions in waiting.items():
                done(partitions, written)
        self._running.discard(path)
