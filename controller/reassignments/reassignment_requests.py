"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455), each in its turn among the events.

The answer to the first comes when it stands in ZooKeeper where the partitions are to go, and the first orders are on
their way; the second tells what is left to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial

import trio

from strandline.controller.reassignments.reassignment_store import Move
from strandline.controller.reassignments.reassignments import Reassignments
from strandline.controller.reassignments.request_checks import plan_move, shown
from strandline.controller.tools import Tools
from strandline.controller.topics.creation_checks import WORK_PER_STEP
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from strandline.protocol.types import TopicPartition

TOPICS_AT_ONCE = 1000
"""In one event; then others take their turn. Kafka's tool sends all of a plan in one request."""

Plans = dict[TopicPartition, Move | BrokerError]


class ReassignmentRequests:
    """One term's."""

    def __init__(self, tools: Tools, reassignments: Reassignments) -> None:
        self._context, self._agenda = tools.context, tools.agenda
        self._reassignments = reassignments

    async def alter(self, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
        """Each partition by itself: another target, or the way back. NotController, which may come when some of it is
        written down: who asks repeats all of it."""
        named = Counter(
            TopicPartition(topic.name, p.partition_index) for topic in request.topics for p in topic.partitions
        )
        twice = frozenset(tp for tp, times in named.items() if times > 1)
        begun: dict[TopicPartition, Move] = {}
        plans: Plans = {}
        for start in range(0, len(request.topics), TOPICS_AT_ONCE):
            topics = request.topics[start : start + TOPICS_AT_ONCE]
            plans |= await self._agenda.in_turn(partial(self._begin, topics, twice, begun))
        responses = []
        for topic in request.topics:
            partitions = [TopicPartition(topic.name, asked.partition_index) for asked in topic.partitions]
            results = [_result(tp.partition, plans[tp]) for tp in partitions]
            responses.append(ReassignableTopicResponse(topic.name, results))
        return AlterPartitionReassignmentsResponse(ErrorCode.NONE, responses=responses)

    async def _begin(
        self,
        topics: Sequence[ReassignableTopic],
        twice: Collection[TopicPartition],
        begun: dict[TopicPartition, Move],
    ) -> Plans:
        """`begun`: what was to be written for this very request already, since its event may be repeated."""
        plans: Plans = {}
        for topic in topics:
            for asked in topic.partitions:
                tp = TopicPartition(topic.name, asked.partition_index)
                if tp in twice:
                    plans[tp] = BrokerError(ErrorCode.INVALID_REQUEST, f"{shown(tp)} is named twice in the request")
                else:
                    plans[tp] = begun.get(tp) or plan_move(self._context, tp, asked.replicas)
                if len(plans) % WORK_PER_STEP == 0:
                    await trio.lowlevel.checkpoint()  # events take their turns: the context stays as it is
        moves = {tp: plan for tp, plan in plans.items() if isinstance(plan, Move)}
        begun.update(moves)
        written = await self._reassignments.begin(moves, overrules_tools=True)
        for tp, move in moves.items():
            if tp in written.refused:
                plans[tp] = BrokerError(ErrorCode.POLICY_VIOLATION, written.refused[tp])
            elif tp not in written.stands and written.found.get(tp) != move.after.done:  # else it has ended meanwhile
                text = f"{tp} was changed by somebody else meanwhile: repeat"
                plans[tp] = BrokerError(ErrorCode.REQUEST_TIMED_OUT, text)
        return plans

    async def list(self, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        """What is under way, of all partitions or of those asked for. NotController."""
        return await self._agenda.in_turn(partial(self.look_up, request))

    async def look_up(self, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        """The event of `list`."""
        await trio.lowlevel.checkpoint()
        moving = self._context.moving()
        if request.topics is not None:
            asked = {TopicPartition(topic.name, p): None for topic in request.topics for p in topic.partition_indexes}
            moving = {tp: replicas for tp, replicas in moving.items() if tp in asked}
        topics: dict[str, OngoingTopicReassignment] = {}
        for (name, partition), replicas in moving.items():
            topics.setdefault(name, OngoingTopicReassignment(name, [])).partitions.append(
                OngoingPartitionReassignment(
                    partition, list(replicas.assigned), list(replicas.adding), list(replicas.removing)
                )
            )
        return ListPartitionReassignmentsResponse(ErrorCode.NONE, topics=list(topics.values()))


def _result(partition: int, plan: Move | BrokerError) -> ReassignablePartitionResponse:
    if isinstance(plan, BrokerError):
        return ReassignablePartitionResponse(partition, plan.code, str(plan.args[0]))
    return ReassignablePartitionResponse(partition, ErrorCode.NONE)
