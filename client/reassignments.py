"""What operators do with replicas: have partitions moved to other brokers, look how far that is, elect leaders.

The controller does it. It answers once the wish is written down, and whoever becomes controller goes on with it; so a
request whose answer was lost is only repeated, and "none is under way" after a lost cancellation counts as done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from strandline.client.errors import ClientError, error_for
from strandline.client.log_dirs import LogDirs, describe_log_dirs
from strandline.client.owners import Attempts, R
from strandline.client.request_bounds import in_parts
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    PREFERRED,
    UNCLEAN,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    Request,
)
from strandline.protocol.types import TopicPartition


class OngoingReassignment(NamedTuple):
    """`replicas`: all that hold the partition meanwhile. `adding` are still to be filled, `removing` go then."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Who holds it at the end, preferred first."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """Who holds it again where it is cancelled."""
        return tuple(each for each in self.replicas if each not in self.adding)


class ControllerAttempts(Attempts, Protocol):
    """A call that the controller answers."""

    def controllers_ms(self) -> int:
        """How long the controller may take."""

    def must_repeat(self, number: int) -> bool:
        """This error code is about who was asked, not about what."""

    async def attempt(self, request: Request, answer: type[R]) -> R | None:
        """None: try again. The last cause once the time is over."""

    async def before_repeating(self, repeat: bool, what: str) -> None: ...


class ReplicaMoves(ABC):
    """The part of `TrioAdmin` that is about which brokers hold and lead partitions."""

    @abstractmethod
    def _attempts(self, timeout_ms: float | None) -> ControllerAttempts:
        """Begin a call; None: with the time that calls have by default."""

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, ClientError | None]:
        """Have each partition held by these brokers, the preferred leader first; None: cancel what is under way.

        Returns when the controller has written that down: it is done when `list_partition_reassignments` names the
        partition no more. What became of each wish: None, UnknownTopic, INVALID_REPLICA_ASSIGNMENT,
        NO_REASSIGNMENT_IN_PROGRESS or another AnsweredError. The last cause is raised where nothing was written down
        yet; where earlier requests of many were, it is the result of the rest."""
        attempts = self._attempts(timeout_ms)
        results: dict[TopicPartition, ClientError | None] = {}
        for part in in_parts(targets):
            try:
                results |= await _alter({tp: targets[tp] for tp in part}, attempts)
            except ClientError as error:
                if not results:
                    raise
                results |= dict.fromkeys(part, error)
        return results

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        """What is under way, of these partitions (None: of all). AnsweredError or the last cause."""
        attempts = self._attempts(timeout_ms)
        found: dict[TopicPartition, OngoingReassignment] = {}
        for part in [None] if partitions is None else list(in_parts(dict.fromkeys(partitions))):
            found |= await _listed(part, attempts)
        return {tp: found[tp] for tp in sorted(found)}

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        unclean: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, int | ClientError]:
        """Have each of these partitions (None: of all) led by the first of its replicas; unclean: those that nobody
        leads by any replica that lives, what others have is lost.

        Who leads now, or why that did not change: ELECTION_NOT_NEEDED, which is left out where all were asked for,
        PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UnknownTopic or another AnsweredError. The last
        cause is raised where nothing was done yet, else it is the result of the rest."""
        attempts = self._attempts(timeout_ms)
        if partitions is None:
            return await _elected(None, unclean, attempts)
        results: dict[TopicPartition, int | ClientError] = {}
        for part in in_parts(dict.fromkeys(partitions)):
            try:
                results |= await _elected(part, unclean, attempts)
            except ClientError as error:
                if not results:
                    raise
                results |= dict.fromkeys(part, error)
        return results

    async def describe_log_dirs(
        self,
        brokers: Iterable[int],
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> LogDirs:
        """The log directories of each of these brokers, and how large the logs of these partitions (None: all) are
        there. A broker that does not answer within `timeout_ms` is an error in the result."""
        return await describe_log_dirs(brokers, partitions, self._attempts(timeout_ms))


async def _alter(
    targets: Mapping[TopicPartition, Sequence[int] | None], attempts: ControllerAttempts
) -> dict[TopicPartition, ClientError | None]:
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, number), replicas in targets.items():
        wanted = ReassignablePartition(number, None if replicas is None else list(replicas))
        topics.setdefault(topic, []).append(wanted)
    listed = [ReassignableTopic(name, parts) for name, parts in topics.items()]
    while True:
        request = AlterPartitionReassignmentsRequest(listed, attempts.controllers_ms())
        answer = await attempts.attempt(request, AlterPartitionReassignmentsResponse)
        if answer is None:
            continue
        if answer.error_code and not attempts.must_repeat(answer.error_code):
            raise error_for(answer.error_code, "reassigning partitions", detail=answer.error_message)
        told = {
            TopicPartition(topic.name, each.partition_index): each
            for topic in answer.responses
            for each in topic.partitions
        }
        if not answer.error_code and told.keys() >= targets.keys():
            return {tp: _outcome(tp, told[tp], targets[tp] is None, attempts) for tp in targets}
        await attempts.before_repeating(True, "reassigning partitions")


def _outcome(
    tp: TopicPartition, told: ReassignablePartitionResponse, cancels: bool, attempts: Attempts
) -> ClientError | None:
    code = told.error_code
    if code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS and attempts.outcome_was_lost:
        return None  # it may have been us
    verb = "cancelling the reassignment of" if cancels else "reassigning"
    return error_for(code, f"{verb} {tp}", detail=told.error_message) if code else None


async def _listed(
    partitions: list[TopicPartition] | None, attempts: ControllerAttempts
) -> dict[TopicPartition, OngoingReassignment]:
    topics = None
    if partitions is not None:
        topics = [ListPartitionReassignmentsTopics(*each) for each in _numbers_by_topic(partitions).items()]
    while True:
        request = ListPartitionReassignmentsRequest(attempts.controllers_ms(), topics)
        answer = await attempts.attempt(request, ListPartitionReassignmentsResponse)
        if answer is None:
            continue
        if not answer.error_code:
            return {
                TopicPartition(topic.name, each.partition_index): OngoingReassignment(
                    tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
                )
                for topic in answer.topics
                for each in topic.partitions
            }
        if not attempts.must_repeat(answer.error_code):
            raise error_for(answer.error_code, "listing reassignments", detail=answer.error_message)
        await attempts.before_repeating(True, "listing reassignments")


async def _elected(
    partitions: list[TopicPartition] | None, unclean: bool, attempts: ControllerAttempts
) -> dict[TopicPartition, int | ClientError]:
    topics = None
    if partitions is not None:
        topics = [ElectLeadersTopic(*each) for each in _numbers_by_topic(partitions).items()]
    while True:
        request = ElectLeadersRequest(UNCLEAN if unclean else PREFERRED, topics, attempts.controllers_ms())
        answer = await attempts.attempt(request, ElectLeadersResponse)
        if answer is None:
            continue
        if answer.error_code and not attempts.must_repeat(answer.error_code):
            raise error_for(answer.error_code, "electing leaders", detail=answer.error_message)
        told = {
            TopicPartition(topic.topic, each.partition_id): error_for(
                each.error_code, f"electing a leader of {topic.topic}-{each.partition_id}", detail=each.error_message
            )
            if each.error_code
            else each.leader_id
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }
        if not answer.error_code and (partitions is None or told.keys() >= set(partitions)):
            return {tp: told[tp] for tp in (sorted(told) if partitions is None else partitions)}
        await attempts.before_repeating(True, "electing leaders")


def _numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found
