"""Brokers that come and go: an event, which a change of `/brokers/ids` asks for.

The procedures carry the numbers of the reference text (000, "Broker failure" and "Broker start" of the controller).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from strandline.controller.agenda import Event
from strandline.controller.controller_context import LiveBroker
from strandline.controller.liveness.suspects import Suspects
from strandline.controller.orders.broker_orders import OrderBuilder
from strandline.controller.partitions.settlement import Settlement
from strandline.controller.tools import Tools
from strandline.controller.topics.deletion_tracker import DeletionTracker
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import BrokerIdZnode
from strandline.runtime.coordination import Watch, WatchEvent

WATCHED_AT_ONCE = 20


class BrokerChanges:
    """One term's. `go_on_deleting`: what brokers that come and go mean for topics that are being deleted.
    `unreadable_topics`: names, as they are at the moment (`TopicStore.unreadable`)."""

    def __init__(
        self,
        tools: Tools,
        settlement: Settlement,
        tracker: DeletionTracker,
        suspects: Suspects,
        go_on_deleting: Event,
        unreadable_topics: Collection[str],
    ) -> None:
        self._tools = tools
        self._context, self._outbox = tools.context, tools.outbox
        self._settlement = settlement
        self._tracker = tracker
        self._suspects = suspects
        suspects.look = self.look
        self._go_on_deleting = go_on_deleting
        self._watches: dict[int, Watch] = {}
        self._watched: dict[int, None] = {}
        """Brokers whose registration has a watch that did not fire yet."""
        self._unreadable_topics = unreadable_topics
        self._brokers_changed = False
        """What everybody has to know, and does not yet if an event broke off."""

    async def look(self) -> None:
        """Broker failure and broker start; a broker that was away too briefly to be missed shows as another epoch and
        is both (invariant 30). So is one whose process is gone, as far as its address tells (`liveness`), and which is
        reached again."""
        context = self._context
        # Failure 1: the watch, then who lives.
        registered = await self._tools.store.brokers(self._tools.agenda.watch(self.look))
        suspected_before = dict(context.suspects)
        live = self._suspects.live(registered)
        gone = [b for b in context.brokers.values() if b.broker_id not in live or live[b.broker_id].epoch != b.epoch]
        new = [b for b in live.values() if b in gone or context.brokers.get(b.broker_id) != b]
        self._tell(gone, suspected_before, registered)
        for known in gone:
            self._settlement.stale_metadata.update(dict.fromkeys(context.partitions_on(known.broker_id)))
            self._brokers_changed = True
            context.remove_broker(known.broker_id)
            self._outbox.close(known.broker_id)
            self._tracker.broker_failed(known.broker_id)
        if gone or new:
            self._tools.agenda.put(self._go_on_deleting)
        lossy = [broker for broker in new if broker.lossy_start]
        if lossy:
            # They have taken themselves out of ISRs: nobody else will tell those leaders.
            moved = await self._settlement.read_again(tp for b in lossy for tp in context.partitions_on(b.broker_id))
            self._settlement.unannounced.update(dict.fromkeys(moved))
        # Failure 2 and 3: set_p, and 3.1 to 3.3 for each of its partitions. Planned from how things stand, so a failure
        # whose handling was cut short is found again.
        # Failure 4: LeaderAndIsr to the brokers concerned, and what everybody has to know.
        builder = OrderBuilder(context)
        if self._brokers_changed:
            builder.live_brokers()
        await self._settlement.settle_and_announce(list(context.partitions()), builder=builder)
        self._brokers_changed = False
        if new:
            await self._on_new_brokers(new)

    async def watch_registrations(self) -> None:
        """One that changes while its broker lives says other addresses (`advertised.listeners`). Some at a time, and
        after `look`, which is in a hurry."""
        known, store = self._context.brokers, self._tools.store
        due = [broker_id for broker_id in known if broker_id not in self._watched][:WATCHED_AT_ONCE]
        for broker_id in due:
            watch = self._watches.setdefault(broker_id, partial(self._registration_changed, broker_id))
            await store.watch(BrokerIdZnode.path(broker_id), watch)
            self._watched[broker_id] = None
        registered = await store.registrations(due)
        if any(registered.get(broker_id) != known[broker_id] for broker_id in due):
            self._tools.agenda.put(self.look)
        if due:
            self._tools.agenda.put(self.watch_registrations)

    def _registration_changed(self, broker_id: int, _: WatchEvent) -> None:
        self._watched.pop(broker_id, None)
        self._tools.agenda.put(self.look)
        self._tools.agenda.put(self.watch_registrations)

    def _tell(
        self,
        gone: Iterable[LiveBroker],
        suspected_before: Mapping[int, LiveBroker],
        registered: Mapping[int, LiveBroker],
    ) -> None:
        missed = [broker for broker in gone if broker.broker_id not in self._context.suspects]
        missed += [broker for broker in suspected_before.values() if registered.get(broker.broker_id) != broker]
        for broker in missed:
            self._tools.log.info(
                "broker failed",
                broker=broker.broker_id,
                broker_epoch=broker.epoch,
                session_timeout_ms=self._tools.config.zookeeper_session_timeout_ms,
            )

    async def _on_new_brokers(self, new: Sequence[LiveBroker]) -> None:
        context = self._context
        for broker in new:
            known = context.brokers.get(broker.broker_id)
            what = "broker started" if known is None else "broker's registration changed"
            self._tools.log.info(what, broker=broker.broker_id, broker_epoch=broker.epoch)
            context.brokers[broker.broker_id] = broker
            context.suspects.pop(broker.broker_id, None)
            self._outbox.open(broker)
            self._tracker.retry(broker.broker_id)
        builder = OrderBuilder(context)
        builder.live_brokers()
        returned: dict[TopicPartition, None] = {}
        for broker in new:
            # Start 1: the whole metadata to the new broker.
            builder.metadata(context.partitions(), only=broker.broker_id)
            builder.all_topics(broker.broker_id, self._unreadable_topics)
            # Start 2: its replicas are online: LeaderAndIsr for all of them. It joins ISRs when their leaders say so.
            mine = context.partitions_on(broker.broker_id)
            builder.leadership(mine, only=broker.broker_id)
            returned.update(dict.fromkeys(mine))
        builder.metadata(returned)
        self._outbox.send(builder)
        self._tools.agenda.put(self.watch_registrations)
        # Start 3: partitions without a leader may have one now.
        await self._settlement.settle_and_announce(list(returned))
        self._settlement.on_change()  # who was suspected may lead on, without a write
