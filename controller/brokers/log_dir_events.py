"""Logs of a broker that failed: an event, which `/log_dir_event_notification` asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from strandline.controller.controller_context import LiveBroker
from strandline.controller.tools import Tools
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import LOG_DIR_EVENT_NOTIFICATION_PATH, LogDirEventNotificationZnode


class LogDirEvents:
    """One term's. `tell_again`: tells a broker its roles."""

    def __init__(
        self, tools: Tools, tell_again: Callable[[LiveBroker, Sequence[TopicPartition]], Awaitable[None]]
    ) -> None:
        self._tools = tools
        self._tell_again = tell_again

    async def look(self) -> None:
        """Tell the broker its roles again. What it cannot play any more it answers with KAFKA_STORAGE_ERROR, which
        moves leadership away (invariant 24)."""
        context, store = self._tools.context, self._tools.store
        paths, notes = await store.notifications(
            LOG_DIR_EVENT_NOTIFICATION_PATH, self._tools.agenda.watch(self.look), LogDirEventNotificationZnode.decode
        )
        for broker_id in dict.fromkeys(context.brokers if notes is None else (note.broker_id for note in notes)):
            broker = context.brokers.get(broker_id)
            if broker is not None:
                self._tools.log.warning("logs of a broker failed", broker=broker_id)
                await self._tell_again(broker, context.partitions_on(broker_id))
        await store.delete_all(paths)
