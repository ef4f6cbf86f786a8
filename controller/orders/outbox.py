"""All senders of one term: opened when a broker appears, closed when it goes, fed with what a `BatchBuilder` has."""

from __future__ import annotations

from collections.abc import Callable

import trio

from strandline.controller.context import LiveBroker
from strandline.controller.orders.batches import BatchBuilder
from strandline.controller.orders.sender import BrokerSender, BrokerUnreachable
from strandline.protocol.messages import Message, Request

Mark = dict[int, tuple[BrokerSender, int]]
"""What had been queued for each broker at some moment."""


class Progress:
    """Wakes whoever waits for a condition each time that something may have changed it."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def poke(self) -> None:
        event, self._event = self._event, trio.Event()
        event.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._event.wait()


class Outbox:
    """broker id → the sender of its present life. `start` runs a sender's task in the term's nursery."""

    def __init__(
        self, make_sender: Callable[[LiveBroker], BrokerSender], start: Callable[[BrokerSender], None]
    ) -> None:
        self._make_sender = make_sender
        self._start = start
        self._senders: dict[int, BrokerSender] = {}

    def open(self, broker: LiveBroker) -> None:
        """A broker appeared. Its earlier life, if any, gets nothing more."""
        self.close(broker.broker_id)
        sender = self._senders[broker.broker_id] = self._make_sender(broker)
        self._start(sender)

    def close(self, broker_id: int) -> None:
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            sender.close()

    def close_all(self) -> None:
        for broker_id in list(self._senders):
            self.close(broker_id)

    def send(self, builder: BatchBuilder) -> None:
        """Queue every broker's batch. Never waits."""
        for broker_id, batch in builder.batches.items():
            if broker_id in self._senders and batch:
                self._senders[broker_id].put(batch, builder.cluster_wide)

    async def ask(self, broker_id: int, question: Request) -> Message:
        """One question to one broker. BrokerUnreachable when it is gone."""
        sender = self._senders.get(broker_id)
        if sender is None:
            raise BrokerUnreachable(f"broker {broker_id} is not registered")
        return await sender.ask(question)

    def mark(self) -> Mark:
        return {broker_id: (sender, sender.enqueued) for broker_id, sender in self._senders.items()}

    @staticmethod
    def told(mark: Mark) -> bool:
        """Has every broker that still lives answered all that was queued at `mark`?"""
        return all(sender.closed or sender.told >= enqueued for sender, enqueued in mark.values())
