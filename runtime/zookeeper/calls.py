"""What the event loop keeps of kazoo's calls: waves that are awaited together, watches, and kazoo's errors as ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import trio
from kazoo import exceptions as kazoo_errors
from kazoo.protocol.states import EventType, WatchedEvent

from strandline.runtime.coordination import (
    BadVersion,
    ConnectionLost,
    CoordinationError,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    Watch,
    WatchEvent,
)
from strandline.runtime.recent_times import RecentTimes
from strandline.runtime.zookeeper.connection import Call

ERRORS: tuple[tuple[type[Exception], type[CoordinationError], str], ...] = (
    (kazoo_errors.NoNodeError, NoNode, "there is no such znode"),
    (kazoo_errors.NodeExistsError, NodeExists, "the znode exists already"),
    (kazoo_errors.BadVersionError, BadVersion, "the znode has another version"),
    (kazoo_errors.NotEmptyError, NotEmpty, "the znode has children"),
    (kazoo_errors.NoAuthError, NoAuth, "its access control list keeps this client out"),
    (kazoo_errors.ConnectionClosedError, ConnectionLost, "the connection to ZooKeeper is closed"),
    (kazoo_errors.SessionExpiredError, SessionExpired, "the session that issued it has expired"),
    (kazoo_errors.SessionMovedError, ConnectionLost, "the session moved to another server"),
    (kazoo_errors.ConnectionLoss, ConnectionLost, "the connection to ZooKeeper broke, a write may have been applied"),
    (kazoo_errors.OperationTimeoutError, ConnectionLost, "no answer in time, a write may have been applied"),
    (kazoo_errors.RequestTimeoutError, ConnectionLost, "no answer in time, a write may have been applied"),
)
"""Most specific first (ConnectionClosedError is a SessionExpiredError to kazoo)."""

WATCH_EVENTS = {
    EventType.CREATED: WatchEvent.CREATED,
    EventType.DELETED: WatchEvent.DELETED,
    EventType.CHANGED: WatchEvent.CHANGED,
    EventType.CHILD: WatchEvent.CHILDREN,
    EventType.NONE: WatchEvent.CONNECTION,
}


def typed_error(error: Exception, operation: str, path: str) -> CoordinationError:
    """The seam's error for one of kazoo's."""
    for kind, ours, reason in ERRORS:
        if isinstance(error, kind):
            return ours(f"{operation} {path}: {reason}")
    return CoordinationError(f"{operation} {path}: ZooKeeper refused it with {type(error).__name__} {error}".rstrip())


class WatchBridge:
    """What kazoo keeps and calls for one of our watches. Equal for equal callbacks: kazoo keeps them in sets, so one
    callback on one path fires once."""

    __slots__ = ("deliver", "watch")

    def __init__(self, deliver: Callable[[tuple[Watch, WatchEvent]], None], watch: Watch) -> None:
        self.deliver = deliver
        self.watch = watch

    def __call__(self, event: WatchedEvent) -> None:
        self.deliver((self.watch, WATCH_EVENTS[event.type]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WatchBridge) and other.watch == self.watch

    def __hash__(self) -> int:
        return hash(self.watch)


class Wave:
    """Calls that are awaited together; the next one is sent when one is answered."""

    def __init__(self, calls: Sequence[Call], submit: Callable[[Call], None], times: RecentTimes) -> None:
        """times: how long each took."""
        self._unsent = iter(calls)
        self._times = times
        self._remaining = len(calls)
        self._submit = submit
        self.done = trio.Event()

    def send_next(self) -> bool:
        call = next(self._unsent, None)
        if call is None:
            return False
        call.done = partial(self._answered, trio.current_time())
        self._submit(call)
        return True

    def _answered(self, sent_s: float, call: Call) -> None:
        self._times.record_s(trio.current_time() - sent_s)
        self._remaining -= 1
        if not self._remaining:
            self.done.set()
        elif not call.abandoned:
            self.send_next()
