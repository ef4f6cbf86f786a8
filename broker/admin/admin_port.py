"""The admin port: what probes and people ask a broker over HTTP.

    GET /live     204 while the event loop turns
    GET /ready    200 once this broker does its share, 503 before, with the reasons (`health_check`)
    GET /status   JSON: broker, controller, partitions, versions

HTTP is parsed by h11; this file only moves bytes. Loopback unless configured otherwise (`admin.listener`), bounded in
connections, bytes and time, and apart from the data plane: it has no part in its queues, and a broker whose data plane
is full still answers here. Whoever comes when all connections are taken gets the place of the one that asked nothing
for the longest time. Nothing that a peer sends, and no bug behind an answer, ends more than its own connection. A new
page is a row of `AdminPort._pages`.

Why no ASGI server: hypercorn 0.18 on trio sends under a shield, so that one client that does not read its answer keeps
a cancelled server, and with it the broker, from ever ending. It bounds no number of connections, takes sockets and not
the broker's network, and with starlette costs each broker 4 MiB of memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

import h11
import trio

from strandline.broker.admin.health_check import Health
from strandline.runtime.logging import Logger
from strandline.runtime.network import Address, Network, Transport, TransportClosed

MAX_CONNECTIONS = 64
MAX_HEAD_BYTES = 16 * 2**10
MAX_BODY_BYTES = 64 * 2**10
"""A body means nothing here; so much of one is taken before the request is refused."""
IDLE_S = 30.0
"""A request has to be complete, and its answer taken, within this time."""
LINGER_S = 1.0
LINGER_BYTES = 2**20
"""Whoever is refused in the middle of a request has so long, and may send so much, until it has read why: closing
before what it sends was read would reset the connection, and take the answer away."""
ACCEPT_BACKOFF_S = 0.1
_READ_BYTES = 4096
_ORIGIN = re.compile(rb"https?://[^/?]*", re.IGNORECASE)
"""What an absolute target has before its path (RFC 9112, 3.2.2)."""

Answer = tuple[int, bytes]
"""Status code and JSON body (empty: none)."""


class AdminPort:
    """See the module."""

    def __init__(self, address: Address, network: Network, health: Callable[[], Health], log: Logger) -> None:
        self._address = address
        self._network = network
        self._health = health
        self._log = log
        self._open: dict[Transport, None] = {}
        """Every connection, the one that asked nothing for the longest time first."""
        self._pages: Mapping[str, Callable[[], Answer]] = {
            "/live": lambda: (204, b""),
            "/ready": self._ready,
            "/status": lambda: (200, _json(self._health().status)),
        }

    async def run(self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED) -> None:
        """Bind (CannotListen), report the real address, answer until cancelled; then the address is free again."""
        listener = await self._network.listen(self._address)
        self._log.info("admin port", bound=str(listener.address))
        task_status.started(listener.address)
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    try:
                        transport = await listener.accept()
                    except OSError as error:  # out of descriptors or memory
                        self._log.warning("admin port cannot accept", error=str(error))
                        await trio.sleep(ACCEPT_BACKOFF_S)
                        continue
                    if len(self._open) >= MAX_CONNECTIONS:
                        longest_idle = next(iter(self._open))
                        del self._open[longest_idle]
                        longest_idle.close()
                    self._open[transport] = None
                    nursery.start_soon(self._serve, transport)
        finally:
            listener.close()

    # --- one connection ------------------------------------------------------------------------------------------

    async def _serve(self, transport: Transport) -> None:
        peer = _Peer(transport)
        try:
            goes_on = True
            while goes_on:
                goes_on = False
                with trio.move_on_after(IDLE_S):
                    goes_on = await self._serve_request(peer)
                if transport in self._open:
                    del self._open[transport]
                    self._open[transport] = None  # behind all that were silent meanwhile
        except TransportClosed:
            return
        except Exception as error:  # a bug here or behind an answer: no reason for a broker to end
            self._log.error("an admin request failed", error=repr(error), exc_info=error)
        finally:
            transport.close()
            self._open.pop(transport, None)

    async def _serve_request(self, peer: _Peer) -> bool:
        """Read one request and answer it. False: there is none, or nothing more is to be said here."""
        http = peer.http
        head = False
        try:
            request = await peer.next_request()
            if request is None:
                return False
            head = request.method == b"HEAD"
            if await peer.take_body(request):
                status, body = self._answer(request)
            else:
                status, body = 413, _json({"error": f"a body has at most {MAX_BODY_BYTES} bytes, and none is needed"})
        except h11.RemoteProtocolError as error:
            if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                return False
            status, body = error.error_status_hint, _json({"error": "this is no HTTP/1.1 request"})
        refused = http.their_state in (h11.SEND_BODY, h11.ERROR)
        headers = [("Cache-Control", "no-store")]
        if refused:
            headers.append(("Connection", "close"))
        if status != 204:
            headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if status == 405:
            headers.append(("Allow", "GET, HEAD"))
        data = http.send(h11.Response(status_code=status, headers=headers)) or b""
        if body and not head:
            data += http.send(h11.Data(data=body)) or b""
        data += http.send(h11.EndOfMessage()) or b""
        await peer.send(data)
        if refused:
            await peer.linger()
            return False
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return False
        http.start_next_cycle()
        return True

    def _answer(self, request: h11.Request) -> Answer:
        target = _ORIGIN.sub(b"", request.target, count=1) if request.target[:1] != b"/" else request.target
        path = target.partition(b"?")[0].decode("ascii", "replace")
        page = self._pages.get(path)
        if page is None:
            return 404, _json({"error": f"there is {', '.join(self._pages)}"})
        if request.method not in (b"GET", b"HEAD"):
            return 405, _json({"error": "only GET and HEAD are answered"})
        return page()

    def _ready(self) -> Answer:
        waits = self._health().waits
        return (503 if waits else 200), _json({"ready": not waits, "waits": waits})


class _Peer:
    """One connection's bytes and events."""

    def __init__(self, transport: Transport) -> None:
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._transport = transport
        self._buffer = bytearray(_READ_BYTES)
        self._received_bytes = 0
        """Since the request began."""

    async def next_request(self) -> h11.Request | None:
        """None: the peer is done. h11.RemoteProtocolError where it breaks the protocol."""
        self._received_bytes = 0
        if not self.http.trailing_data[0]:
            # Empty lines before a request are no fault (RFC 9112, 2.2); h11 knows none.
            data = await self._receive()
            if not data or (data := data.lstrip(b"\r\n")):
                self.http.receive_data(data)
        event = await self._next_event()
        return event if isinstance(event, h11.Request) else None

    async def take_body(self, request: h11.Request) -> bool:
        """Read what belongs to the request and forget it. False: it is too much. h11.RemoteProtocolError."""
        declared = dict(request.headers).get(b"content-length", b"0")
        if int(declared) > MAX_BODY_BYTES:
            return False
        while not isinstance(await self._next_event(), h11.EndOfMessage):
            if self._received_bytes > MAX_HEAD_BYTES + MAX_BODY_BYTES:  # chunks: what frames them counts, too
                return False
        return True

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._transport.send_nowait([view]) :]
            except trio.WouldBlock:
                await self._transport.wait_writable()

    async def linger(self) -> None:
        """Read on, for nothing, until the peer closes or that is enough."""
        self._received_bytes = 0
        with trio.move_on_after(LINGER_S):
            while self._received_bytes < LINGER_BYTES and await self._receive():
                await trio.lowlevel.checkpoint()

    async def _next_event(self) -> object:
        try:
            while (event := self.http.next_event()) is h11.NEED_DATA:
                self.http.receive_data(await self._receive())
        except ValueError as error:  # of int(), for a Content-Length with thousands of digits
            raise h11.RemoteProtocolError(str(error)) from None
        await trio.lowlevel.checkpoint()
        return event

    async def _receive(self) -> bytes:
        """Empty: the peer has sent all."""
        while True:
            try:
                count = self._transport.recv_into_nowait(memoryview(self._buffer))
            except trio.WouldBlock:
                await self._transport.wait_readable()
                continue
            self._received_bytes += count
            return bytes(self._buffer[:count])


def _json(content: object) -> bytes:
    return json.dumps(content, indent=1).encode() + b"\n"
