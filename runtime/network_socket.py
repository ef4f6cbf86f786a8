"""The network seam over real TCP sockets.

Rules:
* TCP_NODELAY always: without it a pipelined connection falls from 200 K to 1.5 K requests/s (Nagle meets delayed ACK).
* With a reach timeout, a connection that this side opened ends when the other machine is silent for so long, whether
  something was sent (TCP_USER_TIMEOUT) or nothing (keepalive). TCP alone repeats ever more rarely: after a cut of half
  a minute it may be silent for as long again. Connections that were accepted have no such limit: on them the kernel
  would count, too, how long a client does not read.
* On loopback TCP_CONGESTION=cubic where the kernel has it: up to twice as fast as bbr from 64 KB up. Best effort.
* Sockets are non-blocking; every library exception becomes `trio.WouldBlock` or an error of the seam.
* `close` wakes the waiters of this transport first (`notify_closing`), so nobody waits on a reused descriptor.
"""

from __future__ import annotations

import errno
import math
import os
import resource
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import trio

from strandline.runtime.disk import Buffer, File
from strandline.runtime.network import (
    CANNOT_LISTEN,
    Address,
    CannotConnect,
    CannotListen,
    ConnectionRefused,
    TransportClosed,
)

IOV_MAX = 1024
"""Linux's limit of buffers per system call (UIO_MAXIOV)."""

PREAD_CHUNK_BYTES = 256 * 1024
"""How much of a file without a descriptor is read and sent at a time."""

KEEPALIVE_S = 1
"""A silent connection is probed so often, where there is a reach timeout."""

_LOOPBACK_CONGESTION_CONTROL = b"cubic"

_TRANSIENT_ACCEPT_ERRORS = frozenset(
    {
        errno.EPERM,
        errno.ECONNABORTED,
        errno.EPROTO,
        errno.ENETDOWN,
        errno.ENOPROTOOPT,
        errno.EHOSTDOWN,
        errno.ENONET,
        errno.EHOSTUNREACH,
        errno.EOPNOTSUPP,
        errno.ENETUNREACH,
        errno.ETIMEDOUT,
    }
)
"""accept(2): errors of the one connection that was about to be accepted; the next one may be fine."""


SPARE_DESCRIPTORS = 16
"""What connections of others leave to this process: who opens many and sends nothing must not keep it from opening its
own files. A process that may have few of them leaves a quarter."""

SocketName = tuple[str, int] | tuple[str, int, int, int]
"""What the socket module calls an address: host, port, and for IPv6 flow info and scope."""

_DISK_ERRORS = frozenset({errno.EIO, errno.EUCLEAN, errno.ENODATA})
"""What sendfile says when it is the file that cannot be read; no socket does."""


def _require_spare_descriptors(sock: socket.socket) -> None:
    """OSError (EMFILE) unless some are free: the kernel gives the lowest number that is."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(sock.fileno())
    os.close(lowest_free)
    if limit != resource.RLIM_INFINITY and lowest_free >= limit - min(SPARE_DESCRIPTORS, limit // 4):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _is_loopback(host: str) -> bool:
    return host.startswith(("127.", "::ffff:127.")) or host in ("::1", "localhost")


def _address_of(name: SocketName) -> Address:
    return Address(name[0], name[1])


def _cause(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def _tune(sock: socket.socket, peer_host: str) -> None:
    """Options of a connection. Only TCP_NODELAY is essential; a peer that is already gone makes any of them fail."""
    with suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    _prefer_loopback_congestion_control(sock, peer_host)


def _end_when_out_of_reach(sock: socket.socket, reach_timeout_s: float) -> None:
    """Options of Linux; elsewhere TCP's own patience holds."""
    for name, value in (
        ("TCP_USER_TIMEOUT", int(reach_timeout_s * 1000)),  # with it, the number of keepalive probes does not count
        ("TCP_KEEPIDLE", KEEPALIVE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_S),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _prefer_loopback_congestion_control(sock: socket.socket, host: str) -> None:
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is not None and _is_loopback(host):
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, option, _LOOPBACK_CONGESTION_CONTROL)


