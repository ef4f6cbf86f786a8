"""Brokers that come and go, what they announce and what they refuse: events of a `Term`.

The procedures carry the numbers of the reference text (000, "Broker failure" and "Broker start" of the controller).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from strandline.controller.context import LiveBroker
from strandline.controller.orders.batches import BatchBuilder
from strandline.controller.term.events import Trigger
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.messages import PartitionError
from strandline.protocol.types import NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    from strandline.controller.term.term import Term


UNABLE = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.BROKER_NOT_AVAILABLE)
"""A replica that is not served: its log is broken, or cannot be made now, for want of room or descriptors."""


class BrokerChanges:
    """Handlers of one term."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._retold: dict[TopicPartition, None] = {}
        """Partitions whose ISR changed, or of which a replica went with its broker, was refused or is well again, and
        whose metadata does not say so yet."""
        self._brokers_changed = False

    async def on_brokers(self) -> None:
        """Broker failure and broker start; a broker that was away too briefly to be missed shows as another epoch and
        is both (safety.md 30)."""
        context = self._term.context
        # Failure 1: the watch, then who lives.
        live = await self._term.store.brokers(self._term.watch(Trigger.BROKERS))
        gone = [b for b in context.brokers.values() if b.broker_id not in live or live[b.broker_id].epoch != b.epoch]
        new = [b for b in live.values() if b in gone or context.brokers.get(b.broker_id) != b]
        for known in gone:
            self._term.log.info("broker failed", broker=known.broker_id, broker_epoch=known.epoch)
            self._retold.update(dict.fromkeys(context.partitions_on(known.broker_id)))
            self._brokers_changed = True
            context.remove_broker(known.broker_id)
            self._term.outbox.close(known.broker_id)
            self._term.topic_changes.deletion.broker_failed(known.broker_id)
            self._term.events.put(Trigger.DELETION_PROGRESS)
        lossy = [broker for broker in new if broker.lossy_start]
        moved: list[TopicPartition] = []
        if lossy:
            # They have taken themselves out of ISRs: nobody else will tell those leaders.
            moved = await self._term.refresh([tp for b in lossy for tp in context.partitions_on(b.broker_id)])
        # Failure 2 and 3: set_p, and 3.1 to 3.3 for each of its partitions. Planned from how things stand, so a failure
        # whose handling was cut short is found again.
        changed = dict.fromkeys(moved) | await self._term.settle(list(context.partitions()))
        # Failure 4: LeaderAndIsr to the brokers concerned, and what everybody has to know.
        builder = BatchBuilder(context)
        if self._brokers_changed:
            builder.live_brokers()
        builder.metadata(self._retold)
        self._term.announce(changed, builder)
        self._retold, self._brokers_changed = {}, False
        if new:
            await self._on_new_brokers(new)

    async def _on_new_brokers(self, new: Sequence[LiveBroker]) -> None:
        context = self._term.context
        for broker in new:
            self._term.log.info("broker started", broker=broker.broker_id, broker_epoch=broker.epoch)
            context.brokers[broker.broker_id] = broker
            self._term.outbox.open(broker)
            self._term.topic_changes.deletion.retry(broker.broker_id)
            self._term.events.put(Trigger.DELETION_PROGRESS)
        builder = BatchBuilder(context)
        builder.live_brokers()
        returned: dict[TopicPartition, None] = {}
        for broker in new:
            # Start 1: the whole metadata to the new broker.
            builder.metadata(context.partitions(), only=broker.broker_id)
            # Start 2: its replicas are online: LeaderAndIsr for all of them. It joins ISRs when their leaders say so.
            mine = context.partitions_on(broker.broker_id)
            builder.leadership(mine, only=broker.broker_id)
            returned.update(dict.fromkeys(mine))
        builder.metadata(returned)
        self._term.outbox.send(builder)
        # Start 3: partitions without a leader may have one now.
        await self._term.settle_and_announce(list(returned))

    async def on_isr_changes(self) -> None:
        """Leaders changed ISRs in ZooKeeper: read them again, take out who died before this was heard, tell everybody,
        remove the notifications."""
        names = await self._term.store.children(Trigger.ISR_CHANGES.value, self._term.watch(Trigger.ISR_CHANGES))
        named = await self._term.store.isr_changes(names)
        changed = await self._term.refresh(self._term.context.partitions() if named is None else named)
        self._retold.update(dict.fromkeys(changed))
        await self._settle_and_retell()
        await self._term.store.delete_all([f"{Trigger.ISR_CHANGES.value}/{name}" for name in names])

    async def on_log_dir_events(self) -> None:
        """Logs of a broker failed: tell it its roles again. What it cannot play any more it answers with
        KAFKA_STORAGE_ERROR, which moves leadership away (24)."""
        path = Trigger.LOG_DIR_EVENTS.value
        names = await self._term.store.children(path, self._term.watch(Trigger.LOG_DIR_EVENTS))
        named = await self._term.store.log_dir_events(names)
        for broker_id in list(self._term.context.brokers) if named is None else named:
            broker = self._term.context.brokers.get(broker_id)
            if broker is not None:
                self._term.log.warning("logs of a broker failed", broker=broker_id)
                await self._tell_again(broker, self._term.context.partitions_on(broker_id))
        await self._term.store.delete_all([f"{path}/{name}" for name in names])

    async def on_roles_answered(self, broker: LiveBroker, answers: Sequence[PartitionError]) -> None:
        """What became of LeaderAndIsr: a broken log, or one that cannot be made now, moves leadership away, and
        everybody is told why, until a role is taken with it again. Anything but a broken log is said again after a
        while (safety.md 32), from what ZooKeeper says then."""
        context = self._term.context
        if context.brokers.get(broker.broker_id) != broker:
            return
        again: dict[TopicPartition, ErrorCode] = {}
        broken: list[TopicPartition] = []
        moved = await self._refresh_outrun(answers)
        is_any_refused = context.offline_replicas or context.later_epochs
        for answer in answers if is_any_refused else [each for each in answers if each.error_code]:
            tp, code = TopicPartition(answer.topic_name, answer.partition_index), error_code(answer.error_code)
            replica = broker.broker_id, tp
            if code is ErrorCode.NONE:
                if context.note_role(replica):
                    self._retold[tp] = None
                continue
            if context.is_later(answer.log_epoch, tp):
                context.later_epochs[replica] = answer.log_epoch
                code = ErrorCode.KAFKA_STORAGE_ERROR
            why = code.name if code is ErrorCode.FENCED_LEADER_EPOCH else answer.error_message or code.name
            is_known = code is ErrorCode.BROKER_NOT_AVAILABLE and replica in context.offline_replicas
            if not is_known and code in UNABLE and context.note_refusal(replica, why):
                self._retold[tp] = None
            if not is_known:  # else it comes again each second
                self._term.log.warning("broker refused a role", broker=broker.broker_id, partition=str(tp), error=why)
            if code is ErrorCode.KAFKA_STORAGE_ERROR:
                broken.append(tp)
            else:
                again[tp] = code
        await self._settle_and_retell(broken)
        if broken or again:
            await self._term.store.check_fence()  # a broker that knows better than we do: are we still controller?
        moved += await self._term.refresh(again)
        if self._term.unannounced:
            self._term.announce({})
        # One that already knows this epoch needs to hear of it again only if there is something newer.
        repeat = [tp for tp, code in again.items() if tp in moved or code is not ErrorCode.FENCED_LEADER_EPOCH]
        if repeat:
            self._term.later(partial(self._tell_again, broker, repeat))

    async def _refresh_outrun(self, answers: Sequence[PartitionError]) -> list[TopicPartition]:
        """Roles and logs of later epochs than our orders: what ZooKeeper says now, if we are still controller, decides
        whether those came late, or it is an old copy. Returns the partitions that had moved."""
        fenced = [each for each in answers if each.error_code == ErrorCode.FENCED_LEADER_EPOCH]
        outrun = [
            TopicPartition(each.topic_name, each.partition_index) for each in fenced if each.log_epoch != NO_EPOCH
        ]
        if not outrun:
            return []
        await self._term.store.check_fence()
        return await self._term.refresh(outrun)

    async def _settle_and_retell(self, partitions: Sequence[TopicPartition] = ()) -> None:
        """Plan these and what is to be told anew, and tell it; also what an event had left that broke off here."""
        concerned = dict.fromkeys([*partitions, *self._retold])
        if not concerned:
            return
        changed = await self._term.settle(list(concerned))
        builder = BatchBuilder(self._term.context)
        builder.metadata(self._retold)
        self._term.announce(changed, builder)
        self._retold = {}

    async def _tell_again(self, broker: LiveBroker, partitions: Sequence[TopicPartition]) -> None:
        if self._term.context.brokers.get(broker.broker_id) == broker:
            builder = BatchBuilder(self._term.context)
            builder.leadership(partitions, only=broker.broker_id)
            self._term.outbox.send(builder)
