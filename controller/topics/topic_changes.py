"""Topics that appear and go: an event, which a change of `/brokers/topics` asks for, and what an operator mended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from strandline.controller.agenda import Event
from strandline.controller.controller_context import LiveBroker, PartitionChange
from strandline.controller.orders.broker_orders import OrderBuilder
from strandline.controller.partitions.settlement import Settlement
from strandline.controller.planning.planner import change_state, plan_losses
from strandline.controller.tools import Tools
from strandline.controller.topics.deletion_tracker import DeletionTracker
from strandline.controller.topics.topic_store import TopicStore
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import TOPICS_PATH, encode_uuid


class TopicChanges:
    """One term's. `look_at_growth`: watches topics that appeared."""

    def __init__(
        self,
        tools: Tools,
        topic_store: TopicStore,
        settlement: Settlement,
        deletions: DeletionTracker,
        look_at_growth: Event,
    ) -> None:
        self._tools = tools
        self._context, self._store = tools.context, tools.store
        self._topic_store = topic_store
        self._settlement = settlement
        self._deletions = deletions
        self._look_at_growth = look_at_growth

    async def look(self) -> None:
        """Topics that appeared or went; partitions that have no state yet get their first leader."""
        context = self._context
        names = await self._store.children(TOPICS_PATH, self._tools.agenda.watch(self.look))
        for name in [name for name in context.topics if name not in names]:
            topic_id = encode_uuid(context.topics[name].topic_id)
            self._tools.log.info("topic is gone", topic=name, topic_id=topic_id)
            context.remove_topic(name)
            self._deletions.forget(name)
        self.tell_unfinished_deletions()
        added = await self._topic_store.topics([name for name in names if name not in context.topics])
        context.topics.update(added)
        stateless = [tp for tp in context.partitions() if tp not in context.states]
        await self._settlement.read_new(stateless)
        if added:
            self._tools.agenda.put(self._look_at_growth)
            self._tools.log.info("topics found", topics=len(added), first=next(iter(added)))
        await self._settlement.settle_and_announce(stateless)

    def tell_unfinished_deletions(self) -> None:
        """Everybody hears what holds deletions up, where that has changed."""
        context = self._context
        unfinished = self._deletions.unfinished(context)
        if unfinished != context.unfinished_deletions:
            context.unfinished_deletions = unfinished
            builder = OrderBuilder(context)
            builder.live_brokers()
            self._tools.outbox.send(builder)

    async def look_for_mended(self) -> None:
        """An operator may have mended what could not be read, and somebody may have read it since. What follows from
        that is repeated as a whole until it went through."""
        context = self._context
        if self._store.unreadable_states:
            await self._settlement.read_new(list(self._store.unreadable_states))
        if since := dict(self._store.mended_states):
            mended = [tp for tp in since if tp in context.states]

            def is_lossy(broker: LiveBroker, tp: TopicPartition) -> bool:
                """It had something to say and could not say it of a state that nobody understands
                (`broker/membership/loss_reports`). Who was registered before the state became so (since: by which
                transaction) has said it, and caught up since."""
                return broker.lossy_start and broker.epoch > since[tp]

            await self._settlement.settle(mended, partial(plan_losses, context, is_lossy))
            epochs = {tp: context.states[tp].leader_epoch for tp in mended if tp in context.states}
            await self._settlement.settle(mended)
            await self._settlement.settle_and_announce(mended, partial(self._plan_new_epochs, epochs))
            for tp in since:
                del self._store.mended_states[tp]
        if self._topic_store.unreadable:
            await self.look()

    def _plan_new_epochs(
        self, epochs: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition]
    ) -> Sequence[PartitionChange]:
        """A leader that found its state unreadable proposes nothing more until it hears of a new epoch (invariant 12).
        `epochs` are the present ones before the last plan: where there is another one by now it will hear of that."""
        context = self._context
        states = {tp: context.states[tp] for tp in partitions if context.has_live_leader(tp)}
        return [
            change_state(context, tp, state, state.leader, state.isr, "its znode was mended")
            for tp, state in states.items()
            if state.leader_epoch == epochs.get(tp)
        ]