class SocketTransport:
    """One TCP connection. `sock` must be non-blocking; this object owns it."""

    __slots__ = ("_closed_because", "_fd", "_socket", "peer")

    def __init__(self, sock: socket.socket, peer: Address) -> None:
        self.peer = peer
        self._socket = sock
        self._fd = sock.fileno()
        self._closed_because: str | None = None

    def recv_into_nowait(self, buffer: memoryview) -> int:
        try:
            return self._socket.recv_into(buffer)
        except BlockingIOError:
            raise trio.WouldBlock from None
        except OSError as error:
            raise self._failed(error) from None

    def send_nowait(self, buffers: Sequence[Buffer], more: bool = False) -> int:
        flags = socket.MSG_MORE if more else 0
        try:
            if len(buffers) == 1:
                return self._socket.send(buffers[0], flags)
            if len(buffers) <= IOV_MAX:
                return self._socket.sendmsg(buffers, (), flags)
        except BlockingIOError:
            raise trio.WouldBlock from None
        except OSError as error:
            raise self._failed(error) from None
        return self._send_many(buffers, flags)

    def _send_many(self, buffers: Sequence[Buffer], flags: int) -> int:
        sent = 0
        for start in range(0, len(buffers), IOV_MAX):
            chunk = buffers[start : start + IOV_MAX]
            last = start + IOV_MAX >= len(buffers)
            try:
                taken = self._socket.sendmsg(chunk, (), flags if last else flags | socket.MSG_MORE)
            except BlockingIOError:
                break
            except OSError as error:
                raise self._failed(error) from None
            sent += taken
            if taken < sum(memoryview(buffer).nbytes for buffer in chunk):
                break
        if not sent:
            raise trio.WouldBlock
        return sent

    def send_file_nowait(self, file: File, position: int, length: int) -> int:
        fileno = getattr(file, "fileno", None)
        try:
            if fileno is not None and self._closed_because is None:
                return os.sendfile(self._fd, fileno(), position, length)
        except BlockingIOError:
            raise trio.WouldBlock from None
        except OSError as error:
            if error.errno in _DISK_ERRORS:
                raise OSError(error.errno, os.strerror(error.errno), file.path) from None
            raise self._failed(error) from None
        # A file that lives in memory: read and send as much as one call takes.
        piece = file.pread(min(length, PREAD_CHUNK_BYTES), position)
        return self.send_nowait([piece]) if piece else 0

    def has_ended(self) -> bool:
        if self._closed_because is not None:
            return True
        asked = select.poll()
        asked.register(self._fd, select.POLLRDHUP)  # errors and hang-ups are told in any case
        return bool(asked.poll(0))

    async def wait_readable(self) -> None:
        if self._closed_because is not None:
            raise TransportClosed(self._closed_because)
        try:
            await trio.lowlevel.wait_readable(self._fd)
        except trio.ClosedResourceError:
            raise TransportClosed(self._closed_because or "closed by this side") from None

    async def wait_writable(self) -> None:
        if self._closed_because is not None:
            raise TransportClosed(self._closed_because)
        try:
            await trio.lowlevel.wait_writable(self._fd)
        except trio.ClosedResourceError:
            raise TransportClosed(self._closed_because or "closed by this side") from None

    def close(self) -> None:
        if self._closed_because is not None:
            return
        self._closed_because = f"connection with {self.peer} was closed by this side"
        with suppress(RuntimeError):  # no event loop runs any more: then nobody waits either
            trio.lowlevel.notify_closing(self._socket)
        self._socket.close()

    def _failed(self, error: OSError) -> TransportClosed:
        if self._closed_because is not None:
            return TransportClosed(self._closed_because)
        return TransportClosed(f"connection with {self.peer} failed: {_cause(error)}")


