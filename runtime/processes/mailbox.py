"""Mail from threads to one task of the event loop: in order, bounded, with one wake-up per burst.

Senders may be interrupted at any moment (see `alarms`), so nothing here is locked: an item is appended, which is
atomic, and then announced, unless somebody has done that. The loop takes the announcement back before it looks for
items. The size is only about right while several threads send at once, and right again whenever the box was emptied.

An item that comes alone, while nobody works on earlier ones, may be dealt with where it arrives: that spares a switch
of tasks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import trio

from strandline.runtime.processes.alarms import Alarm, ring_all
from strandline.runtime.processes.portal import ForkedPortal, Portal, PortalClosed

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Made in the loop, by the task that takes."""

    def __init__(self, portal: Portal, capacity: int, take_now: Callable[[T], bool] = lambda _: False) -> None:
        """`take_now` says whether it has dealt with the item, without waiting; it must not raise."""
        self._portal = portal
        self._capacity = capacity
        self._take_now = take_now
        self._items: deque[T] = deque()
        self._size = 0
        self._closed = False
        self._is_announced = False
        self._is_awaited = False
        """`take_all` waits: nothing was taken out that somebody still works on."""
        self._arrived = trio.Event()
        self._waiting: deque[Alarm] = deque()
        """Of those who wait for room."""

    def put(self, item: T, size: int, timeout_s: float) -> bool:
        """Append; an item of any size fits an empty mailbox. False: no room within the time. A callback that runs in
        the loop does not wait for room, which only the loop makes. PortalClosed, ForkedPortal."""
        if self._size + size > self._capacity and not (self._portal.is_current or self._has_room(size, timeout_s)):
            return False
        if self._portal.is_foreign:
            raise ForkedPortal("the process was forked")
        if bool(self._closed):  # mypy would take it for settled
            raise PortalClosed("the mailbox is closed")
        self._items.append(item)
        self._size += size
        if not self._is_announced:
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
                ring_all(self._waiting)
                return taken
            self._is_awaited = True
            try:
                await self._arrived.wait()
            finally:
                self._is_awaited = False
            self._arrived = trio.Event()

    def fits(self, size: int) -> bool:
        """There is room for so much, as far as anybody knows."""
        return not self._items or self._size + size <= self._capacity

    @property
    def is_empty(self) -> bool:
        return not self._items

    def close(self) -> list[T]:
        """No more items; what nobody took."""
        self._closed = True
        left = self._drain()
        ring_all(self._waiting)
        return left

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
            self._is_announced = True
            self._portal.post(self._on_arrival)
        except PortalClosed:
            self._is_announced = False
            if item is not None:
                self._take_back(item)
        except BaseException:  # an interrupt: whoever comes next announces both
            self._is_announced = False
            raise

    def _on_arrival(self) -> None:
        self._is_announced = False  # as in `take_all`
        if not (self._is_awaited and len(self._items) == 1 and self._deal_with_one()):
            self._arrived.set()

    def _deal_with_one(self) -> bool:
        """False: it is there as before."""
        taken = self._drain()
        if len(taken) == 1 and self._take_now(taken[0]):
            ring_all(self._waiting)
            return True
        self._items.extendleft(reversed(taken))  # a size that is too small is right again once it is taken
        return False

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

    def _has_room(self, size: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self._is_open_to(size):
            alarm = Alarm()
            self._waiting.append(alarm)
            try:
                self._announce()  # in any case: an interrupt at the wrong moment may have kept it from being done
                if not alarm.wait(deadline - time.monotonic(), lambda: self._is_open_to(size)):
                    return False
            finally:
                with suppress(ValueError):
                    self._waiting.remove(alarm)
        return True

    def _is_open_to(self, size: int) -> bool:
        return self._closed or self.fits(size)
