"""Indexes that are lost while their log is served: built anew beside everything else, one at a time per log directory.

Whoever needs one is told KAFKA_STORAGE_ERROR and asks again, as where descriptors are lacking; nothing else of the log
and no other log is held up. Slice after slice of the .log is brought into the page cache by a thread of its disk, and
then walked over on the event loop: that takes less than a turn of it does.

Where the batches do not follow one another the log itself is damaged, and goes offline, although nobody may have asked
for what stands there. It is known now, and another replica in sync can lead with the whole log at once, instead of when
a reader gets there. An index up to the damage would not help: it says that the segment is older than it is, and
retention, which is one of those who need the index, would delete the records behind. If no other replica is in sync the
partition waits, with an error that names file and byte.
"""

from __future__ import annotations

import trio

from strandline.broker.network.regions import Warm
from strandline.broker.replication.burst import Burst
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.runtime.disk import FileRegion
from strandline.storage.errors import CorruptLog
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.segments.indexes import SLICE_BYTES, IndexLost
from strandline.storage.segments.scan import HEADER_CHUNK_BYTES
from strandline.storage.segments.segment import Segment


class IndexRebuilds:
    def __init__(self, logs: LogManager, replicas: Replicas, burst: Burst, warm: Warm) -> None:
        self._logs = logs
        self._replicas = replicas
        self._burst = burst
        self._warm = warm
        self._under_way: set[Segment] = set()
        self._turns: dict[str, trio.Lock] = {}
        """Log directory → who builds there: one at a time, so that flushes wait for a slice at most."""
        self._nursery: trio.Nursery | None = None
        replicas.on_lost_index(self._begin)

    async def run(self) -> None:
        """As long as it runs no index of a large segment is built anew where somebody needs it."""
        place = self._logs.rebuilds
        place.is_elsewhere = True
        try:
            async with trio.open_nursery() as self._nursery:
                await trio.sleep_forever()
        finally:
            place.is_elsewhere = False

    def _begin(self, partition: Partition, lost: IndexLost) -> None:
        """Have it built, unless it is under way."""
        segment = partition.log.segments.holding(lost.base_offset)
        if self._nursery is not None and segment not in self._under_way:
            self._under_way.add(segment)
            self._nursery.start_soon(self._build, partition, segment)

    async def _build(self, partition: Partition, segment: Segment) -> None:
        try:
            async with self._turns.setdefault(partition.log_dir, trio.Lock()):
                await self._build_in_turn(partition, segment)
        finally:
            self._under_way.discard(segment)

    async def _build_in_turn(self, partition: Partition, segment: Segment) -> None:
        log = partition.log
        cuts = log.segments.cuts

        def is_current() -> bool:
            is_held = log.failure is None and log.segments.holding(segment.base_offset) is segment
            return is_held and log.segments.cuts == cuts

        try:
            slices = segment.indexes.build_in_slices() if is_current() else iter(())
            for position in slices:
                slice_bytes = min(SLICE_BYTES + HEADER_CHUNK_BYTES, segment.size_bytes - position)
                await self._warm(FileRegion(segment.file.get(), position, slice_bytes))
                if not is_current():  # who needs it then asks again
                    return
        except (OSError, CorruptLog) as error:
            if is_current():
                self._replicas.partition_failed(partition, log.fail("building an index anew failed", error))
                self._burst.end()
