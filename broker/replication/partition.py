"""One partition replica on this broker: its log, its role, and who waits for it.

Changed only from plain functions: in trio that is the lock. The role is a value: `leadership` while this broker leads,
else `leader_id` names who does (−1: nobody). `log_start <= high_watermark <= log_end` holds after every change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from strandline.broker.replication.leadership import UNKNOWN_OFFSET, FollowerProgress, IsrProposal, Leadership
from strandline.broker.replication.purgatory import OffsetWaiters, ParkedFetch, Watch
from strandline.broker.replication.topic_counts import TopicCounts
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import EpochEndOffset, LeaderAndIsrPartitionState
from strandline.protocol.records import ProducedBatch
from strandline.protocol.records.batch import scan
from strandline.protocol.types import NO_BROKER, NO_EPOCH, TopicId, TopicPartition
from strandline.runtime.config.topic import TopicConfig
from strandline.storage.log import log_start
from strandline.storage.log.checked_append import Outcome, append_checked
from strandline.storage.log.log import Log
from strandline.storage.log.truncation_guard import CheckpointFirst


class Partition:
    """A replica hosted by this broker, from its first LeaderAndIsr to its StopReplica."""

    __slots__ = (
        "_follower_high_watermark",
        "_maybe_lagging",
        "adding_replicas",
        "broker_id",
        "config",
        "controller_epoch",
        "counts",
        "deletions",
        "failed",
        "is_in_sync_candidate",
        "leader_epoch",
        "leader_id",
        "leadership",
        "log",
        "parked_fetches",
        "propose",
        "topic_id",
        "topic_partition",
        "waiters",
        "watches",
    )

    def __init__(
        self,
        broker_id: int,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: Log,
        config: TopicConfig,
        high_watermark: int,
        *,
        propose: Callable[[Partition, IsrProposal], None],
        is_in_sync_candidate: Callable[[int], bool],
        maybe_lagging: dict[Partition, None],
        counts: TopicCounts | None = None,
    ) -> None:
        """`propose` takes an ISR change to ZooKeeper; `is_in_sync_candidate(broker_id)` says whether that broker is
        registered. `maybe_lagging`: see `Replicas`. counts: of its topic."""
        self.broker_id = broker_id
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.config = config
        self.propose = propose
        self.is_in_sync_candidate = is_in_sync_candidate
        self._maybe_lagging = maybe_lagging
        self.counts = counts or TopicCounts()
        self.leadership: Leadership | None = None
        self.leader_id = NO_BROKER
        self.leader_epoch = NO_EPOCH
        self.controller_epoch = NO_EPOCH
        self.adding_replicas: Sequence[int] = ()
        """By a reassignment that is under way."""
        self.failed = False
        self.waiters = OffsetWaiters()
        """Appends that wait for HW."""
        self.parked_fetches: dict[ParkedFetch, bool] = {}
        """Who waits for data here, and whether it is a follower: those wait for the log to grow, consumers for HW."""
        self.watches: dict[Watch, None] = {}
        """Fetch sessions of consumers that have nothing to read here."""
        self.deletions = OffsetWaiters()
        """Who waits until the log starts of all live replicas have been raised."""
        self._follower_high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)

    @property
    def log_dir(self) -> str:
        """The log directory that its log lies in."""
        return self.log.segments.folder.rpartition("/")[0]

    @property
    def high_watermark(self) -> int:
        return self.leadership.high_watermark if self.leadership else self._follower_high_watermark

    @property
    def is_being_added(self) -> bool:
        """This broker was no replica before."""
        return self.broker_id in self.adding_replicas

    @property
    def is_following(self) -> bool:
        return self.leadership is None and self.leader_id != NO_BROKER and not self.failed

    # --- leader: append, acknowledge ---------------------------------------------------------------------------

    def append(self, batches: Sequence[ProducedBatch]) -> int:
        """Append a wave of checked batches as the leader; returns the offset of the first record.

        Raises LogStorageError; the caller then gives this replica up. Nothing is acknowledged here: with acks=all that
        is HW's word alone (`complete_waiters`).
        """
        leadership = self.leadership
        assert leadership is not None, "only a leader appends what clients produce"
        self._maybe_lagging[self] = None  # before: where a wave fails a part of it may stand in the log
        first_offset = self.log.append_as_leader(batches, leadership.leader_epoch)
        leadership.advance_high_watermark(self.log.log_end_offset)  # at once when nobody else is in sync
        return first_offset

    def append_checked(self, entries: Sequence[Sequence[ProducedBatch]]) -> list[Outcome]:
        """As `append`, for a wave in which idempotent producers take part: one outcome per entry, which may be that its
        records are in the log already, or that its producer is refused."""
        leadership = self.leadership
        assert leadership is not None, "only a leader appends what clients produce"
        self._maybe_lagging[self] = None
        outcomes = append_checked(self.log, entries, leadership.leader_epoch)
        leadership.advance_high_watermark(self.log.log_end_offset)
        return outcomes

    def complete_waiters(self) -> None:
        self.waiters.complete_up_to(self.high_watermark, self.log.log_start_offset)

    # --- leader: followers -------------------------------------------------------------------------------------

    def record_follower_fetch(self, progress: FollowerProgress, offset: int, incarnation: int, now: float) -> bool:
        """A follower of this epoch has everything below `offset`: move HW, perhaps propose it for the ISR.

        Returns whether HW advanced; its waiters are then answered."""
        leadership = self.leadership
        assert leadership is not None
        if offset != self.log.log_end_offset:
            self._maybe_lagging[self] = None
        advanced = leadership.record_fetch(progress, offset, self.log.log_end_offset, incarnation, now)
        if advanced:
            self.complete_waiters()
        if (
            progress.broker_id not in leadership.isr
            and leadership.wants_to_expand(progress)
            and progress.log_start_offset >= self.durable_log_start_offset
            and self.is_in_sync_candidate(progress.broker_id)
        ):
            self.propose(self, leadership.propose_expand(progress))
        return advanced

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> EpochEndOffset | None:
        """Where the fetcher's log leaves this one, or None while it is a prefix of it (KIP-595).

        The fetcher has `fetch_offset` as its LEO, and its last batch is of `last_fetched_epoch`.
        """
        if last_fetched_epoch < 0:
            return None
        log = self.log
        if last_fetched_epoch == log.last_epoch:
            if fetch_offset <= log.log_end_offset:
                return None
            return EpochEndOffset(last_fetched_epoch, log.log_end_offset)
        epoch, end_offset = log.epoch_end_offset(last_fetched_epoch)
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return EpochEndOffset(epoch, end_offset)
        return None

    def check_in_sync(self, now: float) -> bool:
        """Periodic: propose to remove who lags; forget outsiders that stopped catching up. Whether HW advanced."""
        leadership = self.leadership
        if leadership is None:
            return False
        log_end_offset = self.log.log_end_offset
        proposal = leadership.propose_shrink(log_end_offset, now)
        if proposal is not None:
            self.propose(self, proposal)
        leadership.rebuild_quorum(log_end_offset, now)
        return self._advance_and_complete()

    @property
    def has_no_lag(self) -> bool:
        """A periodic look would change nothing, unless something happens here before."""
        return self.leadership is None or self.leadership.has_no_lag(self.log.log_end_offset)

    def isr_committed(self, isr: Iterable[int], eligible: Iterable[int], zk_version: int, now: float) -> bool:
        """ZooKeeper holds this ISR for our leader epoch. Returns whether HW advanced."""
        assert self.leadership is not None
        self.leadership.commit(isr, eligible, zk_version)
        self.leadership.rebuild_quorum(self.log.log_end_offset, now)
        return self._advance_and_complete()

    def isr_rejected(self, now: float) -> bool:
        """Our proposal was certainly not written. Returns whether HW advanced."""
        assert self.leadership is not None
        self.leadership.reject()
        self.leadership.rebuild_quorum(self.log.log_end_offset, now)
        return self._advance_and_complete()

    def set_config(self, config: TopicConfig) -> bool:
        """The topic's configuration changed: HW may move under a smaller minimum. Returns whether it did."""
        self.config = self.log.config = config
        if self.leadership is None:
            return False
        self.leadership.min_insync_replicas = config.min_insync_replicas
        return self._advance_and_complete()

    def _advance_and_complete(self) -> bool:
        """Something changed in the ISR or in what it needs."""
        assert self.leadership is not None
        self._maybe_lagging[self] = None
        release = self.leadership.propose_release()
        if release is not None:
            self.propose(self, release)
        self.complete_deletions()
        if not self.leadership.advance_high_watermark(self.log.log_end_offset):
            return False
        self.complete_waiters()
        return True

    # --- role changes ------------------------------------------------------------------------------------------

    def become_leader(self, state: LeaderAndIsrPartitionState, lag_time_max_s: float, now: float) -> None:
        """Lead at `state.leader_epoch`. The epoch's start is in the cache before anything is served (invariant 5).

        Leading already, at a lower epoch: waiting produce requests stay, their records are where they were
        (invariant 15).
        """
        assert state.leader_epoch >= self.leader_epoch
        log = self.log
        high_watermark = self.high_watermark
        log.epochs.assign(state.leader_epoch, log.log_end_offset)
        self.leadership = Leadership.begin(
            broker_id=self.broker_id,
            leader_epoch=state.leader_epoch,
            controller_epoch=state.controller_epoch,
            log_end_offset=log.log_end_offset,
            high_watermark=high_watermark,
            replicas=state.replicas,
            replication_factor=state.replication_factor,
            is_reassigned=bool(state.adding_replicas or state.removing_replicas),
            isr=state.isr,
            eligible=state.eligible_leader_replicas,
            zk_version=state.partition_epoch,
            min_insync_replicas=self.config.min_insync_replicas,
            lag_time_max_s=lag_time_max_s,
            now=now,
            predecessor=self.leadership,
        )
        self._note_role(state)
        self._advance_and_complete()

    def become_follower(self, state: LeaderAndIsrPartitionState) -> None:
        """Follow `state.leader`, or nobody (−1). What waited for this leader is told so at once.

        The log is not cut here: the first fetch from the new leader tells where the logs part (invariant 6).
        """
        assert state.leader_epoch >= self.leader_epoch
        self._drop_leadership(state.leader, state.leader_epoch)
        self._note_role(state)

    def resign(self) -> None:
        """Stop leading or following, with nobody named instead: this replica stops, its disk failed, or somebody else
        leads of whom no order has come."""
        self._drop_leadership(NO_BROKER, self.leader_epoch)
        self.leader_id = NO_BROKER

    def _drop_leadership(self, leader_id: int, leader_epoch: int) -> None:
        if self.leadership is not None:
            self._follower_high_watermark = self.leadership.high_watermark
            self.leadership = None
            self._maybe_lagging.pop(self, None)
        code = ErrorCode.KAFKA_STORAGE_ERROR if self.failed else ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.waiters.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id, leader_epoch)
        self.deletions.fail_all(code, leader_id, leader_epoch)

    def _note_role(self, state: LeaderAndIsrPartitionState) -> None:
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.controller_epoch = state.controller_epoch
        self.adding_replicas = state.adding_replicas
        self.log.truncation_guard.end()  # what another leader wanted cut
        self._check_invariants()

    # --- follower ----------------------------------------------------------------------------------------------

    def append_fetched(
        self, records: memoryview, leader_high_watermark: int, leader_log_start: int = UNKNOWN_OFFSET
    ) -> None:
        """Append what the leader sent, then learn its HW: `min(leader's HW, own LEO)`, never backwards.

        Raises InvalidBatch when the batches do not continue this log, LogStorageError when the disk fails;
        CheckpointFirst: nothing happened yet.
        """
        assert self.leadership is None
        if records and self.log.log_end_offset in (self.log.log_start_offset, leader_log_start):
            self._begin_within(records)
        log_end_offset = self.log.append_as_follower(records, self.leader_epoch) if records else self.log.log_end_offset
        self.learn_high_watermark(min(leader_high_watermark, log_end_offset))

    def _begin_within(self, records: memoryview) -> None:
        """The leader's log start lies inside a batch, which comes whole: a log that ends there begins with the batch
        instead, and raises its log start when it is told the leader's. It is empty, or what it has is of an earlier
        epoch, of which the leader knows no other end than its log start; all of that is deleted there."""
        first, end_offset = next(scan(records), (0, None))[1], self.log.log_end_offset
        if first is not None and first.base_offset < end_offset < first.next_offset:
            self.restart_at(first.base_offset)

    def learn_high_watermark(self, offset: int) -> None:
        if offset > self._follower_high_watermark:
            self._follower_high_watermark = offset
            self._check_invariants()

    def truncate_to_divergence(self, diverging: EpochEndOffset, leader_log_start: int) -> int:
        """Cut the tail that the leader does not have; returns the new LEO.

        The leader named the largest epoch ≤ ours that it knows, and its end. If we do not have that epoch, our own
        largest epoch below it decides how far down to go, and the next fetch asks again (KIP-279, KIP-320).
        Where the logs part below this one's start (only an unclean election does that) nothing of it is the leader's:
        it begins anew where the leader's begins, or it would lack what the leader has below (invariant 2). So it does
        where it would end below the leader's log start: all of it is deleted there.
        """
        log = self.log
        own_epoch, own_end = log.epoch_end_offset(diverging.epoch)
        if own_epoch >= 0:
            target = min(own_end, diverging.end_offset)
        else:
            target = self._follower_high_watermark  # no epoch in common: HW is all that is known
        target = min(target, log.log_end_offset)
        if target < max(log.log_start_offset, leader_log_start):
            self.restart_at(leader_log_start)
        else:
            self.truncate_to(target)
        return log.log_end_offset

    def truncate_to(self, offset: int) -> None:
        """CheckpointFirst: nothing was cut yet."""
        if not self.log.may_truncate_to(offset):
            raise CheckpointFirst
        self.log.truncate_to(offset)
        self._follower_high_watermark = min(self._follower_high_watermark, self.log.log_end_offset)
        self._check_invariants()
        self._wake_watches()

    def restart_at(self, offset: int) -> None:
        """Nothing of this log is in the leader's, which begins at `offset`: drop everything and begin there
        (invariant 19). CheckpointFirst: nothing was dropped yet."""
        if not self.log.may_start_at(offset):
            raise CheckpointFirst
        self.log.truncate_fully_and_start_at(offset)
        self._follower_high_watermark = offset
        self._check_invariants()
        self._wake_watches()

    # --- the head ----------------------------------------------------------------------------------------------

    @property
    def durable_log_start_offset(self) -> int:
        """Where the log begins as far as that is on the disk: a checkpoint may still be above one that begins anew."""
        return min(self.log.log_start_offset, self.log.durable_log_start_offset)

    @property
    def low_watermark(self) -> int:
        """Leader: the smallest log start on the disks of all replicas that live or may be elected, −1 while one of them
        has not fetched in this epoch."""
        assert self.leadership is not None
        electable = self.leadership.maximal_isr.union(self.leadership.eligible)
        starts = [
            each.log_start_offset
            for each in self.leadership.followers.values()
            if each.broker_id in electable or self.is_in_sync_candidate(each.broker_id)
        ]
        return min([self.log.durable_log_start_offset, *starts])

    def raise_log_start(self, offset: int) -> bool:
        """Let the log begin at `offset`, which is at most HW. Returns whether it began lower."""
        moved = log_start.raise_log_start(self.log, offset, self.high_watermark)
        self._check_invariants()
        return moved

    def learn_log_start(self, offset: int) -> None:
        """Follower: the leader's log begins at `offset`. What lies below goes here, too, as far as it is committed."""
        assert self.leadership is None
        if self.raise_log_start(min(offset, self._follower_high_watermark)):
            self._wake_watches()

    def log_start_moved(self) -> None:
        """Something was taken off the head of the log. Followers hear of it at once: what they are told comes with an
        answer, and they need not wait for data first."""
        self._check_invariants()
        self.complete_deletions()
        self._wake_watches()
        for fetch, is_follower in list(self.parked_fetches.items()):
            if is_follower:
                fetch.answer()

    def tell_watches(self) -> list[ParkedFetch]:
        """Tell who watches that something changed; returns the fetches that wait for it."""
        watches, self.watches = self.watches, {}
        return [fetch for watch in watches if (fetch := watch.changed()) is not None]

    def _wake_watches(self) -> None:
        """The same where no burst has them looked at: who goes on waiting watches anew, for the next records."""
        for fetch in self.tell_watches():
            fetch.look()

    def complete_deletions(self) -> None:
        """A replica's log start is on its disk, or another one counts now: answer who waited for that."""
        if self.deletions.waiting and self.leadership is not None:
            low_watermark = self.low_watermark
            self.deletions.complete_up_to(low_watermark, low_watermark)

    def _check_invariants(self) -> None:
        log = self.log
        assert log.log_start_offset <= self.high_watermark <= log.log_end_offset, (
            f"{self.topic_partition}: log start {log.log_start_offset} <= HW {self.high_watermark} "
            f"<= LEO {log.log_end_offset} does not hold"
        )
