"""The controller's reads and fenced writes in ZooKeeper: pipelined, by waves, typed.

Rules:
* Every write is a transaction that first checks the version of `/controller_epoch` (invariant 26): once another
  controller was elected, nothing of this one is applied and `ControllerFenced` is raised.
* A partition state is written with the version that was read; a state that moved meanwhile is read again and handed
  back (never a blind write, invariant 12). That the version is not one of a topic made anew under the same name needs
  no check here: only a controller removes topics, in the turn of its events and under its epoch.
* A leader that was chosen by what it said itself (`PartitionChange.life`) must still live the life in which it said so:
  the transaction checks that, too.
* A znode that cannot be understood is reported and left out; it never stops the controller. Which those are is kept, so
  that they are read again once an operator may have mended them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from strandline.controller.agenda import ControllerFenced
from strandline.controller.controller_context import LeaderAndIsr, LiveBroker, PartitionChange
from strandline.controller.registrations import read_registrations
from strandline.controller.standing_watches import StandingWatches
from strandline.protocol import znodes
from strandline.protocol.types import TopicPartition
from strandline.runtime.config.standing import read_overrides
from strandline.runtime.coordination import (
    MATCH_ANY_VERSION,
    BadVersion,
    Check,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NoNode,
    Operation,
    OperationResult,
    SetData,
    TransactionFailed,
    Watch,
    Znode,
    ZnodeStat,
)

N = TypeVar("N")

TRANSACTION_PARTITIONS = 100
"""Partitions per transaction: 9–12 µs each in a multi of 100."""
MAX_ROUNDS = 20
"""Of repeating what a competing write upset; beyond it something is at war with this controller."""


class TooManyConflicts(CoordinationError):
    """Somebody changes the same znodes over and over."""


@dataclass(slots=True)
class WriteResult:
    """written: as they stand in ZooKeeper now. moved: somebody else wrote them, or who was to lead was started anew; as
    read again (None: gone)."""

    written: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    moved: dict[TopicPartition, LeaderAndIsr | None] = field(default_factory=dict)


class ClusterStore:
    """One term's door to ZooKeeper. `epoch`, `epoch_zk_version`: `/controller_epoch` as its election left it. watches:
    of all terms."""

    def __init__(
        self,
        coordination: Coordination,
        watches: StandingWatches,
        epoch: int,
        epoch_zk_version: int,
        inter_broker_listener: str,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._coordination = coordination
        self._watches = watches
        self._epoch = epoch
        self._fence = Check(znodes.CONTROLLER_EPOCH_PATH, epoch_zk_version)
        self._inter_broker_listener = inter_broker_listener
        self._log = log
        self.unreadable_states: dict[TopicPartition, int] = {}
        """Since which transaction, as far as this term has seen it."""
        self.mended_states: dict[TopicPartition, int] = {}
        """Those that were unreadable (since when) and are not any more, until what follows from that is done."""

    # --- Reading -----------------------------------------------------------------------------------------------

    async def sync(self) -> None:
        await self._coordination.sync()

    async def children(self, path: str, watch: Watch) -> list[str]:
        """Names below a path and a watch on them. A path that is not there has none and is watched for."""
        try:
            return await self._coordination.children(path, self._watches.of_children(path, watch))
        except NoNode:
            if await self._exists(path, watch) is None:
                return []
            return await self._coordination.children(path, self._watches.of_children(path, watch))

    async def watch(self, path: str, watch: Watch) -> None:
        """A watch on a znode's data, be it there or not."""
        await self._exists(path, watch)

    async def _exists(self, path: str, watch: Watch) -> ZnodeStat | None:
        return await self._coordination.exists(path, self._watches.of_data(path, watch))

    async def holds_controller(self, watch: Watch) -> bool:
        """Does `/controller` belong to this session?"""
        stat = await self._exists(znodes.CONTROLLER_PATH, watch)
        return stat is not None and stat.ephemeral_owner == self._coordination.session_id

    async def brokers(self, watch: Watch) -> dict[int, LiveBroker]:
        """Registered brokers by id; the czxid of a registration is the broker's epoch."""
        names = await self.children(znodes.BROKER_IDS_PATH, watch)
        return await read_registrations(self._coordination, names, self._inter_broker_listener, self._log)

    async def registrations(self, broker_ids: Iterable[int]) -> dict[int, LiveBroker]:
        """Of these brokers, those that are registered now."""
        names = [str(broker_id) for broker_id in broker_ids]
        return await read_registrations(self._coordination, names, self._inter_broker_listener, self._log)

    async def lives(self, broker_ids: Iterable[int]) -> dict[int, int]:
        """How often each was started (KIP-903), of those that are registered now. In a start that number goes up before
        anything else: a registration of the life before may still stand."""
        ids = list(broker_ids)
        started = await self._coordination.get_many([znodes.BrokerIncarnationZnode.path(id_) for id_ in ids])
        registered = await self._coordination.get_many([znodes.BrokerIdZnode.path(id_) for id_ in ids])
        return {
            broker_id: znode.stat.version
            for broker_id, znode, registration in zip(ids, started, registered, strict=True)
            if znode is not None and registration is not None
        }

    async def states(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, LeaderAndIsr]:
        """Partition states that are there and can be read. ControllerFenced when a later controller wrote one; one that
        only claims that counts like the others."""
        found = await self._coordination.get_many(
            [znodes.PartitionStateZnode.path(tp.topic, tp.partition) for tp in partitions]
        )
        states = {}
        for tp, znode in zip(partitions, found, strict=True):
            state = None if znode is None else self._state(tp, znode)
            since = self.unreadable_states.pop(tp, None)
            if state is not None:
                states[tp] = state
                if since is not None:
                    self.mended_states[tp] = since
            elif znode is not None:
                self.unreadable_states[tp] = since or self.mended_states.pop(tp, None) or znode.stat.mzxid
        if any(state.controller_epoch > self._epoch for state in states.values()):
            await self.check_fence()
        return states

    def _state(self, tp: TopicPartition, znode: Znode) -> LeaderAndIsr | None:
        try:
            state = znodes.PartitionStateZnode.decode(znodes.PartitionStateZnode.path(*tp), znode.data)
            return LeaderAndIsr.of(state, znode.stat.version, znode.stat.mzxid)
        except znodes.InvalidZnode as error:
            self._log.error("partition left out: its state cannot be read", partition=str(tp), error=str(error))
            return None

    async def topic_configs(self, names: Sequence[str]) -> dict[str, dict[str, str] | None]:
        """Overrides of each topic; None where they cannot be read, which its replicas tell."""
        found = await read_overrides(self._coordination, [znodes.ConfigZnode.path(name) for name in names])
        return {name: standing.overrides for name, standing in zip(names, found, strict=True)}

    async def notifications(
        self, folder: str, watch: Watch, decode: Callable[[str, bytes], N]
    ) -> tuple[list[str], list[N] | None]:
        """(paths, contents) of what brokers left below a folder, and a watch on it. No contents where one of them
        cannot be read: anything may be meant."""
        paths = [f"{folder}/{name}" for name in await self.children(folder, watch)]
        found: list[N] | None = []
        for path, znode in zip(paths, await self._coordination.get_many(paths), strict=True):
            try:
                notification = None if znode is None else decode(path, znode.data)
            except znodes.InvalidZnode as error:
                self._log.error("notification cannot be read: all is looked at", path=path, error=str(error))
                found = None
                continue
            if found is not None and notification is not None:
                found.append(notification)
        return paths, found

    async def watched(self, path: str, watch: Watch) -> Znode | None:
        """A znode that may be there or not, and a watch on it."""
        if await self._exists(path, watch) is None:
            return None
        [znode] = await self._coordination.get_many([path])
        return znode

    async def asked(self, path: str, watch: Watch, decode: Callable[[str, bytes], N]) -> N | None:
        """What a znode of another tool asks for, and a watch on it. None where there is nothing, or what nobody
        understands, which is reported."""
        znode = await self.watched(path, watch)
        try:
            return None if znode is None else decode(path, znode.data)
        except znodes.InvalidZnode as error:
            self._log.error("what is asked for cannot be read", path=path, error=str(error))
            return None

    # --- Writing -----------------------------------------------------------------------------------------------

    async def fenced(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """One transaction under the epoch check. TransactionFailed counts `operations` from 0; ControllerFenced."""
        [outcome] = await self.fenced_many([operations])
        if isinstance(outcome, TransactionFailed):
            raise outcome
        return outcome

    async def fenced_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | TransactionFailed]:
        """Transactions under the epoch check, as one wave; each ends by itself. Raises what leaves it
        unknown what was written: the event is repeated from what ZooKeeper says then."""
        outcomes: list[list[OperationResult] | TransactionFailed] = []
        for outcome in await self._coordination.multi_many([[self._fence, *one] for one in transactions]):
            if isinstance(outcome, TransactionFailed):
                outcomes.append(self._unfenced(outcome))
            elif isinstance(outcome, CoordinationError):
                raise outcome
            else:
                outcomes.append(outcome[1:])
        return outcomes

    async def check_fence(self) -> None:
        """ControllerFenced if another controller was elected."""
        await self.fenced([])

    async def write_states(self, changes: Sequence[PartitionChange]) -> WriteResult:
        """Write states, each on the condition that it is as it was read, in transactions of ~100. What fails for one
        partition does not hold up the others."""
        result = WriteResult()
        pending = [change for change in changes if self._has_successor(change)]
        directories = await self._directories(change for change in changes if change.expected_version is None)
        for _ in range(MAX_ROUNDS):
            if not pending:
                return result
            failed = await self._write_wave(pending, directories, result)
            if not failed:
                return result
            await self._coordination.sync()
            directories = await self._directories(change for change in failed if change.expected_version is None)
            now = await self.states([change.topic_partition for change in failed])
            lives = await self.lives(dict.fromkeys(c.after.leader for c in failed if c.life is not None))
            pending = []
            for change in failed:
                found = now.get(change.topic_partition)
                if change.topic_partition in self.unreadable_states:
                    continue  # reported when it was read; an operator has to mend it
                is_of_this_life = change.life in (None, lives.get(change.after.leader))
                if found is not None and _is_done(change, found):
                    result.written[change.topic_partition] = found
                elif is_of_this_life and (None if found is None else found.zk_version) == change.expected_version:
                    pending.append(change)
                else:
                    result.moved[change.topic_partition] = found
        raise TooManyConflicts(
            f"{len(pending)} partition states could not be written, first {pending[0].topic_partition}"
        )

    def _has_successor(self, change: PartitionChange) -> bool:
        """Whether the epoch that is to be written leaves room for another: else nobody could read it again."""
        epoch = change.after.leader_epoch
        if epoch > znodes.PartitionStateZnode.LAST_EPOCH:
            self._log.error("no leader epoch is left", partition=str(change.topic_partition), leader_epoch=epoch)
        return epoch <= znodes.PartitionStateZnode.LAST_EPOCH

    async def _write_wave(
        self, changes: Sequence[PartitionChange], directories: set[str], result: WriteResult
    ) -> list[PartitionChange]:
        """One wave; fills `result.written`, returns the changes of the transactions that failed."""
        groups = [changes[i : i + TRANSACTION_PARTITIONS] for i in range(0, len(changes), TRANSACTION_PARTITIONS)]
        transactions = [
            [*_lives_checked(group), *(operation for change in group for operation in _operations(change, directories))]
            for group in groups
        ]
        failed: list[PartitionChange] = []
        for group, operations, outcome in zip(groups, transactions, await self.fenced_many(transactions), strict=True):
            if isinstance(outcome, TransactionFailed):
                failed += group
                continue
            stats = [o for op, o in zip(operations, outcome, strict=True) if _writes_a_state(op)]
            for change, stat in zip(group, stats, strict=True):
                mzxid = stat.mzxid if isinstance(stat, ZnodeStat) else 0
                result.written[change.topic_partition] = replace(change.after, mzxid=mzxid)
        return failed

    async def _directories(self, creations: Iterable[PartitionChange]) -> set[str]:
        """Which `partitions/<p>` of these topics are there; creates missing `partitions` folders."""
        topics = list(dict.fromkeys(change.topic_partition.topic for change in creations))
        folders = [f"{znodes.TopicZnode.path(topic)}/partitions" for topic in topics]
        present: set[str] = set()
        for folder, names in zip(folders, await self._coordination.children_many(folders), strict=True):
            if names is None:
                await self.ensure(folder)
            present |= {f"{folder}/{name}" for name in names or ()}
        return present

    async def note_our_epoch(self, epoch: int) -> None:
        """The states are judged: what the next terms find in them is ours, if no other controller comes in between."""
        path, data = znodes.OUR_CONTROLLER_EPOCH_PATH, znodes.ControllerEpochZnode(epoch).encode()
        is_first = await self._coordination.exists(path) is None
        await self.fenced([Create(path, data) if is_first else SetData(path, data, MATCH_ANY_VERSION)])

    async def ensure(self, path: str) -> None:
        """Create an empty znode under the epoch check unless it is there."""
        try:
            await self.fenced([Create(path)])
        except TransactionFailed as error:
            if await self._coordination.exists(path) is None:
                raise error.cause from error

    async def delete_all(self, paths: Sequence[str], *, under: Sequence[Check] = ()) -> None:
        """Delete znodes, in this order, under the epoch check and `under`; those that are gone already are fine."""
        pending = list(paths)
        for _ in range(MAX_ROUNDS):
            if not pending:
                return
            slices = [pending[i : i + TRANSACTION_PARTITIONS] for i in range(0, len(pending), TRANSACTION_PARTITIONS)]
            for part in slices:
                try:
                    await self.fenced([*under, *(Delete(path) for path in part)])
                except TransactionFailed as error:
                    if not isinstance(error.cause, NoNode) or error.index < len(under):
                        raise error.cause from error
                    break
            found = await self._coordination.get_many(pending)
            pending = [path for path, znode in zip(pending, found, strict=True) if znode is not None]
        raise TooManyConflicts(f"{len(pending)} znodes could not be deleted, first {pending[0]}")

    @staticmethod
    def _unfenced(error: TransactionFailed) -> TransactionFailed:
        """ControllerFenced if it was the epoch check that failed; else the error, counted without that check."""
        if error.index == 0 and isinstance(error.cause, BadVersion | NoNode):
            raise ControllerFenced(f"another controller was elected: {error}") from error
        return TransactionFailed(str(error), error.index - 1, error.cause)


