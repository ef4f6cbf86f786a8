"""Waiting for real processes, from a task: what blocks goes into a thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

import trio

PATIENCE_S = 120
"""Only what hangs, or fails, takes so long."""
LOOK_INTERVAL_S = 0.1

P = ParamSpec("P")
T = TypeVar("T")


async def off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it in a thread."""
    return await trio.to_thread.run_sync(partial(function, *args, **kwargs))


async def until(condition: Callable[[], bool], what: str) -> None:
    """Ask again and again, in a thread, until it holds. AssertionError naming `what` after PATIENCE_S."""
    with trio.move_on_after(PATIENCE_S):
        while not await off_loop(condition):
            await trio.sleep(LOOK_INTERVAL_S)
        return
    raise AssertionError(f"waited {PATIENCE_S} s for: {what}")
