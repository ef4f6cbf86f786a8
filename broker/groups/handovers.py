"""Shards come and go with the leadership of their partitions, and their groups with them.

    this broker begins to lead ── load ── take over, in steps ──> served
    ... ceases to ──────────────────────> served no more ── end the groups, in steps: whoever waits is told

A load whose leadership is over takes nothing over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator

import structlog
import trio

from strandline.broker.groups.coordinator import GroupCoordinator, ignore
from strandline.broker.groups.group import Group
from strandline.broker.groups.loading import LoadedGroups
from strandline.broker.groups.offsets import GroupOffsets
from strandline.broker.groups.shards import OFFSETS_TOPIC, Coordinated, Shard
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.broker.steps import PARTITIONS_PER_STEP, InSteps
from strandline.protocol.errors import ErrorCode

Load = Callable[[Partition], Awaitable[LoadedGroups | None]]


class Handovers:
    """See the module."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        replicas: Replicas,
        load: Load,
        taken_over: Callable[[], None],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        """load: reads a partition's groups; see `GroupLoader.load`. taken_over: called when a shard is served."""
        self._coordinator = coordinator
        self._load_groups = load
        self._taken_over = taken_over
        self._log = log
        self._to_load: deque[Shard] = deque()
        self._left: deque[dict[str, Coordinated]] = deque()
        """Groups of shards that are over, to be ended."""
        self._came = trio.lowlevel.ParkingLot()
        replicas.on_role_change(self._role_changed)

    def _role_changed(self, partition: Partition) -> None:
        topic, index = partition.topic_partition
        if topic != OFFSETS_TOPIC:
            return
        shards = self._coordinator.shards
        shard = shards.get(index)
        if shard is not None and (partition.leadership is None or shard.partition is not partition):
            self._unload(index, shard)
            shard = None
        if shard is None and partition.leadership is not None:
            shard = shards[index] = Shard(partition, self._coordinator.deletions.latest)
            self._to_load.append(shard)
            self._came.unpark()

    def _unload(self, index: int, shard: Shard) -> None:
        del self._coordinator.shards[index]
        if shard.groups:
            self._left.append(shard.groups)
            self._came.unpark()
        shard.groups = None

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                while self._to_load:
                    nursery.start_soon(self._load, self._to_load.popleft())
                while self._left:
                    nursery.start_soon(InSteps(self._leave(self._left.popleft()), self._coordinator.burst.end))
                await self._came.park()

    def _leave(self, groups: dict[str, Coordinated]) -> Iterator[int]:
        """Groups that are another's now: first those in which somebody may wait. Their log is left alone."""
        for coordinated in list(groups.values()):
            if len(coordinated.group.members):
                self._coordinator.end(coordinated, ErrorCode.NOT_COORDINATOR)
            yield 1 + len(coordinated.group.members)
        while groups:
            self._coordinator.end(groups.popitem()[1], ErrorCode.NOT_COORDINATOR)
            yield 1

    async def _load(self, shard: Shard) -> None:
        while not self._coordinator.is_over(shard):
            loaded = await self._load_groups(shard.partition)
            if loaded is not None and await self._take_over(shard, loaded):
                self._log.info("groups loaded", partition=shard.partition.topic_partition.partition, groups=len(loaded))
                return

    async def _take_over(self, shard: Shard, loaded: LoadedGroups) -> bool:
        coordinator = self._coordinator
        groups: dict[str, Coordinated] = {}
        deleted, shard.deletions = shard.deleted, coordinator.deletions.latest
        for number, (group_id, found) in enumerate(loaded.items(), 1):
            if found.metadata is None:
                group = Group(group_id, coordinator.settings)
            else:
                group = Group.loaded(found.metadata, coordinator.settings, trio.current_time())
            offsets = GroupOffsets(group_id, found.offsets)
            groups[group_id] = taken_over = coordinator.coordinated(shard, group, offsets)
            taken_over.deletions = shard.deletions
            coordinator.bury(shard, group_id, offsets.remove_deleted(deleted), ignore)
            coordinator.carry_out(taken_over)
            if number % PARTITIONS_PER_STEP == 0:
                coordinator.burst.end()
                await trio.lowlevel.checkpoint()
        coordinator.burst.end()
        if coordinator.is_over(shard):
            return False
        shard.groups = groups
        self._taken_over()  # there may have been deletions meanwhile
        return True
