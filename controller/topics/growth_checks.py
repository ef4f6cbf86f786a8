"""What a CreatePartitions request asks for, checked: pure, so that validate_only and the real thing cannot disagree.

The new partitions go on where the present ones end: that of number i prefers the broker i places behind the one that
partition 0 prefers, with racks as for new topics. They get as many replicas as partition 0 has.

The brokers' own topics are refused: groups and transactions find their partition by how many there are, and what they
have kept would be looked for elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from strandline.controller.controller_context import ControllerContext, Topic
from strandline.controller.planning.assignment import assign_replicas, check_manual_assignment, order_brokers
from strandline.controller.topics.creation_checks import (
    MAX_PARTITIONS_PER_REQUEST,
    MAX_PARTITIONS_PER_TOPIC,
    WORK_PER_STEP,
    check_replication_factor,
)
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import CreatePartitionsTopic
from strandline.protocol.topic_name import INTERNAL_TOPICS, shortened
from strandline.protocol.types import TopicPartition

Assignment = dict[int, tuple[int, ...]]


class PlannedGrowth(NamedTuple):
    """`topic`: as it stands. `added`: its new partitions → replicas, preferred first."""

    topic: Topic
    added: Assignment

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic.name, partition) for partition in self.added]


class GrowthPlanner:
    """Name → what to add, or why not. Nothing may change `context` between the first step and the last.

    topics: those that exist, as their znodes say now. begun: what was written for this very request already: its event
    may be repeated."""

    def __init__(
        self,
        context: ControllerContext,
        requested: Sequence[CreatePartitionsTopic],
        topics: Mapping[str, Topic],
        begun: Mapping[str, PlannedGrowth],
    ) -> None:
        self.plans: dict[str, PlannedGrowth | BrokerError] = {}
        self._context = context
        self._requested = requested
        self._topics = topics
        self._begun = begun
        self._racks = {broker_id: broker.rack for broker_id, broker in context.brokers.items()}
        self._ordered = order_brokers(self._racks)
        self._partitions = 0

    def steps(self) -> Iterator[None]:
        """Fills `plans`. Between two steps the caller lets others run."""
        times = Counter(topic.name for topic in self._requested)
        for number, asked in enumerate(self._requested, 1):
            try:
                if times[asked.name] > 1:
                    raise BrokerError(
                        ErrorCode.INVALID_REQUEST, f"topic {shortened(asked.name)!r} stands in the request twice"
                    )
                yield from self._plan(asked)
            except BrokerError as error:
                self.plans[asked.name] = error
            if number % WORK_PER_STEP == 0:
                yield

    def _plan(self, asked: CreatePartitionsTopic) -> Iterator[None]:
        begun = self._begun.get(asked.name)
        topic = self._topics.get(asked.name)
        if begun is not None and topic is not None and begun.added.items() <= topic.assignment.items():
            self.plans[asked.name] = begun
            return
        topic = self._check_topic(asked.name, topic)
        first, added = self._check_count(asked, topic)
        factor = len(topic.assignment.get(0, ()))
        assignment: Assignment = {}
        if asked.assignments is not None:
            if len(asked.assignments) != added:
                text = (
                    f"Increasing the number of partitions by {added} but {len(asked.assignments)} assignments provided."
                )
                raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
            by_hand = dict(zip(count(first), (each.broker_ids for each in asked.assignments), strict=False))
            assignment = check_manual_assignment(by_hand, self._context.brokers, first)
            if len(assignment[first]) != factor:
                text = f"topic {topic.name}: its partitions have {factor} replicas, give the new ones as many"
                raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        else:
            check_replication_factor(topic.name, factor, len(self._racks))
            for replicas in assign_replicas(self._racks, added, factor, self._start(topic), first):
                assignment[first + len(assignment)] = replicas
                if (self._partitions + len(assignment)) % WORK_PER_STEP == 0:
                    yield
        self.plans[topic.name] = PlannedGrowth(topic, assignment)
        self._partitions += added

    def _start(self, topic: Topic) -> int:
        """Where partition 0 prefers to be: the place of that broker, or of the next one that lives."""
        preferred = topic.assignment[0][0]
        if preferred in self._ordered:
            return self._ordered.index(preferred)
        return next((place for place, broker_id in enumerate(self._ordered) if broker_id > preferred), 0)

    def _check_topic(self, name: str, topic: Topic | None) -> Topic:
        if name in self._context.deleting:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} is being deleted")
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        if name in INTERNAL_TOPICS:
            text = f"topic {name} is the brokers' own: what it keeps is found by the number of its partitions"
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
        if any(topic.adding_replicas.values()) or any(topic.removing_replicas.values()):
            text = f"topic {name}: a reassignment is under way, wait for it or cancel it"
            raise BrokerError(ErrorCode.REASSIGNMENT_IN_PROGRESS, text)
        return topic

    def _check_count(self, asked: CreatePartitionsTopic, topic: Topic) -> tuple[int, int]:
        """(the number of the first new partition, how many there are)."""
        now = len(topic.assignment)
        if asked.count < now:
            text = f"Topic currently has {now} partitions, which is higher than the requested {asked.count}."
            raise BrokerError(ErrorCode.INVALID_PARTITIONS, text)
        if asked.count == now:
            raise BrokerError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {now} partitions.")
        if asked.count > MAX_PARTITIONS_PER_TOPIC:
            text = f"topic {topic.name}: a topic has 1 to {MAX_PARTITIONS_PER_TOPIC} partitions, not {asked.count}"
            raise BrokerError(ErrorCode.INVALID_PARTITIONS, text)
        if sorted(topic.assignment) != list(range(now)):
            text = f"topic {topic.name}: its partitions are not numbered from 0 without gaps: mend its znode"
            raise BrokerError(ErrorCode.INVALID_PARTITIONS, text)
        added = asked.count - now
        if self._partitions + added > MAX_PARTITIONS_PER_REQUEST:
            text = (
                f"topic {topic.name}: one request creates at most {MAX_PARTITIONS_PER_REQUEST} partitions: send several"
            )
            raise BrokerError(ErrorCode.POLICY_VIOLATION, text)
        return now, added
