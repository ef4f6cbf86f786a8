"""Questions that block, each asked by a thread of its own: the others are heard though one answers late."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import trio

from strandline.runtime.exception_groups import first_cause

K = TypeVar("K")
T = TypeVar("T")


def at_once(ask: Callable[[K], T], whom: Iterable[K]) -> dict[K, T]:
    """What each of them answers, in their order. What `ask` raises ends it all; after that, and after Ctrl-C, nobody
    waits for the threads that are still busy."""
    answers: dict[K, T] = {}
    order = list(whom)
    limiter = trio.CapacityLimiter(max(1, len(order)))

    async def one(asked: K) -> None:
        answers[asked] = await trio.to_thread.run_sync(ask, asked, abandon_on_cancel=True, limiter=limiter)

    async def each() -> None:
        async with trio.open_nursery() as nursery:
            for asked in order:
                nursery.start_soon(one, asked)

    try:
        trio.run(each)
    except BaseExceptionGroup as group:
        raise first_cause(group) from None
    return {asked: answers[asked] for asked in order}
