"""What groups let go of while nobody asks: offsets of deleted partitions, and whatever is too old.

    a deletion ──> each shard that is served: each group lets go of it ──┐
    a check, now and then ─┬─ tombstones that were refused, again        ├──> tombstones
                           └─ offsets and groups that are too old ───────┘

All in steps: others run in between. A group that is asked for lets go of deleted partitions first (`coordinator`).
"""

from __future__ import annotations

from collections.abc import Iterator

import trio

from strandline.broker.groups.coordinator import GroupCoordinator, ignore
from strandline.broker.groups.group import Group
from strandline.broker.groups.offsets import Standing
from strandline.broker.groups.shards import Coordinated, Shard
from strandline.broker.groups.states import GroupState
from strandline.broker.groups.views import subscriptions
from strandline.broker.metadata_cache import Deleted
from strandline.broker.replication.replicas import Replicas
from strandline.broker.steps import InSteps
from strandline.protocol.errors import ErrorCode
from strandline.protocol.group_records import GroupKey, OffsetKey, read_key
from strandline.runtime.beats import next_beat


class LettingGo:
    """See the module."""

    def __init__(self, coordinator: GroupCoordinator, replicas: Replicas) -> None:
        self._coordinator = coordinator
        self._replicas = replicas
        self._came = trio.lowlevel.ParkingLot()
        replicas.on_deletion(self._deleted)

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._check)
            nursery.start_soon(self._follow_deletions)

    async def _in_steps(self, work: Iterator[int]) -> None:
        await InSteps(work, self._coordinator.burst.end)()

    # --- what is deleted ---------------------------------------------------------------------------------------

    def _deleted(self, deleted: Deleted) -> None:
        """Of a topic that was made anew in the same word of the controller, a shard that is loading keeps what it
        finds: it may be of the new one, by a coordinator that heard of it before."""
        metadata = self._replicas.metadata
        for shard in self._coordinator.shards.values():
            if shard.groups is None:
                for topic, partitions in deleted.items():
                    gone = {each for each in partitions if metadata.partition(topic, each) is None}
                    shard.deleted[topic] = shard.deleted.get(topic, set()) | gone
        self._coordinator.deletions.add(deleted)
        self.look()

    def look(self) -> None:
        """There may be a shard that is behind."""
        self._came.unpark()

    async def _follow_deletions(self) -> None:
        """Groups that nobody asks for let go of what is deleted, too."""
        deletions, shards = self._coordinator.deletions, self._coordinator.shards
        while True:
            while not (behind := [each for each in shards.values() if _is_behind(each, deletions.latest)]):
                deletions.forget(min((each.deletions for each in shards.values()), default=deletions.latest))
                await self._came.park()
            for shard in behind:
                latest = deletions.latest
                await self._in_steps(self._let_shard_go(shard))
                shard.deletions = latest

    def _let_shard_go(self, shard: Shard) -> Iterator[int]:
        for coordinated in list((shard.groups or {}).values()):
            yield 1 + self._coordinator.let_go_of_deleted(coordinated)

    # --- what is too old ---------------------------------------------------------------------------------------

    async def _check(self) -> None:
        while True:
            await next_beat(self._replicas.config.offsets_retention_check_interval_ms / 1000)
            for shard in list(self._coordinator.shards.values()):
                await self._in_steps(self._bury_again(shard))
                await self._in_steps(self._check_shard(shard))

    def _bury_again(self, shard: Shard) -> Iterator[int]:
        """What is not committed, unless it was written anew."""
        for group_id, keys in list(shard.unburied.items()):
            for key in list(keys):
                about, found = read_key(key), (shard.groups or {}).get(group_id)
                if found is not None and _is_pending(about, found):
                    pass  # the next check knows how that ended
                elif found is None or not _is_written(about, found):
                    self._coordinator.bury(shard, group_id, [(key, None)], ignore)
                else:
                    keys.pop(key, None)
                yield 1
            if not shard.unburied.get(group_id, True):
                del shard.unburied[group_id]

    def _check_shard(self, shard: Shard) -> Iterator[int]:
        for coordinated in list((shard.groups or {}).values()):
            yield from self._check_group(coordinated)

    def _check_group(self, coordinated: Coordinated) -> Iterator[int]:
        """Yields how much was looked at; others run in between, and what is then no longer so waits for the next
        check."""
        coordinator = self._coordinator
        retention_ms = self._replicas.config.offsets_retention_minutes * 60_000
        group, offsets = coordinated.group, coordinated.offsets
        was = (group.state, group.generation, group.written_at_ms)
        for topic, partitions in offsets.expired(_standing(group), retention_ms, coordinator.burst.wall_ms()):
            if (group.state, group.generation, group.written_at_ms) != was:
                return
            expired = offsets.remove(topic, partitions)
            coordinator.counts.expirations += len(expired)
            coordinator.bury(coordinated.shard, group.group_id, expired, ignore)
            yield 1 + len(partitions)
        if group.is_over and not offsets:
            tombstone = coordinator.end(coordinated, ErrorCode.UNKNOWN_MEMBER_ID)
            coordinator.bury(coordinated.shard, group.group_id, tombstone, ignore)
        yield 1


def _is_behind(shard: Shard, latest_deletion: int) -> bool:
    return shard.groups is not None and shard.deletions < latest_deletion


def _is_pending(about: OffsetKey | GroupKey | None, found: Coordinated) -> bool:
    return isinstance(about, OffsetKey) and found.offsets.is_pending(*about[1:])


def _is_written(about: OffsetKey | GroupKey | None, found: Coordinated) -> bool:
    """Whether the group that is there now has a record with this key."""
    if isinstance(about, OffsetKey):
        return found.offsets.get(about.topic, about.partition) is not None
    return found.group.is_in_log


def _standing(group: Group) -> Standing:
    return Standing(
        group.protocol_type,
        group.state is GroupState.EMPTY,
        group.state is GroupState.STABLE,
        group.written_at_ms,
        subscriptions(group),
    )
