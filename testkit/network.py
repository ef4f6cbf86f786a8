"""An in-memory network: whole clusters in one event loop, with faults per pair of nodes.

```
network = MemoryNetwork(seed=1)
broker, client = network.node("broker-1"), network.node("client")     # each is a `Network`
network.link("client", "broker-1").latency_s = 0.002                   # one direction
network.cut("broker-1", "client")                                      # one-way: bytes wait, nothing arrives
```
Rules:
* Deterministic: no task, no thread. A pipe holds (arrival time, bytes); who waits for bytes sleeps until the next
  arrival on trio's clock, so a virtual clock jumps from delivery to delivery. Each link has its own seeded draws.
* Bytes are ordered and never lost inside a connection, as in TCP; what can fail is the connection: dropped (both sides
  see it), cut (silence, half-open when one-way), cut off in the middle of a frame, refused, a node down.
* A pipe holds at most the link's window of unread bytes: a peer that does not read pushes back.
* A host that is a loopback or wildcard name is shared by all nodes, as on one machine; any other host belongs to the
  node that has it (default: the node's name).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from strandline.runtime.disk import Buffer, File
from strandline.runtime.network import Address, CannotConnect, CannotListen, TransportClosed

DEFAULT_WINDOW_BYTES = 256 * 1024
FIRST_EPHEMERAL_PORT = 40_000
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_WILDCARD = ("", "0.0.0.0", "::")
_FOREVER = float("inf")


@dataclass(slots=True)
class MemoryLink:
    """One direction between two nodes; change the fields at any time (then call `MemoryNetwork.changed`, which `cut`
    and `heal` do by themselves).

    latency_s, jitter_s: each piece arrives after the latency plus a draw from [0, jitter], never before an earlier one.
    bytes_per_s: None is unlimited. window_bytes: unread bytes a connection may hold. max_piece_bytes: sends and reads
    are cut into random pieces up to this size (None: as they come). drop_after_bytes: so many bytes pass, then the
    connection that carries the last of them breaks, once.
    """

    random: random.Random
    latency_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float | None = None
    window_bytes: int = DEFAULT_WINDOW_BYTES
    max_piece_bytes: int | None = None
    drop_after_bytes: int | None = None
    blocked: bool = False

    def arrival(self, now: float, length: int, not_before: float) -> float:
        start = max(now, not_before)
        if self.bytes_per_s is not None:
            start += length / self.bytes_per_s
        jitter = self.random.uniform(0.0, self.jitter_s) if self.jitter_s else 0.0
        return max(start, now + self.latency_s + jitter)

    def piece(self, length: int) -> int:
        if self.max_piece_bytes is None or length <= 1:
            return length
        return self.random.randint(1, min(length, self.max_piece_bytes))


@dataclass(slots=True)
class _Pipe:
    """One direction of one connection: pieces in flight or unread, in order."""

    link: MemoryLink
    pieces: deque[tuple[float, bytes]] = field(default_factory=deque)
    unread_bytes: int = 0
    last_arrival: float = 0.0
    ends_at: float | None = None
    """When the writer's close arrives; the stream ends after the pieces before it."""
    breaks_after_pieces: bool = False
    """The connection breaks once everything in flight has been read (a cut in the middle of a frame)."""
    reader_gone_at: float | None = None
    """When the writer learns that the reader has closed."""

    def put(self, data: bytes, now: float) -> None:
        self.last_arrival = self.link.arrival(now, len(data), self.last_arrival)
        self.pieces.append((self.last_arrival, data))
        self.unread_bytes += len(data)

    def next_event(self) -> float:
        if self.link.blocked:
            return _FOREVER
        if self.pieces:
            return self.pieces[0][0]
        return self.ends_at if self.ends_at is not None else _FOREVER


