"""Tails that followers may only cut once a checkpoint no longer vouches for them (`storage/log/cutting`).

A fetcher that is told to cut below what a checkpoint says drops the answer and leaves the partition out. Here the
checkpoints of its log directory are written, once for all logs that wait by then, and nobody else waits for that disk.
Then the fetcher asks for the partition again: it gets the same answer if the leader is still the same, and cuts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from strandline.broker.replication.partition import Partition
    from strandline.broker.replication.replica_manager import ReplicaManager

    Done = Callable[[list[Partition], bool], None]
    """Takes partitions and whether their checkpoints were written."""


class CutCheckpoints:
    def __init__(self) -> None:
        self._waiting: dict[str, dict[Done, list[Partition]]] = {}
        self._running: set[str] = set()

    def add(self, nursery: trio.Nursery, replicas: ReplicaManager, partition: Partition, done: Done) -> None:
        """Have the checkpoints written that this partition waits for. `done` is called once for all of its callers'
        partitions that waited together."""
        path = partition.log.segments.folder.rpartition("/")[0]
        self._waiting.setdefault(path, {}).setdefault(done, []).append(partition)
        if path not in self._running:
            self._running.add(path)
            nursery.start_soon(self._run, replicas, path)

    async def _run(self, replicas: ReplicaManager, path: str) -> None:
        while waiting := self._waiting.pop(path, None):
            try:
                await replicas.write_checkpoints(path, replicas.logs.checkpoints.write_cuts, path)
                written = True
            except OSError:  # the directory is offline, which its logs tell; or no descriptor is left
                written = False
            for done, partitions in waiting.items():
                done(partitions, written)
        self._running.discard(path)
