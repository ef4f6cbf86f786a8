"""Where the suite for the coordination seam runs: the in-memory ZooKeeper and the real one behind the same few methods,
and recorders of what a client reports. The recorders serve any test of a role that lives on a session.
"""

from __future__ import annotations

import struct
from typing import Protocol

import trio
from kazoo.protocol import serialization as wire
from kazoo.security import make_acl

from strandline.cli.zookeeper import EmbeddedZooKeeper
from strandline.runtime.coordination import Coordination, SessionState, WatchEvent
from strandline.runtime.zookeeper.client import KazooCoordination
from strandline.testkit.zookeeper.client import MemoryCoordination
from strandline.testkit.zookeeper.server import MemoryZooKeeper

SESSION_TIMEOUT_MS = 30_000
"""A busy machine breaks no session unasked, also when its server forgets the first connection after a start."""
SHORT_SESSION_TIMEOUT_MS = 6000
"""For a test that waits for its end."""
PATIENCE_S = 120
"""For what must come: only a hanging test waits that long."""


class Site(Protocol):
    """A server and how to hurt it."""

    async def client(
        self, chroot: str | None = None, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> Coordination: ...

    def unstarted_client(self) -> Coordination: ...

    async def expire(self, client: Coordination) -> None: ...

    async def crash(self, client: Coordination) -> None: ...

    async def make_unreadable(self, client: Coordination, path: str) -> None: ...

    async def stop(self) -> None: ...

    async def start(self) -> None: ...


class MemorySite:
    def __init__(self, server: MemoryZooKeeper) -> None:
        self.server = server

    def unstarted_client(
        self, chroot: str | None = None, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> MemoryCoordination:
        return self.server.client(
            chroot="/test" if chroot is None else chroot,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=1000,
        )

    async def client(self, chroot: str | None = None, *, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> Coordination:
        client = self.unstarted_client(chroot, session_timeout_ms)
        await client.start()
        return client

    async def expire(self, client: Coordination) -> None:
        self.server.expire(client.session_id)

    async def crash(self, client: Coordination) -> None:
        assert isinstance(client, MemoryCoordination)
        self.server.crash(client)

    async def make_unreadable(self, client: Coordination, path: str) -> None:
        self.server.tree.unreadable.add(f"/test{path}")

    async def stop(self) -> None:
        self.server.stop()

    async def start(self) -> None:
        self.server.start()


class RealSite:
    def __init__(self, server: EmbeddedZooKeeper, chroot: str) -> None:
        self.server = server
        self._chroot = chroot
        self._clients: list[KazooCoordination] = []

    def unstarted_client(
        self, chroot: str | None = None, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> KazooCoordination:
        client = KazooCoordination(
            self.server.address + (self._chroot if chroot is None else chroot),
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=1000 if not self.server.process.is_alive else 1000 * PATIENCE_S,
        )
        self._clients.append(client)
        return client

    async def client(self, chroot: str | None = None, *, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> Coordination:
        client = self.unstarted_client(chroot, session_timeout_ms)
        await client.start()
        return client

    async def expire(self, client: Coordination) -> None:
        """Take the session over from another connection and end it there."""
        assert isinstance(client, KazooCoordination)
        host, port = self.server.address.split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        async with stream:
            connect = struct.pack("!iqiqi", 0, 0, SESSION_TIMEOUT_MS, client.session_id, 16)
            await self._exchange(stream, connect + client.session_password + b"\0")
            await self._exchange(stream, struct.pack("!ii", 1, -11))

    async def _exchange(self, stream: trio.SocketStream, request: bytes) -> None:
        await stream.send_all(struct.pack("!i", len(request)) + request)
        reply = bytearray()
        while len(reply) < 4 or len(reply) < 4 + struct.unpack_from("!i", reply)[0]:
            received = await stream.receive_some()
            assert received, "the server closed the connection"
            reply += received

    async def make_unreadable(self, client: Coordination, path: str) -> None:
        """Everything is allowed there but reading."""
        assert isinstance(client, KazooCoordination)
        allowed = make_acl("world", "anyone", write=True, create=True, delete=True, admin=True)
        await client._one("set_acls", path, wire.SetACL(client._at(path), [allowed], -1))

    async def crash(self, client: Coordination) -> None:
        """End its thread without ending the session."""
        assert isinstance(client, KazooCoordination)
        client._client._stopped.set()
        client._connection.break_socket()
        await client._stopped.wait()

    async def stop(self) -> None:
        await trio.to_thread.run_sync(self.server.stop)

    async def start(self) -> None:
        await trio.to_thread.run_sync(self.server.start, 2 * PATIENCE_S)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        if not self.server.process.is_alive:
            await self.start()


class States:
    """The states that a client reports, in order."""

    def __init__(self, client: Coordination) -> None:
        self.seen: list[SessionState] = []
        self._changed = trio.Event()
        client.add_session_listener(self._add)

    def _add(self, state: SessionState) -> None:
        self.seen.append(state)
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, *states: SessionState) -> None:
        with trio.fail_after(PATIENCE_S):
            while self.seen != list(states):
                assert len(self.seen) <= len(states), self.seen
                await self._changed.wait()


class Events:
    """What a watch reports."""

    def __init__(self) -> None:
        self.seen: list[WatchEvent] = []
        self._changed = trio.Event()

    def __call__(self, event: WatchEvent) -> None:
        self.seen.append(event)
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, *events: WatchEvent) -> None:
        with trio.fail_after(PATIENCE_S):
            while self.seen != list(events):
                assert len(self.seen) < len(events), self.seen
                await self._changed.wait()
