"""What a producer with acks=all notices of the control plane: the pauses of each of its partitions, and its errors."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial as bound

import trio

from strandline.client import TrioProducer
from strandline.client.delivery import Delivery

INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class Pause:
    """Between two acknowledgements of a partition, by the wall clock, as the brokers' logs have it."""

    partition: int
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(slots=True)
class Watch:
    """One record to each partition of a topic every 20 ms."""

    topic: str
    partitions: int
    errors: list[str] = field(default_factory=list)
    _last_ack: dict[int, float] = field(default_factory=dict)
    _longest: dict[int, Pause] = field(default_factory=dict)

    def begin(self) -> None:
        """Forget the pauses that were."""
        self._longest = {}
        self.errors = []

    def longest(self) -> Pause:
        return max(self._longest.values(), key=lambda pause: pause.seconds, default=Pause(-1, 0.0, 0.0))

    def flows_since(self, moment: float) -> bool:
        return all(self._last_ack.get(each, 0.0) > moment for each in range(self.partitions))

    async def produce(self, producer: TrioProducer) -> None:
        while True:
            for partition in range(self.partitions):
                delivery = await producer.send(self.topic, b"x" * 100, partition=partition)
                delivery.add_done_callback(bound(self._settled, partition))
            await trio.sleep(INTERVAL_S)

    def _settled(self, partition: int, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self.errors.append(repr(error))
            return
        now = time.time()
        if partition in self._last_ack:
            pause = Pause(partition, self._last_ack[partition], now)
            known = self._longest.get(partition)
            if known is None or known.seconds < pause.seconds:
                self._longest[partition] = pause
        self._last_ack[partition] = now
