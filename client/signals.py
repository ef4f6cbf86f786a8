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
        self._is_wanted = True
        self._woken = trio.Event()
        self._timer = trio.CancelScope()
        self._step: Callable[[float], float] | None = None
        """While it runs."""
        self._failure: BaseException | None = None
        """Of a step that was taken outside of the task."""

    def wake(self) -> None:
        """Something changed. Many calls before the next step count as one."""
        self._is_wanted = True
        self._woken.set()

    def step_now(self) -> None:
        """As `wake`, without a switch of tasks; not within a step. What the step raises ends `run`."""
        if self._step is None:
            self.wake()
            return
        try:
            self._take_step(self._step)
        except BaseException as error:
            self._failure = error
            self.wake()

    async def run(self, step: Callable[[float], float]) -> None:
        """Until cancelled, or a step raises."""
        self._step = step
        try:
            while True:
                with trio.CancelScope() as self._timer:
                    while True:
                        if self._failure is not None:
                            raise self._failure
                        if self._is_wanted:
                            self._take_step(step)
                        await self._woken.wait()
                        self._woken = trio.Event()
                self._is_wanted = True  # its time has come
                self._woken = trio.Event()
        finally:
            self._step = None

    def _take_step(self, step: Callable[[float], float]) -> None:
        self._is_wanted = False
        next_time = step(trio.current_time())
        if next_time < self._timer.deadline:
            self._timer.deadline = next_time
