"""TCP proxies that fail as machines, processes and networks do when they are told to: before each broker of a cluster,
and between each of them and ZooKeeper. So a broker that lives is out of reach without rights to filter packets.

| told to | connections | new ones |
|---|---|---|
| `silence` | stay, and nothing passes | are taken, and nothing passes |
| `drop_connections` | break | pass |
| `refuse` | break | are refused: nobody listens there |
| `fill_queue` | break | have no answer, as nobody accepts and the kernel's queue is full |
| `let_through` | | pass again, in `silence` also the old ones |

What a broker sends to others by itself still arrives there: it is out of reach for whoever calls it.

Between two places there is a `Way` in each direction, whoever of them made the connection: a broker, by its id,
`zookeeper`, or `client`, which is whoever is no broker. What goes a way that is cut arrives once it is healed, in
connections that still stand then; and a connection is made where both ways are open.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress

from strandline.cli.cluster import EmbeddedCluster
from support.socket_owners import owner_of

HOST = "127.0.0.1"
PIECE_BYTES = 65536
BACKLOG = 128
QUEUE_PATIENCE_S = 0.3
"""On loopback a connection that there is room for is made at once."""
MAX_FILLERS = 16

CLIENT, ZOOKEEPER = "client", "zookeeper"

Target = Callable[[], tuple[str, int]]


class Way:
    """What goes in one direction between two places. Any thread may call it."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        """Each piece of at most PIECE_BYTES arrives so much later, one after the other."""
        self._is_open = threading.Event()
        self._is_open.set()

    def cut(self) -> None:
        self._is_open.clear()

    def heal(self) -> None:
        self.delay_s = 0.0
        self._is_open.set()

    def go(self) -> None:
        """Returns when what goes this way arrives."""
        self._is_open.wait()
        if self.delay_s:
            time.sleep(self.delay_s)


Ways = tuple[Way, Way]
"""Of a connection: to where it leads, and back."""


class Proxy:
    """One address that leads to another, which is asked for at each connection. Threads: some hundreds at most. Its
    methods may be called from any thread, by one at a time."""

    def __init__(self, target: Target, ways_from: Callable[[tuple[str, int]], Ways] | None = None) -> None:
        """ways_from: those of who connects, by its address; asked for before anything passes."""
        self._target = target
        self._ways_from = ways_from or (lambda peer: (Way(), Way()))
        self._all = Way()
        """What every connection goes besides, in both directions."""
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, Ways] = {}
        """Both ends of what passes now. Who is not in it any more has to be closed."""
        self._fillers: list[socket.socket] = []
        # Never listens: it keeps the port while nobody does, else another program could be given it.
        self._claim = _bound(0)
        self.port: int = self._claim.getsockname()[1]
        self._listener: socket.socket | None = None
        self._listen(BACKLOG)

    def silence(self) -> None:
        self._all.cut()

    def drop_connections(self) -> None:
        self._listen(BACKLOG)

    def drop_those_on(self, ways: Collection[Way]) -> None:
        """Connections that go one of these ways break."""
        with self._lock:
            dropped = [each for each, its_ways in self._connections.items() if not set(its_ways).isdisjoint(ways)]
            for each in dropped:
                del self._connections[each]
        _break(dropped)

    def refuse(self) -> None:
        self._replace_listener(None)

    def fill_queue(self) -> None:
        """RuntimeError where the system has room for ever more connections."""
        self._listen(0, is_accepting=False)
        while len(self._fillers) < MAX_FILLERS:
            filler = socket.socket()
            self._fillers.append(filler)
            filler.settimeout(QUEUE_PATIENCE_S)
            try:
                filler.connect((HOST, self.port))
            except TimeoutError:
                return
        raise RuntimeError(f"{MAX_FILLERS} connections that nobody accepts do not fill a queue")

    def let_through(self) -> None:
        self._all.heal()
        if self._listener is None or self._fillers:
            self._empty_queue()
            self._listen(BACKLOG)

    def close(self) -> None:
        self._replace_listener(None)
        self._empty_queue()
        self._claim.close()
        self._all.heal()

    # --- inside --------------------------------------------------------------------------------------------------

    def _listen(self, backlog: int, *, is_accepting: bool = True) -> None:
        listener = _bound(self.port)
        listener.listen(backlog)
        self._replace_listener(listener)  # there is one at any moment: nobody is refused
        if is_accepting:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _replace_listener(self, listener: socket.socket | None) -> None:
        """All connections of before break."""
        with self._lock:
            before, self._listener = self._listener, listener
            connections, self._connections = self._connections, {}
        _break(connections)
        if before is not None:
            _break([before])
            before.close()

    def _empty_queue(self) -> None:
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, peer = listener.accept()
                ways = self._ways_from(peer)
                with self._lock:
                    if self._listener is not listener:
                        client.close()
                        return
                    self._connections = {each: its for each, its in self._connections.items() if each.fileno() >= 0}
                    self._connections[client] = ways
                threading.Thread(target=self._serve, args=(client, *ways), daemon=True).start()

    def _serve(self, client: socket.socket, there: Way, back: Way) -> None:
        for way in (self._all, back, there):
            way.go()
        with suppress(OSError), client, socket.create_connection(self._target()) as server:
            with self._lock:
                if client not in self._connections:
                    return
                self._connections[server] = (there, back)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            backwards = threading.Thread(target=self._copy, args=(server, client, back), daemon=True)
            backwards.start()
            self._copy(client, server, there)
            backwards.join()

    def _copy(self, source: socket.socket, sink: socket.socket, way: Way) -> None:
        with suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                self._go(way)
                sink.sendall(data)
        with self._lock:
            was_dropped = source not in self._connections
        if not was_dropped:
            self._go(way)  # the end of a connection is news, too
        _break((source, sink))

    def _go(self, way: Way) -> None:
        self._all.go()
        way.go()


def _break(connections: Collection[socket.socket]) -> None:
    for each in connections:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)  # wakes who accepts or reads; to close alone does not


def _bound(port: int) -> socket.socket:
    """Several of them may have the port at once: one that goes and the next one."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((HOST, port))
    return made


