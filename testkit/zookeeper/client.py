"""A client of the in-memory ZooKeeper: `Coordination`, with kazoo's manners (see `zookeeper`).

What is asked while there is no connection waits for the next one; what was in flight when one breaks fails. An
operation belongs to the session that issued it and is never carried out in another.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import trio

from strandline.runtime.coordination import (
    MATCH_ANY_VERSION,
    Check,
    ConnectionLost,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    OperationResult,
    SessionExpired,
    SessionState,
    SetData,
    Watch,
    WatchEvent,
    Znode,
    ZnodeStat,
    all_shown,
)
from strandline.runtime.recent_times import RecentTimes
from strandline.runtime.zookeeper.paths import (
    ancestors,
    check_path,
    check_request_size,
    with_chroot,
    without_chroot,
)
from strandline.runtime.zookeeper.writes import PreparedWrites
from strandline.testkit.clock import common_time
from strandline.testkit.zookeeper.tree import Applied, ZnodeTree

READ_CHUNK = 100
CLOSE_GRACE_S = 2.0
REQUEST_OVERHEAD_BYTES = 60


class WatchKind(enum.Enum):
    DATA = "data"
    CHILDREN = "children"


@dataclass(eq=False, slots=True)
class Request:
    """One request: `read` what the client's server shows, or `write` for its session; the server carries it out, and
    its error is the result. `watch`: set when the reply arrives, where there is something to watch. `path`: the first
    one, `paths`: all of a transaction's."""

    name: str
    path: str
    read: Callable[[ZnodeTree], Any] | None = None
    write: Callable[[ZnodeTree, int], Applied] | None = None
    syncs: bool = False
    closes: bool = False
    watch: tuple[WatchKind, Watch] | None = None
    paths: tuple[str, ...] = ()
    session_id: int = 0
    result: Any = None
    abandoned: bool = False
    done: Callable[[], None] = lambda: None

    def finish(self, result: Any) -> None:
        self.result = result
        self.done()


@dataclass(slots=True)
class Box:
    """Messages under way in one direction; owed: deliveries that fell due while the client was out of reach."""

    messages: deque[Callable[[], None]] = field(default_factory=deque)
    owed: int = 0


class Link:
    """One connection between a client and the server, and the client's watches, which live as long as it does."""

    def __init__(self, client: MemoryCoordination, session_id: int) -> None:
        self.client = client
        self.session_id = session_id
        self.open = True
        self.to_server = Box()
        self.to_client = Box()
        self.pending: deque[Request] = deque()
        self.watches: dict[tuple[WatchKind, str], dict[Watch, None]] = {}


class Server(Protocol):
    """What a client asks of its server."""

    def connect_soon(self, client: MemoryCoordination, delay_s: float = ...) -> None: ...
    def is_reached(self, client: MemoryCoordination) -> bool: ...
    def send(self, link: Link, request: Request) -> None: ...