def _operations(change: PartitionChange, directories: set[str]) -> list[Operation]:
    tp = change.topic_partition
    path, data = znodes.PartitionStateZnode.path(tp.topic, tp.partition), change.after.to_znode().encode()
    if change.expected_version is not None:
        return [SetData(path, data, change.expected_version)]
    directory = path.removesuffix("/state")
    return [Create(path, data)] if directory in directories else [Create(directory), Create(path, data)]


def _is_done(change: PartitionChange, found: LeaderAndIsr) -> bool:
    """Whether this very election was written before, and its answer was lost. Epochs of leaders are raised once, and
    nobody but the controller makes one."""
    before, after = change.before, change.after
    is_election = after.has_leader and (before is None or before.leader_epoch != after.leader_epoch)
    return is_election and (found.controller_epoch, found.leader_epoch, found.leader) == (
        after.controller_epoch,
        after.leader_epoch,
        after.leader,
    )


def _lives_checked(changes: Sequence[PartitionChange]) -> list[Operation]:
    """One check per broker whose own word made it leader."""
    lives = dict.fromkeys((change.after.leader, change.life) for change in changes if change.life is not None)
    return [Check(znodes.BrokerIncarnationZnode.path(broker_id), life) for broker_id, life in lives]


def _writes_a_state(operation: Operation) -> bool:
    return isinstance(operation, Create | SetData) and operation.path.endswith("/state")
