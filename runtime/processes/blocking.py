"""Blocking work in production: threads of their own, few, so that fsyncs do not starve behind anything else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import trio

T = TypeVar("T")

DEFAULT_THREADS = 10
"""That of `background.threads`, for what runs before it is known."""
LANE_THREADS = 4
"""Of each lane, where there are as many at all."""


class ThreadBlocking:
    """`Blocking` by trio's worker threads, with a limit that is not shared with anybody.

    A call that has begun is waited for even when its task is cancelled: nobody may close a file under it.
    """

    def __init__(self, max_threads: int = DEFAULT_THREADS) -> None:
        self._limiter = trio.CapacityLimiter(max_threads)
        self._lane_threads = min(max_threads, LANE_THREADS)
        self._lanes: dict[str, trio.CapacityLimiter] = {}

    async def run(self, function: Callable[..., T], *args: object) -> T:
        return await trio.to_thread.run_sync(partial(function, *args), limiter=self._limiter, abandon_on_cancel=False)

    async def run_in(self, lane: str, function: Callable[..., T], *args: object, abandon: bool = False) -> T:
        limiter = self._lanes.get(lane)
        if limiter is None:
            limiter = self._lanes[lane] = trio.CapacityLimiter(self._lane_threads)
        return await trio.to_thread.run_sync(partial(function, *args), limiter=limiter, abandon_on_cancel=abandon)

    def set_threads(self, count: int) -> None:
        self._limiter.total_tokens = count
        self._lane_threads = min(count, LANE_THREADS)
        for limiter in self._lanes.values():
            limiter.total_tokens = self._lane_threads
