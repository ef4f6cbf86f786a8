"""ISR changes on their way to ZooKeeper: conditional writes, pipelined in waves, announced to the controller.

    proposal ─> [check incarnation of who joins, and the topic; set state at its version] ─> applied | refused | unknown

* Never an unconditional write; the version is the one the leader holds (invariant 12).
* No answer (connection lost, session expired), or one that says nothing of the state (a server that cannot do it now):
  repeat the identical conditional write, since it may have been applied.
* BadVersion on the state: only then read. Our own write found: success. Another ISR for our leader and epoch: adopt it.
  A later epoch of somebody else: this broker leads no more, and says so to whoever waits; its controller may not reach
  it. Anything else there, or nothing: freeze, keep the union, wait for LeaderAndIsr.
* The topic's id has no znode: the topic is gone, or another one has its name. Freeze; versions alone cannot tell, they
  begin at 0 again.
* The incarnation check failed: whoever joins has been restarted since its fetch; the proposal is dropped
  (invariant 10).
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog
import trio

from strandline.broker.replication.burst import Burst
from strandline.broker.replication.change_lines import partition_fields
from strandline.broker.replication.isr_counts import IsrCounts
from strandline.broker.replication.leadership import IsrProposal, Leadership
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import (
    BrokerIncarnationZnode,
    InvalidZnode,
    IsrChangeNotificationZnode,
    LogDirEventNotificationZnode,
    PartitionStateZnode,
    TopicIdZnode,
)
from strandline.runtime.coordination import (
    MATCH_ANY_VERSION,
    BadVersion,
    Check,
    ConnectionLost,
    Coordination,
    CoordinationError,
    NoNode,
    Operation,
    OperationResult,
    SessionExpired,
    SetData,
    TransactionFailed,
    ZnodeStat,
)
from strandline.runtime.logging import RateLimited

RETRY_DELAY_S = 0.1
"""Between two attempts while ZooKeeper does not answer."""
MAX_ANNOUNCED = 2000
"""Partitions in one announcement: with the longest names it stays within a znode's megabyte."""
ANNOUNCE_DELAY_S = 0.2
"""ISR changes are gathered this long before the controller is told (one znode for all of them)."""


@dataclass(frozen=True, slots=True)
class IsrOutcome:
    """`isr` at `zk_version` stands in ZooKeeper for our leader epoch, and who is `eligible` beside it; `isr` None: the
    proposal was not written; `frozen`: another leader or epoch stands there; `is_replaced`: that is another broker's,
    in a later epoch."""

    isr: tuple[int, ...] | None = None
    zk_version: int = -1
    frozen: bool = False
    is_replaced: bool = False
    eligible: tuple[int, ...] = ()