class MemoryTransport:
    """One end of a connection."""

    def __init__(self, network: MemoryNetwork, node: str, peer: Address, incoming: _Pipe, outgoing: _Pipe) -> None:
        self.peer = peer
        self.node = node
        self.other: MemoryTransport | None = None
        self._network = network
        self._incoming = incoming
        self._outgoing = outgoing
        self._dead_because: str | None = None
        self._changed = trio.lowlevel.ParkingLot()

    def recv_into_nowait(self, buffer: memoryview) -> int:
        self._check()
        pipe, now = self._incoming, trio.current_time()
        if pipe.next_event() > now:
            raise trio.WouldBlock
        if not pipe.pieces:
            return 0
        taken = 0
        limit = pipe.link.piece(len(buffer))
        while pipe.pieces and taken < limit and pipe.pieces[0][0] <= now:
            arrival, data = pipe.pieces[0]
            part = data[: limit - taken]
            buffer[taken : taken + len(part)] = part
            taken += len(part)
            if len(part) == len(data):
                pipe.pieces.popleft()
            else:
                pipe.pieces[0] = (arrival, data[len(part) :])
        pipe.unread_bytes -= taken
        if self.other is not None:
            self.other.wake()  # the window opened
        if pipe.breaks_after_pieces and not pipe.pieces:
            self._network.break_connection(self, "dropped in the middle of the stream")
        return taken

    def send_nowait(self, buffers: Sequence[Buffer], more: bool = False) -> int:
        self._check()
        pipe, now = self._outgoing, trio.current_time()
        if self._is_reader_gone(now):
            raise TransportClosed(f"connection with {self.peer} failed: closed by the peer")
        link = pipe.link
        room = link.window_bytes - pipe.unread_bytes
        total = sum(memoryview(buffer).nbytes for buffer in buffers)
        if room <= 0 and total:
            raise trio.WouldBlock
        taken = link.piece(min(room, total))
        data = b"".join(buffers)[:taken]
        if pipe.breaks_after_pieces:
            return taken  # lost on the way
        if link.drop_after_bytes is not None and link.drop_after_bytes < len(data):
            data, pipe.breaks_after_pieces = data[: link.drop_after_bytes], True
            link.drop_after_bytes = None
            if not data and not pipe.pieces:
                self._network.break_connection(self, "dropped in the middle of the stream")
                return taken
        elif link.drop_after_bytes is not None:
            link.drop_after_bytes -= len(data)
        if data:
            pipe.put(data, now)
        if self.other is not None:
            self.other.wake()
        return taken

    def send_file_nowait(self, file: File, position: int, length: int) -> int:
        room = self._outgoing.link.window_bytes - self._outgoing.unread_bytes
        self._check()
        if room <= 0:
            raise trio.WouldBlock
        piece = file.pread(min(length, room), position)
        return self.send_nowait([piece]) if piece else 0

    async def wait_readable(self) -> None:
        await self._wait(self._incoming.next_event)

    async def wait_writable(self) -> None:
        await self._wait(self._writable_at)

    def _writable_at(self) -> float:
        pipe = self._outgoing
        if pipe.unread_bytes < pipe.link.window_bytes:
            return 0.0
        if pipe.reader_gone_at is not None and not self._incoming.link.blocked:
            return pipe.reader_gone_at
        return _FOREVER

    async def _wait(self, next_event: Callable[[], float]) -> None:
        await trio.lowlevel.checkpoint()
        while True:
            self._check()
            ready_at = next_event()
            if ready_at <= trio.current_time():
                return
            with trio.move_on_at(ready_at):
                await self._changed.park()

    def close(self) -> None:
        if self._dead_because is not None:
            return
        now = trio.current_time()
        self._die(f"connection with {self.peer} was closed by this side")
        self._outgoing.ends_at = self._outgoing.link.arrival(now, 0, self._outgoing.last_arrival)
        self._incoming.reader_gone_at = now + self._outgoing.link.latency_s
        self._network.forget(self)
        if self.other is not None:
            self.other.wake()

    def fail(self, why: str) -> None:
        """Break this end only, as a reset does. Idempotent."""
        if self._dead_because is None:
            self._die(f"connection with {self.peer} failed: {why}")
            self._network.forget(self)

    def wake(self) -> None:
        self._changed.unpark_all()

    def _die(self, why: str) -> None:
        self._dead_because = why
        self._changed.unpark_all()

    def _is_reader_gone(self, now: float) -> bool:
        gone_at = self._outgoing.reader_gone_at
        return gone_at is not None and gone_at <= now and not self._incoming.link.blocked

    def _check(self) -> None:
        if self._dead_because is not None:
            raise TransportClosed(self._dead_because)


