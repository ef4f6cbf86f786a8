"""The fast way of the fake producer: lists of records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from strandline.protocol.errors import BrokerError, ErrorCode


class FutureOfMany(Future[list[Any]]):
    """What becomes of a list of records."""

    failed_records = 0


class FakeBulkProducer:
    """`send_many` for the fake producer: what is sent can be read from partition 0."""

    cluster: Any

    def send_many(self, topic: str, pairs: Sequence[tuple[bytes | None, bytes]]) -> FutureOfMany:
        future = FutureOfMany()
        settle: Callable[[], None] = lambda: future.set_result([])  # noqa: E731
        for key, value in pairs:
            if self.cluster.fail_after is not None and len(self.cluster.produced) >= self.cluster.fail_after:
                future.failed_records += 1
                error = BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS)
                settle = lambda error=error: future.set_exception(error)  # noqa: E731
                continue
            self.cluster.produced.append((topic, key, value, None, ()))
            self.cluster.fill(topic, 0, [value], key=key)
        settle()
        return future
