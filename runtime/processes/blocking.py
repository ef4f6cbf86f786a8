"""Blocking work in production: threads of their own, few, so that fsyncs do not starve behind anything else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import trio

T = TypeVar("T")

DEFAULT_THREADS = 8
LANE_THREADS = 4


class ThreadBlocking:
    """`Blocking` by trio's worker threads, with a limit that is not shared with anybody.

    A call that has begun is waited for even when its task is cancelled: nobody may close a file under it.
    """

    def __init__(self, max_threads: int = DEFAULT_THREADS) -> None:
        self._limiter = trio.CapacityLimiter(max_threads)
        self._lanes: dict[str, trio.CapacityLimiter] = {}

    async def run(self, function: Callable[..., T], *args: object) -> T:
        return await trio.to_thread.run_sync(partial(function, *args), limiter=self._limiter, abandon_on_cancel=False)

    async def run_in(self, lane: str, function: Callable[..., T], *args: object, abandon: bool = False) -> T:
        limiter = self._lanes.get(lane)
        if limiter is None:
            limiter = self._lanes[lane] = trio.CapacityLimiter(LANE_THREADS)
        return await trio.to_thread.run_sync(partial(function, *args), limiter=limiter, abandon_on_cancel=abandon)