class SocketListener:
    """A listening TCP socket."""

    def __init__(self, sock: socket.socket, address: Address) -> None:
        self.address = address
        self._socket = sock
        self._closed = False

    async def accept(self) -> SocketTransport:
        """The next connection. TransportClosed once the listener is closed; EMFILE and its kin pass through, the former
        before the last descriptors are taken."""
        while True:
            if self._closed:
                raise TransportClosed(f"listener {self.address} was closed by this side")
            _require_spare_descriptors(self._socket)
            try:
                sock, name = self._socket.accept()
            except BlockingIOError:
                try:
                    await trio.lowlevel.wait_readable(self._socket)
                except trio.ClosedResourceError:
                    raise TransportClosed(f"listener {self.address} was closed by this side") from None
            except OSError as error:
                if error.errno not in _TRANSIENT_ACCEPT_ERRORS:
                    raise
                await trio.lowlevel.checkpoint()
            else:
                sock.setblocking(False)
                peer = _address_of(name)
                _tune(sock, peer.host)
                return SocketTransport(sock, peer)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with suppress(RuntimeError):
            trio.lowlevel.notify_closing(self._socket)
        self._socket.close()


class SocketNetwork:
    """`Network` over the machine's TCP stack. Buffer sizes in bytes; None leaves them to the kernel's autotuning.
    reach_timeout_s: bounds connecting to each address of a name, and the silence of connections that were opened here;
    None leaves both to the caller."""

    def __init__(
        self,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
        *,
        reach_timeout_s: float | None = None,
    ) -> None:
        self._reach_timeout_s = reach_timeout_s
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes

    async def connect(self, address: Address) -> SocketTransport:
        try:
            candidates = await _resolve(address)
        except (OSError, UnicodeError) as error:
            cause = _cause(error) if isinstance(error, OSError) else "not a host name"
            raise CannotConnect(f"cannot connect to {address}: {cause}") from None
        last = "the name has no address"
        refusals = 0
        for family, kind, protocol, _, name in candidates:
            try:
                with trio.fail_after(math.inf if self._reach_timeout_s is None else self._reach_timeout_s):
                    return await self._connect_to(family, kind, protocol, cast(SocketName, name))
            except OSError as error:
                last = _cause(error)
                refusals += error.errno == errno.ECONNREFUSED
            except trio.TooSlowError:
                last = f"no answer within {self._reach_timeout_s:g} s"
        kind_of_failure = ConnectionRefused if refusals and refusals == len(candidates) else CannotConnect
        raise kind_of_failure(f"cannot connect to {address}: {last}")

    async def _connect_to(self, family: int, kind: int, protocol: int, name: SocketName) -> SocketTransport:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            self._size_buffers(sock)
            _prefer_loopback_congestion_control(sock, name[0])
            code = sock.connect_ex(name)
            if code == errno.EINPROGRESS:
                await trio.lowlevel.wait_writable(sock)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            else:
                await trio.lowlevel.checkpoint()
            if code:
                raise OSError(code, os.strerror(code))
            if sock.getsockname() == sock.getpeername():
                # An ephemeral source port that equals the target makes TCP connect to itself on loopback.
                raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            _tune(sock, name[0])
            if self._reach_timeout_s is not None:
                _end_when_out_of_reach(sock, self._reach_timeout_s)
            return SocketTransport(sock, _address_of(name))
        except BaseException:
            sock.close()
            raise

    async def listen(self, address: Address, backlog: int = 128) -> SocketListener:
        host = address.host or None  # an empty host is Kafka's way to say "every interface"
        sock: socket.socket | None = None
        try:
            found = await trio.socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, found_name = found[0]
            name = cast(SocketName, found_name)
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and name[0] == "::":
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # "::" means every interface, IPv4 too
            self._size_buffers(sock)  # before listen: accepted sockets inherit them and the window scale
            _prefer_loopback_congestion_control(sock, name[0])
            sock.bind(name)
            sock.listen(backlog)
        except (OSError, UnicodeError) as error:
            if sock is not None:
                sock.close()
            cause = _cause(error) if isinstance(error, OSError) else "not a host name"
            raise CannotListen(f"{CANNOT_LISTEN} {address}: {cause}; choose a free address of this machine") from None
        return SocketListener(sock, _address_of(sock.getsockname()))

    def _size_buffers(self, sock: socket.socket) -> None:
        if self._send_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        if self._receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)


async def _resolve(address: Address) -> list[Any]:
    """What to connect to. OSError, UnicodeError."""
    try:
        return await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except RuntimeError:  # Python 3.12 starts no thread while the interpreter ends: then nothing else is kept waiting
        return socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
