"""Proxies before the brokers of a cluster, and before ZooKeeper for each of them, which go silent when they are told:
connections stay, new ones are taken, and nothing passes. So a broker is cut off without rights to filter packets.

What it sends to other brokers by itself still arrives there: it is cut off from whoever calls it, and from ZooKeeper.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from strandline.cli.cluster import EmbeddedCluster

HOST = "127.0.0.1"
PIECE_BYTES = 65536


class SilentProxy:
    """One address that leads to another. Threads: a benchmark's, some dozens at most."""

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        self._target = target
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self) -> None:
        self._open.clear()

    def let_through(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._listener.close()
        self._open.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.wait()
        try:
            server = socket.create_connection(self._target())
        except OSError:
            client.close()
            return
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=self._copy, args=(server, client), daemon=True)
        back.start()
        self._copy(client, server)

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                self._open.wait()
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class SilentProxies:
    """Two for each broker: before it, and between it and ZooKeeper."""

    def __init__(self) -> None:
        self._by_broker: dict[int, tuple[SilentProxy, SilentProxy]] = {}

    def stand_before(self, cluster: EmbeddedCluster) -> None:
        """To be called before its start: brokers are advertised at their proxies from then on."""

        def zookeeper() -> tuple[str, int]:
            host, _, port = cluster.zookeeper.address.rpartition(":")
            return host, int(port)

        def broker(broker_id: int) -> Callable[[], tuple[str, int]]:
            return lambda: tuple(cluster.address(broker_id))

        for broker_id in cluster.broker_ids:
            self._by_broker[broker_id] = SilentProxy(broker(broker_id)), SilentProxy(zookeeper)
        own_properties = cluster._broker_properties

        def properties(broker_id: int) -> dict[str, str]:
            its, to_zookeeper = self._by_broker[broker_id]
            return {
                **own_properties(broker_id),
                "advertised.listeners": f"PLAINTEXT://{HOST}:{its.port}",
                "zookeeper.connect": f"{HOST}:{to_zookeeper.port}",
            }

        cluster._broker_properties = properties

    def silence(self, broker_id: int) -> None:
        for proxy in self._by_broker[broker_id]:
            proxy.silence()

    def let_through(self, broker_id: int) -> None:
        for proxy in self._by_broker[broker_id]:
            proxy.let_through()

    def close(self) -> None:
        for proxies in self._by_broker.values():
            for proxy in proxies:
                proxy.close()
