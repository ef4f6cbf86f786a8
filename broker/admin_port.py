"""The admin port: what probes and people ask a broker over HTTP.

    GET /live     204 while the event loop turns
    GET /ready    200 once this broker does its share, 503 before, with the reasons (`health`)
    GET /status   JSON: broker, controller, partitions, versions

HTTP is parsed by h11; this file only moves bytes. Loopback unless configured otherwise (`admin.listener`), bounded in
connections, bytes and time, and apart from the data plane: it has no part in its queues, and a broker whose data plane
is full still answers here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import h11
import trio

from strandline.broker.health import Health
from strandline.runtime.logging import Logger
from strandline.runtime.network import Address, Network, Transport, TransportClosed

MAX_CONNECTIONS = 64
MAX_HEAD_BYTES = 16 * 2**10
IDLE_S = 30.0
"""A request has to be complete, and its answer taken, within this time."""
ACCEPT_BACKOFF_S = 0.1
_READ_BYTES = 4096

Answer = tuple[int, bytes]
"""Status code and JSON body (empty: none)."""


class AdminPort:
    """See the module."""

    def __init__(self, address: Address, network: Network, health: Callable[[], Health], log: Logger) -> None:
        self._address = address
        self._network = network
        self._health = health
        self._log = log
        self._connections = 0
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
                    if self._connections >= MAX_CONNECTIONS:
                        transport.close()
                        continue
                    self._connections += 1
                    nursery.start_soon(self._serve, transport)
        finally:
            listener.close()

    # --- one connection ------------------------------------------------------------------------------------------

    async def _serve(self, transport: Transport) -> None:
        try:
            http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
            while http.our_state is not h11.MUST_CLOSE:
                with trio.move_on_after(IDLE_S) as patience:
                    if not await self._serve_request(transport, http):
                        return
                if patience.cancelled_caught:
                    return
                if http.our_state is h11.DONE and http.their_state is h11.DONE:
                    http.start_next_cycle()
        except TransportClosed:
            return
        finally:
            transport.close()
            self._connections -= 1

    async def _serve_request(self, transport: Transport, http: h11.Connection) -> bool:
        """Read one request and answer it. False: there is none, or nothing more can be said here."""
        try:
            request = await _next_event(transport, http)
            if not isinstance(request, h11.Request):
                return False
            while not isinstance(await _next_event(transport, http), h11.EndOfMessage):
                pass  # a body means nothing here
            status, body = self._answer(request)
        except h11.RemoteProtocolError as error:
            if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                return False
            request, status, body = None, error.error_status_hint, _json({"error": "this is no HTTP/1.1 request"})
        headers = [("Cache-Control", "no-store")]
        if status != 204:
            headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if status == 405:
            headers.append(("Allow", "GET, HEAD"))
        data = http.send(h11.Response(status_code=status, headers=headers)) or b""
        if body and (request is None or request.method != b"HEAD"):
            data += http.send(h11.Data(data=body)) or b""
        data += http.send(h11.EndOfMessage()) or b""
        await _send_all(transport, data)
        return True

    def _answer(self, request: h11.Request) -> Answer:
        path = request.target.partition(b"?")[0].decode("ascii", "replace")
        page = self._pages.get(path)
        if page is None:
            return 404, _json({"error": f"there is {', '.join(self._pages)}"})
        if request.method not in (b"GET", b"HEAD"):
            return 405, _json({"error": "only GET and HEAD are answered"})
        return page()

    def _ready(self) -> Answer:
        waits = self._health().waits
        return (503 if waits else 200), _json({"ready": not waits, "waits": waits})


async def _next_event(transport: Transport, http: h11.Connection) -> object:
    """The next event of the peer; h11.RemoteProtocolError where it breaks the protocol."""
    buffer = bytearray(_READ_BYTES)
    while (event := http.next_event()) is h11.NEED_DATA:
        try:
            count = transport.recv_into_nowait(memoryview(buffer))
        except trio.WouldBlock:
            await transport.wait_readable()
            continue
        http.receive_data(bytes(buffer[:count]))
    await trio.lowlevel.checkpoint()
    return event


async def _send_all(transport: Transport, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[transport.send_nowait([view]) :]
        except trio.WouldBlock:
            await transport.wait_writable()


def _json(content: object) -> bytes:
    return json.dumps(content, indent=1).encode() + b"\n"
