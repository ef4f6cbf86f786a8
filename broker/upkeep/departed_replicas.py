"""Logs of partitions that have moved to other brokers: they are removed, also where nobody is left to order it.

Who carries a reassignment out tells the brokers to delete what they do not hold any more. A broker that was away then,
whose disk refused, or whose controller died in between, finds out from the metadata: a partition of the same topic id,
of which this broker is no replica, at an epoch that is at least as late as all that it knows of it.

Metadata alone delete no record: they may come from an old copy of ZooKeeper, by which others are the replicas that have
nothing any more; and records without a topic id may be of another topic of that name, so they stay, and a line tells
the operator. So

1 a log with a later epoch than the metadata is left alone, and one that was given a role with a later epoch
2 the leader is asked, at the very epoch of the metadata, where the epochs of this log end in its own. It has to have
  all that this replica knows to be committed, epoch by epoch; the leader of another epoch refuses to answer. By the
  latest epoch alone a leader that began with nothing would have it, too: under an old copy of ZooKeeper the epochs are
  given out a second time, with other records. Where compaction took records, epochs may begin elsewhere in the
  leader's log, so of a log that was compacted here only the latest one is asked for
3 after that answer it is looked again: a role may have come meanwhile
4 then the replica goes as if the controller had ordered it (`RoleChanges`)

What cannot be done now (nobody leads, the leader does not answer, the disk refuses) is tried again.

A topic that is being deleted takes such a log along: the controller says so by its id, and waits for the replicas that
it knows of only. What it does not name any more, since it was deleted while this broker was away, proves nothing: an
old copy of ZooKeeper lacks topics, too. Logs of these stay, for the operator whom a line tells of them; so do those of
a topic that was made anew under their name, and those of partitions that their topic does not have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog
import trio

from strandline.broker.replication.questions import Questions
from strandline.broker.replication.replicas import Replicas
from strandline.broker.replication.role_changes import RoleChanges
from strandline.broker.steps import PARTITIONS_PER_STEP
from strandline.client.errors import ClientError
from strandline.protocol.errors import ErrorCode, RemoteProtocolError
from strandline.protocol.messages import (
    LEADER_DURING_DELETE,
    LEADER_EPOCH_TOPIC_DELETED,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResponse,
    OffsetForLeaderTopic,
    StopReplicaPartitionState,
    UpdateMetadataRequest,
)
from strandline.protocol.types import TopicId, TopicPartition
from strandline.runtime.logging import RateLimited
from strandline.runtime.network import Network
from strandline.storage.errors import LogStorageError
from strandline.storage.log.leader_epochs import EpochEnd
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager

GRACE_S = 1.0
"""The controller's own order is mostly there by then."""
RETRY_S = 5.0
REPEAT_LINE_S = 3600.0
SILENCE_LINE_S = 60.0
MAX_ASKED = 200
"""Partitions in one question."""
MAX_EPOCHS = 20
"""Of each of them."""
REMOVALS_PER_STEP = 5
"""As for the controller's orders: removing a log renames its folder."""
MOST_NAMED = 10


