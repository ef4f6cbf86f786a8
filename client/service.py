"""What the trio clients share: they run for as long as the `async with` block that holds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Self

import trio

from strandline.client.errors import ClientClosed, NotRunning


class Service(ABC):
    """A client: `run` in a nursery of one's own, or as an `async with` block."""

    def __init__(self) -> None:
        self._closed = False
        self._clock: trio.abc.Clock | None = None
        """The one of the loop that `run` serves in, once it has begun."""
        self._scope = trio.CancelScope()
        """What `run` serves in."""
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery] | None = None

    @abstractmethod
    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until closed or cancelled."""

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """What `run` does lies in here; `stop` ends it."""
        self._clock = trio.lowlevel.current_clock()
        with self._scope:
            yield

    def _now_s(self) -> float:
        """By the clock of the loop that `run` serves in, whatever thread asks; 0 before it has begun."""
        return 0.0 if self._clock is None else self._clock.current_time()

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise ClientClosed(f"the {type(self).__name__.removeprefix('Trio').lower()} is closed")

    async def _raise_unless_running(self) -> None:
        """Before a wait for what `run` does, which would be in vain: ClientClosed, NotRunning. A `run` that was started
        counts, also where its task has not had a turn yet."""
        self._raise_if_closed()
        for _ in range(2):  # tasks of one turn come in any order; in the second one all that were started have begun
            if self._clock is None:
                await trio.lowlevel.checkpoint()
        if self._clock is None:
            name = type(self).__name__
            raise NotRunning(
                f"this {name} does not run: use it within `async with {name}(...)`, or start its `run` in a nursery"
            )

    def stop(self) -> None:
        """Make `run` return. Idempotent."""
        self._closed = True
        self._scope.cancel()

    async def _end_block(self, error: BaseException | None) -> None:
        """The block ended, by an error or not."""
        self.stop()

    async def __aenter__(self) -> Self:
        self._nursery_manager = trio.open_nursery()
        nursery = await self._nursery_manager.__aenter__()
        nursery.start_soon(self.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._nursery_manager is not None
        try:
            await self._end_block(error)
        finally:
            # Not told of `error`: it leaves as it is, not in a group.
            await self._nursery_manager.__aexit__(None, None, None)
