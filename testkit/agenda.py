"""What happens by itself at its time: deliveries of a network, answers of a server, the end of a session.

It needs no nursery and no task of whoever owns it. The clock of a simulation has its entries among its own; with any
other clock a system task of trio wakes up when the next one is due. Entries of one time come in the order in which they
were made, so the same calls give the same history.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import trio

from strandline.testkit.clock import SimulationClock, common_time


class Agenda:
    """Of one part of a simulated world, within one run of trio."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._entries: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0
        self._wait: trio.CancelScope | None = None
        self._runs = False

    def at(self, time_s: float, act: Callable[[], None]) -> None:
        """Call `act`, which does not wait, once trio's clock shows that time; soon, where that is over."""
        clock = trio.lowlevel.current_clock()
        if isinstance(clock, SimulationClock):
            clock.call_at(time_s, act)
            return
        self._made += 1
        heapq.heappush(self._entries, (time_s, self._made, act))
        if self._wait is not None:
            self._wait.deadline = self._entries[0][0]
        elif not self._runs:
            self._runs = True
            trio.lowlevel.spawn_system_task(self._run, name=self._name)

    async def _run(self) -> None:
        entries = self._entries
        while True:
            while entries and entries[0][0] <= common_time():
                heapq.heappop(entries)[2]()
            with trio.CancelScope(deadline=entries[0][0] if entries else math.inf) as self._wait:
                await trio.sleep_forever()
            self._wait = None
