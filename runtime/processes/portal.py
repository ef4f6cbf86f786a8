"""From threads into trio: one background thread per process that runs an event loop for synchronous clients.

Rules: a thread hands over work, never state; every wait of a thread has a deadline and ends at once on Ctrl-C, which
cancels what it waited for; nothing here crosses a fork: a child process must make its own. Threads enter the loop only
by `run_sync_soon` of functions that cannot fail. The thread is a daemon; at interpreter exit `at_exit` functions run
while the loop still does. What the two threads share has no lock that an interrupt could leave held (see `alarms`).
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar, TypeVar

import trio

from strandline.runtime.exception_groups import first_cause
from strandline.runtime.processes.alarms import LOOP_THREADS, refuse_in_loop
from strandline.runtime.processes.outcomes import Outcome

T = TypeVar("T")

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


class PortalClosed(Exception):
    """The event loop's thread has ended."""


class ForkedPortal(Exception):
    """The process forked after the portal was made: its thread exists in the parent only."""


class CallTimedOut(Exception):
    """The event loop did not finish a call in time; the call was cancelled."""


class Crossing(Outcome[T]):
    """One call on its way through the loop, and what becomes of it."""

    def __init__(self, portal: Portal, function: Callable[[], Awaitable[T]]) -> None:
        self._portal = portal
        self._scope = trio.CancelScope()
        self._function = function

    def cancel(self) -> bool:
        """End it in the loop, soon. False: it may have been carried out, or fail otherwise, before that."""
        try:
            self._portal.post(self._scope.cancel)
        except (PortalClosed, ForkedPortal):
            pass
        return False

    async def run(self) -> None:
        """In the loop."""
        try:
            with self._scope:
                self.settle(await self._function())
        except Exception as error:
            self.settle(None, error)
        except (trio.Cancelled, BaseExceptionGroup):  # a group may hold such a one
            raise
        except BaseException as error:  # of a program's callback, and for its thread: here it would end all clients
            self.settle(None, error)
        finally:
            if not self.done():
                self.settle(None, PortalClosed("the call was cancelled"))


class Portal:
    """The loop and its thread; shared by all synchronous clients of a process (`acquire` and `release`)."""

    _shared: ClassVar[Portal | None] = None
    shared_lock: ClassVar[threading.Lock] = threading.Lock()
    """Whoever comes or goes takes it, and holds it for no longer than that takes."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        """What ended the loop before it was stopped."""
        self._users: set[int] = set()
        self.is_foreign = False
        """This process is a fork of the one whose thread it is."""
        self._ready: Outcome[None] = Outcome()
        self._stop = trio.Event()
        self._thread = threading.Thread(target=self._run, name="strandline-client", daemon=True)
        _portals.add(self)
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise PortalClosed(f"the event loop did not start within {START_TIMEOUT_S:g} s")
        self._ready.result()

    @classmethod
    def acquire(cls, user: object = None) -> Portal:
        """The process's portal, started if need be; give it back by `release`, for the same user."""
        with cls.shared_lock:
            if cls._shared is None or not cls._shared._thread.is_alive():
                cls._shared = Portal()
            cls._shared._users.add(id(user))
            return cls._shared

    def release(self, user: object = None) -> None:
        """The last one to go stops the thread. Idempotent: whoever was interrupted in it does it again."""
        if self.is_foreign:
            return
        with Portal.shared_lock:
            self._users.discard(id(user))
            if self._users:
                return
            if Portal._shared is self:
                Portal._shared = None
        self.stop()

    @property
    def is_current(self) -> bool:
        """This thread is the loop's own."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, timeout_s: float) -> T:
        """Await `function(*args)` in the loop; its result or its exception.

        CallTimedOut after `timeout_s`, PortalClosed, ForkedPortal; KeyboardInterrupt cancels the call.
        WouldBlockTheLoop, and nothing is called, where a callback asks that runs in the loop.
        """
        refuse_in_loop()
        call: Crossing[T] = Crossing(self, partial(function, *args))
        try:
            # Within: an interrupt right behind it would leave a call that nobody waits for and nobody cancels.
            self.begin(call)
            finished = call.wait(timeout_s)
        except BaseException:
            call.cancel()
            raise
        if not finished:
            call.cancel()
            raise CallTimedOut(f"no result within {timeout_s:g} s")
        return call.result()

    def begin(self, call: Crossing[Any]) -> None:
        """Have it run in the loop, soon. PortalClosed, ForkedPortal."""
        self.post(self._start, call)

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Run a function that cannot fail in the loop, soon. PortalClosed, ForkedPortal."""
        if self.is_foreign:
            raise ForkedPortal("the process was forked")
        try:
            self._token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            raise PortalClosed("the event loop has ended") from None

    def spawn(self, function: Callable[[], Awaitable[object]]) -> None:
        """From within the loop: a task that lives as long as the loop or until it ends; it must not raise."""
        self._nursery.start_soon(function)

    def stop(self) -> None:
        """Cancel everything and wait for the thread, but not for ever."""
        try:
            self.post(self._stop.set)
        except (PortalClosed, ForkedPortal):
            return
        if not self.is_current:
            self._thread.join(STOP_TIMEOUT_S)

    def _start(self, call: Crossing[Any]) -> None:
        if self._stop.is_set():
            call.settle(None, PortalClosed("the event loop is stopping"))
        else:
            self._nursery.start_soon(call.run)

    def _run(self) -> None:
        LOOP_THREADS.add(threading.get_ident())
        try:
            trio.run(self._main)
        except* BaseException as failures:
            self.failure = first_cause(failures)
            if not self._ready.done():
                self._ready.settle(None, self.failure)
            raise
        finally:
            LOOP_THREADS.discard(threading.get_ident())

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._ready.settle(None)
                await self._stop.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._stop.set()  # also where a failure ended it: calls that come last are refused


_portals: weakref.WeakSet[Portal] = weakref.WeakSet()
_at_exit: weakref.WeakSet[Any] = weakref.WeakSet()


def close_at_exit(client: Any) -> None:
    """Call `client._close_at_exit()` when the interpreter ends, if the client is still there."""
    _at_exit.add(client)


@atexit.register
def _close_all() -> None:
    for client in list(_at_exit):
        client._close_at_exit()
    portal = Portal._shared
    if portal is not None and not portal.is_foreign:
        portal.stop()


def _after_fork_in_child() -> None:
    """The parent's thread does not exist here, and its locks may be held by it for ever."""
    for portal in _portals:
        portal.is_foreign = True
    _portals.clear()
    LOOP_THREADS.clear()
    Portal._shared = None
    Portal.shared_lock = threading.Lock()
    _at_exit.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
