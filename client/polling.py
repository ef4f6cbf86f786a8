"""What a consumer's program awaits and that calls the program back: `poll`, `fetch_batches`, `unsubscribe`.

Each is made of steps, which the trio consumer does in its loop. A step ends where a callback is due: the task that
awaits runs it, in its own loop, be that trio's or asyncio's, and goes on with the next step. Nothing waits for another
thread meanwhile, so a callback may use the consumer as it likes, but for these three.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from strandline.client.assignment import ConsumerRecord, FetchedBatches
from strandline.client.errors import ClientError
from strandline.client.groups.group import DueCall
from strandline.protocol.types import TopicPartition

T = TypeVar("T")


class Polling(ABC):
    """The consumers for trio and asyncio. A step goes on `after` the callback that the last one ended with."""

    async def poll(
        self, *, max_records: int | None = None, timeout_ms: float = 0
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The next records, as soon as there are any; {} after `timeout_ms`. At most `max_records` (default:
        `max_poll_records`), partitions taking turns.

        Errors, once nothing else is left to hand out: OffsetOutOfRange, LogTruncated (both until a seek),
        CorruptRecords, AnsweredError. That a commit failed which `enable_auto_commit` asked for is only warned of.
        """
        return await self._call_all(partial(self._poll_step, max_records, timeout_ms=timeout_ms))

    async def fetch_batches(self, *, timeout_ms: float = 0) -> list[FetchedBatches]:
        """As `poll`, but whole record batches, not decoded: everything that is buffered, one item per fetch and
        partition; [] after `timeout_ms`. Positions move behind them; CRCs are left to whoever decodes."""
        return await self._call_all(partial(self._fetch_step, timeout_ms=timeout_ms))

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
        """Run the callbacks that are due before `step` has a result."""
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
    async def _leave_step(self, *, timeout_ms: float | None, after: DueCall | None = None) -> DueCall | None:
        """The same of `unsubscribe`; None: within `default_api_timeout_ms`."""

    @abstractmethod
    async def _give_up_leaving(self) -> None:
        """There will be no further `_leave_step`, and the last one was not the end."""
