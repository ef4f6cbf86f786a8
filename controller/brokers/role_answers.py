"""What brokers say of their roles, each word an event: who plays one, who refuses it, or cannot play it any more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from strandline.controller.controller_context import LiveBroker
from strandline.controller.orders.broker_orders import OrderBuilder
from strandline.controller.partitions.settlement import Settlement
from strandline.controller.tools import Tools
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.messages import LeaderAndIsrRequest, LeaderAndIsrResponse, PartitionError
from strandline.protocol.types import NO_EPOCH, TopicPartition
from strandline.protocol.znodes import LogDirEventNotificationZnode

UNABLE = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.BROKER_NOT_AVAILABLE)
"""A replica that is not served: its log is broken, or cannot be made now, for want of room or descriptors."""


class RoleAnswers:
    """One term's."""

    def __init__(self, tools: Tools, settlement: Settlement) -> None:
        self._context, self._store, self._outbox = tools.context, tools.store, tools.outbox
        self._agenda, self._log = tools.agenda, tools.log
        self._settlement = settlement

    async def on_answered(self, broker: LiveBroker, _: LeaderAndIsrRequest, response: LeaderAndIsrResponse) -> None:
        """What became of LeaderAndIsr: a broken log, or one that cannot be made now, moves leadership away, and
        everybody is told why, until a role is taken with it again. Anything but a broken log is said again after a
        while (invariant 32), from what ZooKeeper says then."""
        context = self._context
        if context.brokers.get(broker.broker_id) != broker:
            return
        again: dict[TopicPartition, ErrorCode] = {}
        broken: list[TopicPartition] = []
        answers = response.partition_errors
        moved = await self._refresh_outrun(answers)
        is_any_refused = context.offline_replicas or context.later_epochs
        for answer in answers if is_any_refused else [each for each in answers if each.error_code]:
            tp, code = TopicPartition(answer.topic_name, answer.partition_index), error_code(answer.error_code)
            replica = broker.broker_id, tp
            if code is ErrorCode.NONE:
                if context.note_role(replica):
                    self._settlement.stale_metadata[tp] = None
                continue
            if context.is_later(answer.log_epoch, tp):
                context.later_epochs[replica] = answer.log_epoch
                code = ErrorCode.KAFKA_STORAGE_ERROR
            why = code.name if code is ErrorCode.FENCED_LEADER_EPOCH else answer.error_message or code.name
            is_known = code is ErrorCode.BROKER_NOT_AVAILABLE and replica in context.offline_replicas
            if not is_known and code in UNABLE and context.note_refusal(replica, why):
                self._settlement.stale_metadata[tp] = None
            if not is_known:  # else it comes again each second
                self._log.warning("broker refused a role", broker=broker.broker_id, partition=str(tp), error=why)
            if code is ErrorCode.KAFKA_STORAGE_ERROR:
                broken.append(tp)
            else:
                again[tp] = code
        await self._settlement.settle_and_announce(broken)
        if broken or again:
            await self._store.check_fence()  # a broker that knows better than we do: are we still controller?
        moved += await self._settlement.read_again(again)
        if self._settlement.unannounced or self._settlement.stale_metadata:
            await self._settlement.settle_and_announce()
        # One that already knows this epoch needs to hear of it again only if there is something newer.
        repeat = [tp for tp, code in again.items() if tp in moved or code is not ErrorCode.FENCED_LEADER_EPOCH]
        if repeat:
            self._agenda.later(partial(self.tell_again, broker, repeat))

    async def _refresh_outrun(self, answers: Sequence[PartitionError]) -> list[TopicPartition]:
        """Roles and logs of later epochs than our orders: what ZooKeeper says now, if we are still controller, decides
        whether those came late, or it is an old copy. Returns the partitions that had moved."""
        fenced = [each for each in answers if each.error_code == ErrorCode.FENCED_LEADER_EPOCH]
        outrun = [
            TopicPartition(each.topic_name, each.partition_index) for each in fenced if each.log_epoch != NO_EPOCH
        ]
        if not outrun:
            return []
        await self._store.check_fence()
        return await self._settlement.read_again(outrun)

    async def on_failed_logs(self, notes: Sequence[LogDirEventNotificationZnode] | None) -> None:
        """Logs of these brokers failed: which roles they cannot play any more they say when they are told them again,
        and leadership moves away (invariant 24)."""
        for broker_id in dict.fromkeys(self._context.brokers if notes is None else (note.broker_id for note in notes)):
            broker = self._context.brokers.get(broker_id)
            if broker is not None:
                self._log.warning("logs of a broker failed", broker=broker_id)
                await self.tell_again(broker, self._context.partitions_on(broker_id))

    async def tell_again(self, broker: LiveBroker, partitions: Sequence[TopicPartition]) -> None:
        """Its roles, unless its life is over."""
        if self._context.brokers.get(broker.broker_id) == broker:
            builder = OrderBuilder(self._context)
            builder.leadership(partitions, only=broker.broker_id)
            self._outbox.send(builder)
