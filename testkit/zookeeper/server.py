"""An in-memory ZooKeeper for tests and simulation: one server, any number of clients, trio's clock, and faults.

`MemoryZooKeeper` behaves as clients of a real one see it through kazoo; one suite of tests runs against both:
* The server times the sessions. A client does not know that its session has expired until it reconnects; a connection
  that breaks makes it SUSPENDED, only an answer of the server makes it EXPIRED or CONNECTED.
* What was in flight when a connection breaks fails with ConnectionLost, applied or not (`drop_next_request`,
  `drop_next_reply` choose). One-shot watches are then gone, each callback having fired once with CONNECTION.
* Requests of a session are handled in order, and a watch event arrives before any read that shows the change.
* Ephemeral znodes outlive a crashed client until its session expires.

Everything happens by its agenda, in the order of (time, submission): the same calls give the same history.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from strandline.runtime.coordination import CoordinationError, Delete, WatchEvent
from strandline.runtime.zookeeper.paths import split_servers
from strandline.testkit.agenda import Agenda
from strandline.testkit.clock import common_time
from strandline.testkit.zookeeper.client import Link, MemoryCoordination, Request, WatchKind
from strandline.testkit.zookeeper.tree import Raised, ZnodeTree

OnWrite = Callable[[MemoryCoordination, Request, bool], bool]
"""Told of a write before it is carried out (False), and after that. Where it says no the connection breaks then."""

FIRST_SESSION_ID = 0x1000_0000_0000_0001
RECONNECT_DELAY_S = 0.05
NOTICE_SHARE = 2 / 3
"""kazoo gives a silent connection up after this share of the session timeout."""


class Reach(enum.Enum):
    """UP: messages flow. CUT: no connection can be made. SILENT: as CUT, and the client has not noticed yet; messages
    wait. HELD: as if the client's process were stopped: messages wait, nothing is noticed until it is released."""

    UP = "up"
    CUT = "cut"
    SILENT = "silent"
    HELD = "held"


@dataclass(slots=True)
class Session:
    session_id: int
    timeout_s: float
    link: Link | None = None
    timer: int = 0
    """Number of the expiry timer that counts; those before it are void."""


@dataclass(slots=True)
class ClientSide:
    """What the server object knows of one client: faults, and the view of the server that it is connected to."""

    reach: Reach = Reach.UP
    reach_changes: int = 0
    view: ZnodeTree | None = None
    """Of a lagging server; None when it is up to date."""
    withheld: list[tuple[WatchKind, Raised]] = field(default_factory=list)


