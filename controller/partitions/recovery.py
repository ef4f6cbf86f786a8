"""Recovery by the longest log (KIP-966): for a partition of which nobody is known to have everything that is committed.

The planner names such partitions, and whom to ask: all assigned replicas, once they are back
(`unclean.recovery.strategy=balanced`); or those that live, where the loss of what the others may have is accepted, by
the topic (`unclean.leader.election.enable`) or by an operator for this once (`elect_leaders`).

1. `begin`: they are asked where their logs end, beside the events: OffsetForLeaderEpoch with the highest epoch there
   is, as `ANY_REPLICA`, so that followers answer, too. A replica without a log has lost all of it: its log is empty.
   One whose log cannot be read may hold most of all, so it counts as one that is not back.
2. `_elect`: when all have answered, an event elects by (epoch, end offset) and says so loudly. An answer counts in the
   life of its broker that gave it: the write is on the condition that who is to lead was not started anew since. A
   start raises its number of lives first and reads afterwards what it is credited with
   (`broker/membership/registration.py`), so either that election fails, or the start finds it.
   What lost against another write or start is asked again, and so is what somebody has by now who was not asked, or
   started anew since: accepted is the loss of what those have who are away, or were asked and do not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import trio

from strandline.controller.controller_context import PartitionChange
from strandline.controller.orders.channel import BrokerUnreachable
from strandline.controller.partitions.settlement import Settlement
from strandline.controller.partitions.waits import SILENT, UNDECIDED, Waits
from strandline.controller.planning.leader_elections import LogEnd, LogEnds
from strandline.controller.planning.planner import plan_recovery
from strandline.controller.tools import Tools
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.messages import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from strandline.protocol.types import ANY_REPLICA, NO_EPOCH, TopicPartition
from strandline.runtime.coordination import CoordinationError

HIGHEST_EPOCH = 2**31 - 1
ANSWER_SECONDS = 10.0
MAX_PARTITIONS_PER_QUESTION = 2000
NO_LOG = LogEnd(NO_EPOCH, 0)
_WITHOUT_A_LOG = (ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

Asked = Mapping[TopicPartition, tuple[int, ...]]


class Recovery:
    """One term's. It listens to what the settlement cannot decide."""

    def __init__(self, tools: Tools, settlement: Settlement, waits: Waits) -> None:
        self._tools = tools
        self._context, self._store, self._agenda = tools.context, tools.store, tools.agenda
        self._settlement = settlement
        self._waits = waits
        self._in_hand: dict[TopicPartition, None] = {}
        settlement.on_undecided = self.begin

    def begin(self, partitions: Asked, lossy_topics: set[str]) -> None:
        """Ask about these partitions, unless that is under way. Never waits. lossy_topics: allow an unclean
        election."""
        fresh: dict[TopicPartition, tuple[int, ...]] = {}
        undecided: dict[TopicPartition, tuple[int, ...]] = {}
        for tp, replicas in partitions.items():
            if tp in self._in_hand:
                continue
            if self._tools.config.unclean_recovery_strategy == "none" and not self._accepts_loss(tp, lossy_topics):
                undecided[tp] = self._context.states[tp].lossy
            else:
                fresh[tp] = replicas
        self._waits.note(undecided, UNDECIDED)
        self._in_hand.update(dict.fromkeys(fresh))
        names = list(fresh)
        for start in range(0, len(names), MAX_PARTITIONS_PER_QUESTION):
            part = {tp: fresh[tp] for tp in names[start : start + MAX_PARTITIONS_PER_QUESTION]}
            self._agenda.start(partial(self._recover, part))

    def _accepts_loss(self, tp: TopicPartition, lossy_topics: set[str]) -> bool:
        return tp in self._context.accepted_losses or tp.topic in lossy_topics

    async def _recover(self, asked: Asked) -> None:
        try:
            lives = await self._store.lives(dict.fromkeys(b for replicas in asked.values() for b in replicas))
        except CoordinationError as error:
            self._tools.log.warning("lives of brokers cannot be read: logs are compared later", error=str(error))
            lives = {}
        log_ends = await self.ask(asked)
        self._agenda.put(partial(self._elect, asked, log_ends, lives))

    async def ask(self, asked: Asked) -> LogEnds:
        """Where the logs of these replicas end; those that cannot tell, or not in time, are left out."""
        log_ends: LogEnds = {tp: {} for tp in asked}
        by_broker: dict[int, list[TopicPartition]] = {}
        for tp, replicas in asked.items():
            for replica in replicas:
                by_broker.setdefault(replica, []).append(tp)

        async def ask_one(broker_id: int, its: list[TopicPartition]) -> None:
            try:
                for start in range(0, len(its), MAX_PARTITIONS_PER_QUESTION):
                    some = its[start : start + MAX_PARTITIONS_PER_QUESTION]
                    with trio.fail_after(ANSWER_SECONDS):
                        for tp, end in (await self._log_ends(broker_id, some)).items():
                            log_ends[tp][broker_id] = end
            except (BrokerUnreachable, trio.TooSlowError) as error:
                self._tools.log.warning("broker does not say where its logs end", broker=broker_id, error=str(error))

        async with trio.open_nursery() as nursery:
            for broker_id, its in by_broker.items():
                nursery.start_soon(ask_one, broker_id, its)
        return log_ends

    async def _log_ends(self, broker_id: int, partitions: list[TopicPartition]) -> dict[TopicPartition, LogEnd]:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for tp in partitions:
            topic = topics.setdefault(tp.topic, OffsetForLeaderTopic(tp.topic, []))
            topic.partitions.append(OffsetForLeaderPartition(tp.partition, HIGHEST_EPOCH))
        question = OffsetForLeaderEpochRequest(topics=list(topics.values()), replica_id=ANY_REPLICA)
        answer = await self._tools.outbox.ask(broker_id, question)
        assert isinstance(answer, OffsetForLeaderEpochResponse)
        ends: dict[TopicPartition, LogEnd] = {}
        for topic_answer in answer.topics:
            for p in topic_answer.partitions:
                tp, code = TopicPartition(topic_answer.topic, p.partition), error_code(p.error_code)
                if code in _WITHOUT_A_LOG:
                    ends[tp] = NO_LOG
                elif code is ErrorCode.NONE:
                    ends[tp] = LogEnd(p.leader_epoch, p.end_offset) if p.end_offset >= 0 else NO_LOG
        return ends

    async def _elect(self, asked: Asked, log_ends: LogEnds, lives: Mapping[int, int]) -> None:
        # What a broker said in an earlier life is worth nothing: its log may be gone since.
        living = await self._store.lives(lives)
        of_this_life = {broker_id for broker_id, life in lives.items() if living.get(broker_id) == life}
        for ends in log_ends.values():
            for broker_id in sorted(ends.keys() - of_this_life):
                del ends[broker_id]
        for tp in asked:
            self._in_hand.pop(tp, None)
        # Things may have moved since the question: only what would still be asked about is decided by the answers.
        plan, lossy_topics = await self._settlement.plan(list(asked))
        decided: dict[TopicPartition, None] = {}
        undecided: dict[TopicPartition, tuple[int, ...]] = {}
        for tp, replicas in plan.recover.items():
            silent = tuple(replica for replica in replicas if replica not in log_ends[tp])
            were_asked = of_this_life.issuperset(replicas) and set(asked[tp]).issuperset(replicas)
            if log_ends[tp] and (not silent or (were_asked and self._accepts_loss(tp, lossy_topics))):
                decided[tp] = None
            else:
                undecided[tp] = silent
        self._waits.note(undecided, SILENT)
        if undecided:
            self._agenda.later(self._settlement.settle_offline)
        await self._settlement.settle_and_announce(list(decided), partial(self._plan, decided, log_ends, living))

    def _plan(
        self,
        decided: dict[TopicPartition, None],
        log_ends: LogEnds,
        lives: Mapping[int, int],
        partitions: Sequence[TopicPartition],
    ) -> Sequence[PartitionChange]:
        """Elections by these answers, which count once: a partition that comes again was upset by somebody else's write
        or start, so it is settled anew, with another question where need be."""
        if any(tp not in decided for tp in partitions):
            self._agenda.put(self._settlement.settle_offline)
        fresh = [tp for tp in partitions if tp in decided and not self._context.has_live_leader(tp)]
        for tp in fresh:
            del decided[tp]
        changes = [plan_recovery(self._context, tp, log_ends[tp]) for tp in fresh]
        return [replace(change, life=lives[change.after.leader]) for change in changes if change is not None]
