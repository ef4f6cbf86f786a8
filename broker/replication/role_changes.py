"""LeaderAndIsr and StopReplica: what the controller orders becomes roles, logs and fetchers.

A request is applied in order-independent fashion: the highest (controller epoch, leader epoch) wins, whatever the order
of arrival, and a half-applied one is finished when it comes again (invariant 32). Everything changes in plain
functions; the loops over many partitions let other tasks run in between and look at the controller epoch again
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import structlog
import trio

from strandline.broker.replication.burst import Burst
from strandline.broker.replication.change_lines import named_fields, packed_leaders, partition_fields
from strandline.broker.replication.checkpoint_schedule import CheckpointSchedule
from strandline.broker.replication.follower import Followers
from strandline.broker.replication.isr_updates import IsrUpdates
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.broker.steps import PARTITIONS_PER_STEP
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    LEADER_EPOCH_TOPIC_DELETED,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
    PartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from strandline.protocol.reasons import Reason, reason_of
from strandline.protocol.types import NO_BROKER, NO_EPOCH, NO_TOPIC_ID, TopicId, TopicPartition
from strandline.runtime.config.topic import TopicConfig
from strandline.runtime.logging import RateLimited
from strandline.storage.errors import (
    DiskFailed,
    DiskFull,
    EpochsBeganAnew,
    LogClosed,
    LogStorageError,
    OutOfDescriptors,
    StrayLog,
    TieredLog,
)
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager

LOGS_PER_STEP = 5
"""Replicas that begin to be hosted between two checkpoints: a new log is several files, some milliseconds of a disk."""

DETAILED_CHANGES = 200
"""Above so many partitions in a request none gets a line of its own in the state-change log: to write one takes twice
as long as to change a role, and the last partition waits for all of them. Then one line tells of many that they are led
here from now on."""

DETAILED_STOPS = 20
"""Above so many in a step none has a line of its own that only stops following, and keeps its log: a broker that leaves
is told so of all that it has, while clients wait for their new leaders."""

UNREAD = "it may lie in a log directory that could not be read; mend that, then start the broker again"
PUT_OFF_INTERVAL_S = 60.0
"""Between two lines that a role is put off: the controller orders it again each second."""
UNEXPECTED = "it met an error that nobody expected; the broker's log shows it, a restart may help"


class _Applied(NamedTuple):
    """What became of one partition's order. `partition`: if its role changed; `why` it did not; `log_epoch`: of its
    log, where that is later than the order's."""

    code: ErrorCode
    partition: Partition | None = None
    why: Reason | None = None
    log_epoch: int = NO_EPOCH


