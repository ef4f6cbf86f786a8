"""Loading: what the log of a partition of `__consumer_offsets` says, once this broker leads it.

    1 read region after region, in a thread   2 decode it, in a worker   3 take it over, piece by piece, on the loop
    4 wait until the high watermark is where the log ended: what lies above might still be cut

Rules:
* It reads up to where the log ended when it began: nobody appends before it is done.
* It always ends, and never by a guess. Records that cannot be read are reported and skipped. A batch that is damaged
  makes the log go offline, as where a follower meets one: another replica leads, and loads. Where only descriptors,
  room, a worker or an index are lacking it tries again.
* It is over with the leadership that it was begun under: then there is no result.
* Some logs of a directory are loaded at once, the others wait, so that hundreds of partitions after a failover need the
  memory of some.
* A small piece is decoded here: no worker is started for a handful of groups.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import structlog
import trio

from strandline.broker.network.regions import StaleRegion, read_whole
from strandline.broker.replication.burst import Burst
from strandline.broker.replication.deadlines import NEVER, Deadlines
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.purgatory import Waiter
from strandline.broker.replication.replicas import Replicas
from strandline.protocol.group_changes import Changes, Reading, read_changes, unpack_changes
from strandline.protocol.group_records import CommittedOffset, GroupMetadata
from strandline.protocol.types import NO_BROKER, NO_EPOCH
from strandline.runtime.environment import Blocking, Computing, ComputingFailed
from strandline.storage.errors import LogStorageError, OffsetOutOfRange

LOADS_AT_ONCE = 2
"""In each log directory."""
HERE_BYTES = 32 * 2**10
"""Up to so much is decoded on the loop, within a millisecond or two."""
HERE_DECODED_BYTES = 2**18
RETRY_S = 1.0


class LoadedGroup(msgspec.Struct):
    """`metadata`: None where only offsets are known. `offsets`: by topic and partition, no topic without any."""

    metadata: GroupMetadata | None = None
    offsets: dict[str, dict[int, CommittedOffset]] = {}


LoadedGroups = dict[str, LoadedGroup]
"""By group."""


class GroupLoader:
    def __init__(
        self,
        replicas: Replicas,
        deadlines: Deadlines,
        burst: Burst,
        look_for_damage: Callable[[Partition, int], Awaitable[None]],
        blocking: Blocking,
        computing: Computing,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        """look_for_damage: at what stands at an offset; where it is damaged the log goes offline."""
        self._replicas = replicas
        self._deadlines = deadlines
        self._burst = burst
        self._look_for_damage = look_for_damage
        self._blocking = blocking
        self._computing = computing
        self._log = log
        self._turns: dict[str, trio.CapacityLimiter] = {}
        """By log directory: one whose disk does not answer keeps no other waiting."""

    async def load(self, partition: Partition) -> LoadedGroups | None:
        """See the module. None: this leadership is over; where the next one is here as well, it is loaded again."""
        leadership, end_offset = partition.leadership, partition.log.log_end_offset
        if leadership is None:
            return None
        groups: LoadedGroups = {}
        offset = partition.log.log_start_offset
        async with self._turns.setdefault(partition.log_dir, trio.CapacityLimiter(LOADS_AT_ONCE)):
            while offset < end_offset:
                reading = await self._read(partition, offset, end_offset)
                if partition.leadership is not leadership:
                    return None
                if reading is None:
                    await trio.sleep(RETRY_S)
                    continue
                offset = reading.next_offset
                await self._take(partition, groups, reading)
        is_committed = partition.leadership is leadership and await self._committed(partition, end_offset)
        return groups if is_committed and partition.leadership is leadership else None

    async def _read(self, partition: Partition, offset: int, end_offset: int) -> Reading | None:
        """1 and 2. None: not now, or never, which the leadership tells."""
        log, config = partition.log, self._replicas.config
        try:
            region = log.read(offset, config.offsets_load_buffer_size, end_offset)
            if region is None:  # compaction left nothing behind that offset
                return Reading(end_offset)
            data = await self._blocking.run_in(partition.log_dir, read_whole, region)
            return await self._decode(data, offset, config.max_decompressed_message_bytes)
        except OffsetOutOfRange:  # retention was faster
            return Reading(max(offset, log.log_start_offset))
        except StaleRegion:
            return None
        except ComputingFailed as error:
            self._log.error("offsets not decoded yet", partition=str(partition.topic_partition), error=str(error))
            return None
        except (LogStorageError, OSError) as error:
            failure = error if isinstance(error, LogStorageError) else log.fail("reading failed", error)
            self._replicas.partition_failed(partition, failure)
            self._burst.end()
            return None

    async def _decode(self, data: bytes, offset: int, max_decompressed_bytes: int) -> Reading:
        if len(data) <= HERE_BYTES:
            here = msgspec.convert(read_changes(None, data, offset, HERE_DECODED_BYTES), Reading)
            if not here.skipped:
                return here
        fields = await self._computing.run(read_changes, data, offset, max_decompressed_bytes)
        return msgspec.convert(fields, Reading)

    async def _take(self, partition: Partition, groups: LoadedGroups, reading: Reading) -> None:
        """3, and what is wrong with it."""
        for piece in reading.pieces:
            _merge(groups, unpack_changes(piece))
            await trio.lowlevel.checkpoint()
        name = str(partition.topic_partition)
        if reading.skipped:
            self._log.error("records of groups skipped", partition=name, records=reading.skipped, why=reading.why)
        if reading.is_damaged:
            self._log.error("damage among records of groups", partition=name, offset=reading.next_offset)
            await self._look_for_damage(partition, reading.next_offset)
            await trio.sleep(RETRY_S)

    async def _committed(self, partition: Partition, offset: int) -> bool:
        """4. Whether the high watermark came there, before the leadership was over."""
        if partition.high_watermark >= offset:
            return True
        operation = _Commit()
        partition.waiters.park(Waiter(offset, operation, 0, partition.topic_partition.partition), self._deadlines)
        try:
            await operation.ended.wait()
        except trio.Cancelled:
            operation.is_abandoned = True
            raise
        return operation.is_committed


class _Commit:
    """Waits for the high watermark."""

    deadline = NEVER

    def __init__(self) -> None:
        self.is_abandoned = False
        self.is_committed = False
        self.ended = trio.Event()

    def reached(self, waiter: Waiter, log_start_offset: int) -> None:
        self.is_committed = True
        self.ended.set()

    def failed(
        self, position: int, partition: int, code: int, leader_id: int = NO_BROKER, leader_epoch: int = NO_EPOCH
    ) -> None:
        self.ended.set()


def _merge(groups: LoadedGroups, changes: Changes) -> None:
    """3."""
    for group, metadata in changes.groups.items():
        groups.setdefault(group, LoadedGroup()).metadata = metadata
    for group, topics in changes.offsets.items():
        offsets = groups.setdefault(group, LoadedGroup()).offsets
        for topic, partitions in topics.items():
            known = offsets.setdefault(topic, {})
            for partition, committed in partitions.items():
                if committed is None:
                    known.pop(partition, None)
                else:
                    known[partition] = committed
            if not known:
                del offsets[topic]
    for group in (*changes.groups, *changes.offsets):
        loaded = groups.get(group)
        if loaded is not None and loaded.metadata is None and not loaded.offsets:
            del groups[group]
