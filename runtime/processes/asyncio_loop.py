"""From other threads into an asyncio loop: what is settled there arrives here, with one wake-up per burst."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from strandline.runtime.processes.outcomes import Outcome

__all__ = ["AsyncioLoop", "Future"]

T = TypeVar("T")

CANCEL_S = 5.0
"""A call that is cancelled ends at once; so much later its task stops waiting for that."""


class AsyncioLoop:
    """The loop that runs now. RuntimeError where there is none."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._settled: deque[tuple[Future[Any], Any, BaseException | None]] = deque()
        self._announced = False

    def time(self) -> float:
        """The loop's clock, in seconds."""
        return self._loop.time()

    def future(self) -> Future[Any]:
        return self._loop.create_future()

    def settle(self, future: Future[T], value: T | None, error: BaseException | None) -> None:
        """From any thread, without a lock: set a future of this loop."""
        self._settled.append((future, value, error))
        if not self._announced:
            self._announced = True
            try:
                self._loop.call_soon_threadsafe(self._take)
            except RuntimeError:  # the loop is closed: nobody waits any more
                self._settled.clear()
                self._announced = False

    def is_unread(self, future: Future[Any]) -> bool:
        """Whether it has, or would have, an error that nobody has asked for, nor can: one that is not set in its loop
        yet never will be where that does not run any more."""
        if not future.done():
            return not self._loop.is_running()
        return not future.cancelled() and bool(future._log_traceback)

    def may_be_unread(self, future: Future[Any]) -> bool:
        """As `is_unread`; also where it is not set in its loop yet."""
        return not future.done() or self.is_unread(future)

    def count_as_told(self, future: Future[Any]) -> None:
        """Its error is told otherwise; asyncio would log it."""
        future._log_traceback = False

    async def result_of(self, outcome: Outcome[T]) -> T:
        """Wait for it. Where the task is cancelled meanwhile so is what is waited for. What had succeeded before that
        is returned all the same, and the task cancelled at its next await: nothing is lost that was handed out."""
        arrived: Future[None] = self.future()
        outcome.add_done_callback(lambda _: self.settle(arrived, None, None))
        try:
            await asyncio.shield(arrived)
        except asyncio.CancelledError:
            outcome.cancel()
            await self._until(arrived, CANCEL_S)
            if not outcome.done() or outcome.exception(0) is not None:
                raise
            self._loop.call_soon(_cancel_again, asyncio.current_task())
        return outcome.result(0)

    async def in_thread(self, function: Callable[[], T], on_cancel: Callable[[], None] | None = None) -> T:
        """Run what blocks. Where the task is cancelled meanwhile the thread goes on, and `on_cancel` is called."""
        try:
            return await asyncio.to_thread(function)
        except asyncio.CancelledError:
            if on_cancel is not None:
                on_cancel()
            raise

    async def _until(self, future: Future[Any], limit_s: float) -> None:
        deadline = self.time() + limit_s
        while not future.done() and self.time() < deadline:
            try:
                await asyncio.wait([future], timeout=deadline - self.time())
            except asyncio.CancelledError:  # once more: the first time counts
                continue

    def _take(self) -> None:
        self._announced = False  # first: what comes from now on says so anew
        while self._settled:
            future, value, error = self._settled.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)


def _cancel_again(task: asyncio.Task[Any] | None) -> None:
    """Unless whoever cancelled it has taken that back (`asyncio.timeout`), which counts how often it was cancelled."""
    if task is not None and not task.done() and task.cancelling():
        task.uncancel()
        task.cancel()
