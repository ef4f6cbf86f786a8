"""What becomes of records given to a producer: results, and the sinks that are told.

A batch is acknowledged as a whole, so results are made per batch; a record's offset is the batch's plus its index.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from functools import partial
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import trio

from strandline.client.errors import DeliveryFailed
from strandline.client.unread_failures import Tally, Unread
from strandline.runtime.mistakes import call_back

T = TypeVar("T")


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

    def delivered(self, batch: DeliveredBatch, first_index: int, count: int, start: int) -> None:
        """`count` records, from index `first_index` of the batch on, are acknowledged: those from index `start` on of
        the records that were given."""

    def failed(self, error: Exception, count: int, start: int) -> None:
        """`count` records were given up or never accepted: those from index `start` on."""

    def count_as_told(self, count: int, start: int) -> None:
        """The program hears otherwise of those that have just failed."""

    def take_unread(self) -> Unread:
        """See `unread_failures.Failed`."""

    def has_unread(self) -> bool:
        """Likewise."""

    def move_unread(self, tally: Tally) -> None:
        """Likewise."""


class Awaited(Generic[T]):
    """A result that is set once in the event loop: `await` it, or be called back."""

    __slots__ = (
        "_asking",
        "_callbacks",
        "_error",
        "_is_done",
        "_is_read",
        "_on_read",
        "_settled",
        "_traceback",
        "_value",
    )

    def __init__(self) -> None:
        self._is_done = False
        self._is_read = False
        """The program has asked for the outcome, or will be told."""
        self._asking = 0
        """So many tasks wait for the outcome, and will have asked for it once it is there."""
        self._on_read: Callable[[], None] | None = None
        """Whom to tell that the program has asked."""
        self._value: T | None = None
        self._error: Exception | None = None
        self._traceback: TracebackType | None = None
        self._settled: trio.Event | None = None
        self._callbacks: list[Callable[[Any], object]] | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        """The result, or the error raised."""
        return self._wait().__await__()

    def done(self) -> bool:
        return self._is_done

    def result(self) -> T:
        """The result, or the error raised. RuntimeError before it is known: that has to be awaited."""
        if (error := self.exception()) is not None:
            raise error.with_traceback(self._traceback)
        return self._value  # type: ignore[return-value]  # set together with _is_done

    def exception(self) -> Exception | None:
        """The error; None where it went well. RuntimeError before that is known."""
        if not self._is_done:
            raise RuntimeError(f"the outcome is not known yet: await the {type(self).__name__}")
        self._note_read()
        return self._error

    def add_done_callback(self, fn: Callable[[Self], object]) -> None:
        """Call `fn(self)` in the event loop once the outcome is known: at once where it is. An exception in it is
        warned of and ends nothing."""
        self._note_read()
        if self._is_done:
            call_back(fn, self)
        elif self._callbacks is None:
            self._callbacks = [fn]
        else:
            self._callbacks.append(fn)

    def settle(self, value: T | None, error: Exception | None) -> None:
        """Set it, and tell who waits."""
        self._value, self._error, self._is_done = value, error, True
        if error is not None:
            self._traceback = error.__traceback__  # many share the error, and each `raise` adds to it
        if self._settled is not None:
            self._settled.set()
        for fn in self._callbacks or ():
            call_back(fn, self)
        self._callbacks = None

    async def _wait(self) -> T:
        if not self._is_done:
            if self._settled is None:
                self._settled = trio.Event()
            self._asking += 1
            try:
                await self._settled.wait()
                self._is_read = True  # before it is not asked for any more
            finally:
                self._asking -= 1
        return self.result()

    def _note_read(self) -> None:
        self._is_read = True
        if self._on_read is not None:
            on_read, self._on_read = self._on_read, None
            on_read()


class Delivery(Awaited[RecordMetadata]):
    """The outcome of one `send`: `metadata = await delivery`.

    Where the record stands; DeliveryFailed (DeliveryTimeout) if it does not, or not for sure. Never takes longer than
    `delivery_timeout_ms` from the sending on."""

    __slots__ = ("_timestamp_ms",)

    def __init__(self, timestamp_ms: int) -> None:
        super().__init__()
        self._timestamp_ms = timestamp_ms

    def delivered(self, batch: DeliveredBatch, first_index: int, count: int, start: int) -> None:
        self.settle(record_metadata(batch, first_index, self._timestamp_ms), None)

    def failed(self, error: Exception, count: int, start: int) -> None:
        self.settle(None, error)

    def count_as_told(self, count: int, start: int) -> None:
        self._is_read = True

    def take_unread(self) -> Unread:
        if self._asking or not self.has_unread():
            return Unread(0, None)
        self._is_read = True
        return Unread(1, self._error)

    def move_unread(self, tally: Tally) -> None:
        if tally.add(self.take_unread()):
            self._on_read = partial(tally.forget, 1)

    def has_unread(self) -> bool:
        return self._error is not None and not self._is_read


def record_metadata(batch: DeliveredBatch, index: int, timestamp_ms: int) -> RecordMetadata:
    """The result of the record at `index` of a batch."""
    offset = batch.base_offset + index if batch.base_offset >= 0 else -1
    stamped = batch.log_append_time_ms if batch.log_append_time_ms >= 0 else timestamp_ms
    return RecordMetadata(batch.topic, batch.partition, offset, stamped, batch.retried)


class RecordsSink(ABC):
    """Counts what becomes of `expected` records that were sent together."""

    _is_read: bool
    """The program has asked for the outcome, or will be told."""
    _asking: int
    _on_read: Callable[[], None] | None

    def __init__(self, expected: int) -> None:
        self.batches: list[DeliveredBatch] = []
        """Acknowledged batches that hold some of the records, in the order of their acknowledgement."""
        self.delivered_records = 0
        self.failed_records = 0
        self.error: Exception | None = None
        """The first failure."""
        self._told_records = 0
        """Those of the failed ones that were told although nobody has asked."""
        self._expected = expected
        self._settle_if_whole()

    @property
    def open_records(self) -> int:
        """How many are not settled yet."""
        return self._expected - self.delivered_records - self.failed_records

    def delivered(self, batch: DeliveredBatch, first_index: int, count: int, start: int) -> None:
        self.batches.append(batch)
        self.delivered_records += count
        self._settle_if_whole()

    def failed(self, error: Exception, count: int, start: int) -> None:
        self.error = self.error or error
        self.failed_records += count
        self._settle_if_whole()

    def count_as_told(self, count: int, start: int) -> None:
        self._told_records += count

    def take_unread(self) -> Unread:
        if self._asking or not self.has_unread():
            return Unread(0, None)
        failed, told = self.failed_records, self._told_records
        self._told_records = failed
        return Unread(failed - told, self.error)

    def move_unread(self, tally: Tally) -> None:
        unread = self.take_unread()
        if tally.add(unread):
            self._on_read = partial(_call_both, self._on_read, partial(tally.forget, unread.records_count))

    def has_unread(self) -> bool:
        return self.failed_records > self._told_records and not self._is_read

    def _settle_if_whole(self) -> None:
        if self.open_records <= 0:
            self._settle()

    @abstractmethod
    def _settle(self) -> None:
        """Every record is settled: tell who waits."""


def _call_both(first: Callable[[], None] | None, second: Callable[[], None]) -> None:
    if first is not None:
        first()
    second()


class ManyDelivery(RecordsSink, Awaited[list[DeliveredBatch]]):
    """The outcome of one `send_many`: `batches = await delivery`, once each of its records is settled; the first
    failure is raised."""

    def __init__(self, expected: int) -> None:
        Awaited.__init__(self)
        RecordsSink.__init__(self, expected)

    def _settle(self) -> None:
        self.settle(self.batches, self.error)
