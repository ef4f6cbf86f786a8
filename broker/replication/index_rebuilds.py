"""Damaged indexes of logs that are served: built anew by a worker, one after the other in each log directory.

Whoever meets one on the event loop (`storage/segments/rebuilding`) has it noted here and does without the partition
meanwhile:
| who | until then |
|---|---|
| Fetch | that partition has nothing to send yet: the fetch waits as for data, and is looked at again at the end |
| ListOffsets by time | waits `WAIT_S` at most, then says OFFSET_NOT_AVAILABLE, upon which clients ask again |
| a follower's cut | the partition is not fetched |
| retention, compaction | the log is left out until the next round |

A disk that does not answer holds up the indexes of its own directory only: each of them has its own task, and a worker
while there is something to do. Where no index can be built the log is damaged, and offline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
import trio

from strandline.broker.replication.burst import Burst
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.runtime.environment import Computing, ComputingFailed, ComputingSession
from strandline.runtime.logging import RateLimited
from strandline.storage.errors import LogStorageError, StorageError
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.segments.rebuilding import Rebuild, RebuildFirst, build, damage
from strandline.storage.segments.segment import Segment

RETRY_S = 1.0
"""After a worker died or none could be started."""
IDLE_S = 5.0
"""A worker stays so long: a search finds the next damaged index once it has the last one, and Python starts slowly."""
WAIT_S = 5.0
"""So long a request may hold up those behind it; clients give up after 30 s and more."""

Done = Callable[[bool], None]
"""Told whether to go on at once."""


@dataclass(slots=True)
class _Work:
    partition: Partition
    log: Log
    first: RebuildFirst
    done: list[Done] = field(default_factory=list)


class _Lane:
    """What is to be done in one log directory, in order; the first of it is under way."""

    def __init__(self) -> None:
        self.work: dict[Segment, _Work] = {}
        self.came = trio.lowlevel.ParkingLot()


class IndexRebuilds:
    def __init__(
        self,
        logs: LogManager,
        replicas: Replicas,
        burst: Burst,
        computing: Computing,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._burst = burst
        self._computing = computing
        self._log = RateLimited(log)
        self._lanes = {directory.path: _Lane() for directory in logs.directories}

    def add(self, partition: Partition, first: RebuildFirst, done: Done | None = None) -> None:
        """Have it done. Who waits at the partition is looked at again then, and `done` called."""
        lane = self._lanes[partition.log_dir]
        work = lane.work.get(first.segment)
        if work is None:
            work = lane.work[first.segment] = _Work(partition, partition.log, first)
            lane.came.unpark_all()
        if done is not None:
            work.done.append(done)

    async def built(self, partition: Partition, first: RebuildFirst, deadline: float) -> bool:
        """Have it done and wait for that, until `deadline` at most. False: ask again later."""
        outcome: list[bool] = []
        ended = trio.Event()

        def done(is_good: bool) -> None:
            outcome.append(is_good)
            ended.set()

        self.add(partition, first, done)
        with trio.move_on_at(deadline):
            await ended.wait()
        return outcome == [True]

    async def run(self) -> None:
        """As long as it runs no index of a large segment is built anew on the event loop."""
        place = self._logs.rebuilds
        place.is_elsewhere = True
        try:
            async with trio.open_nursery() as nursery:
                for lane in self._lanes.values():
                    nursery.start_soon(self._run_in, lane)
        finally:
            place.is_elsewhere = False

    async def _run_in(self, lane: _Lane) -> None:
        while True:
            while not lane.work:
                await lane.came.park()
            async with self._computing.session() as session:
                while lane.work:
                    await self._run_first(lane, session)
                    if not lane.work:
                        with trio.move_on_after(IDLE_S):
                            await lane.came.park()

    async def _run_first(self, lane: _Lane, session: ComputingSession) -> None:
        segment, work = next(iter(lane.work.items()))
        is_good = await self._rebuild(work, session)
        if not is_good:
            await trio.sleep(RETRY_S)
        del lane.work[segment]  # who asks from here on asks anew
        segment.indexes.pending = None
        for done in work.done:
            done(is_good)
        self._burst.changes.wake(work.partition)
        self._burst.end()

    async def _rebuild(self, work: _Work, session: ComputingSession) -> bool:
        """Whether to go on at once: it is built, or the log is another by now, or offline."""
        rebuild = Rebuild(work.log, work.first)
        try:
            wanted = rebuild.wanted()
            while not rebuild.take_over(wanted, await session.run(build, list(wanted))):
                wanted = rebuild.wanted()
            return True
        except ComputingFailed as error:
            if not rebuild.is_current:  # no such file any more
                return True
            if error.may_succeed_later:
                self._log.error("index not rebuilt", "index not rebuilt", log=str(work.log), error=str(error))
                return False
            cause = damage(work.first.segment, error, 0) if error.errno is None else OSError(error.errno, str(error))
            failure = work.log.fail("building an index anew failed", cause)
        except StorageError as error:
            failure = error if isinstance(error, LogStorageError) else work.log.fail("reading failed", error)
        if self._replicas.partitions.get(work.partition.topic_partition) is work.partition:
            self._replicas.partition_failed(work.partition, failure)
        return work.log.failure is not None  # else only descriptors are lacking
