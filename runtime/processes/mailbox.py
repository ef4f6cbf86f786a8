"""Mail from threads to one task of the event loop: in order, bounded, with one wake-up per burst.

Senders may be interrupted at any moment (see `alarms`), so nothing here is locked: an item is appended, which is
atomic, and then announced, unless somebody has done that. The loop takes the announcement back before it looks for
items. Counts are only about right while several threads send at once, and right again whenever nothing is waiting.

It is bounded twice: by a number of items, and by bytes, which count from when they are put in until whoever took them
says that he does not hold them any more (`release`), together with what he holds elsewhere (`Budget`).

An item that comes alone, while nobody works on earlier ones, may be dealt with where it arrives: that spares a switch
of tasks.
"""

from __future__ import annotations

import _thread
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import trio

from strandline.runtime.processes.alarms import Alarm, ring_all
from strandline.runtime.processes.portal import ForkedPortal, Portal, PortalClosed

T = TypeVar("T")


class Budget(Protocol):
    """Bytes that the mailbox shares with others: `waiting_bytes` are its own, which it counts here."""

    used_bytes: int
    waiting_bytes: int


class Mailbox(Generic[T]):
    """Made in the loop, by the task that takes."""

    def __init__(
        self,
        portal: Portal,
        capacity: int,
        capacity_bytes: int,
        budget: Budget,
        *,
        take_now: Callable[[T], bool] = lambda _: False,
        waits_for_bytes: bool = True,
        on_full: Callable[[], object] = lambda: None,
    ) -> None:
        """`take_now` says in the loop whether it has dealt with the item, without waiting; it must not raise.
        `waits_for_bytes`: who puts something in waits also where bytes are used up. `on_full` is called in the loop
        when somebody begins to wait for them."""
        self._portal = portal
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._budget = budget
        self._take_now = take_now
        self._waits_for_bytes = waits_for_bytes
        self._on_full = on_full
        self._items: deque[T] = deque()
        self._size = 0
        self._closed = False
        self._is_announced = False
        self._is_awaited = False
        """`take_all` waits: nothing was taken out that somebody still works on."""
        self._announcer = 0
        """The thread that is about to announce: a signal handler that it runs meanwhile cannot rely on that."""
        self._arrived = trio.Event()
        self._waiting: deque[Alarm] = deque()
        """Of those who wait for room."""
        self._lacks_bytes = False
        """What one of them waits for is bytes."""
        self.held_bytes = 0
        """Of what was taken, and not released."""
        self._kept_bytes = 0
        """Of these, what is held for long: nobody's turn has to wait for it."""

    def put(self, item: T, size: int, size_bytes: int, timeout_s: float) -> bool:
        """Append what counts as `size` items of `size_bytes` together. False: no room within the time. A callback that
        runs in the loop does not wait for room, which only the loop makes. PortalClosed, ForkedPortal."""
        budget = self._budget
        is_full = (
            self._size >= self._capacity or budget.waiting_bytes + budget.used_bytes + size_bytes > self._capacity_bytes
        )
        if self._portal.is_foreign:  # first: what is full in a fork stays so
            raise ForkedPortal("the process was forked")
        if is_full and not (self._portal.is_current or self._has_room(size_bytes, timeout_s)):
            return False
        if bool(self._closed):  # mypy would take it for settled
            raise PortalClosed("the mailbox is closed")
        budget.waiting_bytes += size_bytes  # first: of what is in the mailbox nothing is left out
        self._items.append(item)
        self._size += size
        if not self._is_announced or (self._announcer and self._announcer == _thread.get_ident()):
            self._announce(item)
        if self._closed:  # meanwhile
            self._take_back(item)
        return True

    def put_here(self, item: T) -> None:
        """From within the loop: append, whatever room there is."""
        self._items.append(item)
        self._arrived.set()

    async def take_all(self) -> list[T]:
        """From within the loop: everything that is there, as soon as there is something."""
        while True:
            self._is_announced = False  # first: what comes from now on says so anew
            if taken := self._drain():
                self.held_bytes = self._budget.waiting_bytes
                self._ring_all()
                return taken
            self._count_anew()  # an interrupt may have left more
            self._is_awaited = True
            try:
                await self._arrived.wait()
            finally:
                self._is_awaited = False
            self._arrived = trio.Event()

    def release(self, size_bytes: int) -> None:
        """In the loop: what was taken is not held any more, or counts elsewhere by now."""
        self.held_bytes -= size_bytes
        self._budget.waiting_bytes -= size_bytes
        self.tell_of_bytes()

    def keep(self, size_bytes: int) -> None:
        """In the loop: of all that was taken no more than this is held any more, but that for long."""
        self._kept_bytes = size_bytes
        self.release(self.held_bytes - size_bytes)

    def release_kept(self, size_bytes: int) -> None:
        """As `release`, of what is held for long."""
        self._kept_bytes -= size_bytes
        self.release(size_bytes)

    def tell_of_bytes(self) -> None:
        """In the loop: there may be bytes for who waits for them."""
        if self._lacks_bytes:
            self._ring_all()

    @property
    def lacks_bytes(self) -> bool:
        """Somebody waits for bytes that others hold."""
        return self._lacks_bytes and bool(self._waiting)

    def fits(self, size_bytes: int) -> bool:
        """There is room for one more item, of so many bytes, as far as anybody knows."""
        return (not self._items or self._size < self._capacity) and self.has_bytes(size_bytes)

    def has_bytes(self, size_bytes: int) -> bool:
        """So many are left. What is larger than all that there may be has its turn where nothing else is waiting but
        what is held for long."""
        budget = self._budget
        waiting, held = budget.waiting_bytes, budget.waiting_bytes + budget.used_bytes
        if held + size_bytes <= self._capacity_bytes or not held:
            return True
        return size_bytes > self._capacity_bytes and waiting <= self._kept_bytes and held < self._capacity_bytes

    def is_hopeless(self, size_bytes: int) -> bool:
        """Bytes are used up, and nobody is to wait for them."""
        return not (self._waits_for_bytes or self.has_bytes(size_bytes))

    @property
    def is_empty(self) -> bool:
        return not self._items

    def close(self) -> list[T]:
        """No more items; what nobody took."""
        self._closed = True
        left = self._drain()
        self._ring_all()
        return left

    def _ring_all(self) -> None:
        self._lacks_bytes = False  # first: who still does says so anew
        ring_all(self._waiting)

    def _drain(self) -> list[T]:
        """Who sends may take the last ones back at the same time, when the mailbox is closed."""
        self._size = 0
        take = self._items.popleft
        taken: list[T] = []
        with suppress(IndexError):
            for _ in range(len(self._items)):
                taken.append(take())
        return taken

    def _announce(self, item: T | None = None) -> None:
        """PortalClosed, ForkedPortal: the item is not in the mailbox any more."""
        try:
            self._announcer = _thread.get_ident()
            self._is_announced = True
            self._portal.post(self._on_arrival)
            self._announcer = 0
        except PortalClosed:
            self._is_announced = False
            if item is not None:
                self._take_back(item)
        except BaseException:  # an interrupt: another thread may have relied on it meanwhile
            self._is_announced = False
            with suppress(PortalClosed, ForkedPortal):
                self._portal.post(self._on_arrival)
            raise

    def _on_arrival(self) -> None:
        self._is_announced = False  # as in `take_all`
        if not (self._is_awaited and len(self._items) == 1 and self._deal_with_one()):
            self._arrived.set()
        if self.lacks_bytes:
            self._on_full()

    def _deal_with_one(self) -> bool:
        """False: it is there as before."""
        taken = self._drain()
        if len(taken) == 1 and self._take_now(taken[0]):
            self._count_anew()
            self._ring_all()
            return True
        self._items.extendleft(reversed(taken))  # a size that is too small is right again once it is taken
        return False

    def _count_anew(self) -> None:
        """What is held is all that counts, if nothing else has come."""
        if not self._items:
            self._budget.waiting_bytes = self.held_bytes
            self.tell_of_bytes()

    def _take_back(self, item: T) -> None:
        """PortalClosed where it is still there. Otherwise whoever closed the mailbox has it."""
        while True:
            try:
                self._items.remove(item)
            except ValueError:
                return
            except IndexError:  # another thread changed the items meanwhile
                continue
            raise PortalClosed("the mailbox is closed")

    def _has_room(self, size_bytes: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self._is_open_to(size_bytes):
            if self.is_hopeless(size_bytes):
                return False
            alarm = Alarm()
            self._waiting.append(alarm)
            if not self.has_bytes(size_bytes):
                self._lacks_bytes = True  # last: who takes it back rings all that wait
            try:
                self._announce()  # in any case: an interrupt at the wrong moment may have kept it from being done
                if not alarm.wait(deadline - time.monotonic(), lambda: self._is_open_to(size_bytes)):
                    return False
            finally:
                with suppress(ValueError):
                    self._waiting.remove(alarm)
        return True

    def _is_open_to(self, size_bytes: int) -> bool:
        return self._closed or self.fits(size_bytes)
