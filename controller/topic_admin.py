"""What a CreateTopics request asks for, checked: pure, so that validate_only and the real thing cannot disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from strandline.controller.assignment import assign_replicas, check_manual_assignment, least_preferred_start
from strandline.controller.context import ControllerContext, Topic
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import CreatableTopic
from strandline.protocol.topic_name import InvalidTopicName, check_topic_name, colliding_topic
from strandline.protocol.types import TopicId
from strandline.runtime.config import BrokerConfig, InvalidConfig, topic_config
from strandline.runtime.config_table_logs import BROKER_KEY

DEFAULT_FACTOR = "default.replication.factor"

MAX_PARTITIONS_PER_TOPIC = 10_000
"""One topic's assignment has to fit a znode (1 MiB) and one metadata answer a frame."""


def plan_creations(
    context: ControllerContext,
    requested: Sequence[CreatableTopic],
    config: BrokerConfig,
    topic_ids: Mapping[str, TopicId],
) -> dict[str, Topic | BrokerError]:
    """Name → the topic to create, or why not. Topics of one request are checked against each other too."""
    result: dict[str, Topic | BrokerError] = {}
    counts = Counter(topic.name for topic in requested)
    planned: list[Topic] = []
    for topic in requested:
        try:
            if counts[topic.name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} stands in the request twice")
            creation = _plan_creation(context, topic, config, topic_ids[topic.name], planned)
            result[topic.name] = creation
            planned.append(creation)
        except BrokerError as error:
            result[topic.name] = error
    return result


def _plan_creation(
    context: ControllerContext,
    topic: CreatableTopic,
    config: BrokerConfig,
    topic_id: TopicId,
    planned: Sequence[Topic],
) -> Topic:
    _check_name(context, topic.name, planned)
    _check_configs(topic, config)
    if topic.assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"topic {topic.name}: give either an assignment or a number of partitions and replicas, not both",
            )
        _check_partitions(topic.name, len(topic.assignments))
        return Topic(topic.name, topic_id, check_manual_assignment(topic.assignments, context.brokers))
    partitions = config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    _check_partitions(topic.name, partitions)
    replication_factor = _replication_factor(topic, config, len(context.brokers))
    racks = {broker_id: broker.rack for broker_id, broker in context.brokers.items()}
    existing = [other.assignment for other in (*context.topics.values(), *planned)]
    start = least_preferred_start(racks, existing)
    return Topic(topic.name, topic_id, assign_replicas(racks, partitions, replication_factor, start))


def configured_replicas(config: BrokerConfig, key: str, live_brokers: int) -> int:
    """How many replicas a topic gets by `key`, one of the keys named *.replication.factor. One that was set counts as
    it is; a default is lowered to the live brokers, so that a cluster of one works without any configuration."""
    configured: int = getattr(config, BROKER_KEY[key].attribute)
    return configured if key in config.explicit else max(1, min(configured, live_brokers))


def lowered(creations: Mapping[str, Topic], requested: Sequence[CreatableTopic], config: BrokerConfig) -> list[str]:
    """Which of the created topics have fewer replicas than the default, for want of live brokers."""
    return [
        topic.name
        for topic in requested
        if topic.replication_factor == -1 and not topic.assignments and topic.name in creations
        if len(creations[topic.name].assignment[0]) < config.default_replication_factor
    ]


def _replication_factor(topic: CreatableTopic, config: BrokerConfig, live_brokers: int) -> int:
    asked, wanted = "replication factor ", topic.replication_factor
    if wanted == -1:
        asked, wanted = f"{DEFAULT_FACTOR}=", configured_replicas(config, DEFAULT_FACTOR, live_brokers)
    if not 1 <= wanted <= live_brokers:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {topic.name}: {asked}{wanted}, but {_brokers(live_brokers)} registered; ask for 1 to that many "
            "replicas, or start more brokers",
        )
    return wanted


def _brokers(count: int) -> str:
    return "1 broker is" if count == 1 else f"{count} brokers are"


def _check_name(context: ControllerContext, name: str, planned: Sequence[Topic]) -> None:
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
    if name in context.deleting:
        raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} is being deleted; try again when it is gone")
    if name in context.topics:
        raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
    twin = colliding_topic(name, [*context.topics, *(topic.name for topic in planned)])
    if twin is not None:
        raise BrokerError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name} differs from topic {twin} only in '.' and '_', which metrics cannot tell apart",
        )


def _check_partitions(name: str, partitions: int) -> None:
    if not 1 <= partitions <= MAX_PARTITIONS_PER_TOPIC:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name}: a topic has 1 to {MAX_PARTITIONS_PER_TOPIC} partitions, not {partitions}",
        )


def _check_configs(topic: CreatableTopic, config: BrokerConfig) -> None:
    try:
        topic_config(config, topic.configs)
    except InvalidConfig as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"topic {topic.name}: {error}") from error