class IsrUpdates:
    """One task that carries proposals to ZooKeeper; `propose` is a plain function."""

    def __init__(
        self,
        replicas: Replicas,
        burst: Burst,
        coordination: Coordination,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._replicas = replicas
        self._broker_id = replicas.broker_id
        self._burst = burst
        self._coordination = coordination
        self._log = log
        self._logs_failed = False
        self._limited = RateLimited(log, interval_s=10.0)
        self.counts = IsrCounts()
        self._pending: dict[Partition, IsrProposal] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._wake = trio.Event()
        self._announce = trio.Event()
        replicas.on_role_change(self._note_role)

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        self._pending[partition] = proposal
        self._wake.set()

    def _note_role(self, partition: Partition) -> None:
        """Who does not lead any more has nothing to propose. Where its log failed, the controller shall hear of it and
        move leadership away."""
        if partition.leadership is None:
            self._pending.pop(partition, None)
        if partition.failed:
            self._logs_failed = True
            self._announce.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_writes)
            nursery.start_soon(self._run_announcements)

    async def _run_writes(self) -> None:
        while True:
            await self._wake.wait()
            if not await self.write_wave():
                await trio.sleep(RETRY_DELAY_S)
                self._wake.set()

    async def write_wave(self) -> bool:
        """Carry what is proposed now. Whether nothing of it has to be repeated."""
        self._wake = trio.Event()
        wave = [
            (p, leadership, proposal) for p, proposal in self._pending.items() if (leadership := _whose(p, proposal))
        ]
        self._pending = {}
        if not wave:
            return True
        results = await self._coordination.multi_many([self._transaction(*each) for each in wave])
        is_known = True
        for (partition, leadership, proposal), result in zip(wave, results, strict=True):
            outcome = await self._outcome(partition, leadership, proposal, result)
            if outcome is not None:
                self._finish(partition, leadership, proposal, outcome)
            elif _whose(partition, proposal):
                is_known = False
                self._pending.setdefault(partition, proposal)
        return is_known

    def _transaction(self, partition: Partition, leadership: Leadership, proposal: IsrProposal) -> list[Operation]:
        """Identical at every attempt: it depends on the proposal alone."""
        topic, index = partition.topic_partition
        state = PartitionStateZnode(
            controller_epoch=leadership.controller_epoch,
            leader=self._broker_id,
            leader_epoch=leadership.leader_epoch,
            isr=list(proposal.isr),
            elr=list(proposal.eligible),
        )
        checks: list[Operation] = [
            Check(BrokerIncarnationZnode.path(broker_id), incarnation)
            for broker_id, incarnation in proposal.added.items()
        ]
        checks.append(Check(TopicIdZnode.path(topic, partition.topic_id), MATCH_ANY_VERSION))
        return [*checks, SetData(PartitionStateZnode.path(topic, index), state.encode(), proposal.zk_version)]

    async def _outcome(
        self,
        partition: Partition,
        leadership: Leadership,
        proposal: IsrProposal,
        result: list[OperationResult] | CoordinationError,
    ) -> IsrOutcome | None:
        """What an answer means; None: it is not known whether that was written. Reads only after BadVersion."""
        name = str(partition.topic_partition)
        match result:
            case [*_, stat]:
                assert isinstance(stat, ZnodeStat)
                return IsrOutcome(proposal.isr, stat.version, eligible=proposal.eligible)
            case TransactionFailed(index=index, cause=BadVersion() | NoNode()) if index < len(proposal.added):
                self._limited.warning(
                    ("rejected", partition.topic_partition),
                    "isr proposal rejected: who would join has been restarted since its fetch",
                    partition=name,
                    fetched_as=proposal.added,
                )
                return IsrOutcome()
            case TransactionFailed(cause=BadVersion()):
                return await self._read_back(partition, leadership)
            case TransactionFailed(cause=NoNode()):
                self._log.warning("isr state or its topic is gone", partition=name)
                return IsrOutcome(frozen=True)
        if not isinstance(result, ConnectionLost | SessionExpired):
            self._limited.warning(
                ("repeated", partition.topic_partition), "isr update repeated", partition=name, error=str(result)
            )
        return None

    def _finish(self, partition: Partition, leadership: Leadership, proposal: IsrProposal, outcome: IsrOutcome) -> None:
        """The log has what the term wrote that made the proposal, even if it is over by now."""
        self.counts.count(proposal.kind, is_written=outcome.isr is not None and set(outcome.isr) == set(proposal.isr))
        if outcome.isr is not None:
            self._changed[partition.topic_partition] = None
            self._announce.set()
        if outcome.frozen or outcome.isr is not None:
            self._log.info(
                "isr frozen" if outcome.frozen else "isr changed",
                **partition_fields(partition),
                leader=self._broker_id,
                leader_epoch=leadership.leader_epoch,
                kind=proposal.kind.value,
                proposed=proposal.isr,
                isr=outcome.isr,
                replicas=leadership.replicas,
                min_isr=leadership.required_isr_size,
                eligible=outcome.eligible,
                zk_version=outcome.zk_version,
                log_end_offset=partition.log.log_end_offset,
                high_watermark=partition.high_watermark,
            )
        apply_outcome(self._burst, partition, proposal, outcome)
        if outcome.is_replaced and partition.leadership is leadership:
            self._replicas.resign(partition)
            self._burst.end()

    async def _read_back(self, partition: Partition, leadership: Leadership) -> IsrOutcome | None:
        """After BadVersion: what stands there? None: not known yet, or of no interest to this leadership any more."""
        topic, index = partition.topic_partition
        path = PartitionStateZnode.path(topic, index)
        try:
            await self._coordination.sync(path)
            znode = await self._coordination.get(path)
            state = PartitionStateZnode.decode(path, znode.data)
        except (NoNode, InvalidZnode) as error:
            self._log.warning("isr state unreadable", partition=str(partition.topic_partition), error=str(error))
            return IsrOutcome(frozen=True)
        except CoordinationError:
            return None
        if partition.leadership is not leadership:
            return None
        if state.leader == self._broker_id and state.leader_epoch == leadership.leader_epoch:
            return IsrOutcome(tuple(state.isr), znode.stat.version, eligible=tuple(state.elr))
        is_replaced = state.leader != self._broker_id and state.leader_epoch > leadership.leader_epoch
        return IsrOutcome(frozen=True, is_replaced=is_replaced)

    async def _run_announcements(self) -> None:
        while True:
            await self._announce.wait()
            await trio.sleep(ANNOUNCE_DELAY_S)
            if not await self.announce():
                await trio.sleep(RETRY_DELAY_S)
                self._announce.set()

    async def announce(self) -> bool:
        """Tell the controller which partitions changed, so that all brokers' metadata follow; and whose logs failed.
        Whether ZooKeeper has it."""
        self._announce = trio.Event()
        changed = dict.fromkeys(list(self._changed)[:MAX_ANNOUNCED])
        self._changed = dict.fromkeys(tp for tp in self._changed if tp not in changed)
        failed, self._logs_failed = self._logs_failed, False
        if self._changed:
            self._announce.set()
        try:
            if changed:
                isr = IsrChangeNotificationZnode(partitions=list(changed))
                await self._coordination.create(isr.SEQUENCE_PATH, isr.encode(), sequence=True)
            if failed:
                logs = LogDirEventNotificationZnode(self._broker_id)
                await self._coordination.create(logs.SEQUENCE_PATH, logs.encode(), sequence=True)
        except CoordinationError:
            self._changed = {**changed, **self._changed}  # a second announcement does no harm
            self._logs_failed = failed or self._logs_failed
            return False
        return True


def apply_outcome(burst: Burst, partition: Partition, proposal: IsrProposal, outcome: IsrOutcome) -> None:
    """ZooKeeper's word on a proposal; ignored if the role changed while it was on its way."""
    leadership = partition.leadership
    if leadership is None or leadership.proposal is not proposal:
        return
    if outcome.frozen:
        leadership.freeze()
        return
    now = trio.current_time()
    if outcome.isr is None:
        advanced = partition.isr_rejected(now)
    else:
        advanced = partition.isr_committed(outcome.isr, outcome.eligible, outcome.zk_version, now)
    if advanced:
        burst.changes.committed(partition)
    burst.end()


def _whose(partition: Partition, proposal: IsrProposal) -> Leadership | None:
    """The leadership that made this proposal, if it still stands."""
    leadership = partition.leadership
    return leadership if leadership is not None and leadership.proposal is proposal else None
