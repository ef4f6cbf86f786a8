"""A connection of which a test, or a workload of a simulation, has every byte in its own hands."""

from __future__ import annotations

import trio

from strandline.runtime.network import Transport, TransportClosed

_READ_BYTES = 256 * 1024


class RawConnection:
    """`received`: what has come and was not taken yet. Not for two tasks that read at once."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.received = bytearray()
        self._buffer = memoryview(bytearray(_READ_BYTES))

    async def send(self, data: bytes) -> None:
        """All of `data`; TransportClosed when the peer is gone."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.transport.send_nowait([view]) :]
            except trio.WouldBlock:
                await self.transport.wait_writable()

    async def receive(self) -> bool:
        """Wait for more in `received`. False: the connection ended or broke."""
        while True:
            try:
                count = self.transport.recv_into_nowait(self._buffer)
            except trio.WouldBlock:
                try:
                    await self.transport.wait_readable()
                except TransportClosed:
                    return False
                continue
            except TransportClosed:
                return False
            self.received += self._buffer[:count]
            return count > 0

    async def is_closed_by_peer(self) -> bool:
        """Wait for the next thing the broker does: True when that is closing, False for bytes."""
        return not self.received and not await self.receive()

    def close(self) -> None:
        self.transport.close()
