"""The network seam: non-blocking byte transports. Production: `network_socket`; tests: `strandline.testkit.network`.

The `*_nowait` calls never wait and never switch tasks: they raise `trio.WouldBlock` when nothing can be done now. A
failed or closed transport raises `TransportClosed`; library exceptions do not pass this seam.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from strandline.runtime.disk import Buffer, File

REACH_TIMEOUT_S = 2.0
"""So long another broker's machine may leave packets unanswered before it counts as out of reach. Linux repeats the
first packet of a connection after 1 s, later ones within 1.4 s: so after a cut, two brokers are connected again within
about a second. A broker that is busy or stopped is not meant: its machine goes on to answer."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TransportClosed(Exception):
    """The peer is gone, or this side closed the transport; the text says which."""


class CannotConnect(Exception):
    """Nobody answers at an address; the text names it and the cause."""


class ConnectionRefused(CannotConnect):
    """The machine answers, and says that no process listens there."""


CANNOT_LISTEN = "cannot listen on"
"""How the text of CannotListen begins: whoever started a broker reads it in the last line of its log."""


class CannotListen(Exception):
    """An address cannot be bound; the text names it and the cause."""


class Transport(Protocol):
    """One connection: ordered bytes both ways."""

    peer: Address

    def recv_into_nowait(self, buffer: memoryview) -> int:
        """Bytes read into `buffer`; 0 at the end of the stream. WouldBlock: nothing there yet."""

    def send_nowait(self, buffers: Sequence[Buffer], more: bool = False) -> int:
        """Send as much of the buffers as goes now, in one system call per IOV_MAX buffers; returns the bytes taken.
        `more`: further bytes follow at once (MSG_MORE), do not send a small packet yet. WouldBlock: nothing went."""

    def send_file_nowait(self, file: File, position: int, length: int) -> int:
        """Send from a file without copying; returns the bytes sent. 0: the file ended before `position`; the caller
        closes the connection, since it promised more than there is. OSError: the file cannot be read."""

    def has_ended(self) -> bool:
        """Whether the peer sends nothing more: it closed, or broke. Also while bytes of it are still to be read. A peer
        that is gone without a word has not."""

    async def wait_readable(self) -> None: ...

    async def wait_writable(self) -> None: ...

    def close(self) -> None:
        """Close now and wake every waiter with TransportClosed. Idempotent, never waits."""


class Listener(Protocol):
    """A bound address that accepts connections."""

    address: Address
    """The real one: port 0 was replaced by what the system chose."""

    async def accept(self) -> Transport:
        """The next connection. OSError with EMFILE/ENFILE/ENOMEM passes through: the acceptor backs off."""

    def close(self) -> None: ...


class Network(Protocol):
    """What a node can reach and offer."""

    async def connect(self, address: Address) -> Transport:
        """CannotConnect when nobody answers, as ConnectionRefused where the machine itself says so, at each address
        that its name has. The caller bounds the time where the network has no limit of its own."""

    async def listen(self, address: Address, backlog: int = 128) -> Listener:
        """CannotListen when the address is taken or not ours."""
