"""The coordination seam over a real ZooKeeper (3.6 or newer), through kazoo.

`connection` has the thread and the wire, `calls` what waits for them; here is what the event loop sees:
awaitable operations, typed errors, the state of the session. Its rules:
* Operations issued together travel together. A wave (get_many, multi_many) is one wait with a window of requests in
  flight.
* What is asked while no server answers waits for the next connection; what was in flight fails with ConnectionLost.
* An operation belongs to the session that issued it: once that is gone it fails with SessionExpired, and is never
  carried out in the next one.
* kazoo reconnects for ever. A session that the server still honours is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import structlog
import trio
from kazoo import exceptions as kazoo_errors
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import KazooState
from kazoo.security import OPEN_ACL_UNSAFE

from strandline.runtime.coordination import (
    MATCH_ANY_VERSION,
    Check,
    ConnectionLost,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    Operation,
    OperationResult,
    SessionState,
    SetData,
    TransactionFailed,
    Watch,
    WatchEvent,
    Znode,
    ZnodeStat,
    all_shown,
)
from strandline.runtime.logging import ForwardToStructlog, open_logs
from strandline.runtime.recent_times import RecentTimes
from strandline.runtime.zookeeper.calls import WatchBridge, Wave, typed_error
from strandline.runtime.zookeeper.connection import Call, Mailbox, MultiRead, make_client, now_s, znode_stat
from strandline.runtime.zookeeper.paths import (
    ancestors,
    check_path,
    check_request_size,
    split_servers,
    with_chroot,
    without_chroot,
)
from strandline.runtime.zookeeper.writes import PreparedWrites

READ_CHUNK = 100
"""Znodes per MultiRead: 3–7 µs each against 130 µs for a get of its own."""
WINDOW = 50
"""Requests of one wave in flight."""
CLOSE_GRACE_S = 2.0
"""How long close() waits for a server to confirm the end of the session before it breaks the connection."""


class KazooCoordination(PreparedWrites[Call]):
    """`Coordination` over kazoo. `servers`: the value of `zookeeper.connect`, with an optional chroot that is created
    when absent. `session_timeout_ms` is asked for; the attribute tells what the server granted. `log` is stderr's if
    None."""

    def __init__(
        self,
        servers: str,
        *,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        log: structlog.typing.FilteringBoundLogger | None = None,
    ) -> None:
        """Raises CoordinationError for a server string that names no server."""
        self.servers = servers
        self._hosts, self._chroot = split_servers(servers)
        self._requested_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms
        self._log = log if log is not None else open_logs().main
        self._library_log = ForwardToStructlog(self._log)
        self._listeners: list[Callable[[SessionState], None]] = []
        self._state = SessionState.SUSPENDED
        self._session_id = 0
        self._started_s = now_s()
        self._in_flight: dict[Call, None] = {}
        self._closing = False
        self._connected = trio.Event()
        self._stopped = trio.Event()
        self._mailbox: Mailbox | None = None
        self.request_times = RecentTimes()

    # -- the session

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_password(self) -> bytes:
        """What another connection needs to take over or end this session."""
        return bytes(self._client._session_passwd) if self._mailbox else b""

    @property
    def session_timeout_ms(self) -> int:
        return (self._connection.negotiated_timeout_ms if self._mailbox else 0) or self._requested_timeout_ms

    @property
    def state(self) -> SessionState:
        return self._state

    def seconds_since_contact(self) -> float:
        return now_s() - (self._connection.last_contact_s if self._mailbox else self._started_s)

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def start(self) -> None:
        """Connect and see to the chroot. CoordinationError when no server answers within the connection timeout."""
        mailbox = Mailbox(trio.lowlevel.current_trio_token(), self._on_callback_error)
        # Of its own: kazoo's default one is shared by the process. The level keeps kazoo from describing each request.
        logger = logging.Logger("kazoo", level=logging.WARNING)
        logger.addHandler(self._library_log)
        self._client, self._connection = make_client(
            self._hosts, self._requested_timeout_ms, logger, partial(mailbox.put, self._on_stopped, None)
        )
        self._mailbox = mailbox
        self._client.add_listener(self._on_kazoo_state)
        self._client.start_async()
        try:
            with trio.move_on_after(self._connection_timeout_ms / 1000):
                await self._connected.wait()
                await self._create_chroot()
                return
        except BaseException:
            await self.close()
            raise
        await self.close()
        raise CoordinationError(
            f"no ZooKeeper server of {self.servers} answered within {self._connection_timeout_ms} ms: start it, "
            "or correct zookeeper.connect (zookeeper.connection.timeout.ms sets how long to wait)"
        )

    async def close(self) -> None:
        self._closing = True
        if self._mailbox is None:
            return
        with trio.CancelScope(shield=True):
            self._connection.send_close()
            with trio.move_on_after(CLOSE_GRACE_S):
                await self._stopped.wait()
            if not self._stopped.is_set():
                self._connection.break_socket()
                with trio.move_on_after(CLOSE_GRACE_S):
                    await self._stopped.wait()
            self._connection.fail_unsent()
            if self._stopped.is_set():
                self._connection.release()
            # What is left belongs to a thread that is stuck in the operating system; it ends by itself.
            for call in list(self._in_flight):
                call.set_exception(kazoo_errors.ConnectionClosedError())
        await trio.lowlevel.checkpoint()

    async def _create_chroot(self) -> None:
        if not self._chroot:
            return
        for path in [*ancestors(self._chroot), self._chroot]:
            try:
                await self._one("create", path, wire.Create(path, None, OPEN_ACL_UNSAFE, 0))
            except NodeExists:
                continue

    def _on_kazoo_state(self, state: str) -> None:
        """On kazoo's thread."""
        if self._mailbox is not None:
            change = state, self._client._session_id or 0, self._library_log.last_reason
            self._mailbox.put(self._on_state, change)

    def _on_state(self, change: tuple[str, int, str]) -> None:
        """kazoo's state, the session's id, and the last reason that kazoo gave for anything."""
        state, session_id, reason = change
        if self._closing:
            self._state = SessionState.SUSPENDED
        elif state == KazooState.CONNECTED:
            self._log.info("connected to ZooKeeper", session=f"{session_id:#x}")
            self._session_id = session_id
            self._connected.set()
            self._tell(SessionState.CONNECTED)
        elif state == KazooState.SUSPENDED:
            self._log.warning("ZooKeeper does not answer, connecting again", reason=reason)
            self._tell(SessionState.SUSPENDED)
        else:
            self._log.warning("session with ZooKeeper expired", session=f"{self._session_id:#x}")
            self._session_id = 0
            self._tell(SessionState.EXPIRED)

    def _tell(self, state: SessionState) -> None:
        self._state = state
        for listener in tuple(self._listeners):
            try:
                listener(state)
            except Exception as error:
                self._on_callback_error(error)

    def _on_stopped(self, _: None) -> None:
        self._stopped.set()

    def _on_callback_error(self, error: Exception) -> None:
        self._log.error("coordination callback failed", exc_info=error)

    # -- calls

    def _prepare(self, operation: str, path: str, request: Any) -> Call:
        call = Call(request, self._session_id)
        check_request_size(len(call.payload) + 4, operation, path)
        return call

    async def _run(self, calls: Sequence[Call]) -> None:
        """Send the calls and return when each has its result."""
        if self._mailbox is None or self._closing:
            raise ConnectionLost(f"the session with ZooKeeper at {self.servers} is closed")
        wave = Wave(calls, self._submit, self.request_times)
        try:
            for _ in range(WINDOW):
                if not wave.send_next():
                    break
            await wave.done.wait()
        finally:
            for call in calls:
                call.abandoned = True  # those that are not sent yet never will be
                self._in_flight.pop(call, None)

    def _submit(self, call: Call) -> None:
        if self._closing:
            call.mailbox = self._mailbox
            call.set_exception(kazoo_errors.ConnectionClosedError())
            return
        call.mailbox = self._mailbox
        self._in_flight[call] = None
        self._connection.submit(call)

    async def _one(self, operation: str, path: str, request: Any) -> Any:
        call = self._prepare(operation, path, request)
        await self._run([call])
        if isinstance(call.result, Exception):
            raise typed_error(call.result, operation, path)
        return call.result

    def _at(self, path: str) -> str:
        check_path(path)
        return with_chroot(self._chroot, path)

    def _bridge(self, watch: Watch | None) -> WatchBridge | None:
        if watch is None or self._mailbox is None:
            return None
        return WatchBridge(partial(self._mailbox.put, self._on_watch), watch)

    def _on_watch(self, fired: tuple[Watch, WatchEvent]) -> None:
        watch, event = fired
        watch(event)

    # -- reads

    async def get(self, path: str, watch: Watch | None = None) -> Znode:
        data, stat = await self._one("get", path, wire.GetData(self._at(path), self._bridge(watch)))
        return Znode(bytes(data or b""), znode_stat(stat), data is None)

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        stat = await self._one("exists", path, wire.Exists(self._at(path), self._bridge(watch)))
        return None if stat is None else znode_stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return sorted(await self._one("children", path, wire.GetChildren(self._at(path), self._bridge(watch))))

    async def get_each(self, paths: Sequence[str]) -> list[Znode | CoordinationError | None]:
        return await self._read_each("get", wire.GetData.type, paths)

    async def children_each(self, paths: Sequence[str]) -> list[list[str] | CoordinationError | None]:
        return await self._read_each("children", wire.GetChildren.type, paths)

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        return all_shown(await self.get_each(paths))

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return all_shown(await self.children_each(paths))

    async def _read_each(self, operation: str, read_type: int, paths: Sequence[str]) -> list[Any]:
        full = [self._at(path) for path in paths]
        chunks = [full[start : start + READ_CHUNK] for start in range(0, len(full), READ_CHUNK)]
        calls = [self._prepare(operation, chunk[0], MultiRead(read_type, chunk)) for chunk in chunks]
        if calls:
            await self._run(calls)
        else:
            await trio.lowlevel.checkpoint()
        results: list[Any] = []
        for call, chunk in zip(calls, chunks, strict=True):
            if isinstance(call.result, Exception):
                raise typed_error(call.result, operation, f"{chunk[0]} … {chunk[-1]}")
            results += call.result
        return [
            typed_error(result, operation, path) if isinstance(result, Exception) else result
            for path, result in zip(paths, results, strict=True)
        ]

    async def sync(self, path: str = "/") -> None:
        await self._one("sync", path, wire.Sync(self._at(path)))

    # -- writes

    async def _create(self, operation: Create) -> str:
        return without_chroot(self._chroot, await self._one("create", operation.path, self._to_wire(operation)))

    async def set(self, path: str, data: bytes | None, version: int) -> ZnodeStat:
        return znode_stat(await self._one("set", path, self._to_wire(SetData(path, data, version))))

    async def delete(self, path: str, version: int = MATCH_ANY_VERSION) -> None:
        await self._one("delete", path, self._to_wire(Delete(path, version)))

    def _transaction(self, operations: Sequence[Operation]) -> Call:
        request = wire.Transaction([self._to_wire(operation) for operation in operations])
        return self._prepare("multi", operations[0].path, request)

    def _transaction_result(
        self, operations: Sequence[Operation], prepared: Call
    ) -> list[OperationResult] | CoordinationError:
        answer = prepared.result
        if isinstance(answer, Exception):
            return typed_error(answer, "multi", operations[0].path)
        for index, outcome in enumerate(answer):
            # those before the failed one are "rolled back", those after it "inconsistent"
            if isinstance(outcome, Exception) and not isinstance(outcome, kazoo_errors.RolledBackError):
                operation = operations[index]
                cause = typed_error(outcome, type(operation).__name__.lower(), operation.path)
                return TransactionFailed(f"multi of {len(operations)}: operation {index}, {cause}", index, cause)
        return [self._from_wire(outcome) for outcome in answer]

    def _to_wire(self, operation: Operation) -> Any:
        path = self._at(operation.path)
        match operation:
            case Create(_, data, ephemeral, sequence):
                return wire.Create(path, data, OPEN_ACL_UNSAFE, int(ephemeral) | int(sequence) << 1)
            case SetData(_, data, version):
                return wire.SetData(path, data, version)
            case Delete(_, version):
                return wire.Delete(path, version)
            case Check(_, version):
                return wire.CheckVersion(path, version)

    def _from_wire(self, outcome: Any) -> OperationResult:
        if isinstance(outcome, str):
            return without_chroot(self._chroot, outcome)
        return None if outcome is True else znode_stat(outcome)
