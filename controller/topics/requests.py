"""What brokers and clients ask of the acting controller: CreateTopics, DeleteTopics, ControlledShutdown.

Each takes its turn among the events, then waits, where it has to, for what follows from it. When the term ends first,
the answer is NOT_CONTROLLER: the next controller goes on with what was begun.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import trio

from strandline.controller.context import Topic
from strandline.controller.orders.batches import BatchBuilder
from strandline.controller.orders.outbox import Mark
from strandline.controller.orders.sender import BrokerUnreachable
from strandline.controller.planning.planner import PartitionChange, plan_controlled_shutdown, still_led
from strandline.controller.store import ControllerFenced
from strandline.controller.topics.creation_checks import DEFAULT_FACTOR, CreationPlanner, check_topics_count, lowered
from strandline.protocol import znodes
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    OffsetForLeaderEpochRequest,
)
from strandline.protocol.topic_name import BROKERS_OWN, INTERNAL_TOPICS
from strandline.protocol.types import ANY_REPLICA, TopicPartition
from strandline.runtime.coordination import ConnectionLost, SessionExpired

if TYPE_CHECKING:
    from strandline.controller.term.term import Term

T = TypeVar("T")

MAX_NAMES_LOGGED = 10
HANDOVER_TOLD_TIMEOUT_MS = 1000
"""So long a broker that wants to stop waits for others to hear of its successors; it would be a pity, no loss."""


class _Standing(NamedTuple):
    """At some moment: what had been queued for each broker, and the leader epochs of some partitions."""

    told: Mark
    leader_epochs: list[int | None]


class TermOver(Exception):
    """This broker stopped being controller before the answer was known."""


class ControllerRequests:
    """The requests of one term."""

    def __init__(self, term: Term) -> None:
        self._term = term

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Create (or, with validate_only, only check) topics; done when each partition has a leader and all live
        brokers know. TermOver; BrokerError for more topics than one request may create."""
        check_topics_count("creates", len(request.topics))
        term = self._term
        topic_ids = {topic.name: term.random.randbytes(16) for topic in request.topics}
        configs = {topic.name: dict(topic.configs) for topic in request.topics}

        async def work() -> tuple[dict[str, Topic | BrokerError], _Standing]:
            planner = CreationPlanner(term.context, request.topics, term.config, topic_ids)
            for _ in planner.steps():
                await trio.lowlevel.checkpoint()  # events take their turns: the context stays as it is
            plans = planner.plans
            if not request.validate_only:
                for name, plan in plans.items():
                    if isinstance(plan, Topic) and not await term.topic_store.create(plan, configs[name]):
                        plans[name] = BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
                await term.topic_changes.on_topics()
            return plans, self._standing([plan for plan in plans.values() if isinstance(plan, Topic)])

        plans, standing = await self.in_turn(work)
        planned = {name: plan for name, plan in plans.items() if isinstance(plan, Topic)}
        created = list(planned.values())
        if not request.validate_only and (few := lowered(planned, request.topics, term.config)):
            term.log.warning(
                "fewer replicas than the default, for want of live brokers",
                topics=few[:MAX_NAMES_LOGGED],
                count=len(few),
                replicas=len(planned[few[0]].assignment[0]),
                default=term.config.default_replication_factor,
                remedy=f"start more brokers before creating topics, or set {DEFAULT_FACTOR} to what you mean",
            )
        done = request.validate_only or await self._are_led(created, standing, request.timeout_ms)
        return CreateTopicsResponse([self._creation_result(topic, plans[topic.name], done) for topic in request.topics])

    def _standing(self, topics: Sequence[Topic]) -> _Standing:
        """How the partitions stand, and what each broker was to be told by then. To be called within an event."""
        states = (self._term.context.states.get(TopicPartition(t.name, p)) for t in topics for p in t.assignment)
        return _Standing(self._term.outbox.mark(), [state.leader_epoch if state else None for state in states])

    async def _are_led(self, topics: Sequence[Topic], standing: _Standing, timeout_ms: int) -> bool:
        """Wait until all live brokers know who leads each partition, and nobody has answered that it cannot: what they
        answered is handled before the next turn, and a leader that moved by then is asked about again. TermOver."""

        async def look() -> _Standing:
            return self._standing(topics)

        with trio.move_on_after(max(timeout_ms, 0) / 1000):
            while True:
                if not await self.within(timeout_ms, partial(self._are_told, topics, standing)):
                    return False
                before, standing = standing, await self.in_turn(look)
                if standing.leader_epochs == before.leader_epochs and self._are_told(topics, before):
                    return True
        return False

    def _are_told(self, topics: Sequence[Topic], standing: _Standing) -> bool:
        return all(map(self._is_led, topics)) and self._term.outbox.told(standing.told)

    def _is_led(self, topic: Topic) -> bool:
        return all(self._term.context.has_live_leader(TopicPartition(topic.name, p)) for p in topic.assignment)

    def _why_not_led(self, topic: Topic) -> str:
        """Why a partition of it has no leader yet, as far as its brokers say."""
        context = self._term.context
        unled = (tp for p in topic.assignment if not context.has_live_leader(tp := TopicPartition(topic.name, p)))
        reasons = (
            f"{tp}: broker {each.broker_id}: {each.why}" for tp in unled for each in context.refused_replicas_of(tp)
        )
        return next(reasons, "not every broker knows it yet")

    def _creation_result(self, asked: CreatableTopic, plan: Topic | BrokerError, done: bool) -> CreatableTopicResult:
        if isinstance(plan, BrokerError):
            return CreatableTopicResult(asked.name, plan.code, str(plan.args[0]))
        error = ErrorCode.NONE if done else ErrorCode.REQUEST_TIMED_OUT
        return CreatableTopicResult(
            asked.name,
            error,
            None if done else f"topic {asked.name} is being created, but {self._why_not_led(plan)}",
            plan.topic_id,
            len(plan.assignment),
            len(plan.assignment[0]),
        )

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Delete topics; done when no replica and no znode is left. TermOver; BrokerError for more topics than one
        request may delete."""
        check_topics_count("deletes", len(request.topic_names))
        term = self._term
        results: dict[str, DeletableTopicResult] = {}

        async def work() -> list[Topic]:
            doomed = []
            if any(name not in term.context.topics for name in request.topic_names):
                await term.topic_changes.on_topics()
            for name in dict.fromkeys(request.topic_names):
                topic = term.context.topics.get(name)
                if name in INTERNAL_TOPICS:
                    results[name] = DeletableTopicResult(
                        name, ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} {BROKERS_OWN}"
                    )
                elif topic is None:
                    text = f"there is no topic {name[:300]!r}"
                    results[name] = DeletableTopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
                elif not term.config.delete_topic_enable:
                    text = f"topic {name} is kept: delete.topic.enable is false"
                    results[name] = DeletableTopicResult(name, ErrorCode.TOPIC_DELETION_DISABLED, text, topic.topic_id)
                else:
                    await term.store.ensure(znodes.DeleteTopicZnode.path(name))
                    doomed.append(topic)
            if doomed:
                await term.topic_changes.on_delete_topics()
            return doomed

        doomed = await self.in_turn(work)
        await self.within(request.timeout_ms, lambda: not any(map(self._is_there, doomed)))
        for topic in doomed:
            late = self._is_there(topic)
            error = ErrorCode.REQUEST_TIMED_OUT if late else ErrorCode.NONE
            text = None
            if late:
                why = term.topic_changes.deletion.why_not(term.context, topic.name) or "not every replica is gone yet"
                text = f"topic {topic.name} is being deleted and goes as soon as it can: {why}"
            results[topic.name] = DeletableTopicResult(topic.name, error, text, topic.topic_id)
        return DeleteTopicsResponse([results[name] for name in dict.fromkeys(request.topic_names)])

    def _is_there(self, topic: Topic) -> bool:
        now = self._term.context.topics.get(topic.name)
        return now is not None and now.topic_id == topic.topic_id

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Move leadership away from a broker that wants to stop; answers what it still leads, once all live brokers
        know (or some do not listen): whom a client asks after the stop names the new leaders. TermOver."""
        term, leaving = self._term, request.broker_id
        silent = await self._who_does_not_answer(leaving)

        async def work() -> tuple[ControlledShutdownResponse, Mark]:
            context = term.context
            broker = context.brokers.get(leaving)
            if broker is None:
                return ControlledShutdownResponse(ErrorCode.BROKER_NOT_AVAILABLE, []), {}
            if request.broker_epoch not in (-1, broker.epoch):
                return ControlledShutdownResponse(ErrorCode.STALE_BROKER_EPOCH, []), {}
            if leaving not in context.shutting_down:
                term.log.info("controlled shutdown", broker=leaving)
                context.shutting_down.add(leaving)

            async def planner(partitions: Sequence[TopicPartition]) -> Sequence[PartitionChange]:
                return plan_controlled_shutdown(context, leaving, partitions, silent)

            mine = context.partitions_on(leaving)
            led = {tp for tp in mine if context.states.get(tp) is not None and context.states[tp].leader == leaving}
            changed = await term.settle(mine, planner)
            followed = [tp for tp in mine if tp not in led and tp in context.states]
            builder = BatchBuilder(context)
            builder.leadership(changed)
            builder.metadata(changed)
            # What it follows it stops following: it would only be waited for. What it led it follows, until it stops.
            builder.stop(leaving, [tp for tp in followed if leaving not in context.states[tp].isr])
            term.outbox.send(builder)
            remaining = [(tp.topic, tp.partition) for tp in still_led(context, leaving)]
            return ControlledShutdownResponse(ErrorCode.NONE, remaining), term.outbox.mark()

        response, mark = await self.in_turn(work)
        await self.within(HANDOVER_TOLD_TIMEOUT_MS, lambda: term.outbox.told(mark))
        return response

    async def _who_does_not_answer(self, leaving: int) -> list[int]:
        """Brokers that are registered, beside this one, and do not answer now: they may be dead, until their sessions
        end. Nothing should rest on them alone."""
        term = self._term
        answered: dict[int, None] = {}

        async def ask(broker_id: int) -> None:
            with suppress(BrokerUnreachable):
                await term.outbox.ask(broker_id, OffsetForLeaderEpochRequest(topics=[], replica_id=ANY_REPLICA))
                answered[broker_id] = None

        others = [broker_id for broker_id in term.context.brokers if broker_id != leaving]
        with trio.move_on_after(HANDOVER_TOLD_TIMEOUT_MS / 1000):
            async with trio.open_nursery() as nursery:
                for broker_id in others:
                    nursery.start_soon(ask, broker_id)
        return [broker_id for broker_id in others if broker_id not in answered]

    async def within(self, timeout_ms: int, condition: Callable[[], bool]) -> bool:
        """Wait for a condition, at most so long. False: it did not come about. TermOver."""
        term = self._term
        with trio.move_on_after(max(timeout_ms, 0) / 1000):
            await term.progress.until(lambda: term.over is not None or condition())
        if term.over is not None:
            raise TermOver(term.over)
        return condition()

    async def in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something as one event and return its result, or raise what it raised. TermOver."""
        term = self._term
        results: list[T] = []
        failures: list[Exception] = []

        async def event() -> None:
            try:
                results.append(await work())
            except (ConnectionLost, ControllerFenced, SessionExpired):
                raise  # the term knows what to do: repeat the event, or end
            except Exception as error:
                failures.append(error)
            term.progress.poke()

        term.events.put(event)
        await term.progress.until(lambda: bool(results or failures) or term.over is not None)
        if failures:
            raise failures[0]
        if not results:
            raise TermOver(term.over or "")
        return results[0]
