"""Results that the event loop's thread sets, once, and that other threads wait for.

An `Outcome` is a `concurrent.futures.Future` that costs less, since there may be one per record: who is told of it is a
list that is made when somebody wants to be. Who only sends and flushes pays for an object and a flag.

It has no lock (the rule and its reason are in `alarms`). Who wants to be told enters the list and then looks whether it
is settled; who settles it says so and then goes through the list. So one of them sees the other, and since whoever
takes an entry out of the list is the one to tell it, each is told once.

`concurrent.futures.wait` and `as_completed` want more: they hold the condition of each future while they look at its
state and enter its list, so that the state cannot change in between. Here the state only seems to stand still, to the
thread that holds the condition.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from strandline.runtime.mistakes import call_back
from strandline.runtime.processes.alarms import Alarm, AlarmEvent

T = TypeVar("T")

_RUNNING, _FINISHED = "RUNNING", "FINISHED"
"""As `concurrent.futures` names them: what is under way cannot be cancelled."""

Listener = Callable[[Any], object]
"""Called with the outcome once it is settled; must not raise."""


class Outcome(Future[T]):
    """Set by `settle`. Usable wherever a `Future` is, `concurrent.futures.wait` and `as_completed` among them."""

    _is_settled = False
    _result: T | None = None
    _exception: BaseException | None = None
    _traceback: TracebackType | None = None
    """As it was when it came: many may share an error, and each `raise` would add to what the last one left."""
    _is_read = False
    """The program has asked for the outcome, or will be told."""
    _asking = 0
    """So many threads wait for the outcome, and will have asked for it once it is there."""
    _on_read: Callable[[], None] | None = None
    """Whom to tell that the program has asked."""
    _patience_s: float | None = None
    """How long who asks without a timeout waits; None: without limit."""
    _listeners: deque[Listener] | None = None
    _views: dict[int, bool] | None = None
    """Whether it seems to be settled, to each thread that holds the condition."""

    def __init__(self) -> None:
        """Not Future's own, which gives each a condition and two lists."""

    def done(self) -> bool:
        return self._is_settled

    def wait(self, timeout_s: float | None) -> bool:
        """True once it is set, False after the timeout."""
        if self.done():
            return True
        alarm = Alarm()
        self.listen(alarm.ring)
        try:
            alarm.wait(timeout_s, self.done)
        finally:
            self.forget(alarm.ring)
        return self.done()

    def result(self, timeout: float | None = None) -> T:
        """The value, or the error raised. TimeoutError where it is not there after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error.with_traceback(self._traceback)
        return self._result  # type: ignore[return-value]  # set together with the state

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, None where it went well. TimeoutError where that is not known after `timeout` seconds."""
        limit_s = self._patience_s if timeout is None else timeout
        if not self.done():
            self._asking += 1
            try:
                if not self.wait(limit_s):
                    raise self._too_late(limit_s)
                self._is_read = True  # before it is not asked for any more
            finally:
                self._asking -= 1
        self._note_read()
        return self._exception

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call `fn(self)` once it is set: in the event loop's thread, or at once where it is set already. An exception
        in it is warned of and ends nothing."""
        self._note_read()
        self.listen(partial(call_back, fn))

    def _note_read(self) -> None:
        self._is_read = True
        if self._on_read is not None:
            on_read, self._on_read = self._on_read, None
            on_read()

    def settle(self, value: T | None, error: BaseException | None = None) -> None:
        """Set it, and tell who waits."""
        if error is None:
            self._result = value
        else:
            self._exception, self._traceback = error, error.__traceback__
        self._is_settled = True
        if self._listeners:
            self.tell()

    def listen(self, listener: Listener) -> None:
        """Have it called once this is settled, at once where it is."""
        listeners = self._listeners
        if listeners is None:
            listeners = vars(self).setdefault("_listeners", deque())
        listeners.append(listener)
        if self.done():
            self.tell()

    def forget(self, listener: Listener) -> None:
        """Do not call it any more, if it was not called yet."""
        try:
            (self._listeners or deque()).remove(listener)
        except (ValueError, IndexError):  # it was called, or the list changed meanwhile: then it is called in vain
            return

    def tell(self) -> None:
        """It is settled: call whoever has not been called yet."""
        while listeners := self._listeners:
            try:
                listener = listeners.popleft()
            except IndexError:  # another thread was quicker
                return
            listener(self)

    def _too_late(self, timeout: float | None) -> Exception:
        return TimeoutError(f"no outcome within {timeout} s")

    # --- What `concurrent.futures` looks at ---

    @property
    def _state(self) -> str:  # type: ignore[override]
        views = self._views
        is_settled = views.get(threading.get_ident(), self._is_settled) if views else self._is_settled
        return _FINISHED if is_settled else _RUNNING

    @property
    def _condition(self) -> _StandingStill:  # type: ignore[override]
        return _StandingStill(self)

    @property
    def _waiters(self) -> _Waiters:  # type: ignore[override]
        return _Waiters(self)


class _StandingStill:
    """In place of an outcome's condition: to the thread that holds it the state does not change. Held by any number of
    threads; one that is interrupted and never lets go hinders nobody."""

    def __init__(self, outcome: Outcome[Any]) -> None:
        self._outcome = outcome

    def acquire(self) -> bool:
        views: dict[int, bool] = vars(self._outcome).setdefault("_views", {})
        views[threading.get_ident()] = self._outcome.done()
        return True

    def release(self) -> None:
        (self._outcome._views or {}).pop(threading.get_ident(), None)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Waiters:
    """In place of an outcome's list of who waits in `concurrent.futures`."""

    def __init__(self, outcome: Outcome[Any]) -> None:
        self._outcome = outcome

    def append(self, waiter: Any) -> None:
        """While the condition is held. Its event is replaced by one that the loop's thread can set."""
        if isinstance(waiter.event, threading.Event):
            waiter.event = AlarmEvent()
        if self._outcome._state == _RUNNING:  # otherwise it counts as finished already
            self._outcome.listen(_Waiter(waiter))

    def remove(self, waiter: Any) -> None:
        self._outcome.forget(_Waiter(waiter))


class _Waiter:
    """Tells one of them."""

    def __init__(self, waiter: Any) -> None:
        self._waiter = waiter

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Waiter) and self._waiter is other._waiter

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, outcome: Outcome[Any]) -> None:
        (self._waiter.add_result if outcome._exception is None else self._waiter.add_exception)(outcome)
