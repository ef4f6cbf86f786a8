"""What a CreateTopics request asks for, checked: pure, so that validate_only and the real thing cannot disagree.

Nobody says how the brokers' own (`INTERNAL_TOPICS`) are made: they are refused here, or made as `internal_topics` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from strandline.controller.controller_context import ControllerContext, Topic
from strandline.controller.planning.assignment import PreferredCounts, assign_replicas, check_manual_assignment
from strandline.controller.topics.internal_topics import MADE_BY_BROKERS
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import CreatableTopic
from strandline.protocol.topic_name import (
    BROKERS_OWN,
    INTERNAL_TOPICS,
    InvalidTopicName,
    TopicNames,
    check_topic_name,
    shortened,
)
from strandline.protocol.types import TopicId
from strandline.runtime.config.broker import BROKER_KEYS, BrokerConfig
from strandline.runtime.config.topic import topic_config
from strandline.runtime.config.values import InvalidConfig

DEFAULT_FACTOR = "default.replication.factor"

MAX_PARTITIONS_PER_TOPIC = 10_000
"""One topic's assignment has to fit a znode (1 MiB) and one metadata answer a frame."""

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Of all topics that one request creates, as in Kafka: they are planned, written and announced as one event."""

MAX_TOPICS_PER_REQUEST = 1000
"""Created or deleted: each is a transaction, and while a request has its turn no leader is elected."""

WORK_PER_STEP = 500
"""Partitions, or topics, that are planned without letting others run: some milliseconds."""


def check_topics_count(verb: str, count: int) -> None:
    """BrokerError POLICY_VIOLATION where one request is about too many topics."""
    if count > MAX_TOPICS_PER_REQUEST:
        raise BrokerError(
            ErrorCode.POLICY_VIOLATION,
            f"one request {verb} at most {MAX_TOPICS_PER_REQUEST} topics, not {count}: send several",
        )


class PlannedTopic(NamedTuple):
    """A topic to create, and what was asked for, which has its configurations. Of the brokers' own that is what they
    are made of."""

    topic: Topic
    asked: CreatableTopic


class CreationPlanner:
    """Name → the topic to create, or why not. Topics of one request are checked against each other too.

    The work is linear in what exists and in what is asked for: names and preferred brokers are counted once, and again
    for each topic as it is planned. Nothing may change `context` between the first step and the last."""

    def __init__(
        self,
        context: ControllerContext,
        requested: Sequence[CreatableTopic],
        config: BrokerConfig,
        topic_ids: Mapping[str, TopicId],
    ) -> None:
        self.plans: dict[str, PlannedTopic | BrokerError] = {}
        self._context = context
        self._requested = requested
        self._config = config
        self._topic_ids = topic_ids
        self._racks = {broker_id: broker.rack for broker_id, broker in context.brokers.items()}
        self._names = TopicNames(context.topics)
        self._preferred = PreferredCounts(self._racks, (topic.assignment for topic in context.topics.values()))
        self._partitions = 0

    def steps(self) -> Iterator[None]:
        """Fills `plans`. Between two steps the caller lets others run."""
        counts = Counter(topic.name for topic in self._requested)
        for number, topic in enumerate(self._requested, 1):
            try:
                if counts[topic.name] > 1:
                    raise BrokerError(
                        ErrorCode.INVALID_REQUEST, f"topic {shortened(topic.name)!r} stands in the request twice"
                    )
                yield from self._plan(topic)
            except BrokerError as error:
                self.plans[topic.name] = error
            if number % WORK_PER_STEP == 0:
                yield

    def _plan(self, topic: CreatableTopic) -> Iterator[None]:
        if topic.name in INTERNAL_TOPICS:
            topic = _as_brokers_make_it(topic, self._config, len(self._racks))
        made = self._context.topics.get(topic.name)
        if made is not None and made.topic_id == self._topic_ids[topic.name]:
            self.plans[topic.name] = PlannedTopic(made, topic)  # by this very request, whose event is repeated
            return
        _check_name(self._context, topic.name, self._names)
        _check_configs(topic, self._config)
        assignment: dict[int, tuple[int, ...]]
        if topic.assignments:
            if topic.num_partitions != -1 or topic.replication_factor != -1:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"topic {topic.name}: give either an assignment or a number of partitions and replicas, not both",
                )
            self._check_partitions(topic.name, len(topic.assignments))
            assignment = check_manual_assignment(topic.assignments, self._context.brokers)
        else:
            partitions = self._config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
            self._check_partitions(topic.name, partitions)
            factor = _replication_factor(topic, self._config, len(self._racks))
            assignment = {}
            for replicas in assign_replicas(self._racks, partitions, factor, self._preferred.start()):
                assignment[len(assignment)] = replicas
                if (self._partitions + len(assignment)) % WORK_PER_STEP == 0:
                    yield
        self.plans[topic.name] = PlannedTopic(Topic(topic.name, self._topic_ids[topic.name], assignment), topic)
        self._partitions += len(assignment)
        self._names.add(topic.name)
        self._preferred.add(assignment)

    def _check_partitions(self, name: str, partitions: int) -> None:
        if not 1 <= partitions <= MAX_PARTITIONS_PER_TOPIC:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name}: a topic has 1 to {MAX_PARTITIONS_PER_TOPIC} partitions, not {partitions}",
            )
        if self._partitions + partitions > MAX_PARTITIONS_PER_REQUEST:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"topic {name}: one request creates at most {MAX_PARTITIONS_PER_REQUEST} partitions; its other topics "
                f"have {self._partitions}, these would be {partitions} more: send another request for them",
            )


def lowered(planned: Iterable[PlannedTopic], config: BrokerConfig) -> list[Topic]:
    """Which topics have fewer replicas than the default, for want of live brokers."""
    return [
        topic
        for topic, asked in planned
        if asked.replication_factor == -1 and not asked.assignments
        if len(topic.assignment[0]) < config.default_replication_factor
    ]


def _as_brokers_make_it(asked: CreatableTopic, config: BrokerConfig, live_brokers: int) -> CreatableTopic:
    row = MADE_BY_BROKERS.get(asked.name)
    if row is None or asked != CreatableTopic(asked.name):
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {asked.name} {BROKERS_OWN}")
    factor = configured_replicas(config, row.replication_factor, live_brokers)
    return CreatableTopic(asked.name, _configured(config, row.partitions), factor, configs=row.configs(config))


def _configured(config: BrokerConfig, key: str) -> int:
    value: int = getattr(config, BROKER_KEYS[key].attribute)
    return value


def configured_replicas(config: BrokerConfig, key: str, live_brokers: int) -> int:
    """How many replicas a topic gets by `key`, one of the keys named *.replication.factor. One that was set counts as
    it is; a default is lowered to the live brokers, so that a cluster of one works without any configuration."""
    configured = _configured(config, key)
    return configured if key in config.explicit else max(1, min(configured, live_brokers))


def _replication_factor(topic: CreatableTopic, config: BrokerConfig, live_brokers: int) -> int:
    asked, wanted = "replication factor ", topic.replication_factor
    if wanted == -1:
        asked, wanted = f"{DEFAULT_FACTOR}=", configured_replicas(config, DEFAULT_FACTOR, live_brokers)
    check_replication_factor(topic.name, wanted, live_brokers, asked)
    return wanted


def check_replication_factor(name: str, wanted: int, live_brokers: int, asked: str = "replication factor ") -> None:
    """BrokerError INVALID_REPLICATION_FACTOR where so many replicas cannot be placed. asked: what the number is of."""
    if not 1 <= wanted <= live_brokers:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {name}: {asked}{wanted}, but {_brokers(live_brokers)} registered; ask for 1 to that many "
            "replicas, or start more brokers",
        )


def _brokers(count: int) -> str:
    return "1 broker is" if count == 1 else f"{count} brokers are"


def _check_name(context: ControllerContext, name: str, names: TopicNames) -> None:
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
    if name in context.deleting:
        raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} is being deleted; try again when it is gone")
    if name in context.topics:
        raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    twin = names.twin_of(name)
    if twin is not None:
        raise BrokerError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name} differs from topic {twin} only in '.' and '_', which metrics cannot tell apart",
        )


def _check_configs(topic: CreatableTopic, config: BrokerConfig) -> None:
    try:
        topic_config(config, topic.configs)
    except InvalidConfig as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"topic {topic.name}: {error}") from error