class RoleChanges:
    """Applies the controller's orders to the replicas of this broker."""

    def __init__(
        self,
        logs: LogManager,
        replicas: Replicas,
        burst: Burst,
        checkpoints: CheckpointSchedule,
        isr_updates: IsrUpdates,
        followers: Followers,
        state_change_log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._burst = burst
        self._checkpoints = checkpoints
        self._isr_updates = isr_updates
        self._followers = followers
        self._state_change_log = state_change_log
        self._limited = RateLimited(state_change_log, interval_s=PUT_OFF_INTERVAL_S)
        self._has_made_logs = False

    # --- LeaderAndIsr ------------------------------------------------------------------------------------------

    async def become_leader_or_follower(
        self, request: LeaderAndIsrRequest, topic_configs: Callable[[str], TopicConfig]
    ) -> LeaderAndIsrResponse:
        """Apply a LeaderAndIsr request whose broker epoch was checked.

        1 a lower controller epoch than seen: refused whole (STALE_CONTROLLER_EPOCH, invariant 27)
        2 per partition: lower leader epoch refused, else become leader or follower; another topic id than the hosted
          one only where the controller's metadata has it: then the hosted replica is of a topic that is gone
        3 fetchers follow the new leaders

        No disk is waited for: the start of a new leader's epoch is in memory, and its file need not have it before the
        flush that moves the recovery point (`storage/log/leader_epochs`).
        """
        # 1
        if request.controller_epoch < self._replicas.controller_epoch:
            return LeaderAndIsrResponse(ErrorCode.STALE_CONTROLLER_EPOCH, [])
        self._replicas.controller_epoch = request.controller_epoch
        self._followers.set_leaders(request.live_leaders)
        # 2
        errors: list[PartitionError] = []
        touched: list[Partition] = []
        outcome = ErrorCode.NONE
        states = [(topic, state) for topic in request.topic_states for state in topic.partition_states]
        hosted = len(self._replicas.partitions)
        is_detailed = len(states) <= DETAILED_CHANGES
        for count, (topic, state) in enumerate(states, 1):
            applied = self._apply(topic, state, topic_configs, is_detailed)
            errors.append(
                PartitionError(topic.topic_name, state.partition_index, applied.code, applied.why, applied.log_epoch)
            )
            if applied.partition is not None:
                touched.append(applied.partition)
            if count % PARTITIONS_PER_STEP == 0 or len(self._replicas.partitions) >= hosted + LOGS_PER_STEP:
                await trio.lowlevel.checkpoint()
                hosted = len(self._replicas.partitions)
                if request.controller_epoch < self._replicas.controller_epoch:  # a newer controller spoke meanwhile
                    outcome = ErrorCode.STALE_CONTROLLER_EPOCH
                    break
        if self._has_made_logs:  # not before: what a file system syncs meanwhile holds up all that are still to be made
            self._has_made_logs = False
            self._checkpoints.note_creation()
        # 3, also for what was applied before a newer controller spoke: the same epochs will not be applied again
        self._followers.update(touched)
        if not is_detailed:
            leaders = sum(partition.leadership is not None for partition in touched)
            self._state_change_log.info("roles changed", leaders=leaders, followers=len(touched) - leaders)
            for fields in packed_leaders(touched):
                self._state_change_log.info("became leaders", **fields)
        self._burst.end()
        return LeaderAndIsrResponse(outcome, errors)

    def _apply(
        self,
        topic: LeaderAndIsrTopicState,
        state: LeaderAndIsrPartitionState,
        topic_configs: Callable[[str], TopicConfig],
        is_detailed: bool,
    ) -> _Applied:
        """One partition of a LeaderAndIsr request."""
        topic_partition = TopicPartition(topic.topic_name, state.partition_index)
        partition = self._replicas.partitions.get(topic_partition)
        if self._replicas.broker_id not in state.replicas:
            self._state_change_log.warning("not a replica", partition=str(topic_partition), replicas=state.replicas)
            return _Applied(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        # What hosted another topic until now has none of this one's records, and nothing was committed without it.
        credited = (*state.isr, *state.eligible_leader_replicas)
        is_credited = partition is None and self._replicas.broker_id in credited and not state.is_new
        if partition is not None and topic.topic_id not in (partition.topic_id, NO_TOPIC_ID):
            if not self._replicas.metadata.has_topic(topic.topic_name, topic.topic_id):
                return _Applied(ErrorCode.INCONSISTENT_TOPIC_ID)  # which of the two is the older one is not known yet
            self._drop(partition)
            partition = None
        if partition is not None and state.leader_epoch < partition.leader_epoch:
            return self._fenced(partition.log, state)
        if partition is not None and partition.log.failure is not None:
            self._replicas.partition_failed(partition, partition.log.failure)
        if partition is not None and partition.failed:
            return _Applied(ErrorCode.KAFKA_STORAGE_ERROR, why=reason_of(partition.log.failure or UNEXPECTED))
        if partition is not None and state.leader_epoch == partition.leader_epoch:
            return _Applied(ErrorCode.NONE)  # applied already; nothing of a role outlives its application half-done
        try:
            if partition is None:
                config = topic_configs(topic.topic_name)
                partition = self._host(topic_partition, topic.topic_id, config, state, is_credited=is_credited)
            was_leading = partition.leadership is not None
            if state.leader == self._replicas.broker_id:
                lag_time_max_s = self._replicas.config.replica_lag_time_max_ms / 1000
                partition.become_leader(state, lag_time_max_s, trio.current_time())
            else:
                partition.become_follower(state)
        except (OutOfDescriptors, DiskFull) as error:  # nothing has failed: this code makes the controller say it again
            name = str(topic_partition)
            self._limited.error(name, "role change put off", partition=name, error=str(error))
            return _Applied(ErrorCode.BROKER_NOT_AVAILABLE, why=reason_of(error))
        except (LogStorageError, OSError) as error:
            self._state_change_log.error("role change failed", partition=str(topic_partition), error=str(error))
            if partition is not None:
                self._replicas.partition_failed(partition, error)
            log_epoch = error.latest if isinstance(error, EpochsBeganAnew) else NO_EPOCH
            return _Applied(ErrorCode.KAFKA_STORAGE_ERROR, why=reason_of(error), log_epoch=log_epoch)
        except Exception as error:  # a bug or a state that cannot be: it must not block the other partitions' orders
            self._state_change_log.exception("role change failed", partition=str(topic_partition))
            if partition is not None:
                self._replicas.partition_failed(partition, error)
            return _Applied(ErrorCode.KAFKA_STORAGE_ERROR, why=UNEXPECTED)
        self._replicas.role_changed(partition)
        if is_detailed:
            self._report(partition, state, was_leading)
        return _Applied(ErrorCode.NONE, partition)

    def _report(self, partition: Partition, state: LeaderAndIsrPartitionState, was_leading: bool) -> None:
        self._state_change_log.info(
            "became leader" if partition.leadership is not None else "became follower",
            **partition_fields(partition),
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            controller_epoch=state.controller_epoch,
            isr=state.isr,
            replicas=state.replicas,
            min_isr=min(partition.config.min_insync_replicas, state.replication_factor),
            zk_version=state.partition_epoch,
            log_end_offset=partition.log.log_end_offset,
            high_watermark=partition.high_watermark,
            was_leading=was_leading,
        )

    def _fenced(self, log: Log, state: LeaderAndIsrPartitionState) -> _Applied:
        """The order is older than the role. Where the log is later, too, the controller knows what that means: it comes
        late, or ZooKeeper is an old copy."""
        if log.last_epoch <= state.leader_epoch:
            return _Applied(ErrorCode.FENCED_LEADER_EPOCH)
        why = reason_of(self._began_anew(log, state))
        return _Applied(ErrorCode.FENCED_LEADER_EPOCH, why=why, log_epoch=log.last_epoch)

    def _began_anew(self, log: Log, state: LeaderAndIsrPartitionState) -> EpochsBeganAnew:
        leader = None if state.leader in (NO_BROKER, self._replicas.broker_id) else state.leader
        return EpochsBeganAnew(str(log), log.last_epoch, state.leader_epoch, leader)

    def _host(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        state: LeaderAndIsrPartitionState,
        *,
        is_credited: bool,
    ) -> Partition:
        """Open or create the replica's log. One that is not known may lie in a directory that could not be read: then
        only a new partition gets a log.

        A log of another topic id is put aside and kept, for the operator: its topic is gone, or a bit of the id is. The
        replica begins anew, unless others believe that it has the records, being in sync or eligible (is_credited):
        leading, it would have them cut their logs down to nothing.

        A log with a later epoch than the order is left alone until a late enough one comes: its state is not the one
        that it was written under, and epochs tell nothing of what a leader has of it. Once it is hosted that cannot be:
        no order goes back, and what is appended has at most the order's epoch."""
        log = self._logs.get(topic_partition)
        if log is not None and isinstance(log.failure, LogClosed):  # its deletion was ordered, and the disk refused
            self._logs.delete(topic_partition)
            log = None
        if log is not None and topic_id != NO_TOPIC_ID and log.topic_id not in (None, topic_id):
            stray = self._logs.set_aside(topic_partition, topic_id, is_credited=is_credited)
            self._state_change_log.error(
                "log of another topic id put aside", partition=str(topic_partition), why=str(stray)
            )
            log = None
        if isinstance(self._logs.refused.get(topic_partition), StrayLog) and not is_credited:
            del self._logs.refused[topic_partition]  # nobody rests on it any more: it may fetch
        if log is None:
            if self._may_be_unread(topic_partition) and not state.is_new and topic_partition not in self._logs.refused:
                raise DiskFailed(str(topic_partition), UNREAD)
            if config.is_tiered and topic_partition not in self._logs.refused:
                raise TieredLog(str(topic_partition))
            log = self._logs.create(topic_partition, topic_id, config)
            self._has_made_logs = True
        elif state.leader_epoch < log.last_epoch:
            raise self._began_anew(log, state)
        elif log.topic_id is None and topic_id != NO_TOPIC_ID:
            self._logs.assign_topic_id(topic_partition, topic_id)
        elif log.topic_id is not None:
            topic_id = log.topic_id
        if log.failure is not None:  # it failed while nobody led or followed it
            raise log.failure
        log.config = config
        high_watermark = self._logs.high_watermarks.get(topic_partition, log.log_start_offset)
        partition = Partition(
            self._replicas.broker_id,
            topic_partition,
            topic_id,
            log,
            config,
            high_watermark,
            propose=self._isr_updates.propose,
            is_in_sync_candidate=self._replicas.metadata.is_alive,
            maybe_lagging=self._replicas.maybe_lagging,
            counts=self._replicas.traffic.enter(topic_partition.topic),
        )
        self._replicas.partitions[topic_partition] = partition
        return partition

    # --- StopReplica -------------------------------------------------------------------------------------------

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop following or leading; with `delete_partition`, remove the log. Fenced by topic id and epoch
        (invariant 33)."""
        if request.controller_epoch < self._replicas.controller_epoch:
            return StopReplicaResponse(ErrorCode.STALE_CONTROLLER_EPOCH, [])
        self._replicas.controller_epoch = request.controller_epoch
        errors = []
        states = request.partition_states
        is_detailed = len(states) <= DETAILED_STOPS or any(state.delete_partition for state in states)
        if not is_detailed:
            first = TopicPartition(states[0].topic_name, states[0].partition_index)
            self._state_change_log.info("stops replicas", count=len(states), first=str(first))
        for state in states:
            code, why = self._stop(state, is_detailed=is_detailed)
            errors.append(PartitionError(state.topic_name, state.partition_index, code, why and reason_of(why)))
        self._burst.end()
        return StopReplicaResponse(ErrorCode.NONE, errors)

    def remove_replica(self, state: StopReplicaPartitionState) -> ErrorCode:
        """As if the controller had ordered it; NONE where the log is gone."""
        code, _ = self._stop(state)
        self._burst.end()
        return code

    def _stop(self, state: StopReplicaPartitionState, *, is_detailed: bool = True) -> tuple[ErrorCode, str | None]:
        """What became of it, and why it was not done. A log that is refused is not deleted: nobody knows what it holds,
        so its topic goes once an operator has moved the folder away. Neither is one that may lie in a directory that
        could not be read: it goes at the start that reads that directory."""
        topic_partition = TopicPartition(state.topic_name, state.partition_index)
        partition = self._replicas.partitions.get(topic_partition)
        hosted_id = partition.topic_id if partition else self._topic_id_on_disk(topic_partition)
        if hosted_id is not None and hosted_id != state.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID, None  # the topic was created anew since: leave its data alone
        log = self._logs.get(topic_partition)
        latest = partition.leader_epoch if partition else log.last_epoch if log else NO_EPOCH
        if LEADER_EPOCH_TOPIC_DELETED != state.leader_epoch < latest:
            return ErrorCode.FENCED_LEADER_EPOCH, None
        if partition is not None:
            self._drop(partition)
        refused = self._logs.refused.get(topic_partition)
        if state.delete_partition and refused is not None and not isinstance(refused, StrayLog):
            return ErrorCode.KAFKA_STORAGE_ERROR, f"its log is not deleted, since it was refused: {refused}"
        if state.delete_partition and refused is None and self._may_be_unread(topic_partition):
            return ErrorCode.KAFKA_STORAGE_ERROR, f"its log is not deleted: {UNREAD}"
        if is_detailed:
            self._state_change_log.info(
                "stopped replica",
                **named_fields(*topic_partition, state.topic_id),
                deleted=state.delete_partition,
                epoch=state.leader_epoch,
            )
        if state.delete_partition:
            try:
                self._delete_log(topic_partition)
            except LogStorageError as error:
                self._state_change_log.error("log not deleted", partition=str(topic_partition), error=str(error))
                return ErrorCode.KAFKA_STORAGE_ERROR, str(error)
        return ErrorCode.NONE, None

    def _delete_log(self, topic_partition: TopicPartition) -> None:
        if self._logs.get(topic_partition) is None:
            self._logs.give_up(topic_partition)
        else:
            self._logs.delete(topic_partition)
            self._checkpoints.note_deletion()

    async def resign_all(self) -> None:
        """This broker stops: who waits for a high watermark that no follower will raise any more is told to ask the
        next leader, whether the controller's word of that one has come or not."""
        for count, partition in enumerate(list(self._replicas.partitions.values()), 1):
            self._replicas.resign(partition)
            if count % PARTITIONS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        self._burst.end()

    def _drop(self, partition: Partition) -> None:
        """Host it no more; its log stays."""
        self._replicas.resign(partition)
        self._logs.high_watermarks[partition.topic_partition] = partition.high_watermark
        del self._replicas.partitions[partition.topic_partition]

    def _may_be_unread(self, topic_partition: TopicPartition) -> bool:
        return self._logs.get(topic_partition) is None and self._logs.directories.has_unread

    def _topic_id_on_disk(self, topic_partition: TopicPartition) -> TopicId | None:
        log = self._logs.get(topic_partition)
        return log.topic_id if log is not None else None
