"""When those who wait must be answered at the latest: one heap, which costs nothing for who does not wait.

There is no task and no timer per operation. What is entered here is either one operation, or a queue of many
with the earliest of their deadlines: an entry per produce request would cost more than the request's answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

import trio

from strandline.runtime.beats import next_beat

CHECK_INTERVAL_S = 0.1
"""How late an overdue answer may be: one coarse timer for all of them."""
NEVER = math.inf
SPARE_ENTRIES = 64


class Timed(Protocol):
    """What ends by its deadline if nothing else ended it before."""

    due_at: float
    """When it is looked at, by trio's clock; kept by `Deadlines`, NEVER to begin with."""

    def expire(self, now: float) -> float:
        """End what is overdue. Returns when the next is (NEVER: nothing waits any more)."""


class Deadlines:
    """See the module."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timed]] = []
        """(when, a number that makes entries comparable, whose). Void unless its owner's `due_at` is that time."""
        self.looked_at = NEVER
        """The time of the last look; NEVER before the first."""
        self._numbers = count()
        self._entered = 0

    def __len__(self) -> int:
        """How many are entered."""
        return self._entered

    def waiting(self) -> Iterator[Timed]:
        """Who is entered, each once, for figures. Others may run between two of them: each is as of its turn."""
        seen: set[tuple[float, int]] = set()
        for at, _, timed in list(self._heap):
            if timed.due_at == at and (at, id(timed)) not in seen:
                seen.add((at, id(timed)))
                yield timed

    def enter(self, timed: Timed, at: float) -> None:
        """Look at it then, and not at the time that was entered before."""
        self._entered += timed.due_at == NEVER
        timed.due_at = at
        heappush(self._heap, (at, next(self._numbers), timed))

    def leave(self, timed: Timed) -> None:
        """It ended by itself."""
        if timed.due_at == NEVER:
            return
        timed.due_at = NEVER
        self._entered -= 1
        if len(self._heap) > 2 * self._entered + SPARE_ENTRIES:  # else who ended long ago would be kept in memory
            self._heap = [entry for entry in self._heap if entry[0] == entry[2].due_at]
            heapify(self._heap)

    def expire(self, now: float) -> None:
        """End what is overdue. Each is looked at once: who wants to be again at this time is with the next call."""
        self.looked_at = now
        overdue: dict[int, Timed] = {}
        while self._heap and self._heap[0][0] <= now:
            at, _, timed = heappop(self._heap)
            if timed.due_at == at:
                overdue[id(timed)] = timed
        for timed in overdue.values():
            if timed.due_at <= now:  # else another one's end has moved it
                self.leave(timed)
                next_at = timed.expire(now)
                if next_at != NEVER:
                    self.enter(timed, next_at)

    async def run(self, end_burst: Callable[[], None]) -> None:
        """The timer. It also ends the burst of whoever changed a partition outside of any, such as a disk that failed
        in the background."""
        while True:
            await next_beat(CHECK_INTERVAL_S)
            self.expire(trio.current_time())
            end_burst()
