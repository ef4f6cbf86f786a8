"""A connection of the broker's network as the stream that an ASGI server reads and writes.

So the server works over whatever network the broker has, and the broker keeps its bounds: a deadline for the request in
hand, which holds also where the server sends under a shield, and a close from outside that ends whoever waits here.
"""

from __future__ import annotations

import math
from contextlib import suppress

import trio

from strandline.runtime.network import Transport, TransportClosed

READ_BYTES = 4096
"""At a time. Of a head that is too long so much above its limit is read at most."""
LINGER_S = 1.0
LINGER_BYTES = 2**20
"""Whoever is refused in the middle of a request has so long, and may send so much, until it has read why: closing
before what it sends was read would reset the connection, and take the answer away."""


class _Unnamed:
    """What a server asks a socket for: here it learns no addresses, for which ASGI has None."""

    family = 0

    def getpeername(self) -> None:
        return None

    getsockname = getpeername


class TransportStream:
    """What is used of `trio.SocketStream`. It has no `send_eof`, since a transport has no half close."""

    def __init__(self, transport: Transport) -> None:
        self.socket = _Unnamed()
        self._transport = transport
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._deadline = math.inf
        self._reader = trio.Lock()
        self._reading = trio.CancelScope()
        self._ends = False

    @property
    def deadline(self) -> float:
        """When the request in hand must have been read and answered, by the loop's clock; then the connection ends."""
        return self._deadline

    @deadline.setter
    def deadline(self, at: float) -> None:
        self._deadline = self._reading.deadline = at

    async def receive_some(self, max_bytes: int) -> bytes:
        """Empty: the peer has sent all. ClosedResourceError (also: the deadline has passed), BrokenResourceError."""
        async with self._reader:
            if self._ends:
                raise trio.ClosedResourceError
            with trio.CancelScope(deadline=self._deadline) as self._reading:
                return await self._receive(min(max_bytes, READ_BYTES))
        raise trio.ClosedResourceError

    async def send_all(self, data: bytes) -> None:
        """ClosedResourceError, BrokenResourceError."""
        view = memoryview(data)
        with trio.CancelScope(deadline=self._deadline):
            try:
                while view:
                    try:
                        view = view[self._transport.send_nowait([view]) :]
                    except trio.WouldBlock:
                        await self._transport.wait_writable()
            except TransportClosed as error:
                raise trio.BrokenResourceError from error
            return
        self._transport.close()
        raise trio.BrokenResourceError

    async def linger(self) -> None:
        """Read on, for nothing, until the peer closes or that is enough. Nobody else reads any more."""
        self._end_reading()
        left = LINGER_BYTES
        async with self._reader:
            with trio.move_on_after(LINGER_S), suppress(trio.BrokenResourceError):
                while left > 0 and (data := await self._receive(READ_BYTES)):
                    left -= len(data)

    async def aclose(self) -> None:
        self._end_reading()
        self._transport.close()

    def _end_reading(self) -> None:
        self._ends = True
        self._reading.cancel()

    async def _receive(self, max_bytes: int) -> bytes:
        try:
            while True:
                await trio.lowlevel.checkpoint()  # however fast a peer sends, others get their turn
                try:
                    return bytes(self._buffer[: self._transport.recv_into_nowait(self._buffer[:max_bytes])])
                except trio.WouldBlock:
                    await self._transport.wait_readable()
        except TransportClosed as error:
            raise trio.BrokenResourceError from error
