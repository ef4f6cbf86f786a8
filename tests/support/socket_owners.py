"""Which process has the other end of a connection, on this machine: by Linux's tables of sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_TABLE = Path("/proc/net/tcp")
_LOCAL_ADDRESS, _INODE = 1, 9
"""Columns of that table."""


def owner_of(address: tuple[str, int], pids: Iterable[int]) -> int | None:
    """Of these processes the one that has a connection from `address` (IPv4, port); None: none of them."""
    if (inode := _inode_of(address)) is None:
        return None
    wanted = f"socket:[{inode}]"
    return next((pid for pid in pids if wanted in _open_files(pid)), None)


def _inode_of(address: tuple[str, int]) -> str | None:
    host, port = address
    # The kernel writes the four bytes as a number in the machine's own order.
    wanted = f"{int.from_bytes(socket.inet_aton(host), 'little'):08X}:{port:04X}"
    for line in _TABLE.read_text().splitlines()[1:]:
        columns = line.split()
        if columns[_LOCAL_ADDRESS] == wanted:
            return columns[_INODE]
    return None


def _open_files(pid: int) -> set[str]:
    """Where the descriptors of a process lead. Empty where it has ended."""
    found = set()
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                found.add(os.readlink(descriptor))
    return found
