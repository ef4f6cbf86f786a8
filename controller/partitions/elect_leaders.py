"""ElectLeaders: preferred elections, and unclean ones, each of which has its own file."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.controller.partitions.accepted_losses import AcceptedLosses
from strandline.controller.partitions.preferred_elections import PreferredElections
from strandline.controller.planning.preferred_leaders import NotElected
from strandline.controller.tools import Tools
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
)
from strandline.protocol.types import NO_BROKER, TopicPartition


class ElectLeaders:
    """Answers an operator, in one term."""

    def __init__(self, tools: Tools, preferred: PreferredElections, losses: AcceptedLosses) -> None:
        self._context = tools.context
        self._preferred = preferred
        self._losses = losses

    async def answer(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """NotController when the term ends before."""
        asked = list(dict.fromkeys(self._asked(request)))
        if request.election_type == UNCLEAN:
            results = await self._losses.elect(asked, request.timeout_ms, validate_only=request.validate_only)
        elif request.election_type != PREFERRED:
            text = f"election type {request.election_type} is not known; 0 is preferred, 1 unclean"
            return ElectLeadersResponse([], ErrorCode.INVALID_REQUEST, text)
        elif request.validate_only:
            return ElectLeadersResponse([], ErrorCode.INVALID_REQUEST, "a preferred election loses nothing: do it")
        else:
            outcomes = await self._preferred.elect(asked, request.timeout_ms)
            results = {tp: self._result(tp, why) for tp, why in outcomes.items()}
        if request.topic_partitions is None:
            needed = ErrorCode.ELECTION_NOT_NEEDED
            results = {tp: result for tp, result in results.items() if result.error_code != needed}
        return ElectLeadersResponse(_by_topic(results))

    def _asked(self, request: ElectLeadersRequest) -> list[TopicPartition]:
        if request.topic_partitions is None:
            return [tp for tp in self._context.partitions() if tp.topic not in self._context.deleting]
        return [TopicPartition(topic.topic, p) for topic in request.topic_partitions for p in topic.partitions]

    def _result(self, tp: TopicPartition, why: NotElected | None) -> ElectLeadersPartitionResult:
        state = self._context.states.get(tp)
        leader = NO_BROKER if state is None else state.leader
        code, text = (ErrorCode.NONE, None) if why is None else why
        return ElectLeadersPartitionResult(tp.partition, code, text, leader)


def _by_topic(results: Mapping[TopicPartition, ElectLeadersPartitionResult]) -> list[ElectLeadersTopicResult]:
    topics: dict[str, ElectLeadersTopicResult] = {}
    for tp, result in results.items():
        topics.setdefault(tp.topic, ElectLeadersTopicResult(tp.topic, [])).partition_result.append(result)
    return list(topics.values())
