"""What a term has to do: events one at a time, what is due later, what runs beside them, and who waits for what.

An event is a coroutine function without arguments. What a watch puts is a method that looks at something: it sets the
watch, reads, and acts by what it read (invariant 31). Putting it again before it was handled changes nothing, since
events that are equal are one. Answers of brokers and requests of clients are events, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, update_wrapper
from typing import TypeVar

import trio

from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.runtime.coordination import ConnectionLost, SessionExpired, Watch, WatchEvent
from strandline.runtime.recent_times import RecentTimes

RETRY_SECONDS = 1.0
"""Before what a broker refused, or what failed for a reason unknown, is tried again."""

MAX_PATIENCE_MS = 60_000
"""Who asks may say how long to wait, and each who waits holds a handler task of the broker: no longer than this."""

T = TypeVar("T")
Event = Callable[[], Awaitable[None]]


class ControllerFenced(Exception):
    """Another controller was elected: nothing was written, and this one has to resign."""


class NotController(BrokerError):
    """This broker is not controller, or ceased to be before the answer was known: the next controller goes on with
    what was begun."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER)


class Agenda:
    """One term's. Unbounded in form, bounded in fact: one entry per method that looks, one answer in flight per broker,
    and the requests that the broker's own request channel let in.

    `over`: why the term ended; None while it lasts. `nursery`: the term's, once it runs. `queue_times`: how long events
    waited for their turn."""

    def __init__(self, queue_times: RecentTimes | None = None) -> None:
        self.over: str | None = None
        self.nursery: trio.Nursery | None = None
        self._queue_times = queue_times or RecentTimes()
        self._events: dict[Event, float] = {}
        """Event → when it was put, in the order of their turns."""
        self._came = trio.Event()
        self._progress = trio.Event()
        self._watches: dict[Event, Watch] = {}

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        """Never waits, never raises: for callbacks."""
        if event not in self._events:
            self._events[event] = trio.current_time()
            self._came.set()

    def put_first(self, event: Event) -> None:
        """What was begun and has to be begun again goes before all others, also where it has been put again since:
        they would go by what is half done."""
        put_at = self._events.pop(event, trio.current_time())
        self._events = {event: put_at, **self._events}
        self._came.set()

    async def get(self) -> Event:
        while not self._events:
            self._came = trio.Event()
            await self._came.wait()
        event = next(iter(self._events))
        self._queue_times.record_s(trio.current_time() - self._events.pop(event))
        return event

    def watch(self, event: Event) -> Watch:
        """A watch that puts this event when it fires. The same one for equal events: what is looked at again before it
        changed is watched once, since equal watches of a znode are one."""
        return self._watches.setdefault(event, partial(self._seen, event))

    def _seen(self, event: Event, _: WatchEvent) -> None:
        self.put(event)

    def later(self, event: Event, seconds: float = RETRY_SECONDS) -> None:
        """Put an event in after a while."""

        async def put() -> None:
            await trio.sleep(seconds)
            self.put(event)

        self.start(put)

    def start(self, function: Event) -> None:
        """Run something beside the events, within the term."""
        assert self.nursery is not None
        self.nursery.start_soon(function)

    def end(self, why: str) -> None:
        """The term is over: whoever waits for it hears so."""
        self.over = why
        self.poke()
        if self.nursery is not None:
            self.nursery.cancel_scope.cancel()

    # --- Waiting for what events bring about -------------------------------------------------------------------

    async def in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something as one event and return its result, or raise what it raised. NotController."""
        results: list[T] = []
        failures: list[Exception] = []

        async def event() -> None:
            try:
                results.append(await work())
            except (ConnectionLost, ControllerFenced, SessionExpired):
                raise  # the term knows what to do: repeat the event, or end
            except Exception as error:
                failures.append(error)
            self.poke()

        update_wrapper(event, work)  # whose event it is
        self.put(event)
        await self._until(lambda: bool(results or failures) or self.over is not None)
        if failures:
            raise failures[0]
        if not results:
            raise NotController
        return results[0]

    async def within(self, timeout_ms: int, condition: Callable[[], bool]) -> bool:
        """Wait for a condition, at most so long. False: it did not come about. NotController."""
        with trio.move_on_after(patience_s(timeout_ms)):
            await self._until(lambda: self.over is not None or condition())
        if self.over is not None:
            raise NotController
        return condition()

    def poke(self) -> None:
        """Something may have changed that somebody waits for."""
        event, self._progress = self._progress, trio.Event()
        event.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._progress.wait()


def patience_s(timeout_ms: int) -> float:
    """How long somebody is kept waiting who gave a request this timeout; what was begun goes on after that."""
    return min(max(timeout_ms, 0), MAX_PATIENCE_MS) / 1000
