"""What becomes of records given to a producer: results, and the sinks that are told.

A batch is acknowledged as a whole, so results are made per batch; a record's offset is the batch's plus its index.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Protocol

import trio

from strandline.client.errors import DeliveryFailed


class RecordMetadata(NamedTuple):
    """Where a record stands. `offset` −1 with acks=0, and where a broker knows no more than that it is in the log.
    `timestamp_ms`: the record's, or the broker's where the topic uses LogAppendTime. `retried`: its batch was sent
    again after an attempt whose outcome stayed unknown: it may stand in the log twice. Never so of an idempotent
    producer."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    retried: bool = False


class DeliveredBatch(NamedTuple):
    """One acknowledged batch: `records_count` records from `base_offset` on (−1 with acks=0). `log_append_time_ms` −1:
    the records keep their own timestamps."""

    topic: str
    partition: int
    base_offset: int
    records_count: int
    log_append_time_ms: int
    retried: bool


class FailedBatch(NamedTuple):
    """One batch that was given up."""

    topic: str
    partition: int
    records_count: int
    error: DeliveryFailed


class DeliverySink(Protocol):
    """Told once per batch that holds records of one call; called in the event loop's thread, must not raise."""

    def delivered(self, batch: DeliveredBatch, first_index: int, count: int) -> None:
        """`count` records, from index `first_index` of the batch on, are acknowledged."""

    def failed(self, error: Exception, count: int) -> None:
        """`count` records were given up or never accepted."""


class Delivery:
    """The outcome of one `send`: `await delivery.wait()`."""

    __slots__ = ("_callback", "_done", "_error", "_metadata", "_timestamp_ms")

    def __init__(
        self, timestamp_ms: int, callback: Callable[[RecordMetadata | None, Exception | None], None] | None
    ) -> None:
        self._timestamp_ms = timestamp_ms
        self._callback = callback
        self._metadata: RecordMetadata | None = None
        self._error: Exception | None = None
        self._done: trio.Event | None = None

    @property
    def done(self) -> bool:
        return self._metadata is not None or self._error is not None

    async def wait(self) -> RecordMetadata:
        """Where the record stands; DeliveryFailed (DeliveryTimeout) if it does not, or not for sure. Never waits
        longer than delivery_timeout_ms from the sending on."""
        if not self.done:
            if self._done is None:
                self._done = trio.Event()
            await self._done.wait()
        if self._error is not None:
            raise self._error
        assert self._metadata is not None
        return self._metadata

    def delivered(self, batch: DeliveredBatch, first_index: int, count: int) -> None:
        self._metadata = record_metadata(batch, first_index, self._timestamp_ms)
        self._settle()

    def failed(self, error: Exception, count: int) -> None:
        self._error = error
        self._settle()

    def _settle(self) -> None:
        if self._done is not None:
            self._done.set()
        if self._callback is not None:
            self._callback(self._metadata, self._error)


def record_metadata(batch: DeliveredBatch, index: int, timestamp_ms: int) -> RecordMetadata:
    """The result of the record at `index` of a batch."""
    offset = batch.base_offset + index if batch.base_offset >= 0 else -1
    stamped = batch.log_append_time_ms if batch.log_append_time_ms >= 0 else timestamp_ms
    return RecordMetadata(batch.topic, batch.partition, offset, stamped, batch.retried)


class RecordsSink(ABC):
    """Counts what becomes of `expected` records that were sent together."""

    def __init__(self, expected: int) -> None:
        self.batches: list[DeliveredBatch] = []
        """Acknowledged batches that hold some of the records, in the order of their acknowledgement."""
        self.delivered_records = 0
        self.failed_records = 0
        self.error: Exception | None = None
        """The first failure."""
        self._expected = expected
        self._settle_if_whole()

    @property
    def open_records(self) -> int:
        """How many are not settled yet."""
        return self._expected - self.delivered_records - self.failed_records

    def delivered(self, batch: DeliveredBatch, first_index: int, count: int) -> None:
        self.batches.append(batch)
        self.delivered_records += count
        self._settle_if_whole()

    def failed(self, error: Exception, count: int) -> None:
        self.error = self.error or error
        self.failed_records += count
        self._settle_if_whole()

    def _settle_if_whole(self) -> None:
        if self.open_records <= 0:
            self._settle()

    @abstractmethod
    def _settle(self) -> None:
        """Every record is settled: tell who waits."""


class ManyDelivery(RecordsSink):
    """The outcome of one `send_many`: settled when each of its records is."""

    def __init__(self, expected: int) -> None:
        self._done = trio.Event()
        super().__init__(expected)

    @property
    def done(self) -> bool:
        return self.open_records <= 0

    async def wait(self) -> list[DeliveredBatch]:
        """The batches; the first failure is raised once everything is settled."""
        await self._done.wait()
        if self.error is not None:
            raise self.error
        return self.batches

    def _settle(self) -> None:
        self._done.set()
