"""Topics that appear and go: events of a `Term`. The steps of a deletion are those of `deletion`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from strandline.controller.context import LiveBroker
from strandline.controller.orders.batches import BatchBuilder
from strandline.controller.planning.planner import PartitionChange, change_state, plan_losses
from strandline.controller.term.events import Trigger
from strandline.controller.topics.deletion import DeletionTracker
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.messages import StopReplicaRequest, StopReplicaResponse
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline.controller.term.term import Term


class TopicChanges:
    """Handlers of one term; `deletion` knows where each replica of a topic that is being deleted stands."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self.deletion = DeletionTracker()

    async def on_topics(self) -> None:
        """Topics that appeared or went; partitions that have no state yet get their first leader."""
        context = self._term.context
        names = await self._term.store.children(Trigger.TOPICS.value, self._term.watch(Trigger.TOPICS))
        for name in [name for name in context.topics if name not in names]:
            self._term.log.info("topic is gone", topic=name)
            context.remove_topic(name)
            self.deletion.forget(name)
        self._tell_unfinished()
        added = await self._term.topic_store.topics([name for name in names if name not in context.topics])
        context.topics.update(added)
        stateless = [tp for tp in context.partitions() if tp not in context.states]
        self._term.take_in(await self._term.store.states(stateless))
        if added:
            self._term.log.info("topics found", topics=len(added), first=next(iter(added)))
        await self._term.settle_and_announce(stateless)

    async def on_unreadable(self) -> None:
        """An operator may have mended what could not be read."""
        store = self._term.store
        if since := dict(store.unreadable_states):
            mended = await store.states(list(since))
            self._term.take_in(mended)
            await self._term.settle(list(mended), partial(self._plan_losses, since))
            await self._term.settle_and_announce(list(mended), self._plan_mended)
        if self._term.topic_store.unreadable:
            await self.on_topics()

    async def _plan_losses(
        self, since: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition]
    ) -> Sequence[PartitionChange]:
        """Brokers that had something to say could not say it of a state that nobody understands
        (`broker/membership/loss_reports`). Who was registered before it became so (since: by which transaction) has
        said it, and caught up since."""
        context = self._term.context
        return plan_losses(context, partitions, lambda broker, tp: broker.lossy_start and broker.epoch > since[tp])

    async def _plan_mended(self, partitions: Sequence[TopicPartition]) -> Sequence[PartitionChange]:
        """A leader that found its state unreadable proposes nothing more until it hears of a new epoch (12)."""
        context = self._term.context
        changes = list(await self._term.planning.plan(partitions))
        for tp in partitions:
            if context.has_live_leader(tp) and all(change.topic_partition != tp for change in changes):
                state = context.states[tp]
                changes.append(change_state(context, tp, state, state.leader, state.isr, "its znode was mended"))
        return changes

    async def on_delete_topics(self) -> None:
        """Take in what `/admin/delete_topics` asks for."""
        context = self._term.context
        path = Trigger.DELETE_TOPICS.value
        if not self._term.config.delete_topic_enable:
            return
        names = await self._term.store.children(path, self._term.watch(Trigger.DELETE_TOPICS))
        if any(name not in context.topics for name in names):
            await self.on_topics()
        unknown = [n for n in names if n not in context.topics and n not in self._term.topic_store.unreadable]
        if unknown:
            self._term.log.warning("asked to delete topics that do not exist", topics=unknown[:20])
            await self._term.store.delete_all([f"{path}/{name}" for name in unknown])
        builder = BatchBuilder(context)
        for name in names:
            if name in context.topics and name not in self.deletion.topics:
                self._term.log.info("deleting topic", topic=name)
                context.deleting[name] = None
                self.deletion.begin(context, name)
                builder.metadata(context.partitions([name]))  # leader −2: forget it
        self._term.outbox.send(builder)
        self._term.events.put(Trigger.DELETION_PROGRESS)

    async def on_deletion_progress(self) -> None:
        """Delete replicas wherever their broker lives; remove the znodes of topics that have none left."""
        builder = BatchBuilder(self._term.context)
        for broker_id, partitions in self.deletion.start_next(self._term.context).items():
            builder.delete(broker_id, partitions)
        self._term.outbox.send(builder)
        for name in self.deletion.finished():
            await self._term.topic_store.remove(self._term.context.topics[name])
            self._term.context.remove_topic(name)
            self.deletion.forget(name)
            self._term.log.info("topic deleted", topic=name)
            self._term.progress.poke()
        self._tell_unfinished()

    def _tell_unfinished(self) -> None:
        """Everybody hears what holds deletions up, where that has changed."""
        context = self._term.context
        unfinished = self.deletion.unfinished(context)
        if unfinished != context.unfinished_deletions:
            context.unfinished_deletions = unfinished
            builder = BatchBuilder(context)
            builder.live_brokers()
            self._term.outbox.send(builder)

    async def on_stopped(self, broker: LiveBroker, request: StopReplicaRequest, response: StopReplicaResponse) -> None:
        if self._term.context.brokers.get(broker.broker_id) != broker:
            return  # the answer of an earlier life
        errors = {(e.topic_name, e.partition_index): error_code(e.error_code) for e in response.partition_errors}
        words = {(e.topic_name, e.partition_index): e.error_message for e in response.partition_errors}
        refused = False
        for state in request.partition_states:
            tp = TopicPartition(state.topic_name, state.partition_index)
            error = errors.get(tp, ErrorCode.NONE)
            topic = self._term.context.topics.get(tp.topic)
            if not state.delete_partition or topic is None or topic.topic_id != state.topic_id:
                continue
            if not self.deletion.answered(broker.broker_id, tp, error):
                refused = True
                why = words.get(tp) or error.name
                if self.deletion.note_refusal(broker.broker_id, tp, why):
                    self._term.log.warning(
                        "broker cannot delete a replica yet", broker=broker.broker_id, partition=str(tp), error=why
                    )
        if refused:
            self._term.later(partial(self._retry_deletion, broker.broker_id))
        self._term.events.put(Trigger.DELETION_PROGRESS)

    async def _retry_deletion(self, broker_id: int) -> None:
        self.deletion.retry(broker_id)
        await self.on_deletion_progress()