class Departed(NamedTuple):
    """A log that is here and should not be, as the metadata have its partition. `committed`: the offset below which
    this replica knows everything to be committed; `epochs`: where the epochs of that end, the latest ones."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader: int
    leader_epoch: int
    epochs: tuple[EpochEnd, ...]
    committed: int


Answers = Mapping[TopicPartition, Sequence[OffsetForLeaderPartitionResponse]]
AskLeader = Callable[[int, Sequence[Departed]], Awaitable[Answers]]
"""(who leads, what is asked about) → what it has of their epochs, in that order; nothing of what it does not answer.
`EpochQuestions` has one."""


class DepartedReplicas:
    """See the module. `forget_topics` is told of the (name, id) of those of which a log went."""

    def __init__(
        self,
        logs: LogManager,
        replicas: Replicas,
        roles: RoleChanges,
        ask_leader: AskLeader,
        forget_topics: Callable[[Iterable[tuple[str, TopicId]]], None],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._roles = roles
        self._ask_leader = ask_leader
        self._forget_topics = forget_topics
        self._log = log
        self._limited = RateLimited(log, interval_s=REPEAT_LINE_S)
        self._wake = trio.Event()
        self._deleted: dict[TopicPartition, TopicId] = {}
        """Logs that are left here of topics that somebody deletes."""
        self._heard_all = False
        """A controller has told all that there is, and nobody has looked since what is not among it."""
        replicas.on_metadata(self._look_at)

    def _look_at(self, request: UpdateMetadataRequest) -> None:
        broker_id, logs = self._replicas.broker_id, self._logs.logs
        for topic in request.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                if broker_id not in state.replicas and state.replicas and (tp in logs or tp in self._logs.begun):
                    self._wake.set()
                    if state.leader == LEADER_DURING_DELETE:
                        self._deleted[tp] = topic.topic_id
        if request.all_topics is not None:
            there = frozenset(request.all_topics)
            self._tell_strays([tp for tp in logs if tp.topic not in there])
        if request.has_told_all:
            self._heard_all = True
            self._wake.set()

    def _tell_strays(self, strays: Sequence[TopicPartition]) -> None:
        if strays:
            self._log.warning(
                "logs of partitions that are not there are kept",
                count=len(strays),
                partitions=[str(tp) for tp in strays[:MOST_NAMED]],
                remedy="if they were deleted while this broker was away, and ZooKeeper's data is no old copy, remove "
                "their folders while the broker is stopped",
            )

    def _tell_nameless(self, tp: TopicPartition) -> None:
        """That a topic has its name is no proof: records may be of one that was deleted, or made anew elsewhere."""
        self._limited.warning(
            f"nameless {tp}",
            "a replica that other brokers have is kept: nothing says of which topic its records are",
            partition=str(tp),
            remedy="if they are not missed, remove its folder while the broker is stopped",
        )

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await trio.sleep(GRACE_S)
            self._wake = trio.Event()
            if not await self.remove_all():
                await trio.sleep(RETRY_S - GRACE_S)
                self._wake.set()

    async def remove_all(self) -> bool:
        """One look at all logs. Whether nothing is left to be tried again."""
        is_done = await self._remove_deleted()
        by_leader: dict[int, list[Departed]] = {}
        strays: list[TopicPartition] = []
        heard_all, self._heard_all = self._heard_all, False
        for count, tp in enumerate(list(self._logs.logs), 1):
            departed = self._departed(tp)
            if departed is not None:
                by_leader.setdefault(departed.leader, []).append(departed)
            elif heard_all and self._is_of_another_life(tp):
                strays.append(tp)
            if count % PARTITIONS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        self._tell_strays(strays)
        is_done = await self._give_up_begun() and is_done
        for leader, of_one in by_leader.items():
            while some := of_one[:MAX_ASKED]:
                del of_one[:MAX_ASKED]
                # 2
                answers = await self._ask_leader(leader, some)
                is_done = await self._remove(some, answers) and is_done
        return is_done

    async def _remove_deleted(self) -> bool:
        """Those of topics that are being deleted. Whether all are gone."""
        for count, (tp, topic_id) in enumerate(list(self._deleted.items()), 1):
            log, topic = self._logs.get(tp), self._replicas.metadata.topics.get(tp.topic)
            is_back = topic is not None and topic.topic_id == topic_id and tp.partition in topic.partitions
            state = StopReplicaPartitionState(tp.topic, topic_id, tp.partition, LEADER_EPOCH_TOPIC_DELETED, True)
            if log is None or log.topic_id != topic_id or is_back:
                del self._deleted[tp]
            elif self._roles.remove_replica(state) is ErrorCode.NONE:
                del self._deleted[tp]
                self._log.info("removed what was left of a topic that is deleted", partition=str(tp))
                self._forget_topics([(tp.topic, topic_id)])
            if count % REMOVALS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        return not self._deleted

    def _departed(self, tp: TopicPartition) -> Departed | None:
        """1 and 3: how a log stands that should not be here; None where it should, or nobody knows."""
        log, topic = self._logs.get(tp), self._replicas.metadata.topics.get(tp.topic)
        state = None if topic is None else topic.partitions.get(tp.partition)
        if log is None or topic is None or state is None:
            return None
        is_empty = log.log_start_offset == log.log_end_offset
        if log.topic_id not in (None, topic.topic_id):
            return None
        if self._replicas.broker_id in state.replicas or not state.replicas or log.last_epoch > state.leader_epoch:
            return None
        if log.topic_id is None and not is_empty:  # power went before its id was on the disk, or it never had one
            self._tell_nameless(tp)
            return None
        partition = self._replicas.partitions.get(tp)
        if partition is not None and partition.leader_epoch > state.leader_epoch:
            return None
        end = log.log_end_offset  # of what no checkpoint tells, all may be committed
        committed = self._logs.high_watermarks.get(tp, end) if partition is None else partition.high_watermark
        if is_empty:
            committed = 0  # it has nothing
        return Departed(tp, topic.topic_id, state.leader, state.leader_epoch, _epochs(log, committed), committed)

    async def _give_up_begun(self) -> bool:
        """Logs that could not be created and that this broker is not to have, as far as it has heard. They have
        nothing, so nobody is asked, and one that is ordered after all is begun anew. Whether all are gone."""
        is_done = True
        for count, tp in enumerate(list(self._logs.begun), 1):
            if count % REMOVALS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
            begun = self._logs.begun.get(tp)
            if begun is None:
                continue
            topic = self._replicas.metadata.topics.get(tp.topic)
            state = topic.partitions.get(tp.partition) if topic is not None else None
            is_known = topic is not None and topic.topic_id == begun.topic_id
            if is_known and state is not None and self._replicas.broker_id in state.replicas:
                continue
            try:
                self._logs.give_up(tp)
            except LogStorageError as error:
                self._limited.warning(
                    f"begun {tp}", "what was begun of a log stays", partition=str(tp), error=str(error)
                )
                is_done = False
        return is_done

    def _is_of_another_life(self, tp: TopicPartition) -> bool:
        """Whether there is a topic of its name, and it is none of that topic's partitions. A replica that is assigned
        here gets an order, and that puts the log aside."""
        log, topic = self._logs.get(tp), self._replicas.metadata.topics.get(tp.topic)
        if log is None or topic is None or tp in self._replicas.partitions or tp in self._deleted:
            return False
        state = topic.partitions.get(tp.partition)
        is_assigned = state is not None and self._replicas.broker_id in state.replicas
        return not is_assigned and (state is None or log.topic_id not in (None, topic.topic_id))

    async def _remove(self, departed: Sequence[Departed], answers: Answers) -> bool:
        """Whether all of them are gone, or are to stay."""
        is_done = True
        removed: list[Departed] = []
        for each in departed:
            tp = each.topic_partition
            ends = answers.get(tp, ())
            # 3
            if self._departed(tp) != each:
                is_done = is_done and self._departed(tp) is None
                continue
            if len(ends) != len(each.epochs) or any(answer.error_code != ErrorCode.NONE for answer in ends):
                is_done = False
                continue
            lacking = [has for has, epoch in zip(ends, each.epochs, strict=True) if has.end_offset < epoch.end_offset]
            if lacking:
                self._keep(each, lacking[0].end_offset)
                continue
            # 4
            is_done = self._remove_one(each) and is_done
            removed.append(each)
            if len(removed) % REMOVALS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        if removed:
            self._forget_topics((each.topic_partition.topic, each.topic_id) for each in removed)
        return is_done

    def _remove_one(self, departed: Departed) -> bool:
        (topic, partition), topic_id = departed.topic_partition, departed.topic_id
        self._log.info(
            "removing a replica that has moved to other brokers",
            topic=topic,
            partition=partition,
            leader=departed.leader,
            leader_epoch=departed.leader_epoch,
        )
        state = StopReplicaPartitionState(topic, topic_id, partition, departed.leader_epoch, delete_partition=True)
        return self._roles.remove_replica(state) is ErrorCode.NONE

    def _keep(self, departed: Departed, end_offset: int) -> None:
        """The leader lacks what was committed here: a topic's replicas do not get lost that way but by an operator's
        hand, and then this may be the last copy."""
        self._limited.error(
            str(departed.topic_partition),
            "a replica that has moved to other brokers is kept: its leader lacks what was committed",
            partition=str(departed.topic_partition),
            committed=departed.committed,
            leader=departed.leader,
            leader_has=end_offset,
            remedy="copy its folder if the records matter: assigned to this broker again, the log is cut to what the "
            "leader has; else remove the folder while the broker is stopped",
        )


def _epochs(log: Log, committed: int) -> tuple[EpochEnd, ...]:
    """What a leader has to have: where each epoch ends, as far as that is committed. At least one, which may end where
    the log begins."""
    starts = log.epochs.entries
    ends = [*(entry.start_offset for entry in starts[1:]), log.log_end_offset][: len(starts)]
    found = [
        EpochEnd(entry.epoch, min(end, committed))
        for entry, end in zip(starts, ends, strict=True)
        if entry.start_offset < committed
    ]
    most = 1 if log.segments.compacted_below else MAX_EPOCHS
    return tuple(found[-most:]) or (EpochEnd(max(log.last_epoch, 0), committed),)


class EpochQuestions:
    """`AskLeader` by OffsetForLeaderEpoch."""

    def __init__(self, replicas: Replicas, network: Network, log: structlog.typing.FilteringBoundLogger) -> None:
        self._questions = Questions(replicas, network)
        self._limited = RateLimited(log, interval_s=SILENCE_LINE_S)

    async def ask_leader(self, leader: int, departed: Sequence[Departed]) -> Answers:
        """See `AskLeader`."""
        topics: dict[str, OffsetForLeaderTopic] = {}
        for each in departed:
            topic, partition = each.topic_partition
            topics.setdefault(topic, OffsetForLeaderTopic(topic, [])).partitions.extend(
                OffsetForLeaderPartition(partition, epoch, each.leader_epoch) for epoch, _ in each.epochs
            )
        question = OffsetForLeaderEpochRequest(list(topics.values()))
        try:
            response = await self._questions.ask(leader, question)
        except (ClientError, RemoteProtocolError) as error:
            self._limited.info(str(leader), "a leader does not say what it has", leader=leader, error=str(error))
            return {}
        assert isinstance(response, OffsetForLeaderEpochResponse)
        answers: dict[TopicPartition, list[OffsetForLeaderPartitionResponse]] = {}
        for topic_answer in response.topics:
            for answer in topic_answer.partitions:
                answers.setdefault(TopicPartition(topic_answer.topic, answer.partition), []).append(answer)
        return answers
