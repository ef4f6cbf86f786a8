"""One HTTP connection of the admin port, served by hypercorn: it reads requests and calls the ASGI application.

Of what hypercorn can do only HTTP/1.1 is left: a peer that asks for another protocol (`Upgrade`) is answered in this
one, as RFC 9110 (7.8) allows, and reaches none of the code for HTTP/2 and WebSockets. Heads, bodies and times are
bounded. An error of hypercorn's own says why, and its log lines go to the broker's log.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, cast

import h11
import trio
from hypercorn import Config
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.events import Closed, Event, Updated
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext

from strandline.broker.admin.pages import Pages, json_body
from strandline.broker.admin.transport_stream import TransportStream
from strandline.runtime.logging import RateLimited

MAX_HEAD_BYTES = 16 * 2**10
MAX_BODY_BYTES = 64 * 2**10
"""A body means nothing here; so much of one is taken before the request is refused."""
IDLE_S = 30.0
"""The head of a request has to be there so long after the one before was answered."""
REQUEST_S = 30.0
"""A request whose head is there has to be complete, and its answer taken, within this time."""
FAILED = "an admin request failed"
_REASONS = {
    413: f"a body has at most {MAX_BODY_BYTES} bytes, and none is needed",
    431: f"a head has at most {MAX_HEAD_BYTES} bytes",
}


class HttpServer:
    """Serves connections with one application."""

    def __init__(self, app: Pages, log: RateLimited) -> None:
        self._app = ASGIWrapper(cast(Any, app))
        self._context = WorkerContext(None)
        self._config = Config()
        self._config.logger_class = cast(Any, lambda config: _Log(log))
        self._config.keep_alive_timeout = IDLE_S
        self._config.include_server_header = self._config.include_date_header = False

    async def serve(self, stream: TransportStream, asked: Callable[[], None]) -> None:
        """Until either side ends it. asked: called when a request begins and when it is over."""
        await _Connection(self._app, self._config, self._context, stream, asked).run()


class _Connection(TCPServer):
    """hypercorn's, with a deadline for each request, and with a peer that can read why it was refused."""

    def __init__(
        self,
        app: ASGIWrapper,
        config: Config,
        context: WorkerContext,
        stream: TransportStream,
        asked: Callable[[], None],
    ) -> None:
        super().__init__(app, config, context, cast(Any, {}), cast(Any, stream))
        self._stream = stream
        self._asked = asked

    @property  # type: ignore[override]
    def protocol(self) -> _Http11:
        return self._http11

    @protocol.setter
    def protocol(self, made: ProtocolWrapper) -> None:
        """hypercorn's wrapper would change to HTTP/2 when it is asked to: what it wraps is made without it."""
        self._http11 = _Http11(
            made.app,
            made.config,
            made.context,
            made.task_group,
            made.state,
            made.ssl,
            made.client,
            made.server,
            made.send,
        )

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated):
            self._stream.deadline = math.inf if event.idle else trio.current_time() + REQUEST_S
            self._asked()
        elif isinstance(event, Closed) and self._http11.connection.their_state in (h11.SEND_BODY, h11.ERROR):
            await self._stream.linger()
        await super().protocol_send(event)


class _Http11(H11Protocol):
    """hypercorn's, without the ways that lead to other protocols."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.connection: _Parser = _Parser()

    async def _check_protocol(self, event: h11.Request) -> None:
        """No change to HTTP/2."""

    async def _create_stream(self, request: h11.Request) -> None:
        """No change to WebSockets."""
        headers = [(name, value) for name, value in request.headers if name != b"upgrade"]
        await super()._create_stream(
            h11.Request(
                method=request.method, target=request.target, headers=headers, http_version=request.http_version
            )
        )

    async def _send_error_response(self, status_code: int) -> None:
        body = json_body({"error": _REASONS.get(status_code, "this is no HTTP/1.1 request")})
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        ]
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers))
        if not self.connection.is_head:
            await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())


class _Parser(h11.Connection):
    """h11's, with bounds for bodies and for any head: by itself it bounds one whose end has not come yet. Bodies it
    forgets at once: where the application left one lie, hypercorn's reader would wait for room in its queue, and the
    application for the reader."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._request_bytes = 0
        """Received since the request began."""
        self.is_head = False
        """Whether the request in hand is one that is answered without a body."""

    def receive_data(self, data: bytes) -> None:
        if self.their_state is h11.IDLE and not self.trailing_data[0] and data:
            data = data.lstrip(b"\r\n")  # empty lines before a request are no fault (RFC 9112, 2.2); h11 knows none
            if not data:
                return
        self._request_bytes += len(data)
        super().receive_data(data)

    def start_next_cycle(self) -> None:
        super().start_next_cycle()
        self._request_bytes = len(self.trailing_data[0])
        self.is_head = False

    def next_event(self) -> Any:
        """What h11 has, but for bodies, which nobody reads."""
        try:
            while isinstance(event := super().next_event(), h11.Data):
                self._require_short(0)
            if isinstance(event, h11.Request):
                self.is_head = event.method == b"HEAD"
                if self._request_bytes - len(self.trailing_data[0]) > MAX_HEAD_BYTES:
                    raise h11.RemoteProtocolError(_REASONS[431], error_status_hint=431)
                self._require_short(int(dict(event.headers).get(b"content-length", b"0")))
        except ValueError as error:  # of int(), for a Content-Length with thousands of digits
            raise h11.RemoteProtocolError(str(error)) from None
        return event

    def _require_short(self, declared_bytes: int) -> None:
        """Of chunks, what frames them counts, too."""
        is_flood = self.their_state is h11.SEND_BODY and self._request_bytes > MAX_HEAD_BYTES + MAX_BODY_BYTES
        if is_flood or declared_bytes > MAX_BODY_BYTES:
            raise h11.RemoteProtocolError(_REASONS[413], error_status_hint=413)


class _Log:
    """Where hypercorn writes to. It tells of each request, too, which nobody needs: probes ask every few seconds."""

    def __init__(self, log: RateLimited) -> None:
        self._log = log

    async def access(self, *_: object) -> None:
        pass

    async def exception(self, message: str) -> None:
        """Of the application; the peer is told by status 500, or by an answer that breaks off."""
        error = sys.exc_info()[1]
        self._log.error(message, FAILED, error=repr(error), exc_info=error)
