"""Paths and limits that both implementations of the coordination seam share: pure functions.

A path is absolute, below the chroot, without a slash at its end: "/", "/brokers", "/brokers/ids/1".
"""

from __future__ import annotations

from strandline.runtime.coordination import CoordinationError, RequestTooLarge

MAX_REQUEST_BYTES = 0xFFFFF
"""ZooKeeper's jute.maxbuffer: a server closes the connection over a longer request, so it is refused before."""


def split_servers(servers: str) -> tuple[str, str]:
    """("host:port,host:port", chroot) of a `zookeeper.connect` value; the chroot is "" or "/a/b".

    Raises CoordinationError for a string without a host or with a broken chroot.
    """
    hosts, slash, rest = servers.strip().partition("/")
    hosts = ",".join(host.strip() for host in hosts.split(",") if host.strip())
    if not hosts:
        raise CoordinationError(f"zookeeper.connect {servers!r} names no server: write host:port[,host:port][/chroot]")
    chroot = slash + rest.rstrip("/") if rest.strip("/") else ""
    if chroot:
        check_path(chroot)
    return hosts, chroot


def check_path(path: str) -> None:
    """Raises CoordinationError unless the path is one that ZooKeeper takes."""
    if path == "/":
        return
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise CoordinationError(f"{path!r} is no znode path: it starts with a slash and does not end with one")
    if any(part in ("", ".", "..") for part in path[1:].split("/")):
        raise CoordinationError(f"{path!r} is no znode path: it has an empty or a relative part")


def parent_of(path: str) -> str:
    """The parent's path; "/" for a child of the root."""
    return path[: path.rindex("/")] or "/"


def ancestors(path: str) -> list[str]:
    """Every path above this one, shortest first, without "/"."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]


def with_chroot(chroot: str, path: str) -> str:
    if not chroot:
        return path
    return chroot if path == "/" else chroot + path


def without_chroot(chroot: str, path: str) -> str:
    return path[len(chroot) :] or "/" if chroot else path


def check_request_size(size_bytes: int, operation: str, path: str) -> None:
    """Raises RequestTooLarge for a request that no server would read."""
    if size_bytes > MAX_REQUEST_BYTES:
        raise RequestTooLarge(
            f"{operation} {path}: the request has {size_bytes} bytes, ZooKeeper takes {MAX_REQUEST_BYTES}:"
            " store less data in one znode, or fewer operations in one transaction"
        )
