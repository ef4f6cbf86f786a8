"""As many tasks of one kind as the configuration says, which may change while they run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

CHECK_S = 10.0
"""How soon a larger number is noticed."""


async def keep_running(wanted: Callable[[], int], task: Callable[[int], Awaitable[None]]) -> None:
    """`task` gets its number, from 0 on, and returns by itself when `wanted` is not above it any more."""
    running: set[int] = set()

    async def run(number: int) -> None:
        await task(number)
        running.discard(number)

    async with trio.open_nursery() as nursery:
        while True:
            for number in range(wanted()):
                if number not in running:
                    running.add(number)
                    nursery.start_soon(run, number)
            await trio.sleep(CHECK_S)