class MemoryZooKeeper:
    """The server. `tree` may be read by tests at any time; change it through a client."""

    def __init__(self, *, latency_s: float | Callable[[], float] = 0.0) -> None:
        """latency_s: of a round trip; half of it each way; may be set at any time. A function is asked for each message
        (draw from a seeded stream)."""
        self.tree = ZnodeTree()
        self.up = True
        self.sessions: dict[int, Session] = {}
        self.latency_s = latency_s
        self._clients: dict[MemoryCoordination, ClientSide] = {}
        self._watching: dict[tuple[WatchKind, str], dict[Link, None]] = {}
        self._agenda = Agenda("in-memory ZooKeeper")
        self._next_session_id = FIRST_SESSION_ID
        self._drop_requests: deque[str] = deque()
        self._drop_replies: deque[str] = deque()
        self.on_write: OnWrite | None = None

    def client(
        self, *, chroot: str = "", session_timeout_ms: int = 6_000, connection_timeout_ms: int = 18_000
    ) -> MemoryCoordination:
        """A new client, not yet started (`await client.start()`)."""
        _, chroot = split_servers("memory:0" + chroot)
        client = MemoryCoordination(
            self, chroot=chroot, session_timeout_ms=session_timeout_ms, connection_timeout_ms=connection_timeout_ms
        )
        self._clients[client] = ClientSide()
        return client

    # -- faults

    def stop(self) -> None:
        """The server goes down: every connection breaks, sessions and znodes are kept, no session expires."""
        self.up = False
        for session in self.sessions.values():
            session.timer += 1
            if session.link is not None:
                self._break(session.link, abruptly=True)

    def start(self) -> None:
        """The server comes back: each session has its whole timeout again, clients reconnect."""
        self.up = True
        for session in self.sessions.values():
            self._arm_expiry(session)
        for client in self._clients:
            self.connect_soon(client)

    def cut(self, client: MemoryCoordination, *, noticed: bool = True) -> None:
        """No network between the client and the server. noticed: the connection breaks at once (a reset); else
        nothing arrives any more, and the client notices after two thirds of its session timeout. The session expires
        a timeout after this call."""
        self._set_reach(client, Reach.CUT if noticed else Reach.SILENT)
        link = client.link
        if link is None:
            return
        if noticed:
            self._break(link, abruptly=True)
            return
        self._arm_expiry_of(link)
        changes = self._clients[client].reach_changes

        def notice() -> None:
            side = self._clients.get(client)
            if side is not None and side.reach_changes == changes:
                side.reach = Reach.CUT
                link.open = False
                client.on_lost(link)

        self._agenda.at(common_time() + client.session_timeout_ms / 1000 * NOTICE_SHARE, notice)

    def hold(self, client: MemoryCoordination) -> None:
        """As if the client's process were stopped (SIGSTOP): its messages and answers wait, its session runs out, it
        notices nothing until `heal`."""
        self._set_reach(client, Reach.HELD)
        if client.link is not None:
            self._arm_expiry_of(client.link)

    def heal(self, client: MemoryCoordination) -> None:
        """End of `cut` or `hold`: what waited is delivered; a client without a connection reconnects; one whose process
        has ended does not."""
        if client not in self._clients:
            return
        self._set_reach(client, Reach.UP)
        link = client.link
        if link is None:
            self.connect_soon(client)
        else:
            if link.open:
                self.sessions[link.session_id].timer += 1
            for box in (link.to_server, link.to_client):
                for _ in range(box.owed):
                    self._agenda.at(common_time(), self._delivery(link, box is link.to_server))
                box.owed = 0

    def crash(self, client: MemoryCoordination) -> None:
        """The client's process ends at once: it never hears or says anything again. Its session lives until it expires,
        unless it was closed before."""
        if client not in self._clients:
            return
        link = client.link
        client.dead = True
        if link is not None:
            link.open = False
            self._arm_expiry_of(link)
        del self._clients[client]

    def expire(self, session_id: int) -> None:
        """End the session now: its ephemeral znodes vanish, its client learns of it when it reconnects."""
        session = self.sessions.pop(session_id)
        session.timer += 1
        if session.link is not None:
            self._break(session.link)
        ephemerals = self.tree.ephemerals_of(session_id)
        if ephemerals:
            self._raise(self.tree.apply([Delete(path) for path in ephemerals], session_id).raised)
        else:
            self.tree.next_zxid()

    def forget_session(self, client: MemoryCoordination) -> None:
        """The client gives its session up without ending it and comes back with another one: the old session's
        ephemeral znodes stay until it times out."""
        link = client.link
        if link is not None:
            link.open = False
            self._arm_expiry_of(link)
            client.on_lost(link)
        client.on_expired()

    def drop_next_request(self, path_prefix: str) -> None:
        """The next write to such a path breaks the connection before it is applied (paths include the chroot; of a
        transaction any of its paths, those of checks, too)."""
        self._drop_requests.append(path_prefix)

    def drop_next_reply(self, path_prefix: str) -> None:
        """The next write to such a path is applied, and the connection breaks before its answer."""
        self._drop_replies.append(path_prefix)

    def lag(self, client: MemoryCoordination) -> None:
        """The client's server stops following: reads show the znodes as they are now, watch events wait, until the
        client writes, calls sync or reconnects, or `catch_up` is called."""
        self._clients[client].view = self.tree.snapshot()

    def catch_up(self, client: MemoryCoordination) -> None:
        side = self._clients[client]
        side.view = None
        withheld, side.withheld = side.withheld, []
        for kind, raised in withheld:
            if client.link is not None:
                self._send_event(client.link, kind, raised)

    def _one_way_s(self) -> float:
        return (self.latency_s if isinstance(self.latency_s, int | float) else self.latency_s()) / 2

    # -- connections and sessions

    def connect_soon(self, client: MemoryCoordination, delay_s: float = RECONNECT_DELAY_S) -> None:
        """A client without a connection tries; when it cannot, the end of the fault makes it try again."""
        self._agenda.at(common_time() + delay_s + 2 * self._one_way_s(), lambda: self._connect(client))

    def _connect(self, client: MemoryCoordination) -> None:
        side = self._clients.get(client)
        if side is None or client.wants_no_connection or not self.up or side.reach is not Reach.UP:
            return
        session = self.sessions.get(client.session_id)
        if session is None and client.session_id:
            client.on_expired()
            self.connect_soon(client)
            return
        if session is None:
            session = Session(self._next_session_id, client.session_timeout_ms / 1000)
            self._next_session_id += 1
            self.tree.next_zxid()
            self.sessions[session.session_id] = session
        session.timer += 1
        session.link = Link(client, session.session_id)
        self.catch_up(client)
        client.on_connected(session.link)

    def _break(self, link: Link, *, abruptly: bool = False) -> None:
        """The server reads no more from it. What it answered before still arrives, then the client knows; abruptly: the
        client knows at once, if it can be reached."""
        if not link.open:
            return
        link.open = False
        self._arm_expiry_of(link)
        side = self._clients[link.client]
        if side.reach is Reach.UP:
            link.client.last_contact_s = common_time()
        if abruptly and side.reach in (Reach.UP, Reach.CUT):
            self._agenda.at(common_time(), lambda: link.client.on_lost(link))
        else:
            self._post(link, False, lambda: link.client.on_lost(link))

    def _set_reach(self, client: MemoryCoordination, reach: Reach) -> None:
        side = self._clients[client]
        if side.reach is Reach.UP:
            client.last_contact_s = common_time()
        side.reach = reach
        side.reach_changes += 1

    def is_reached(self, client: MemoryCoordination) -> bool:
        side = self._clients.get(client)
        return side is not None and side.reach is Reach.UP

    def _arm_expiry_of(self, link: Link) -> None:
        session = self.sessions.get(link.session_id)
        if session is not None and session.link is link and self.up:
            self._arm_expiry(session)

    def _arm_expiry(self, session: Session) -> None:
        session.timer += 1
        timer = session.timer

        def expire() -> None:
            if session.timer == timer and session.session_id in self.sessions:
                self.expire(session.session_id)

        self._agenda.at(common_time() + session.timeout_s, expire)

    # -- messages

    def send(self, link: Link, request: Request) -> None:
        """From the client."""
        self._post(link, True, lambda: self._receive(link, request))

    def _post(self, link: Link, to_server: bool, act: Callable[[], None]) -> None:
        (link.to_server if to_server else link.to_client).messages.append(act)
        self._agenda.at(common_time() + self._one_way_s(), self._delivery(link, to_server))

    def _delivery(self, link: Link, to_server: bool) -> Callable[[], None]:
        """Delivers the oldest message of that direction: whatever the latencies, the order stays."""

        def deliver() -> None:
            box = link.to_server if to_server else link.to_client
            side = self._clients.get(link.client)
            if side is None or link.client.link is not link or (to_server and not link.open):
                return
            if side.reach is not Reach.UP:
                box.owed += 1
            elif box.messages:
                box.messages.popleft()()

        return deliver

    def _receive(self, link: Link, request: Request) -> None:
        writes = request.write is not None
        if writes and self._breaks_at(link, request, self._drop_requests, is_done=False):
            return
        if writes or request.syncs:
            self.catch_up(link.client)
        try:
            result: Any = self._carry_out(link, request)
        except CoordinationError as error:
            result = error
        if writes and self._breaks_at(link, request, self._drop_replies, is_done=True):
            return
        self._post(link, False, lambda: link.client.on_reply(link, request, result))

    def _breaks_at(self, link: Link, request: Request, drops: deque[str], *, is_done: bool) -> bool:
        """Whether the connection breaks here; its client may have been killed, too."""
        breaks = _take(drops, request.paths or (request.path,))
        if self.on_write is not None and not self.on_write(link.client, request, is_done):
            breaks = True
        if breaks:
            self._break(link)
        return breaks

    def _carry_out(self, link: Link, request: Request) -> Any:
        """The result; an error is raised. A read watches from the state that was read; the events of a write go out
        before anything that shows it."""
        if request.closes:
            self.expire(link.session_id)
        if request.write is not None:
            applied = request.write(self.tree, link.session_id)
            self._raise(applied.raised)
            return applied.results
        if request.read is None:
            return None
        shown = self._clients[link.client].view or self.tree
        result = request.read(shown)
        if request.watch is not None:
            kind, _ = request.watch
            self._watching.setdefault((kind, request.path), {})[link] = None
            if shown is not self.tree:
                self._raise_what_was_missed(link, kind, request.path, shown)
        return result

    def _raise(self, raised: list[Raised]) -> None:
        for one in raised:
            kinds = {
                WatchEvent.CHILDREN: (WatchKind.CHILDREN,),
                WatchEvent.DELETED: (WatchKind.DATA, WatchKind.CHILDREN),
            }.get(one.event, (WatchKind.DATA,))
            for kind in kinds:
                for link in self._watching.pop((kind, one.path), {}):
                    self._send_event(link, kind, one)

    def _send_event(self, link: Link, kind: WatchKind, raised: Raised) -> None:
        side = self._clients.get(link.client)
        if side is None or not link.open:
            return
        if side.view is not None:
            side.withheld.append((kind, raised))
            return
        self._post(link, False, lambda: link.client.on_watch_event(link, kind, raised.path, raised.event))

    def _raise_what_was_missed(self, link: Link, kind: WatchKind, path: str, shown: ZnodeTree) -> None:
        before, now = shown.nodes.get(path), self.tree.nodes.get(path)
        event: WatchEvent | None = None
        if before is None or now is None or before.czxid != now.czxid:
            if before is not now:
                event = WatchEvent.CREATED if before is None else WatchEvent.DELETED
        elif kind is WatchKind.DATA and before.mzxid != now.mzxid:
            event = WatchEvent.CHANGED
        elif kind is WatchKind.CHILDREN and before.pzxid != now.pzxid:
            event = WatchEvent.CHILDREN
        if event is not None:
            self._watching[(kind, path)].pop(link, None)
            self._send_event(link, kind, Raised(path, event))


def _take(prefixes: deque[str], paths: tuple[str, ...]) -> bool:
    for prefix in prefixes:
        if any(path.startswith(prefix) for path in paths):
            prefixes.remove(prefix)
            return True
    return False
