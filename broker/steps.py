"""Long work in steps: others run in between, so that one step of the event loop is bounded by a count."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar, cast

import trio

PARTITIONS_PER_STEP = 200
"""So many are seen to between two turns of others; a request may be about 10,000."""


T = TypeVar("T")


def in_pieces(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Of one step each; one that is empty where there are none."""
    for start in range(0, max(len(items), 1), PARTITIONS_PER_STEP):
        yield items[start : start + PARTITIONS_PER_STEP]


Steps = Generator[None, None, T]
"""Work that yields after each of its steps, where others may run, and returns a T."""


async def in_turns(work: Steps[T]) -> T:
    """Do it, and let others run."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast(T, end.value)
        await trio.lowlevel.checkpoint()


class InSteps:
    """What a handler leaves to be done that waits for nobody. `work` yields how many partitions it has seen to since it
    yielded last, and answers by itself. `end_burst` ends each step of what changes partitions."""

    def __init__(self, work: Iterator[int], end_burst: Callable[[], None] = lambda: None) -> None:
        self._work = work
        self._end_burst = end_burst

    async def __call__(self) -> None:
        seen = 0
        for count in self._work:
            seen += count
            if seen >= PARTITIONS_PER_STEP:
                seen = 0
                self._end_burst()
                await trio.lowlevel.checkpoint()
        self._end_burst()


def at_once_or_in_steps(
    work: Iterator[int], partitions: int, end_burst: Callable[[], None] = lambda: None
) -> InSteps | None:
    """Have work done that is about so many partitions: here and now, or by what is returned where they are many."""
    if partitions > PARTITIONS_PER_STEP:
        return InSteps(work, end_burst)
    for _ in work:
        pass
    return None
