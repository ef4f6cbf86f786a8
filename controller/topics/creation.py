"""CreateTopics: topics are planned, written and led.

1 in its turn among the events: which topics, with which replicas; validate_only ends here
2 configuration, topic and id of each are written, in one transaction per topic
3 topics that appeared get their first leaders, as those do that another tool made
4 the answer waits until all live brokers know who leads; a leader that cannot lead has moved by then
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import trio

from strandline.controller.agenda import Event
from strandline.controller.controller_context import Topic
from strandline.controller.orders.sender import Mark
from strandline.controller.tools import Tools
from strandline.controller.topics.creation_checks import (
    DEFAULT_FACTOR,
    CreationPlanner,
    PlannedTopic,
    check_topics_count,
    lowered,
)
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


class _Standing(NamedTuple):
    """At some moment: what had been queued for each broker, and the leader epochs of some partitions."""

    told: Mark
    leader_epochs: list[int | None]


class Creation:
    """One term's. `look_at_topics`: takes in topics that appeared. `draw_id` draws the id of a topic."""

    def __init__(
        self, tools: Tools, topic_store: TopicStore, look_at_topics: Event, draw_id: Callable[[], TopicId]
    ) -> None:
        self._tools = tools
        self._context, self._outbox, self._agenda = tools.context, tools.outbox, tools.agenda
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
        topics = [plan.topic for plan in planned]
        done = request.validate_only or await self._are_led(topics, standing, request.timeout_ms)
        return CreateTopicsResponse([self._creation_result(topic, plans[topic.name], done) for topic in request.topics])

    async def _begin(self, request: CreateTopicsRequest, topic_ids: Mapping[str, TopicId]) -> tuple[Plans, _Standing]:
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
        return plans, self._standing([plan.topic for plan in _planned(plans)])

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

    def _standing(self, topics: Sequence[Topic]) -> _Standing:
        """How the partitions stand, and what each broker was to be told by then. To be called within an event."""
        states = (self._context.states.get(TopicPartition(t.name, p)) for t in topics for p in t.assignment)
        return _Standing(self._outbox.mark(), [state.leader_epoch if state else None for state in states])

    async def _are_led(self, topics: Sequence[Topic], standing: _Standing, timeout_ms: int) -> bool:
        """Wait until all live brokers know who leads each partition, and nobody has answered that it cannot: what they
        answered is handled before the next turn, and a leader that moved by then is asked about again."""

        async def look() -> _Standing:
            return self._standing(topics)

        with trio.move_on_after(max(timeout_ms, 0) / 1000):
            while True:
                if not await self._agenda.within(timeout_ms, partial(self._are_told, topics, standing)):
                    return False
                before, standing = standing, await self._agenda.in_turn(look)
                if standing.leader_epochs == before.leader_epochs and self._are_told(topics, before):
                    return True
        return False

    def _are_told(self, topics: Sequence[Topic], standing: _Standing) -> bool:
        return all(map(self._is_led, topics)) and self._outbox.told(standing.told)

    def _is_led(self, topic: Topic) -> bool:
        return all(self._context.has_live_leader(TopicPartition(topic.name, p)) for p in topic.assignment)

    def _why_not_led(self, topic: Topic) -> str:
        """Why a partition of it has no leader yet, as far as its brokers say."""
        context = self._context
        unled = (tp for p in topic.assignment if not context.has_live_leader(tp := TopicPartition(topic.name, p)))
        reasons = (
            f"{tp}: broker {each.broker_id}: {each.why}" for tp in unled for each in context.refused_replicas_of(tp)
        )
        return next(reasons, "not every broker knows it yet")

    def _creation_result(
        self, asked: CreatableTopic, plan: PlannedTopic | BrokerError, done: bool
    ) -> CreatableTopicResult:
        if isinstance(plan, BrokerError):
            return CreatableTopicResult(asked.name, plan.code, str(plan.args[0]))
        topic = plan.topic
        return CreatableTopicResult(
            topic.name,
            ErrorCode.NONE if done else ErrorCode.REQUEST_TIMED_OUT,
            None if done else f"topic {topic.name} is being created, but {self._why_not_led(topic)}",
            topic.topic_id,
            len(topic.assignment),
            len(topic.assignment[0]),
        )


def _planned(plans: Plans) -> list[PlannedTopic]:
    return [plan for plan in plans.values() if isinstance(plan, PlannedTopic)]
