"""Ports of this machine for the embedded cluster and the tests: find a free one, ask a ZooKeeper which one it is.

Plain blocking calls: they run before there is an event loop. A port that is found free is not reserved; whoever binds
it a moment later may find it taken and asks for another one.
"""

from __future__ import annotations

import os
import random
import socket
import time
from pathlib import Path

LOOPBACK = "127.0.0.1"
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT = 10_240


class NoFreePort(Exception):
    """Hundreds of ports were tried and every one is taken."""


def free_port(preferred: int | None = None, *, taken: frozenset[int] = frozenset()) -> int:
    """A loopback TCP port that nobody listens on: `preferred` if it is free, else one below the system's ephemeral
    range. Not from within that range: while a server is down between two starts, an outgoing connection (even its own
    clients' attempts to reach it) could be given its port. `taken` are left out. NoFreePort when all are in use."""
    if preferred is not None and preferred not in taken and _is_free(preferred):
        return preferred
    highest = max(_lowest_ephemeral_port(), _LOWEST_PORT + 1000)
    generator = random.Random()
    for _ in range(500):
        port = generator.randrange(_LOWEST_PORT, highest)
        if port not in taken and _is_free(port):
            return port
    raise NoFreePort(f"no free port between {_LOWEST_PORT} and {highest} on {LOOPBACK}; stop something that listens")


def zookeeper_folder(port: int, timeout_s: float = 1.0) -> Path | None:
    """Where the ZooKeeper that serves on this loopback port keeps its snapshots; None while none does, or when its
    answer takes longer than `timeout_s`. It has to allow the four-letter word `conf`."""
    deadline = time.monotonic() + timeout_s
    try:
        with socket.create_connection((LOOPBACK, port), timeout=timeout_s) as connection:
            connection.sendall(b"conf")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
                connection.settimeout(max(0.001, deadline - time.monotonic()))
    except OSError:
        return None
    for line in answer.split(b"\n"):
        key, _, value = line.partition(b"=")
        if key == b"dataDir":
            return Path(os.fsdecode(value))
    return None


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers bind: a port whose last connections linger in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError):  # the latter: above 65535
            return False
    return True


def _lowest_ephemeral_port() -> int:
    try:
        return int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