class BrokerProxies:
    """Of each broker of a cluster one `before` it, and one `to_zookeeper`. To be made before the cluster starts:
    brokers are advertised at their proxies from then on. To be closed after it has stopped."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._ways: defaultdict[tuple[str, str], Way] = defaultdict(Way)
        self.before = {each: self._before(each) for each in cluster.broker_ids}
        self.to_zookeeper = {each: self._to_zookeeper(each) for each in cluster.broker_ids}
        for broker_id in cluster.broker_ids:
            cluster.properties_of[broker_id] = {
                "advertised.listeners": f"PLAINTEXT://{HOST}:{self.before[broker_id].port}",
                "zookeeper.connect": f"{HOST}:{self.to_zookeeper[broker_id].port}",
            }

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,…` of the brokers, as they are advertised."""
        return ",".join(f"{HOST}:{proxy.port}" for proxy in self.before.values())

    def way(self, source: str, destination: str) -> Way:
        """A place is a broker's id, `zookeeper` or `client`."""
        return self._ways[source, destination]

    def drop(self, one: str, other: str) -> None:
        """Connections between the two break, whoever made them."""
        ways = {self._ways[one, other], self._ways[other, one]}
        for proxy in (*self.before.values(), *self.to_zookeeper.values()):
            proxy.drop_those_on(ways)

    def silence(self, broker_id: int) -> None:
        """Nothing that is sent to it arrives, and it reaches no ZooKeeper."""
        self.before[broker_id].silence()
        self.to_zookeeper[broker_id].silence()

    def let_through(self, broker_id: int) -> None:
        self.before[broker_id].let_through()
        self.to_zookeeper[broker_id].let_through()

    def close(self) -> None:
        for proxy in (*self.before.values(), *self.to_zookeeper.values()):
            proxy.close()
        for way in self._ways.values():
            way.heal()

    # --- inside --------------------------------------------------------------------------------------------------

    def _before(self, broker_id: int) -> Proxy:
        def ways_from(peer: tuple[str, int]) -> Ways:
            return self._both_ways(self._place_of(peer), str(broker_id))

        return Proxy(lambda: tuple(self._cluster.address(broker_id)), ways_from)

    def _to_zookeeper(self, broker_id: int) -> Proxy:
        def target() -> tuple[str, int]:
            host, _, port = self._cluster.zookeeper.address.rpartition(":")
            return host, int(port)

        return Proxy(target, lambda peer: self._both_ways(str(broker_id), ZOOKEEPER))

    def _both_ways(self, one: str, other: str) -> Ways:
        return self._ways[one, other], self._ways[other, one]

    def _place_of(self, peer: tuple[str, int]) -> str:
        running = {each.id.pid: str(broker_id) for broker_id, each in self._cluster.brokers.items() if each.id}
        pid = owner_of(peer, running)
        return CLIENT if pid is None else running[pid]
