"""How the tasks of a client wake each other, without a task or a channel per message."""

from __future__ import annotations

from collections.abc import Callable

import trio


class News:
    """Something happened: whoever waits for it at that moment looks again."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def tell(self) -> None:
        self._event.set()
        self._event = trio.Event()

    async def wait_until(self, deadline: float) -> bool:
        """Wait for the next news. False: the deadline came first."""
        event = self._event
        with trio.move_on_at(deadline):
            await event.wait()
        return trio.current_time() < deadline


class Pump:
    """Calls a plain function, `step(now)`, when something changed and when the time that it returned has come. The
    timer, which is dear, only moves to an earlier time: so a step may come at a time that an earlier one returned."""

    def __init__(self) -> None:
        self._wanted = trio.Event()

    def wake(self) -> None:
        """Something changed. Many calls before the next step count as one."""
        self._wanted.set()

    async def run(self, step: Callable[[float], float]) -> None:
        """Until cancelled."""
        while True:
            with trio.CancelScope() as timer:
                while True:
                    next_time = step(trio.current_time())
                    if next_time < timer.deadline:
                        timer.deadline = next_time
                    await self._wanted.wait()
                    self._wanted = trio.Event()
            self._wanted = trio.Event()
