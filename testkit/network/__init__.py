"""An in-memory network: whole clusters in one event loop, with faults per pair of nodes.

```
network = MemoryNetwork(seed=1)
broker, client = network.node("broker-1"), network.node("client")     # each is a `Network`
network.link("client", "broker-1").latency_s = 0.002                   # one direction
network.cut("broker-1", "client")                                      # one-way: nothing arrives until it is healed
```
Rules:
* Deterministic: no thread. A pipe holds (arrival time, bytes); its agenda wakes who waits for bytes at the next
  arrival on trio's clock, so a virtual clock jumps from delivery to delivery. Each link has its own seeded draws.
* Bytes are ordered and never lost inside a connection, as in TCP; what can fail is the connection: dropped (both sides
  see it), cut (silence, half-open when one-way), cut off in the middle of a frame, refused, a node down.
* A pipe holds at most the link's window of unread bytes: a peer that does not read pushes back.
* A host that is a loopback or wildcard name is shared by all nodes, as on one machine; any other host belongs to the
  node that has it (default: the node's name).
"""

from __future__ import annotations

import errno
import math
import os
import random
from collections import deque

import trio

from strandline.runtime.network import (
    CANNOT_LISTEN,
    Address,
    CannotConnect,
    CannotListen,
    ConnectionRefused,
    TransportClosed,
)
from strandline.testkit.agenda import Agenda
from strandline.testkit.clock import common_time
from strandline.testkit.network.pipes import DEFAULT_WINDOW_BYTES, MemoryLink, MemoryTransport, Pipe

FIRST_EPHEMERAL_PORT = 40_000
FIRST_SYN_PAUSE_S, LAST_SYN_PAUSE_S = 1.0, 32.0
"""Of Linux; doubled in between."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_WILDCARD = ("", "0.0.0.0", "::")


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
                if self._network.node(self.node).lacks_descriptors:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
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
    """What one node sees of the network: a `Network`. reach_timeout_s: as `SocketNetwork` has it; may be set at any
    time, for connections from then on."""

    def __init__(self, network: MemoryNetwork, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.reach_timeout_s = math.inf
        self.down = False
        self.refuses = self.takes_nobody = self.lacks_descriptors = False
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
        self.at = Agenda("in-memory network").at

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
        link = self.link(source, destination)
        if link.lost_since is None:
            link.lost_since = common_time()
            self.changed()

    def cut_both(self, one: str, other: str) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def isolate(self, name: str) -> None:
        """Cut a node off from all others (its own loopback still works)."""
        for other in self._nodes:
            if other != name:
                self.cut_both(name, other)

    def hold(self, name: str) -> None:
        """The node's process is stopped: bytes to and from it wait, its kernel answers."""
        self._hold(name, True)

    def release(self, name: str) -> None:
        """What waited arrives now."""
        self._hold(name, False)

    def _hold(self, name: str, held: bool) -> None:
        for other in self._nodes:
            if other != name:
                self.link(name, other).held = self.link(other, name).held = held
        self.changed()

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """Undo cuts and filters: between two nodes, of one node, or all. What was lost arrives when TCP sends it again;
        who waits for a connection gets it with its next SYN."""
        healed = set()
        for ends, link in self._links.items():
            if (one is None or one in ends) and (other is None or other in ends):
                link.refused = False
                if link.lost_since is not None:
                    link.lost_since = None
                    healed.add(id(link))
        for transport in list(self._transports):
            if id(transport.incoming_link) in healed:
                transport.repeat()
        self.changed()

    def refuse(self, name: str) -> None:
        """Connecting to the node is refused, by a packet filter or a port that is taken away for a while; its process
        lives and connections that are open stay."""
        self.node(name).refuses = True

    def refuse_each_other(self, one: str, other: str) -> None:
        """A packet filter between two nodes, until `heal`: what connects them breaks, and each refuses the other."""
        for source, destination in ((one, other), (other, one)):
            self.link(source, destination).refused = True
        self.drop_connections(one, other)

    def take_connections(self, name: str) -> None:
        """Connecting to the node works again."""
        self.node(name).refuses = False

    def fill_queue(self, name: str) -> None:
        """The node accepts nobody for a while: who connects hears nothing."""
        self.node(name).takes_nobody = True

    def empty_queue(self, name: str) -> None:
        """It accepts again; who waits gets in with the next SYN."""
        self.node(name).takes_nobody = False

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

    def ends(self) -> list[tuple[str, str]]:
        """Of each end of a connection that nobody has closed: whose it is, and with whom."""
        return [(each.node, each.other.node if each.other is not None else "") for each in self._transports]

    def changed(self) -> None:
        """Wake everybody who waits, after links were changed by hand."""
        for transport in list(self._transports):
            transport.wake()
        self._topology_changed.unpark_all()

    # --- what nodes and transports call --------------------------------------------------------------------------

    def bind(self, node: MemoryNode, address: Address, backlog: int) -> MemoryListener:
        if node.down:
            raise CannotListen(f"{CANNOT_LISTEN} {address}: node {node.name} is down")
        host, port = address
        if port == 0:
            port = self._take_port()
        key = (self._bound_host(node, host), port)
        if key in self._listeners:
            raise CannotListen(f"{CANNOT_LISTEN} {address}: the address is in use; choose a free address")
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
        if node.lacks_descriptors:
            raise CannotConnect(f"cannot connect to {address}: {os.strerror(errno.EMFILE)}")
        target = self._owner_of(node, address)
        with trio.move_on_after(node.reach_timeout_s) as reaching:
            await self._get_through(node, address, target)
        if reaching.cancelled_caught:
            raise CannotConnect(f"cannot connect to {address}: no answer within {node.reach_timeout_s:g} s")
        there, back = self.link(node.name, target), self.link(target, node.name)
        round_trip_s = there.latency_s + back.latency_s
        if round_trip_s:
            await trio.sleep(round_trip_s)
        listener = self._find_listener(node, address)
        if listener is None or there.refused or (self.node(target).refuses and target != node.name):
            raise ConnectionRefused(f"cannot connect to {address}: refused")
        return self._join(node, address, listener)

    async def _get_through(self, node: MemoryNode, address: Address, target: str) -> None:
        """As TCP, which repeats its SYN ever more rarely: whoever connects during a cut does not get through when it is
        healed, but with the next SYN. Nor is anybody refused whom a full queue has no place for. The caller bounds the
        time."""
        source = node.name
        pause_s = FIRST_SYN_PAUSE_S
        there, back = self.link(source, target), self.link(target, source)
        while there.blocked or back.blocked or self._is_full(node, address):
            if there.held or back.held:
                await self._topology_changed.park()
                continue
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_SYN_PAUSE_S)

    def _is_full(self, node: MemoryNode, address: Address) -> bool:
        listener = self._find_listener(node, address)
        if listener is None:
            return False
        return len(listener.pending) >= listener.backlog or self.node(listener.node).takes_nobody

    def _join(self, node: MemoryNode, address: Address, listener: MemoryListener) -> MemoryTransport:
        there = Pipe(self.link(node.name, listener.node))
        back = Pipe(self.link(listener.node, node.name))
        mine = MemoryTransport(self, node.name, address, back, there, node.reach_timeout_s)
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
