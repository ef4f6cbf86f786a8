"""Balanced recovery (`unclean.recovery.strategy=balanced`, after KIP-966): when every in-sync replica of a partition
may have lost data, all of them being back, the longest surviving log of all live replicas leads.

1. `begin`: the planner found such partitions. All live replicas are asked where their logs end, beside the events:
   OffsetForLeaderEpoch with the highest epoch there is, as `ANY_REPLICA`, so that followers answer, too.
2. `_elect`: when all live ones have answered, an event elects by (epoch, end offset) and says so loudly.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from strandline.controller.elections import LogEnd
from strandline.controller.events import Trigger
from strandline.controller.planner import PartitionChange, plan_partitions, plan_recovery
from strandline.controller.sender import BrokerUnreachable
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.messages import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from strandline.protocol.types import ANY_REPLICA, TopicPartition

if TYPE_CHECKING:
    from strandline.controller.term import Term

HIGHEST_EPOCH = 2**31 - 1
ANSWER_SECONDS = 10.0
MAX_PARTITIONS_PER_QUESTION = 2000


class BalancedRecovery:
    """Of one term."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._in_hand: dict[TopicPartition, None] = {}

    def begin(self, partitions: Sequence[TopicPartition]) -> None:
        """Ask about these partitions, unless that is under way. Never waits."""
        fresh = [tp for tp in partitions if tp not in self._in_hand]
        self._in_hand.update(dict.fromkeys(fresh))
        if self._term.config.unclean_recovery_strategy == "none":
            for tp in fresh:
                self._term.log.error(
                    "partition stays offline: every in-sync replica may have lost data and "
                    "unclean.recovery.strategy is none",
                    partition=str(tp),
                )
            return
        for start in range(0, len(fresh), MAX_PARTITIONS_PER_QUESTION):
            part = fresh[start : start + MAX_PARTITIONS_PER_QUESTION]
            self._term.start(partial(self._ask_all, part))

    async def _ask_all(self, partitions: Sequence[TopicPartition]) -> None:
        context = self._term.context
        log_ends: dict[TopicPartition, dict[int, LogEnd]] = {tp: {} for tp in partitions}
        silent: dict[TopicPartition, None] = {}
        by_broker: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            for replica in context.replicas(tp):
                if context.is_online(replica, tp):
                    by_broker.setdefault(replica, []).append(tp)

        async def ask(broker_id: int, its: list[TopicPartition]) -> None:
            try:
                with trio.fail_after(ANSWER_SECONDS):
                    for tp, end in (await self._log_ends(broker_id, its)).items():
                        log_ends[tp][broker_id] = end
            except (BrokerUnreachable, trio.TooSlowError):
                silent.update(dict.fromkeys(its))

        async with trio.open_nursery() as nursery:
            for broker_id, its in by_broker.items():
                nursery.start_soon(ask, broker_id, its)
        self._term.events.put(partial(self._elect, log_ends, silent))

    async def _log_ends(self, broker_id: int, partitions: list[TopicPartition]) -> dict[TopicPartition, LogEnd]:
        """Replicas without a log, or with one that cannot be read, are left out."""
        topics: dict[str, OffsetForLeaderTopic] = {}
        for tp in partitions:
            topic = topics.setdefault(tp.topic, OffsetForLeaderTopic(tp.topic, []))
            topic.partitions.append(OffsetForLeaderPartition(tp.partition, HIGHEST_EPOCH))
        question = OffsetForLeaderEpochRequest(topics=list(topics.values()), replica_id=ANY_REPLICA)
        answer = await self._term.outbox.ask(broker_id, question)
        assert isinstance(answer, OffsetForLeaderEpochResponse)
        return {
            TopicPartition(topic.topic, p.partition): LogEnd(p.leader_epoch, p.end_offset)
            for topic in answer.topics
            for p in topic.partitions
            if error_code(p.error_code) is ErrorCode.NONE and p.end_offset >= 0
        }

    async def _elect(
        self, log_ends: dict[TopicPartition, dict[int, LogEnd]], silent: dict[TopicPartition, None]
    ) -> None:
        context, log = self._term.context, self._term.log
        # Things may have moved since the question: only what would still be asked about is decided by the answers.
        open_still = plan_partitions(context, list(log_ends)).recover
        for tp in log_ends:
            self._in_hand.pop(tp, None)
        waiting = [tp for tp in open_still if tp in silent]
        if waiting:
            self._term.later(Trigger.OFFLINE_PARTITIONS)
        decided = [tp for tp in open_still if tp not in silent]

        async def planner(partitions: Sequence[TopicPartition]) -> Sequence[PartitionChange]:
            changes = [plan_recovery(context, tp, log_ends[tp]) for tp in partitions if log_ends[tp]]
            return [change for change in changes if change is not None]

        changed = await self._term.settle(decided, planner)
        without_logs = [tp for tp in decided if not log_ends[tp]]
        for tp in without_logs:
            log.error("no replica says where its log ends; an in-sync one leads as it is", partition=str(tp))
        resolved = {*changed, *without_logs}
        context.suspects = {entry for entry in context.suspects if entry[1] not in resolved}
        self._term.announce(changed)
        await self._term.settle_and_announce(without_logs)
