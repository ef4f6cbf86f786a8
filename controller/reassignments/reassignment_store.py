"""Where it stands which brokers are to hold a partition: the topics' znodes, and `/admin/reassign_partitions`, in which
tools ask that have no request for it.

Rules:
* A partition's replicas are written on the condition that they are as the plan found them (of others in the same znode
  nothing is said), in one transaction per topic, all topics in one wave.
* What is asked for by a request counts before what the znode of the tools asks for: the same transaction takes the
  partition out of there; one before it, where both are too large for one.
* What stands as it was to be is taken for written: after a lost answer the same is written again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import structlog

from strandline.controller.partition_replicas import PartitionReplicas
from strandline.controller.store import MAX_ROUNDS, ClusterStore, TooManyConflicts
from strandline.protocol.types import TopicId, TopicPartition
from strandline.protocol.znodes import InvalidZnode, ReassignPartitionsZnode, TopicZnode
from strandline.protocol.znodes.base import MAX_ZNODE_BYTES
from strandline.runtime.coordination import (
    Coordination,
    Delete,
    Operation,
    OperationResult,
    SetData,
    TransactionFailed,
    Znode,
    ZnodeStat,
)

MAX_DATA_BYTES = MAX_ZNODE_BYTES - 4096
"""In one transaction: ZooKeeper counts paths and the epoch check, too."""

Entries = dict[TopicPartition, list[int]]


@dataclass(frozen=True, slots=True)
class Move:
    """Other replicas for one partition of a topic."""

    topic_id: TopicId
    before: PartitionReplicas
    after: PartitionReplicas


@dataclass(slots=True)
class Written:
    """`stands`: as it was to be. `found`: somebody else wrote something else. `refused`: why it cannot be written."""

    stands: dict[TopicPartition, PartitionReplicas] = field(default_factory=dict)
    found: dict[TopicPartition, PartitionReplicas] = field(default_factory=dict)
    refused: dict[TopicPartition, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Asked:
    """What stands in `/admin/reassign_partitions`."""

    entries: Entries
    version: int

    def without(self, gone: Sequence[TopicPartition]) -> list[Operation]:
        """The write that takes these out. The znode goes with the last of them."""
        left = self._all_but(gone)
        if not left:
            return [Delete(ReassignPartitionsZnode.PATH, self.version)]
        if len(left) == len(self.entries):
            return []
        return [SetData(ReassignPartitionsZnode.PATH, ReassignPartitionsZnode(left).encode(), self.version)]

    def note(self, gone: Sequence[TopicPartition], result: OperationResult) -> None:
        self.entries = self._all_but(gone)
        self.version = result.version if isinstance(result, ZnodeStat) else -1

    def _all_but(self, gone: Sequence[TopicPartition]) -> Entries:
        named = frozenset(gone)
        return {tp: replicas for tp, replicas in self.entries.items() if tp not in named}


class ReassignmentStore:
    """One term's."""

    def __init__(
        self, coordination: Coordination, store: ClusterStore, log: structlog.typing.FilteringBoundLogger
    ) -> None:
        self._coordination = coordination
        self._store = store
        self._log = log

    async def write(self, moves: Mapping[TopicPartition, Move], *, overrules_tools: bool = False) -> Written:
        """Steps 1 and 10. overrules_tools: takes the partitions out of `/admin/reassign_partitions`."""
        result = Written()
        pending: dict[str, dict[int, Move]] = {}
        for (name, partition), move in moves.items():
            pending.setdefault(name, {})[partition] = move
        for attempt in range(MAX_ROUNDS):
            if not pending:
                return result
            if attempt:
                await self._coordination.sync()
            asked = await self._asked() if overrules_tools else None
            found = await self._coordination.get_many([TopicZnode.path(name) for name in pending])
            writes: dict[str, tuple[list[TopicPartition], list[Operation]]] = {}
            for (name, its_moves), stored in zip(list(pending.items()), found, strict=True):
                partitions, operations = self._write_of(name, its_moves, stored, result)
                if partitions:
                    writes[name] = partitions, operations
                else:
                    del pending[name]
            named = {name for name, (partitions, _) in writes.items() if asked and asked.entries.keys() & partitions}
            for name in await self._write_wave({name: write for name, write in writes.items() if name not in named}):
                self._note(name, pending, result)
            for name in sorted(named):
                assert asked is not None
                if not await self._write_with_entries(asked, *writes[name]):
                    break  # whatever moved is read again
                self._note(name, pending, result)
        raise TooManyConflicts(f"{len(pending)} topics could not be reassigned: their znodes keep changing")

    @staticmethod
    def _note(name: str, pending: dict[str, dict[int, Move]], result: Written) -> None:
        result.stands.update({TopicPartition(name, p): move.after for p, move in pending.pop(name).items()})

    def _write_of(
        self, name: str, moves: dict[int, Move], stored: Znode | None, result: Written
    ) -> tuple[list[TopicPartition], list[Operation]]:
        """(partitions that will stand, what to write for that); no partitions where none of them may be written. Takes
        out of `moves` what is not to stand."""
        znode = self._decoded(name, stored)
        replaced: dict[int, PartitionReplicas] = {}
        is_news = False
        for partition, move in list(moves.items()):
            now = None if znode is None or znode.topic_id != move.topic_id else _replicas_of(znode, partition)
            if now == move.after or now == move.before:
                replaced[partition] = move.after
                is_news = is_news or now != move.after
                continue
            del moves[partition]
            if now is not None:
                result.found[TopicPartition(name, partition)] = now
        if znode is None or stored is None or not replaced:
            return [], []
        partitions = [TopicPartition(name, partition) for partition in replaced]
        if not is_news:
            return partitions, []
        data = _with_replicas(znode, replaced).encode()
        if len(data) > MAX_DATA_BYTES:
            why = f"the znode of topic {name} would get larger than ZooKeeper allows: move fewer partitions at a time"
            result.refused.update(dict.fromkeys(partitions, why))
            return [], []
        return partitions, [SetData(TopicZnode.path(name), data, stored.stat.version)]

    async def _write_wave(self, writes: Mapping[str, tuple[list[TopicPartition], list[Operation]]]) -> list[str]:
        """Those topics that stand as they were to be."""
        needed = {name: operations for name, (_, operations) in writes.items() if operations}
        outcomes = await self._store.fenced_many(list(needed.values()))
        failed = [name for name, out in zip(needed, outcomes, strict=True) if isinstance(out, TransactionFailed)]
        return [name for name in writes if name not in failed]

    async def _write_with_entries(
        self, asked: _Asked, partitions: list[TopicPartition], operations: list[Operation]
    ) -> bool:
        without = asked.without(partitions)
        together = [*without, *operations]
        fits = sum(len(each.data or b"") for each in together if isinstance(each, SetData)) <= MAX_DATA_BYTES
        for step in [together] if fits else [without, operations]:
            [outcome] = await self._store.fenced_many([step])
            if isinstance(outcome, TransactionFailed):
                return False
            if without and step is not operations:
                asked.note(partitions, outcome[0])
        return True

    async def take_out(self, entries: Entries) -> None:
        """Step 11: these are done, or cannot be. What asks for other replicas by now stays."""
        for _ in range(MAX_ROUNDS):
            asked = await self._asked()
            if asked is None:
                return
            operations = asked.without([tp for tp in entries if asked.entries.get(tp) == entries[tp]])
            if not operations:
                return
            [outcome] = await self._store.fenced_many([operations])
            if not isinstance(outcome, TransactionFailed):
                return
            await self._coordination.sync()
        raise TooManyConflicts(f"{ReassignPartitionsZnode.PATH} keeps changing")

    async def _asked(self) -> _Asked | None:
        """None where there is no such znode, or one that nobody understands, which is named where it is looked at."""
        [stored] = await self._coordination.get_many([ReassignPartitionsZnode.PATH])
        if stored is None:
            return None
        try:
            znode = ReassignPartitionsZnode.decode(ReassignPartitionsZnode.PATH, stored.data)
        except InvalidZnode:
            return None
        return _Asked({tp: list(replicas) for tp, replicas in znode.reassignments.items()}, stored.stat.version)

    def _decoded(self, name: str, stored: Znode | None) -> TopicZnode | None:
        try:
            return None if stored is None else TopicZnode.decode(TopicZnode.path(name), stored.data)
        except InvalidZnode as error:
            self._log.error("topic cannot be reassigned: its znode cannot be read", topic=name, error=str(error))
            return None


def _replicas_of(znode: TopicZnode, partition: int) -> PartitionReplicas | None:
    """As `Topic.replicas_of`."""
    assigned = znode.partitions.get(partition)
    if assigned is None:
        return None
    adding, removing = znode.adding_replicas.get(partition, ()), znode.removing_replicas.get(partition, ())
    return PartitionReplicas.of(assigned, adding, removing)


def _with_replicas(znode: TopicZnode, replaced: Mapping[int, PartitionReplicas]) -> TopicZnode:
    """The znode with other replicas of these partitions; a partition that does not move stands in one list only."""
    adding, removing = dict(znode.adding_replicas), dict(znode.removing_replicas)
    for partition, replicas in replaced.items():
        for lists, theirs in ((adding, replicas.adding), (removing, replicas.removing)):
            lists.pop(partition, None)
            if theirs:
                lists[partition] = list(theirs)
    partitions = {**znode.partitions, **{p: list(replicas.assigned) for p, replicas in replaced.items()}}
    return msgspec.structs.replace(znode, partitions=partitions, adding_replicas=adding, removing_replicas=removing)
