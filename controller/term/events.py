"""The controller's event queue: one event at a time, level-triggered ones coalesced.

A watch puts a `Trigger`, which says only what to look at; putting it again before it was handled changes nothing. It is
handled by setting the watch, then reading (safety.md 31). Answers of brokers and requests of clients are events too.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Awaitable, Callable

import trio


class Trigger(enum.Enum):
    """What to look at, in ZooKeeper or in the controller's own books."""

    CONTROLLER = "/controller"
    BROKERS = "/brokers/ids"
    TOPICS = "/brokers/topics"
    DELETE_TOPICS = "/admin/delete_topics"
    ISR_CHANGES = "/isr_change_notification"
    LOG_DIR_EVENTS = "/log_dir_event_notification"
    REASSIGN_PARTITIONS = "/admin/reassign_partitions"
    PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
    DELETION_PROGRESS = "deletion progress"
    OFFLINE_PARTITIONS = "offline partitions"
    UNREADABLE = "unreadable znodes"


Work = Callable[[], Awaitable[None]]
Event = Trigger | Work


class EventQueue:
    """Unbounded in form, bounded in fact: one entry per trigger, one answer in flight per broker, and the requests
    that the broker's own request channel let in."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._wake = trio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        """Never waits, never raises: for callbacks."""
        if isinstance(event, Trigger) and event in self._events:
            return
        self._events.append(event)
        self._wake.set()

    def put_first(self, event: Event) -> None:
        """What was begun and has to be begun again goes before what came after it."""
        if event not in self._events:
            self._events.appendleft(event)
            self._wake.set()

    async def get(self) -> Event:
        while not self._events:
            self._wake = trio.Event()
            await self._wake.wait()
        return self._events.popleft()
