"""The coordinator: has the state machines of its groups run, and carries out what they ask for.

    request ── find ── a machine's call ── carry_out ─┬─ answers
                                                      ├─ records into the log ──committed──> the machine again
                                                      └─ when to look again (`deadlines`)

Rules:
* What a group answers after a sync, and what a commit is answered, follows its records' being committed, on all
  replicas in sync (invariant 40).
* Everything here is called within a burst, or ends it.
* What was committed for partitions that are deleted goes with them, before anybody gets at it (`deletions`).
* Groups without members and offsets are forgotten: by the next check (`letting_go`) and with a tombstone where the log
  knows them, at once where it does not.

Which groups these are: those of `shards`, which come and go by `handovers`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import cast
from uuid import UUID

import structlog
import trio

from strandline.broker.groups.counts import GroupCounts
from strandline.broker.groups.deletions import Deletions
from strandline.broker.groups.effects import Answer, GroupSettings, Write
from strandline.broker.groups.group import Group
from strandline.broker.groups.offsets import GroupOffsets, Offsets, Record
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
from strandline.broker.groups.views import metadata
from strandline.broker.network.request import RequestInHand
from strandline.broker.replication.burst import Burst
from strandline.broker.replication.deadlines import NEVER, Deadlines
from strandline.broker.replication.own_appends import OwnAppends
from strandline.broker.replication.replicas import Replicas
from strandline.broker.steps import in_pieces
from strandline.protocol.errors import ErrorCode
from strandline.protocol.group_records import InvalidGroupRecord, group_key, group_value, offset_key
from strandline.protocol.messages import Request

MAX_PREFIX_CHARACTERS = 255
"""Of what member ids begin with: with all of a long name they could not be written."""
APPEND_BYTES = 256 * 1024
"""Tombstones are appended in pieces of about this size."""
MAX_OVERDUE = 1000
"""Offsets of commits that timed out, of a shard; then further commits are refused before they are appended. They would
come behind these in the log, and a client repeats a commit for as long as nothing is committed there."""

Outcome = Callable[[ErrorCode], None]


class GroupCoordinator:
    """See the module."""

    def __init__(
        self,
        replicas: Replicas,
        appends: OwnAppends,
        burst: Burst,
        deadlines: Deadlines,
        random: random.Random,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._replicas = replicas
        self._appends = appends
        self.burst = burst
        self._deadlines = deadlines
        self._random = random
        self._log = log
        self.shards: dict[int, Shard] = {}
        """By partition of the topic."""
        self.deletions = Deletions()
        self.counts = GroupCounts()
        config = replicas.config
        self.settings = GroupSettings(config.group_max_size, config.group_initial_rebalance_delay_ms / 1000)

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
        self.let_go_of_deleted(found)
        return found

    def find_or_make(self, group_id: str, *, is_needed: bool = True) -> Coordinated | ErrorCode:
        shard = self._shard_of(group_id, is_needed)
        if isinstance(shard, ErrorCode):
            return shard
        assert shard.groups is not None
        found = shard.groups.get(group_id)
        if found is None:
            found = self.coordinated(shard, Group(group_id, self.settings), GroupOffsets(group_id))
            shard.groups[group_id] = found
        if found.group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.let_go_of_deleted(found)
        return found

    def partition_of(self, group_id: str) -> int | None:
        """None: the topic does not exist (yet)."""
        known = self._replicas.metadata.topics.get(OFFSETS_TOPIC)
        if known is None or len(known.partitions) - 1 not in known.partitions:  # a part of them is not known yet
            return None
        return partition_of(group_id, len(known.partitions))

    def groups(self) -> Iterator[Group]:
        """All that are coordinated here."""
        for shard in list(self.shards.values()):
            for each in list((shard.groups or {}).values()):
                yield each.group

    @property
    def count(self) -> int:
        """How many groups are coordinated here."""
        return sum(len(shard.groups or ()) for shard in self.shards.values())

    @property
    def is_loading(self) -> bool:
        return any(shard.groups is None for shard in self.shards.values())

    def _shard_of(self, group_id: str, is_needed: bool) -> Shard | ErrorCode:
        if (is_needed and not group_id) or not may_be_a_group(group_id):
            return ErrorCode.INVALID_GROUP_ID
        index = self.partition_of(group_id)
        shard = None if index is None else self.shards.get(index)
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        return shard if shard.groups is not None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def coordinated(self, shard: Shard, group: Group, offsets: GroupOffsets) -> Coordinated:
        return Coordinated(shard, group, offsets, self._look, self.deletions.latest)

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
            self.end(coordinated, ErrorCode.UNKNOWN_MEMBER_ID)
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
        was_stable = coordinated.group.state is GroupState.STABLE
        coordinated.group.written(write, GROUP_ERRORS.get(code, code), trio.current_time())
        if coordinated.group.state is GroupState.STABLE and not was_stable:
            self.counts.completed_rebalances += 1
        self.carry_out(coordinated)

    def _look(self, coordinated: Coordinated, now: float) -> float:
        if self.is_over(coordinated.shard):
            return NEVER
        coordinated.group.expire(now)
        self.carry_out(coordinated)
        return coordinated.group.look_at

    # --- offsets -----------------------------------------------------------------------------------------------

    def commit(self, coordinated: Coordinated, offsets: Offsets, done: Outcome) -> None:
        """`done` is called once, with NONE when they are committed in the log and can be fetched. After a time-out they
        are under way until the log has them for good, or this leadership is over."""
        shard = coordinated.shard
        if shard.overdue >= MAX_OVERDUE:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.carry_out(coordinated)
            return
        try:
            pending, records = coordinated.offsets.begin(offsets)
        except InvalidGroupRecord:
            done(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            self.carry_out(coordinated)
            return

        count = len(records)

        def settle(code: ErrorCode) -> None:
            coordinated.offsets.settle(pending, is_committed=code is ErrorCode.NONE)
            if code is ErrorCode.NONE:
                self.counts.commits += count
            else:
                self.carry_out(coordinated)

        def answer(code: ErrorCode) -> None:
            if code is ErrorCode.REQUEST_TIMED_OUT:
                shard.overdue += count
            else:
                settle(code)
            done(OFFSET_ERRORS.get(code, code))

        def settle_late(code: ErrorCode) -> None:
            shard.overdue -= count
            settle(code)

        self._appends.append(shard.partition, records, answer, late=settle_late)

    def delete(self, coordinated: Coordinated, done: Outcome) -> Iterator[int]:
        """A group without members, with all that it has committed; `done` as above. Yields how many offsets it has seen
        to; others may run in between. It is dead from the beginning and known to the end: so nobody commits to one of
        its name before its last tombstone."""
        shard, offsets, outcomes = coordinated.shard, coordinated.offsets, Outcomes(done)
        name = coordinated.group.group_id
        self._kill(coordinated, ErrorCode.GROUP_ID_NOT_FOUND)
        for keys in in_pieces(list(shard.unburied.get(name, ()))):
            self.bury(shard, name, [(key, None) for key in keys], outcomes.one_more())
            yield len(keys)
        for topic in offsets.topics():
            for some in in_pieces(offsets.partitions(topic)):
                self.bury(shard, name, offsets.remove(topic, some), outcomes.one_more())
                yield len(some)
        self.bury(shard, name, self.end(coordinated, ErrorCode.GROUP_ID_NOT_FOUND), outcomes.last())

    def delete_the_rest(self, group_id: str, done: Outcome) -> Iterator[int]:
        """The same of a group that is not found: GROUP_ID_NOT_FOUND, unless tombstones of an earlier deletion are not
        committed yet. Then the log may still have it."""
        shard, outcomes = self._shard_of(group_id, is_needed=False), Outcomes(done)
        unburied = {} if isinstance(shard, ErrorCode) else shard.unburied.get(group_id, {})
        if isinstance(shard, ErrorCode) or not unburied:
            done(shard if isinstance(shard, ErrorCode) else ErrorCode.GROUP_ID_NOT_FOUND)
            return
        for keys in in_pieces(list(unburied)):
            if self.find(group_id, is_needed=False) is not ErrorCode.GROUP_ID_NOT_FOUND:
                outcomes.one_more()(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # somebody uses the name again
                break
            self.bury(shard, group_id, [(key, None) for key in keys], outcomes.one_more())
            yield len(keys)
        outcomes.last()(ErrorCode.NONE)

    def remove(self, coordinated: Coordinated, topic: str, partitions: Sequence[int]) -> list[Record]:
        """Forget these offsets. Returns the tombstones of those of which the log may have anything, also of those that
        were forgotten before and whose tombstones are not committed yet."""
        group_id = coordinated.group.group_id
        records = coordinated.offsets.remove(topic, partitions)
        self.counts.deletions += len(records)
        if unburied := coordinated.shard.unburied.get(group_id):
            with suppress(InvalidGroupRecord):  # of a topic whose name no record can hold
                keys = dict.fromkeys(offset_key(group_id, topic, partition) for partition in partitions)
                records = list(dict([*records, *((key, None) for key in keys if key in unburied)]).items())
        return records

    def _kill(self, coordinated: Coordinated, code: ErrorCode) -> None:
        coordinated.group.end(code)
        self.carry_out(coordinated)
        self._deadlines.leave(coordinated)

    def end(self, coordinated: Coordinated, code: ErrorCode) -> list[Record]:
        """It is none of the groups any more. Returns its tombstone, where the log knows it."""
        group, groups = coordinated.group, coordinated.shard.groups
        self._kill(coordinated, code)
        if groups is not None:
            del groups[group.group_id]
        return [(group_key(group.group_id), None)] if group.is_in_log else []

    def bury(self, shard: Shard, group_id: str, records: Sequence[Record], done: Outcome) -> None:
        """Append tombstones of a group, in pieces; `done` follows the last one with the first error. What is refused is
        tried again with the next check."""
        if self.is_over(shard):  # what is left is its next coordinator's, who may have found it already
            done(ErrorCode.NOT_COORDINATOR)
            return
        outcomes = Outcomes(done)
        for piece in _pieces(records):
            shard.unburied.setdefault(group_id, {}).update((key, piece) for key, _ in piece)
            self._appends.append(shard.partition, piece, partial(_buried, shard, group_id, piece, outcomes.one_more()))
        outcomes.last()(ErrorCode.NONE)

    def is_over(self, shard: Shard) -> bool:
        return self.shards.get(shard.partition.topic_partition.partition) is not shard

    def let_go_of_deleted(self, coordinated: Coordinated) -> int:
        """Before anybody gets at it; see `deletions`. Returns how many offsets that were."""
        count = 0
        if coordinated.deletions != self.deletions.latest:
            for deleted in self.deletions.since(coordinated.deletions):
                records = coordinated.offsets.remove_deleted(deleted)
                self.bury(coordinated.shard, coordinated.group.group_id, records, ignore)
                count += len(records)
            self.counts.deletions += count
            coordinated.deletions = self.deletions.latest
        return count


def _buried(shard: Shard, group_id: str, piece: list[Record], done: Outcome, code: ErrorCode) -> None:
    if code is ErrorCode.NONE:
        keys = shard.unburied.get(group_id, {})
        for key, _ in piece:
            if keys.get(key) is piece:  # else another one is under way
                del keys[key]
        if not keys:
            shard.unburied.pop(group_id, None)
    done(code)


class Outcomes:
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


def ignore(code: ErrorCode) -> None:
    """What is refused is tried again, see `bury`."""
