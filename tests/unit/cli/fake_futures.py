"""What becomes of records that the fake producer was given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from strandline.client.delivery import DeliveredBatch


class Acked(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class LateFuture(Future[Acked]):
    """Settled when it is asked for the second time and nothing waits any more, or when the producer is closed. Nobody
    waits for it: the clock stands still."""

    def __init__(self, cluster: Any, settle: Callable[[], None]) -> None:
        super().__init__()
        self.cluster = cluster
        self.settle = settle
        self.asked = 0

    def done(self) -> bool:
        self.asked += 1
        if self.asked > 1 and not self.cluster.waiting and not super().done():
            self.settle()
        return super().done()

    def result(self, timeout: float | None = None) -> Acked:
        return super().result(timeout and 0)


class FakeMany(Future[list[DeliveredBatch]]):
    """The outcome of many, made of one for each: with it, or when it is asked for."""

    def __init__(self, futures: Sequence[Future[Acked]]) -> None:
        super().__init__()
        self.futures = futures
        if self.done():
            errors = [error for future in futures if (error := future.exception()) is not None]
            self.set_exception(errors[0]) if errors else self.set_result([])

    def done(self) -> bool:
        return all(future.done() for future in self.futures)

    def result(self, timeout: float | None = None) -> list[DeliveredBatch]:
        return [DeliveredBatch(*future.result(timeout)[:3], 1, -1, False) for future in self.futures]

    @property
    def batches(self) -> list[DeliveredBatch]:
        acked = [future.result() for future in self.futures if future.done() and future.exception() is None]
        return [DeliveredBatch(*each[:3], 1, -1, False) for each in acked]

    @property
    def delivered_records(self) -> int:
        return len(self.batches)

    @property
    def failed_records(self) -> int:
        return sum(future.done() and future.exception() is not None for future in self.futures)