class MemoryCoordination(PreparedWrites[Request]):
    """`Coordination` for tests; made by `MemoryZooKeeper.client`."""

    def __init__(self, server: Server, *, chroot: str, session_timeout_ms: int, connection_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.link: Link | None = None
        self.dead = False
        self.last_contact_s = common_time()
        self._server = server
        self._chroot = chroot
        self._connection_timeout_ms = connection_timeout_ms
        self._session_id = 0
        self._state = SessionState.SUSPENDED
        self._closed = False
        self._connected = trio.Event()
        self._listeners: list[Callable[[SessionState], None]] = []
        self._waiting: deque[Request] = deque()
        self.request_times = RecentTimes()

    # -- the session

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def wants_no_connection(self) -> bool:
        return self._closed or self.dead or self.link is not None

    def seconds_since_contact(self) -> float:
        if self.link is not None and self.link.open and self._server.is_reached(self):
            return 0.0
        return common_time() - self.last_contact_s

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def start(self) -> None:
        self._server.connect_soon(self, delay_s=0.0)
        try:
            with trio.move_on_after(self._connection_timeout_ms / 1000):
                await self._connected.wait()
                await self._create_chroot()
                return
        except BaseException:
            await self.close()
            raise
        await self.close()
        raise CoordinationError(f"the in-memory ZooKeeper did not answer within {self._connection_timeout_ms} ms")

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self.link is not None:
                request = Request("close", "/", closes=True)
                with trio.move_on_after(CLOSE_GRACE_S, shield=True):
                    await self._exchange([request])
        self._state = SessionState.SUSPENDED
        link, self.link = self.link, None
        if link is not None:
            link.open = False
            self._fail(link.pending)
        self._fail(self._waiting)
        await trio.lowlevel.checkpoint()

    async def _create_chroot(self) -> None:
        for path in [*ancestors(self._chroot), self._chroot] if self._chroot else []:
            try:
                await self._one(self._change("create", Create(path)))
            except NodeExists:
                continue

    # -- called by the server

    def on_connected(self, link: Link) -> None:
        self.link = link
        self._session_id = link.session_id
        self._connected.set()
        self._tell(SessionState.CONNECTED)
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            self._submit(request)

    def on_lost(self, link: Link) -> None:
        """The order is kazoo's: what is pending fails, SUSPENDED is told, the watches fire and are gone."""
        if self.link is not link or self.dead:
            return
        self.link = None
        self._fail(link.pending)
        if self._closed:
            return
        self._tell(SessionState.SUSPENDED)
        for watches in link.watches.values():
            for watch in watches:
                watch(WatchEvent.CONNECTION)
        self._server.connect_soon(self)

    def on_expired(self) -> None:
        self._session_id = 0
        self._tell(SessionState.EXPIRED)

    def on_reply(self, link: Link, request: Request, result: Any) -> None:
        if self.link is not link:
            return
        link.pending.popleft()
        if request.watch is not None and not isinstance(result, CoordinationError):
            kind, watch = request.watch
            link.watches.setdefault((kind, request.path), {})[watch] = None
        request.finish(result)

    def on_watch_event(self, link: Link, kind: WatchKind, path: str, event: WatchEvent) -> None:
        if self.link is link:
            for watch in link.watches.pop((kind, path), {}):
                watch(event)

    def _tell(self, state: SessionState) -> None:
        self._state = state
        for listener in tuple(self._listeners):
            listener(state)

    def _fail(self, requests: deque[Request]) -> None:
        while requests:
            request = requests.popleft()
            request.finish(
                ConnectionLost(f"{request.name} {request.path}: the connection broke, a write may have been applied")
            )

    # -- requests

    async def _run(self, requests: Sequence[Request]) -> None:
        """Send the requests and return when each has its result."""
        if self._closed:
            raise ConnectionLost("the session with the in-memory ZooKeeper is closed")
        await self._exchange(requests)

    async def _exchange(self, requests: Sequence[Request]) -> None:
        done = trio.Event()
        remaining = len(requests)

        def one_done() -> None:
            nonlocal remaining
            remaining -= 1
            self.request_times.record_s(common_time() - sent_s)
            if not remaining:
                done.set()

        sent_s = common_time()
        for request in requests:
            request.done = one_done
            request.session_id = self._session_id
        for request in requests:
            self._submit(request)
        try:
            await done.wait()
        finally:
            for request in requests:
                request.abandoned = True

    def _submit(self, request: Request) -> None:
        if request.abandoned or self.dead:
            return
        if self.link is None:
            self._waiting.append(request)
        elif request.session_id not in (0, self._session_id):
            request.finish(SessionExpired(f"{request.name} {request.path}: the session that issued it has expired"))
        else:
            self.link.pending.append(request)
            self._server.send(self.link, request)

    async def _one(self, request: Request) -> Any:
        await self._run([request])
        if isinstance(request.result, CoordinationError):
            raise request.result
        return request.result

    def _at(self, path: str) -> str:
        check_path(path)
        return with_chroot(self._chroot, path)

    async def _read(
        self, name: str, path: str, kind: WatchKind, read: Callable[[ZnodeTree, str], Any], watch: Watch | None
    ) -> Any:
        full = self._at(path)
        watched = None if watch is None else (kind, watch)
        return await self._one(Request(name, full, lambda tree: read(tree, full), watch=watched))

    # -- reads

    async def get(self, path: str, watch: Watch | None = None) -> Znode:
        znode: Znode = await self._read("get", path, WatchKind.DATA, ZnodeTree.get, watch)
        return znode

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        stat: ZnodeStat | None = await self._read("exists", path, WatchKind.DATA, ZnodeTree.exists, watch)
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names: list[str] = await self._read("children", path, WatchKind.CHILDREN, ZnodeTree.children, watch)
        return names

    async def get_each(self, paths: Sequence[str]) -> list[Znode | CoordinationError | None]:
        return await self._read_each("get_each", paths, ZnodeTree.get)

    async def children_each(self, paths: Sequence[str]) -> list[list[str] | CoordinationError | None]:
        return await self._read_each("children_each", paths, ZnodeTree.children)

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        return all_shown(await self.get_each(paths))

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return all_shown(await self.children_each(paths))

    async def _read_each(self, name: str, paths: Sequence[str], read: Callable[[ZnodeTree, str], Any]) -> list[Any]:
        full = [self._at(path) for path in paths]

        def read_of(chunk: list[str]) -> Request:
            return Request(name, chunk[0], lambda tree: [_read_one(read, tree, path) for path in chunk])

        requests = [read_of(full[start : start + READ_CHUNK]) for start in range(0, len(full), READ_CHUNK)]
        if not requests:
            await trio.lowlevel.checkpoint()
            return []
        await self._run(requests)
        for request in requests:
            if isinstance(request.result, CoordinationError):
                raise request.result
        return [result for request in requests for result in request.result]

    async def sync(self, path: str = "/") -> None:
        await self._one(Request("sync", self._at(path), syncs=True))

    # -- writes

    async def _create(self, operation: Create) -> str:
        (path,) = await self._one(self._change("create", self._rooted(operation)))
        return without_chroot(self._chroot, path)

    async def set(self, path: str, data: bytes | None, version: int) -> ZnodeStat:
        stats: list[ZnodeStat] = await self._one(self._change("set", SetData(self._at(path), data, version)))
        return stats[0]

    async def delete(self, path: str, version: int = MATCH_ANY_VERSION) -> None:
        await self._one(self._change("delete", Delete(self._at(path), version)))

    def _change(self, name: str, operation: Operation) -> Request:
        """`operation` with its path below the root, as are all that follow."""
        check_request_size(_size_bytes([operation]), name, operation.path)
        return Request(name, operation.path, write=lambda tree, session_id: tree.apply_one(operation, session_id))

    def _transaction(self, operations: Sequence[Operation]) -> Request:
        full = [self._rooted(operation) for operation in operations]
        check_request_size(_size_bytes(full), "multi", operations[0].path)
        paths = tuple(operation.path for operation in full)
        return Request("multi", paths[0], write=lambda tree, session_id: tree.apply(full, session_id), paths=paths)

    def _transaction_result(
        self, operations: Sequence[Operation], prepared: Request
    ) -> list[OperationResult] | CoordinationError:
        if isinstance(prepared.result, CoordinationError):
            return prepared.result
        return [without_chroot(self._chroot, one) if isinstance(one, str) else one for one in prepared.result]

    def _rooted(self, operation: Operation) -> Operation:
        path = self._at(operation.path)
        match operation:
            case Create(_, data, ephemeral, sequence):
                return Create(path, data, ephemeral, sequence)
            case SetData(_, data, version):
                return SetData(path, data, version)
            case Delete(_, version):
                return Delete(path, version)
            case Check(_, version):
                return Check(path, version)


def _size_bytes(operations: Sequence[Operation]) -> int:
    """About what the request would have on the wire."""
    return sum(
        len(operation.path.encode())
        + len((isinstance(operation, Create | SetData) and operation.data) or b"")
        + REQUEST_OVERHEAD_BYTES
        for operation in operations
    )


def _read_one(read: Callable[[ZnodeTree, str], Any], tree: ZnodeTree, path: str) -> Any:
    try:
        return read(tree, path)
    except NoNode:
        return None
    except CoordinationError as error:
        return error
