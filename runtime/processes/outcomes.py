"""Results that the event loop's thread sets, once, and that other threads wait for.

An `Outcome` is a `concurrent.futures.Future` that costs less, since there may be one per record: its condition and the
lists of who waits are made when somebody does. Who only sends and flushes pays for an object and a flag.

A condition of its own it must have: `concurrent.futures` takes those of several futures in the order of their ids, and
one that stood in that order twice would be waited for by threads that hold each other's.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, ClassVar, TypeVar

from strandline.runtime.mistakes import call_back

T = TypeVar("T")

SLICE_S = 0.5
"""A thread that waits looks for signals so often. One that arrives in the instant before it blocks, or that the system
hands to another thread, does not wake it: Ctrl-C would count only when the wait is over."""

_RUNNING, _FINISHED = "RUNNING", "FINISHED"
"""As `concurrent.futures` names them: what is under way cannot be cancelled."""


class Outcome(Future[T]):
    """Set by `settle`. Usable wherever a `Future` is, `concurrent.futures.wait` and `as_completed` among them."""

    _lock: ClassVar[threading.RLock] = threading.RLock()
    """Shared: decides whether somebody waits before it is set. Whoever holds it takes no other lock."""
    _state = _RUNNING
    _result: T | None = None
    _exception: BaseException | None = None
    _traceback: TracebackType | None = None
    """As it was when it came: many may share an error, and each `raise` would add to what the last one left."""
    _made_condition: threading.Condition | None = None
    _waiters: list[Any]
    _done_callbacks: list[Callable[[Future[T]], object]]

    def __init__(self) -> None:
        """Not Future's own, which gives each a condition and two lists."""

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """Whoever looks at the state and begins to wait holds it. Made at the first use, with the lists of who waits;
        each by `setdefault`, since a signal's handler may do so in between."""
        with Outcome._lock:
            condition = self._made_condition
            if condition is None:
                own = vars(self)
                own.setdefault("_waiters", [])
                own.setdefault("_done_callbacks", [])
                condition = own.setdefault("_made_condition", threading.Condition())
            return condition

    def done(self) -> bool:
        return self._state == _FINISHED

    def wait(self, timeout_s: float | None) -> bool:
        """True once it is set, False after the timeout."""
        if self.done():
            return True
        alarm = _Alarm()
        with self._condition:
            if self.done():
                return True
            self._waiters.append(alarm)
        in_slices(alarm.event.wait, timeout_s)
        with self._condition:
            self._waiters.remove(alarm)
        return self.done()

    def result(self, timeout: float | None = None) -> T:
        """The value, or the error raised. TimeoutError where it is not there after `timeout` seconds."""
        error = self._exception if self.done() else self.exception(timeout)
        if error is not None:
            raise error.with_traceback(self._traceback)
        return self._result  # type: ignore[return-value]  # set together with the state

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, None where it went well. TimeoutError where that is not known after `timeout` seconds."""
        if not (self.done() or self.wait(timeout)):
            raise self._too_late(timeout)
        return self._exception

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call `fn(self)` once it is set: in the event loop's thread, or at once where it is set already. An exception
        in it is warned of and ends nothing."""
        if not self.done():
            with self._condition:
                if not self.done():
                    self._done_callbacks.append(fn)
                    return
        call_back(fn, self)

    def settle(self, value: T | None, error: BaseException | None = None) -> None:
        """Set it, and tell who waits."""
        if error is None:
            self._result = value
        else:
            self._exception, self._traceback = error, error.__traceback__
        with Outcome._lock:
            condition = self._made_condition
            if condition is None:
                self._state = _FINISHED
                return
        with condition:
            self._state = _FINISHED
            for waiter in self._waiters:
                (waiter.add_result if error is None else waiter.add_exception)(self)
        for fn in self._done_callbacks:
            call_back(fn, self)

    def _too_late(self, timeout: float | None) -> Exception:
        return TimeoutError(f"no outcome within {timeout} s")


class _Alarm:
    """One thread that waits for one outcome, as `concurrent.futures` tells it."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def add_result(self, _: object) -> None:
        self.event.set()

    add_exception = add_result


def in_slices(wait: Callable[[float], bool], timeout_s: float | None) -> None:
    """As `wait(timeout_s)`, by shorter waits (`SLICE_S`); None waits without limit."""
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while not wait(max(0.0, min(SLICE_S, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return


def _after_fork_in_child() -> None:
    """The lock may be held by a thread that does not exist here."""
    Outcome._lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)
