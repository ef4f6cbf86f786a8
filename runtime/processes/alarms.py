"""How a thread that may be interrupted waits for the event loop's thread.

Rule: such a thread shares with the loop's thread nothing but atomic operations (`deque.append` and `popleft`, stores of
attributes) and locks of the C library, which the waiting thread takes and the loop's thread only releases. Never a
`threading.Condition` or `Event`: those are Python code, and an interrupt in the middle of it leaves a lock held for
which the loop's thread, and with it every client of the process, would wait for ever.
"""

from __future__ import annotations

import _thread
import math
import time
from collections import deque
from collections.abc import Callable

SLICE_S = 0.5
"""A thread that waits looks for signals so often. One that arrives in the instant before it blocks, or that the system
hands to another thread, does not wake it: Ctrl-C would count only when the wait is over."""


LOOP_THREADS: set[int] = set()
"""The threads that run event loops: where one of them waited, nobody would be left to end the wait."""


class WouldBlockTheLoop(RuntimeError):
    """A callback of the program's waits in the event loop's thread."""


def refuse_in_loop() -> None:
    """WouldBlockTheLoop in the thread of an event loop."""
    if _thread.get_ident() in LOOP_THREADS:
        raise WouldBlockTheLoop(
            "a callback runs in the event loop's thread, which all clients share, and must not wait for a client "
            "there: send without waiting for the outcome, or have another thread wait"
        )


class Alarm:
    """Wakes one thread, once."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def ring(self, _: object = None) -> None:
        """From any thread; never blocks."""
        try:
            self._lock.release()
        except RuntimeError:  # it rang before
            return

    def wait(self, timeout_s: float | None, is_over: Callable[[], bool]) -> bool:
        """Until it rings or `is_over()`; None waits without limit. False after the timeout. WouldBlockTheLoop."""
        if (timeout_s is None or timeout_s > 0) and not is_over():
            refuse_in_loop()
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not is_over():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            if self._lock.acquire(timeout=min(SLICE_S, left_s)):
                return True
        return True


class AlarmEvent:
    """What stands in for a `threading.Event`: the same methods, and whoever sets it never waits for who waits."""

    def __init__(self) -> None:
        self._is_set = False
        self._alarms: deque[Alarm] = deque()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Wake who waits."""
        self._is_set = True
        ring_all(self._alarms)

    def clear(self) -> None:
        """Who waits from now on waits for the next `set`."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """True once it is set, False after `timeout` seconds."""
        alarm = Alarm()
        self._alarms.append(alarm)
        alarm.wait(timeout, self.is_set)
        return self._is_set


def ring_all(alarms: deque[Alarm]) -> None:
    """Ring and forget each."""
    while alarms:
        try:
            alarm = alarms.popleft()
        except IndexError:  # another thread was quicker
            return
        alarm.ring()
