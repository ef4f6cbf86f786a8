"""The coordinator: has the state machines of its groups run, and carries out what they ask for.

    request ── find ── a machine's call ── carry_out ─┬─ answers
                                                      ├─ records into the log ──committed──> the machine again
                                                      └─ when to look again (`deadlines`)

Rules:
* What a group answers after a sync, and what a commit is answered, follows its records' being committed, on all
  replicas in sync (invariant 40).
* Everything here is called within a burst, or ends it.
* What was committed for partitions that are deleted goes with them (`deletions`).
* Groups without members and offsets are forgotten: by the next check and with a tombstone where the log knows them, at
  once where it does not.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import cast
from uuid import UUID

import structlog
import trio

from strandline.broker.groups.deletions import Deletions
from strandline.broker.groups.effects import Answer, GroupSettings, Write
from strandline.broker.groups.group import Group
from strandline.broker.groups.loading import LoadedGroups
from strandline.broker.groups.offsets import GroupOffsets, Offsets, Record, Standing
from strandline.broker.groups.shards import (
    GROUP_ERRORS,
    OFFSET_ERRORS,
    OFFSETS_TOPIC,
    Coordinated,
    Shard,
    may_be_a_group,
    partition_of,
)
from strandline.broker.groups.states import GroupState
from strandline.broker.groups.views import metadata, subscriptions
from strandline.broker.metadata_cache import Deleted
from strandline.broker.network.request import RequestInHand
from strandline.broker.replication.burst import Burst
from strandline.broker.replication.deadlines import NEVER, Deadlines
from strandline.broker.replication.own_appends import OwnAppends
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.protocol.errors import ErrorCode
from strandline.protocol.group_records import GroupKey, InvalidGroupRecord, OffsetKey, group_key, group_value, read_key
from strandline.protocol.messages import Request
from strandline.runtime.beats import next_beat

MAX_PREFIX_CHARACTERS = 255
"""Of what member ids begin with: with all of a long name they could not be written."""
APPEND_BYTES = 256 * 1024
"""Tombstones are appended in pieces of about this size."""
SEEN_PER_STEP = 200

Load = Callable[[Partition], Awaitable[LoadedGroups | None]]
Outcome = Callable[[ErrorCode], None]


class GroupCoordinator:
    """See the module."""

    def __init__(
        self,
        replicas: Replicas,
        appends: OwnAppends,
        load: Load,
        burst: Burst,
        deadlines: Deadlines,
        random: random.Random,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        """load: reads a partition's groups; see `GroupLoader.load`."""
        self._replicas = replicas
        self._appends = appends
        self._load_groups = load
        self.burst = burst
        self._deadlines = deadlines
        self._random = random
        self._log = log
        self._shards: dict[int, Shard] = {}
        """By partition of the topic."""
        self._to_load: deque[Shard] = deque()
        self._left: deque[dict[str, Coordinated]] = deque()
        """Groups of shards that are over, to be ended."""
        self._came = trio.lowlevel.ParkingLot()
        config = replicas.config
        self._settings = GroupSettings(config.group_max_size, config.group_initial_rebalance_delay_ms / 1000)
        self._deletions = Deletions()
        self._deletion_came = trio.lowlevel.ParkingLot()
        replicas.on_role_change(self._role_changed)
        replicas.on_deletion(self._deleted)

    # --- which groups ------------------------------------------------------------------------------------------

    def find(self, group_id: str, *, is_needed: bool = True) -> Coordinated | ErrorCode:
        """NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND; INVALID_GROUP_ID where a name `is_needed`
        and there is none."""
        shard = self._shard_of(group_id, is_needed)
        if isinstance(shard, ErrorCode):
            return shard
        assert shard.groups is not None
        found = shard.groups.get(group_id)
        if found is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if found.group.state is GroupState.DEAD:  # it is being deleted
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._let_go_of_deleted(found)
        return found

    def find_or_make(self, group_id: str, *, is_needed: bool = True) -> Coordinated | ErrorCode:
        shard = self._shard_of(group_id, is_needed)
        if isinstance(shard, ErrorCode):
            return shard
        assert shard.groups is not None
        found = shard.groups.get(group_id)
        if found is None:
            found = self._coordinated(shard, Group(group_id, self._settings), GroupOffsets(group_id))
            shard.groups[group_id] = found
        if found.group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._let_go_of_deleted(found)
        return found

    def partition_of(self, group_id: str) -> int | None:
        """None: the topic does not exist (yet)."""
        known = self._replicas.metadata.topics.get(OFFSETS_TOPIC)
        if known is None or len(known.partitions) - 1 not in known.partitions:  # a part of them is not known yet
            return None
        return partition_of(group_id, len(known.partitions))

    def groups(self) -> Iterator[Group]:
        """All that are coordinated here."""
        for shard in list(self._shards.values()):
            for each in list((shard.groups or {}).values()):
                yield each.group

    @property
    def count(self) -> int:
        """How many groups are coordinated here."""
        return sum(len(shard.groups or ()) for shard in self._shards.values())

    @property
    def is_loading(self) -> bool:
        return any(shard.groups is None for shard in self._shards.values())

    def _shard_of(self, group_id: str, is_needed: bool) -> Shard | ErrorCode:
        if (is_needed and not group_id) or not may_be_a_group(group_id):
            return ErrorCode.INVALID_GROUP_ID
        index = self.partition_of(group_id)
        shard = None if index is None else self._shards.get(index)
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        return shard if shard.groups is not None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _coordinated(self, shard: Shard, group: Group, offsets: GroupOffsets) -> Coordinated:
        return Coordinated(shard, group, offsets, self._look, self._deletions.latest)

    def fresh_id(self, prefix: str) -> str:
        """A member id that nobody has: as Kafka makes them, from however long a name."""
        return f"{prefix[:MAX_PREFIX_CHARACTERS]}-{UUID(int=self._random.getrandbits(128), version=4)}"

    # --- their machines ----------------------------------------------------------------------------------------

    def carry_out(self, coordinated: Coordinated) -> None:
        """What the group asks for after a call. Where nothing is in it then and no log knows it, as after a call that
        was refused, it is forgotten: anybody may have one made by one request."""
        group = coordinated.group
        while effects := group.take_effects():
            for effect in effects:
                if isinstance(effect, Answer):
                    cast(RequestInHand[Request], effect.request).respond(effect.message)
                else:
                    self._write(coordinated, effect)
        is_served = coordinated.shard.groups is not None  # else who loads, or lets go, has it in its hands
        if is_served and group.is_over and not group.is_in_log and not coordinated.offsets:
            self._end(coordinated, ErrorCode.UNKNOWN_MEMBER_ID)
        elif group.look_at < coordinated.due_at:
            self._deadlines.enter(coordinated, group.look_at)

    def _write(self, coordinated: Coordinated, write: Write) -> None:
        group = coordinated.group
        group.written_at_ms = self.burst.wall_ms()
        try:
            if sum(map(len, write.assignments.values())) > coordinated.shard.partition.config.max_message_bytes:
                raise InvalidGroupRecord("its assignments are more than a record of the log may be")
            record = (group_key(group.group_id), group_value(metadata(group, write, group.written_at_ms)))
        except InvalidGroupRecord as error:
            self._log.warning("group not written", group=group.group_id, error=str(error))
            group.written(write, ErrorCode.UNKNOWN_SERVER_ERROR, self.burst.now())
            return
        group.is_in_log = True
        self._appends.append(coordinated.shard.partition, [record], partial(self._written, coordinated, write))

    def _written(self, coordinated: Coordinated, write: Write, code: ErrorCode) -> None:
        coordinated.group.written(write, GROUP_ERRORS.get(code, code), trio.current_time())
        self.carry_out(coordinated)

    def _look(self, coordinated: Coordinated, now: float) -> float:
        if self._is_over(coordinated.shard):
            return NEVER
        coordinated.group.expire(now)
        self.carry_out(coordinated)
        return coordinated.group.look_at

    # --- offsets -----------------------------------------------------------------------------------------------

    def commit(self, coordinated: Coordinated, offsets: Offsets, done: Outcome) -> None:
        """`done` is called once, with NONE when they are committed in the log and can be fetched."""
        try:
            pending, records = coordinated.offsets.begin(offsets)
        except InvalidGroupRecord:
            done(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            self.carry_out(coordinated)
            return

        def settle(code: ErrorCode) -> None:
            is_unsure = code is ErrorCode.REQUEST_TIMED_OUT
            coordinated.offsets.settle(pending, is_committed=code is ErrorCode.NONE, is_unsure=is_unsure)
            done(OFFSET_ERRORS.get(code, code))
            if code is not ErrorCode.NONE:
                self.carry_out(coordinated)

        self._appends.append(coordinated.shard.partition, records, settle)

    def delete(self, coordinated: Coordinated, done: Outcome) -> Iterator[int]:
        """A group without members, with all that it has committed; `done` as above. Yields how many offsets it has seen
        to; others may run in between. It is dead from the beginning and known to the end: so nobody commits to one of
        its name before its last tombstone."""
        shard, offsets, outcomes = coordinated.shard, coordinated.offsets, _Outcomes(done)
        self._kill(coordinated, ErrorCode.GROUP_ID_NOT_FOUND)
        for topic in offsets.topics():
            records = offsets.remove(topic)
            self.bury(shard, records, outcomes.one_more())
            yield len(records)
        self.bury(shard, self._end(coordinated, ErrorCode.GROUP_ID_NOT_FOUND), outcomes.last())

    def _kill(self, coordinated: Coordinated, code: ErrorCode) -> None:
        coordinated.group.end(code)
        self.carry_out(coordinated)
        self._deadlines.leave(coordinated)

    def _end(self, coordinated: Coordinated, code: ErrorCode) -> list[Record]:
        """It is none of the groups any more. Returns its tombstone, where the log knows it."""
        group, groups = coordinated.group, coordinated.shard.groups
        self._kill(coordinated, code)
        if groups is not None:
            del groups[group.group_id]
        return [(group_key(group.group_id), None)] if group.is_in_log else []

    def bury(self, shard: Shard, records: Sequence[Record], done: Outcome) -> None:
        """Append tombstones, in pieces; `done` follows the last one with the first error. What is refused is tried
        again with the next check."""
        if self._is_over(shard):  # what is left is its next coordinator's, who may have found it already
            done(ErrorCode.NOT_COORDINATOR)
            return
        outcomes = _Outcomes(done)
        for piece in _pieces(records):
            self._appends.append(shard.partition, piece, partial(_buried, shard, piece, outcomes.one_more()))
        outcomes.last()(ErrorCode.NONE)

    # --- shards ------------------------------------------------------------------------------------------------

    def _role_changed(self, partition: Partition) -> None:
        topic, index = partition.topic_partition
        if topic != OFFSETS_TOPIC:
            return
        shard = self._shards.get(index)
        if shard is not None and (partition.leadership is None or shard.partition is not partition):
            self._unload(index, shard)
            shard = None
        if shard is None and partition.leadership is not None:
            shard = self._shards[index] = Shard(partition, self._deletions.latest)
            self._to_load.append(shard)
            self._came.unpark()

    def _unload(self, index: int, shard: Shard) -> None:
        del self._shards[index]
        if shard.groups:
            self._left.append(shard.groups)
            self._came.unpark()
        shard.groups = None

    def _is_over(self, shard: Shard) -> bool:
        return self._shards.get(shard.partition.topic_partition.partition) is not shard

    def _leave(self, groups: dict[str, Coordinated]) -> Iterator[int]:
        """Groups that are another's now: first those in which somebody may wait. Their log is left alone."""
        for coordinated in list(groups.values()):
            if len(coordinated.group.members):
                self._end(coordinated, ErrorCode.NOT_COORDINATOR)
            yield 1 + len(coordinated.group.members)
        while groups:
            self._end(groups.popitem()[1], ErrorCode.NOT_COORDINATOR)
            yield 1

    async def run(self) -> None:
        """Loading, and the checks for what is too old; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._check)
            nursery.start_soon(self._follow_deletions)
            while True:
                while self._to_load:
                    nursery.start_soon(self._load, self._to_load.popleft())
                while self._left:
                    nursery.start_soon(self._in_steps, self._leave(self._left.popleft()))
                await self._came.park()

    async def _load(self, shard: Shard) -> None:
        while not self._is_over(shard):
            loaded = await self._load_groups(shard.partition)
            if loaded is not None and await self._take_over(shard, loaded):
                self._log.info("groups loaded", partition=shard.partition.topic_partition.partition, groups=len(loaded))
                return

    async def _take_over(self, shard: Shard, loaded: LoadedGroups) -> bool:
        groups: dict[str, Coordinated] = {}
        deleted, shard.deletions = shard.deleted, self._deletions.latest
        for number, (group_id, found) in enumerate(loaded.items(), 1):
            now = trio.current_time()
            if found.metadata is None:
                group = Group(group_id, self._settings)
            else:
                group = Group.loaded(found.metadata, self._settings, now)
            groups[group_id] = loaded_group = self._coordinated(shard, group, GroupOffsets(group_id, found.offsets))
            loaded_group.deletions = shard.deletions
            self.bury(shard, loaded_group.offsets.remove_deleted(deleted), _ignore)
            self.carry_out(loaded_group)
            if number % SEEN_PER_STEP == 0:
                self.burst.end()
                await trio.lowlevel.checkpoint()
        self.burst.end()
        if self._is_over(shard):
            return False
        shard.groups = groups
        self._deletion_came.unpark()  # there may have been some meanwhile
        return True

    # --- what is deleted ---------------------------------------------------------------------------------------

    def _deleted(self, deleted: Deleted) -> None:
        """Of a topic that was made anew in the same word of the controller, a shard that is loading keeps what it
        finds: it may be of the new one, by a coordinator that heard of it before."""
        metadata = self._replicas.metadata
        for shard in self._shards.values():
            if shard.groups is None:
                for topic, partitions in deleted.items():
                    gone = {each for each in partitions if metadata.partition(topic, each) is None}
                    shard.deleted[topic] = shard.deleted.get(topic, set()) | gone
        self._deletions.add(deleted)
        self._deletion_came.unpark()

    async def _follow_deletions(self) -> None:
        """Groups that nobody asks for let go of what is deleted, too."""
        while True:
            while not (
                behind := [
                    each
                    for each in self._shards.values()
                    if each.groups is not None and each.deletions < self._deletions.latest
                ]
            ):
                self._deletions.forget(
                    min((each.deletions for each in self._shards.values()), default=self._deletions.latest)
                )
                await self._deletion_came.park()
            for shard in behind:
                latest = self._deletions.latest
                await self._in_steps(self._let_shard_go(shard))
                shard.deletions = latest

    def _let_shard_go(self, shard: Shard) -> Iterator[int]:
        for coordinated in list((shard.groups or {}).values()):
            yield 1 + self._let_go_of_deleted(coordinated)

    def _let_go_of_deleted(self, coordinated: Coordinated) -> int:
        """Before anybody gets at it; see `deletions`. Returns how many offsets that were."""
        count = 0
        if coordinated.deletions != self._deletions.latest:
            for deleted in self._deletions.since(coordinated.deletions):
                records = coordinated.offsets.remove_deleted(deleted)
                self.bury(coordinated.shard, records, _ignore)
                count += len(records)
            coordinated.deletions = self._deletions.latest
        return count

    # --- what is too old ---------------------------------------------------------------------------------------

    async def _check(self) -> None:
        while True:
            await next_beat(self._replicas.config.offsets_retention_check_interval_ms / 1000)
            for shard in list(self._shards.values()):
                await self._in_steps(self._bury_again(shard))
                await self._in_steps(self._check_shard(shard))

    def _bury_again(self, shard: Shard) -> Iterator[int]:
        """What was refused, unless it was written anew."""
        keys, shard.unburied = shard.unburied, {}
        for key in keys:
            about, groups = read_key(key), shard.groups or {}
            found = groups.get(about.group) if about is not None else None
            if isinstance(about, OffsetKey) and found is not None and found.offsets.is_pending(*about[1:]):
                shard.unburied[key] = None  # the next check knows how that ended
            elif found is None or not _is_written(about, found):
                self.bury(shard, [(key, None)], _ignore)
            yield 1

    def _check_shard(self, shard: Shard) -> Iterator[int]:
        for coordinated in list((shard.groups or {}).values()):
            yield from self._check_group(coordinated)

    async def _in_steps(self, work: Iterator[int]) -> None:
        """Work that yields how much it has seen to; each step ends a burst."""
        seen = 0
        for count in work:
            seen += count
            if seen >= SEEN_PER_STEP:
                seen = 0
                self.burst.end()
                await trio.lowlevel.checkpoint()
        self.burst.end()

    def _check_group(self, coordinated: Coordinated) -> Iterator[int]:
        """Yields how much was looked at; others run in between, and what is then no longer so waits for the next
        check."""
        retention_ms = self._replicas.config.offsets_retention_minutes * 60_000
        group, offsets = coordinated.group, coordinated.offsets
        was = (group.state, group.generation, group.written_at_ms)
        for topic, partitions in offsets.expired(self._standing(group), retention_ms, self.burst.wall_ms()):
            if (group.state, group.generation, group.written_at_ms) != was:
                return
            self.bury(coordinated.shard, offsets.remove(topic, partitions), _ignore)
            yield 1 + len(partitions)
        if group.is_over and not offsets:
            self.bury(coordinated.shard, self._end(coordinated, ErrorCode.UNKNOWN_MEMBER_ID), _ignore)
        yield 1

    @staticmethod
    def _standing(group: Group) -> Standing:
        return Standing(
            group.protocol_type,
            group.state is GroupState.EMPTY,
            group.state is GroupState.STABLE,
            group.written_at_ms,
            subscriptions(group),
        )


def _buried(shard: Shard, piece: Sequence[Record], done: Outcome, code: ErrorCode) -> None:
    if code is not ErrorCode.NONE:
        shard.unburied.update((key, None) for key, _ in piece)
    done(code)


def _is_written(about: OffsetKey | GroupKey | None, found: Coordinated) -> bool:
    """Whether the group that is there now has a record with this key."""
    if isinstance(about, OffsetKey):
        return found.offsets.get(about.topic, about.partition) is not None
    return found.group.is_in_log


class _Outcomes:
    """Calls `done` once, with the first error, when the last part and all others have ended."""

    def __init__(self, done: Outcome) -> None:
        self._done = done
        self._open = 1
        self._code = ErrorCode.NONE

    def one_more(self) -> Outcome:
        self._open += 1
        return self._end

    def last(self) -> Outcome:
        return self._end

    def _end(self, code: ErrorCode) -> None:
        self._open -= 1
        if self._code is ErrorCode.NONE:
            self._code = OFFSET_ERRORS.get(code, code)
        if not self._open:
            self._done(self._code)


def _pieces(records: Sequence[Record]) -> Iterator[list[Record]]:
    piece: list[Record] = []
    size_bytes = 0
    for record in records:
        piece.append(record)
        size_bytes += len(record[0])
        if size_bytes >= APPEND_BYTES:
            yield piece
            piece, size_bytes = [], 0
    if piece:
        yield piece


def _ignore(code: ErrorCode) -> None:
    """What is refused is tried again, see `bury`."""
