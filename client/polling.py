"""What a consumer's program awaits and that calls the program back: `poll` in its three forms, `unsubscribe`.

Each is made of steps, which the trio consumer does in its loop. A step ends where a callback is due: the task that
awaits runs it, in its own loop, be that trio's or asyncio's, and goes on with the next step. Nothing waits for another
thread meanwhile, so a callback may use the consumer as it likes, but for these.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from strandline.client.assignment import FetchedBatches
from strandline.client.errors import ClientError
from strandline.client.groups.group import DueCall
from strandline.client.loans import Reader
from strandline.client.record import ConsumerRecord, Loan
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline.client.columns import FetchedColumns

T = TypeVar("T")


class Polling(ABC):
    """The consumers for trio and asyncio. A step goes on `after` the callback that the last one ended with."""

    _reader: Reader

    async def poll(
        self, *, max_records: int | None = None, timeout_ms: float = 0
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The next records, as soon as there are any; {} after `timeout_ms`. At most `max_records` (default:
        `max_poll_records`), partitions taking turns.

        Errors, once nothing else is left to hand out: OffsetOutOfRange, LogTruncated (both until a seek),
        CorruptRecords, AnsweredError. That a commit failed which `enable_auto_commit` asked for is only warned of.
        DeserializationFailed: records before that one have been handed out, and it is the next one until a seek.
        """
        failure = self._reader.take_failure()
        if failure is not None and self._is_next(failure.topic_partition, failure.offset):
            raise failure
        polled = await self._call_all(partial(self._poll_step, max_records, timeout_ms=timeout_ms))
        try:
            good, rest = self._reader.deserialized(polled)
        except BaseException:  # an interrupt, in the middle of it
            self._give_back(polled)
            raise
        if rest:
            self._give_back(rest)
        if not good and (failure := self._reader.take_failure()) is not None:
            raise failure
        return good

    def __aiter__(self) -> Self:
        """Records one by one, for as long as the program likes, or until none has come for `consumer_timeout_ms`. Each
        counts as read, for commits and `position`, once it is handed out; each step is a poll, with the errors of one.
        After the loop the next poll, or loop, goes on behind the last record that was handed out."""
        return self

    async def __anext__(self) -> ConsumerRecord:
        reader = self._reader
        if reader.is_due(self._now_s()):
            await self._call_all(partial(self._touch_step, timeout_ms=reader.touch_ms))
        while (record := reader.next()) is None:
            loans = await self._call_all(partial(self._lend_step, timeout_ms=reader.wait_ms))
            if not loans:
                raise StopAsyncIteration
            reader.add(loans, self._now_s())
        return record

    async def fetch_batches(self, *, timeout_ms: float = 0) -> list[FetchedBatches]:
        """As `poll`, but whole record batches, not decoded: everything that is buffered, one item per fetch and
        partition; [] after `timeout_ms`. Positions move behind them; CRCs are left to whoever decodes."""
        return await self._call_all(partial(self._fetch_step, timeout_ms=timeout_ms))

    async def poll_columns(self, *, timeout_ms: float = 0) -> list[FetchedColumns]:
        """As `poll`, but as columns of offsets, timestamps, keys and values: several times as fast. Everything that is
        buffered, one item per fetch and partition; [] after `timeout_ms`. Positions, commits, CRC checks and errors are
        those of `poll`; keys and values are bytes, whatever the deserializers."""
        return await self._call_all(partial(self._columns_step, timeout_ms=timeout_ms))

    async def unsubscribe(self) -> None:
        """Give up all partitions, as in a rebalance (commit, `on_revoked`), and leave the group at once; a static
        member stays in it until its session ends. What cannot be committed within `default_api_timeout_ms` is not.
        Where a callback fails, or this is cancelled, the rest of it is left out, but it leaves."""
        try:
            await self._call_all(partial(self._leave_step, timeout_ms=None))
        except BaseException:
            with suppress(ClientError):
                await self._give_up_leaving()
            raise

    async def _call_all(self, step: Callable[..., Awaitable[T | DueCall]]) -> T:
        """Run the callbacks that are due before `step` has a result. RuntimeError within one."""
        self._refuse_within_callback()
        after: DueCall | None = None
        while isinstance(result := await step(after=after), DueCall):
            after = result
            try:
                result.begin()
                if inspect.isawaitable(told := result.run()):
                    await told
            finally:
                self._finish_call(result)
        return result

    @abstractmethod
    def _refuse_within_callback(self) -> None:
        """See `Group`."""

    @abstractmethod
    def _finish_call(self, call: DueCall) -> None:
        """Have its group know that it was run."""

    @abstractmethod
    async def _poll_step(
        self, max_records: int | None, *, timeout_ms: float, after: DueCall | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]] | DueCall:
        """`poll` until it ends, or until a callback is due."""

    @abstractmethod
    async def _fetch_step(self, *, timeout_ms: float, after: DueCall | None = None) -> list[FetchedBatches] | DueCall:
        """The same of `fetch_batches`."""

    @abstractmethod
    async def _columns_step(self, *, timeout_ms: float, after: DueCall | None = None) -> list[FetchedColumns] | DueCall:
        """The same of `poll_columns`."""

    @abstractmethod
    async def _lend_step(self, *, timeout_ms: float, after: DueCall | None = None) -> list[Loan] | DueCall:
        """The same of a loop that has no records left; [] after `timeout_ms`."""

    @abstractmethod
    async def _touch_step(self, *, timeout_ms: float, after: DueCall | None = None) -> bool | DueCall:
        """The same of a loop that has some: nothing is taken."""

    @abstractmethod
    def _give_back(self, taken: object) -> None:
        """The program did not get what a step has had."""

    @abstractmethod
    def _is_next(self, partition: TopicPartition, offset: int) -> bool:
        """Whether that is the record which comes next of its partition."""

    @abstractmethod
    def _now_s(self) -> float:
        """The clock of the program's loop."""

    @abstractmethod
    async def _leave_step(self, *, timeout_ms: float | None, after: DueCall | None = None) -> DueCall | None:
        """The same of `unsubscribe`; None: within `default_api_timeout_ms`."""

    @abstractmethod
    async def _give_up_leaving(self) -> None:
        """There will be no further `_leave_step`, and the last one was not the end."""
