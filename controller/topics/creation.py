"""CreateTopics: topics are planned, written and led.

1 in its turn among the events: which topics, with which replicas; validate_only ends here
2 configuration, topic and id of each are written, in one transaction per topic
3 topics that appeared get their first leaders, as those do that another tool made
4 the answer waits until all live brokers know who leads; a leader that cannot lead has moved by then
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import trio

from strandline.controller.agenda import Event
from strandline.controller.tools import Tools
from strandline.controller.topics.creation_checks import (
    DEFAULT_FACTOR,
    CreationPlanner,
    PlannedTopic,
    check_topics_count,
    lowered,
)
from strandline.controller.topics.first_leaders import FirstLeaders, Standing
from strandline.controller.topics.topic_store import TopicStore
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from strandline.protocol.types import TopicId, TopicPartition

MAX_NAMES_LOGGED = 10

Plans = dict[str, PlannedTopic | BrokerError]


class Creation:
    """One term's. `look_at_topics`: takes in topics that appeared. `draw_id` draws the id of a topic."""

    def __init__(
        self, tools: Tools, topic_store: TopicStore, look_at_topics: Event, draw_id: Callable[[], TopicId]
    ) -> None:
        self._tools = tools
        self._context, self._agenda = tools.context, tools.agenda
        self._leaders = FirstLeaders(tools)
        self._topic_store = topic_store
        self._look_at_topics = look_at_topics
        self._draw_id = draw_id

    async def answer(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Create (or, with validate_only, only check) topics; done when each partition has a leader and all live
        brokers know. NotController; BrokerError for more topics than one request may create."""
        check_topics_count("creates", len(request.topics))
        topic_ids = {topic.name: self._draw_id() for topic in request.topics}
        plans, standing = await self._agenda.in_turn(partial(self._begin, request, topic_ids))
        planned = _planned(plans)
        if not request.validate_only:
            self._warn_of_few_replicas(planned)
        # 4
        done = request.validate_only or await self._leaders.are_led(_partitions(planned), standing, request.timeout_ms)
        return CreateTopicsResponse([self._creation_result(topic, plans[topic.name], done) for topic in request.topics])

    async def _begin(self, request: CreateTopicsRequest, topic_ids: Mapping[str, TopicId]) -> tuple[Plans, Standing]:
        # 1
        planner = CreationPlanner(self._context, request.topics, self._tools.config, topic_ids)
        for _ in planner.steps():
            await trio.lowlevel.checkpoint()  # events take their turns: the context stays as it is
        plans = planner.plans
        if not request.validate_only:
            # 2
            for topic, asked in _planned(plans):
                if not await self._topic_store.create(topic, asked.configs):
                    text = f"topic {topic.name} exists already"
                    plans[topic.name] = BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, text)
            # 3
            await self._look_at_topics()
        return plans, self._leaders.standing(_partitions(_planned(plans)))

    def _warn_of_few_replicas(self, planned: Sequence[PlannedTopic]) -> None:
        config = self._tools.config
        if few := lowered(planned, config):
            self._tools.log.warning(
                "fewer replicas than the default, for want of live brokers",
                topics=[topic.name for topic in few[:MAX_NAMES_LOGGED]],
                count=len(few),
                replicas=len(few[0].assignment[0]),
                default=config.default_replication_factor,
                remedy=f"start more brokers before creating topics, or set {DEFAULT_FACTOR} to what you mean",
            )

    def _creation_result(
        self, asked: CreatableTopic, plan: PlannedTopic | BrokerError, done: bool
    ) -> CreatableTopicResult:
        if isinstance(plan, BrokerError):
            return CreatableTopicResult(asked.name, plan.code, str(plan.args[0]))
        topic = plan.topic
        return CreatableTopicResult(
            topic.name,
            ErrorCode.NONE if done else ErrorCode.REQUEST_TIMED_OUT,
            None
            if done
            else f"topic {topic.name} is being created, but {self._leaders.why_not_led(_partitions([plan]))}",
            topic.topic_id,
            len(topic.assignment),
            len(topic.assignment[0]),
        )


def _planned(plans: Plans) -> list[PlannedTopic]:
    return [plan for plan in plans.values() if isinstance(plan, PlannedTopic)]


def _partitions(planned: Sequence[PlannedTopic]) -> list[TopicPartition]:
    return [TopicPartition(plan.topic.name, partition) for plan in planned for partition in plan.topic.assignment]