class MemoryListener:
    """A bound address of a node. `accept_errors`: raised one by one by `accept` while a connection is pending."""

    def __init__(self, network: MemoryNetwork, node: str, address: Address, backlog: int) -> None:
        self.address = address
        self.node = node
        self.backlog = backlog
        self.pending: deque[MemoryTransport] = deque()
        self.accept_errors: deque[OSError] = deque()
        self.closed = False
        self.changed = trio.lowlevel.ParkingLot()
        self._network = network

    async def accept(self) -> MemoryTransport:
        await trio.lowlevel.checkpoint()
        while True:
            if self.closed:
                raise TransportClosed(f"listener {self.address} was closed by this side")
            if self.pending:
                if self.accept_errors:
                    raise self.accept_errors.popleft()
                return self.pending.popleft()
            await self.changed.park()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._network.unbind(self)
        while self.pending:
            self._network.break_connection(self.pending.popleft(), "the listener was closed")
        self.changed.unpark_all()


class MemoryNode:
    """What one node sees of the network: a `Network`."""

    def __init__(self, network: MemoryNetwork, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.down = False
        self._network = network

    async def connect(self, address: Address) -> MemoryTransport:
        return await self._network.connect(self, address)

    async def listen(self, address: Address, backlog: int = 128) -> MemoryListener:
        await trio.lowlevel.checkpoint()
        return self._network.bind(self, address, backlog)


class MemoryNetwork:
    """All nodes, links and connections. Faults take effect at once; see the module's rules."""

    def __init__(self, seed: int = 0, latency_s: float = 0.0, window_bytes: int = DEFAULT_WINDOW_BYTES) -> None:
        self._seed = seed
        self._latency_s = latency_s
        self._window_bytes = window_bytes
        self._nodes: dict[str, MemoryNode] = {}
        self._links: dict[tuple[str, str], MemoryLink] = {}
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        self._transports: dict[MemoryTransport, None] = {}
        self._next_port = FIRST_EPHEMERAL_PORT
        self._topology_changed = trio.lowlevel.ParkingLot()

    # --- what tests set up and break -----------------------------------------------------------------------------

    def node(self, name: str, host: str | None = None) -> MemoryNode:
        """The node of this name, made on first use. `host`: what its peers see as its address."""
        if name not in self._nodes:
            self._nodes[name] = MemoryNode(self, name, host or name)
        return self._nodes[name]

    def link(self, source: str, destination: str) -> MemoryLink:
        """The direction source → destination, for its settings."""
        key = (source, destination)
        if key not in self._links:
            draws = random.Random(f"{self._seed}/{source}/{destination}")
            self._links[key] = MemoryLink(draws, latency_s=self._latency_s, window_bytes=self._window_bytes)
        return self._links[key]

    def cut(self, source: str, destination: str) -> None:
        """Nothing passes from source to destination any more; the other direction is untouched."""
        self.link(source, destination).blocked = True

    def cut_both(self, one: str, other: str) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def isolate(self, name: str) -> None:
        """Cut a node off from all others (its own loopback still works)."""
        for other in self._nodes:
            if other != name:
                self.cut_both(name, other)

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """Undo cuts: between two nodes, of one node, or all. What waited in the pipes arrives now."""
        for (source, destination), link in self._links.items():
            ends = (source, destination)
            if (one is None or one in ends) and (other is None or other in ends):
                link.blocked = False
        self.changed()

    def drop_connections(self, one: str, other: str | None = None) -> int:
        """Reset every connection of `one` (with `other`, or with anybody): both sides see it. Returns how many."""
        dropped = 0
        for transport in list(self._transports):
            peer = transport.other.node if transport.other is not None else ""
            if transport in self._transports and transport.node == one and other in (None, peer):
                self.break_connection(transport, "connection reset")
                dropped += 1
        return dropped

    def stop(self, name: str) -> None:
        """The node's process is gone: connections reset, its listeners vanish, connecting to it is refused."""
        node = self.node(name)
        node.down = True
        for listener in [found for found in self._listeners.values() if found.node == name]:
            listener.close()
        self.drop_connections(name)

    def start(self, name: str) -> None:
        """The node may listen and connect again."""
        self.node(name).down = False

    @property
    def open_transports(self) -> int:
        """Ends of connections that nobody has closed: 0 when nothing leaks."""
        return len(self._transports)

    def changed(self) -> None:
        """Wake everybody who waits, after links were changed by hand."""
        for transport in list(self._transports):
            transport.wake()
        self._topology_changed.unpark_all()

    # --- what nodes and transports call --------------------------------------------------------------------------

    def bind(self, node: MemoryNode, address: Address, backlog: int) -> MemoryListener:
        if node.down:
            raise CannotListen(f"cannot listen on {address}: node {node.name} is down")
        host, port = address
        if port == 0:
            port = self._take_port()
        key = (self._bound_host(node, host), port)
        if key in self._listeners:
            raise CannotListen(f"cannot listen on {address}: the address is in use; choose a free address")
        listener = MemoryListener(self, node.name, Address(host, port), backlog)
        self._listeners[key] = listener
        return listener

    def unbind(self, listener: MemoryListener) -> None:
        for key, found in list(self._listeners.items()):
            if found is listener:
                del self._listeners[key]

    async def connect(self, node: MemoryNode, address: Address) -> MemoryTransport:
        await trio.lowlevel.checkpoint()
        if node.down:
            raise CannotConnect(f"cannot connect to {address}: node {node.name} is down")
        target = self._owner_of(node, address)
        while self.link(node.name, target).blocked or self.link(target, node.name).blocked:
            await self._topology_changed.park()  # as TCP, which repeats its SYN: the caller bounds the time
        there, back = self.link(node.name, target), self.link(target, node.name)
        round_trip_s = there.latency_s + back.latency_s
        if round_trip_s:
            await trio.sleep(round_trip_s)
        listener = self._find_listener(node, address)
        if listener is None or len(listener.pending) >= listener.backlog:
            raise CannotConnect(f"cannot connect to {address}: refused; check that it runs and listens there")
        return self._join(node, address, listener)

    def _join(self, node: MemoryNode, address: Address, listener: MemoryListener) -> MemoryTransport:
        there = _Pipe(self.link(node.name, listener.node))
        back = _Pipe(self.link(listener.node, node.name))
        mine = MemoryTransport(self, node.name, address, incoming=back, outgoing=there)
        source = Address(node.host, self._take_port())
        theirs = MemoryTransport(self, listener.node, source, incoming=there, outgoing=back)
        mine.other, theirs.other = theirs, mine
        self._transports[mine] = self._transports[theirs] = None
        listener.pending.append(theirs)
        listener.changed.unpark_all()
        return mine

    def break_connection(self, transport: MemoryTransport, why: str) -> None:
        transport.fail(why)
        if transport.other is not None:
            transport.other.fail(why)

    def forget(self, transport: MemoryTransport) -> None:
        self._transports.pop(transport, None)

    def _take_port(self) -> int:
        self._next_port += 1
        return self._next_port

    @staticmethod
    def _bound_host(node: MemoryNode, host: str) -> str:
        if host in _WILDCARD:
            return node.host
        return _LOOPBACK[0] if host in _LOOPBACK else host

    def _find_listener(self, node: MemoryNode, address: Address) -> MemoryListener | None:
        if address.host not in _LOOPBACK:
            return self._listeners.get((address.host, address.port))
        shared = self._listeners.get((_LOOPBACK[0], address.port))
        return shared or self._listeners.get((node.host, address.port))

    def _owner_of(self, node: MemoryNode, address: Address) -> str:
        listener = self._find_listener(node, address)
        if listener is not None:
            return listener.node
        for known in self._nodes.values():
            if known.host == address.host:
                return known.name
        return node.name
