"""Topics that are to go: events, which `/admin/delete_topics` and the brokers' answers ask for, and DeleteTopics, which
writes there. The steps of a deletion are those of `deletion_tracker`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from strandline.controller.agenda import Event
from strandline.controller.controller_context import LiveBroker, Topic
from strandline.controller.orders.broker_orders import OrderBuilder
from strandline.controller.tools import Tools
from strandline.controller.topics.creation_checks import check_topics_count
from strandline.controller.topics.deletion_tracker import DeletionTracker
from strandline.controller.topics.topic_store import TopicStore
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.messages import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from strandline.protocol.topic_name import BROKERS_OWN, INTERNAL_TOPICS, shortened
from strandline.protocol.types import NO_TOPIC_ID, TopicPartition
from strandline.protocol.znodes import DELETE_TOPICS_PATH, DeleteTopicZnode, encode_uuid


class Deletion:
    """One term's. `tracker`: where each replica of a topic that is being deleted stands. `look_at_topics`: takes in
    topics that appeared or went. `tell_unfinished`: tells everybody what holds deletions up. `on_begun` is called when
    more topics are to go; it neither waits nor raises."""

    def __init__(
        self,
        tools: Tools,
        topic_store: TopicStore,
        tracker: DeletionTracker,
        look_at_topics: Event,
        tell_unfinished: Callable[[], None],
    ) -> None:
        self._tools = tools
        self._context, self._outbox = tools.context, tools.outbox
        self._agenda, self._log = tools.agenda, tools.log
        self._topic_store = topic_store
        self._tracker = tracker
        self._look_at_topics = look_at_topics
        self._tell_unfinished = tell_unfinished
        self.on_begun: Callable[[], None] = _nobody_cares

    async def look(self) -> None:
        """Take in what `/admin/delete_topics` asks for."""
        context = self._context
        if not self._tools.config.delete_topic_enable:
            return
        names = await self._tools.store.children(DELETE_TOPICS_PATH, self._agenda.watch(self.look))
        if any(name not in context.topics for name in names):
            await self._look_at_topics()
        unknown = [name for name in names if name not in context.topics and name not in self._topic_store.unreadable]
        if unknown:
            self._log.warning("asked to delete topics that do not exist", topics=unknown[:20])
            await self._tools.store.delete_all([DeleteTopicZnode.path(name) for name in unknown])
        builder = OrderBuilder(context)
        for name in names:
            if name in context.topics and name not in self._tracker.topics:
                self._log.info("deleting topic", topic=name, topic_id=encode_uuid(context.topics[name].topic_id))
                context.deleting[name] = None
                self._tracker.begin(context, name)
                builder.metadata(context.partitions([name]))  # leader −2: forget it
        self._outbox.send(builder)
        self._agenda.put(self.go_on)
        self.on_begun()

    async def go_on(self) -> None:
        """Delete replicas wherever their broker lives; remove the znodes of topics that have none left."""
        builder = OrderBuilder(self._context)
        for broker_id, partitions in self._tracker.start_next(self._context).items():
            builder.stop(broker_id, partitions, delete=True)
        self._outbox.send(builder)
        for name in self._tracker.finished():
            topic = self._context.topics[name]
            await self._topic_store.remove(topic)
            self._context.remove_topic(name)
            self._tracker.forget(name)
            self._log.info("topic deleted", topic=name, topic_id=encode_uuid(topic.topic_id))
            self._agenda.poke()
        self._tell_unfinished()

    async def on_stopped(self, broker: LiveBroker, request: StopReplicaRequest, response: StopReplicaResponse) -> None:
        """What became of StopReplica: a replica is gone, or its broker cannot delete it yet."""
        if self._context.brokers.get(broker.broker_id) != broker:
            return  # the answer of an earlier life
        # Of several topics of one name the last one is the one that there is: so orders came, and were answered.
        errors = {(each.topic_name, each.partition_index): each for each in response.partition_errors}
        refused = False
        for state in request.partition_states:
            tp = TopicPartition(state.topic_name, state.partition_index)
            answer = errors.get(tp)
            error = ErrorCode.NONE if answer is None else error_code(answer.error_code)
            topic = self._context.topics.get(tp.topic)
            if not state.delete_partition or topic is None or topic.topic_id != state.topic_id:
                continue
            if not self._tracker.answered(broker.broker_id, tp, error):
                refused = True
                why = (answer and answer.error_message) or error.name
                if self._tracker.note_refusal(broker.broker_id, tp, why):
                    self._log.warning(
                        "broker cannot delete a replica yet", broker=broker.broker_id, partition=str(tp), error=why
                    )
        if refused:
            self._agenda.later(partial(self._retry, broker.broker_id))
        self._agenda.put(self.go_on)

    async def _retry(self, broker_id: int) -> None:
        self._tracker.retry(broker_id)
        await self.go_on()

    # --- DeleteTopics ------------------------------------------------------------------------------------------

    async def answer(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Delete topics; done when no replica and no znode is left. NotController; BrokerError for more topics than
        one request may delete."""
        check_topics_count("deletes", len(request.topic_names) + len(request.topics))
        if request.validate_only:
            found = await self._agenda.in_turn(partial(self._named, request.asked()))
            return DeleteTopicsResponse([_would_go(plan) if isinstance(plan, Topic) else plan for plan in found])
        plans = await self._agenda.in_turn(partial(self._begin, request.asked()))
        doomed = [plan for plan in plans if isinstance(plan, Topic)]
        await self._agenda.within(request.timeout_ms, lambda: not any(map(self._is_there, doomed)))
        return DeleteTopicsResponse([self._result(plan) if isinstance(plan, Topic) else plan for plan in plans])

    async def _begin(self, asked: list[DeleteTopicState]) -> list[Topic | DeletableTopicResult]:
        """Of each: the topic that goes from now on, or why not. An id becomes a name here only: what removes topics and
        makes them takes turns with this, so the name is still that topic's when its deletion begins."""
        plans = await self._planned(asked)
        for plan in plans:
            if isinstance(plan, Topic):
                await self._tools.store.ensure(DeleteTopicZnode.path(plan.name))
        if any(isinstance(plan, Topic) for plan in plans):
            await self.look()
        return plans

    async def _named(self, asked: list[DeleteTopicState]) -> list[Topic | DeletableTopicResult]:
        """Who was replaced as controller and has not heard of it names no topic of before. ControllerFenced."""
        await self._tools.store.check_fence()
        return await self._planned(asked)

    async def _planned(self, asked: list[DeleteTopicState]) -> list[Topic | DeletableTopicResult]:
        """Of each: the topic that would go, or why not."""
        topics = self._find(asked)
        if None in topics:
            await self._look_at_topics()
            topics = self._find(asked)
        return [self._plan(each, topic) for each, topic in zip(asked, topics, strict=True)]

    def _find(self, asked: list[DeleteTopicState]) -> list[Topic | None]:
        topics = self._context.topics
        by_id = {topic.topic_id: topic for topic in topics.values()} if any(each.name is None for each in asked) else {}
        return [by_id.get(each.topic_id) if each.name is None else topics.get(each.name) for each in asked]

    def _plan(self, asked: DeleteTopicState, topic: Topic | None) -> Topic | DeletableTopicResult:
        name = asked.name if topic is None else topic.name
        if asked.name is not None and asked.topic_id != NO_TOPIC_ID:
            text = f"topic {shortened(asked.name)!r} is named by an id as well: only one of them may stand there"
            return DeletableTopicResult(name, ErrorCode.INVALID_REQUEST, text, asked.topic_id)
        if name is None:
            text = "there is no topic with this id"
            return DeletableTopicResult(None, ErrorCode.UNKNOWN_TOPIC_ID, text, asked.topic_id)
        if name in INTERNAL_TOPICS:
            return DeletableTopicResult(name, ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} {BROKERS_OWN}")
        if topic is None:
            text = f"there is no topic {shortened(name)!r}"
            return DeletableTopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        if not self._tools.config.delete_topic_enable:
            text = f"topic {name} is kept: delete.topic.enable is false"
            return DeletableTopicResult(name, ErrorCode.TOPIC_DELETION_DISABLED, text, topic.topic_id)
        return topic

    def _result(self, topic: Topic) -> DeletableTopicResult:
        if not self._is_there(topic):
            return DeletableTopicResult(topic.name, ErrorCode.NONE, None, topic.topic_id)
        why = self._tracker.why_not(self._context, topic.name) or "not every replica is gone yet"
        text = f"topic {topic.name} is being deleted and goes as soon as it can: {why}"
        return DeletableTopicResult(topic.name, ErrorCode.REQUEST_TIMED_OUT, text, topic.topic_id)

    def _is_there(self, topic: Topic) -> bool:
        now = self._context.topics.get(topic.name)
        return now is not None and now.topic_id == topic.topic_id


def _would_go(topic: Topic) -> DeletableTopicResult:
    return DeletableTopicResult(topic.name, ErrorCode.NONE, None, topic.topic_id)


def _nobody_cares() -> None: ...
