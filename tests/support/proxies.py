"""TCP proxies that fail as machines and processes do when they are told to: before each broker of a cluster, and
between each of them and ZooKeeper. So a broker that lives is out of reach without rights to filter packets.

| told to | connections | new ones |
|---|---|---|
| `silence` | stay, and nothing passes | are taken, and nothing passes |
| `drop_connections` | break | pass |
| `refuse` | break | are refused: nobody listens there |
| `fill_queue` | break | have no answer, as nobody accepts and the kernel's queue is full |
| `let_through` | | pass again, in `silence` also the old ones |

What a broker sends to others by itself still arrives there: it is out of reach for whoever calls it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from strandline.cli.cluster import EmbeddedCluster

HOST = "127.0.0.1"
PIECE_BYTES = 65536
BACKLOG = 128
QUEUE_PATIENCE_S = 0.3
"""On loopback a connection that there is room for is made at once."""
MAX_FILLERS = 16

Target = Callable[[], tuple[str, int]]


class Proxy:
    """One address that leads to another, which is asked for at each connection. Threads: some dozens at most. Its
    methods may be called from any thread, by one at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._passes = threading.Event()
        self._passes.set()
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        """Both ends of what passes now. Who is not in it any more has to be closed."""
        self._fillers: list[socket.socket] = []
        # Never listens: it keeps the port while nobody does, else another program could be given it.
        self._claim = _bound(0)
        self.port: int = self._claim.getsockname()[1]
        self._listener: socket.socket | None = None
        self._listen(BACKLOG)

    def silence(self) -> None:
        self._passes.clear()

    def drop_connections(self) -> None:
        self._listen(BACKLOG)

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
        self._passes.set()
        if self._listener is None or self._fillers:
            self._empty_queue()
            self._listen(BACKLOG)

    def close(self) -> None:
        self._replace_listener(None)
        self._empty_queue()
        self._claim.close()
        self._passes.set()

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
            connections, self._connections = self._connections, set()
        for each in (before, *connections):
            if each is not None:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)  # wakes who accepts or reads; to close alone does not
        if before is not None:
            before.close()

    def _empty_queue(self) -> None:
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with self._lock:
                    if self._listener is not listener:
                        client.close()
                        return
                    self._connections = {each for each in self._connections if each.fileno() >= 0} | {client}
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._passes.wait()
        with suppress(OSError), client, socket.create_connection(self._target()) as server:
            with self._lock:
                if client not in self._connections:
                    return
                self._connections.add(server)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=self._copy, args=(server, client), daemon=True)
            back.start()
            self._copy(client, server)
            back.join()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                self._passes.wait()
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


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
        def zookeeper() -> tuple[str, int]:
            host, _, port = cluster.zookeeper.address.rpartition(":")
            return host, int(port)

        def broker(broker_id: int) -> Target:
            return lambda: tuple(cluster.address(broker_id))

        self.before = {broker_id: Proxy(broker(broker_id)) for broker_id in cluster.broker_ids}
        self.to_zookeeper = {broker_id: Proxy(zookeeper) for broker_id in cluster.broker_ids}
        for broker_id in cluster.broker_ids:
            cluster.properties_of[broker_id] = {
                "advertised.listeners": f"PLAINTEXT://{HOST}:{self.before[broker_id].port}",
                "zookeeper.connect": f"{HOST}:{self.to_zookeeper[broker_id].port}",
            }

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
