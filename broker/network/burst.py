"""One burst of a connection: whole frames become requests, and a peer's mistakes become error responses.

```
bytes ─> length ─> dialect ─> header ─> API known? whole frame? room? ─> version ─> listener ─> body ─> RequestInHand
          └ closed: framing lost, other dialect, unknown API                └ error responses ──┴─ then closed
```
Rules:
* Every length is checked before memory is taken or more is awaited: the prefix against the limit (`frame_bytes`), the
  header as soon as its 21 bytes are there, the body against its frame.
* A peer's faults end only its own connection: framing lost, unknown API, unknown dialect → closed; a body that cannot
  be read → INVALID_REQUEST in its turn, then closed. An unsupported version → UNSUPPORTED_VERSION (ApiVersions goes to
  its handler, which answers whatever the version); an API between brokers on a client listener →
  CLUSTER_AUTHORIZATION_FAILED; after these two the connection goes on. A body that names too much counts as one that
  cannot be read (`request_bounds`), and many large bodies end their burst.
* What came whole before a fault is handled first. Produce with acks=0 takes no place in the response order.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from strandline.broker.network.connection import Connection, ResponseSlot
from strandline.broker.network.error_responses import error_response, unreadable_response
from strandline.broker.network.limits import ConnectionLimits
from strandline.broker.network.request_bounds import BROAD_BODY_BYTES, decode_broad
from strandline.broker.network.request_channel import Kind, RequestChannel, RequestInHand, Route, Unfinished
from strandline.protocol.api import ApiKey
from strandline.protocol.errors import ErrorCode, RemoteProtocolError
from strandline.protocol.messages import ApiVersionsRequest, ProduceRequest, Request
from strandline.protocol.native.frame import (
    PREFIX_AND_HEADER_BYTES,
    PREFIX_BYTES,
    FrameHeader,
    decode_body,
    decode_header,
    encode_head,
    frame_bytes,
)
from strandline.protocol.records import READER_SLACK_BYTES
from strandline.runtime.logging import RateLimited

MAX_OTHERS_IN_BURST = 16
"""Requests other than Produce in one burst: a Metadata request of 20 bytes can have an answer of a megabyte, and the
pending bytes of a connection are looked at once per burst."""

BODY_BYTES_OF_ONE = 2048
"""So many bytes of a body count as one more of these, Produce included: some hundred partitions."""

NATIVE_FIRST_BYTE = 0x94
"""First byte of a native frame's payload. Other dialects are told by theirs (Kafka: 0x00, high byte of its API key)."""


class Next(enum.Enum):
    """What a connection's reader does after its turn."""

    READ = "wait for more bytes"
    YIELD = "let others run, then go on"
    ROOM = "wait until the peer has read responses"
    QUEUED = "hand over what cannot be handled in the burst and wait for its handler"
    LARGE = "receive a large frame into its own memory"
    DRAIN = "close when what is due is sent"
    END = "closed"


@dataclass(slots=True)
class Leaving:
    """What leaves a connection's burst for the handler tasks, in this order: an inline request's remainder, the inline
    requests behind it, the queued request that ended the burst; then the peer's fault, if one came behind them."""

    unfinished: Unfinished | None
    queued: RequestInHand | None
    fault: str | None = None
    is_begun: bool = False
    """The remainder is in line or being done: it answers its request itself."""

    @property
    def size_bytes(self) -> int:
        """Of the requests that wait for the remainder, and its own."""
        if self.unfinished is None:
            return 0
        return self.unfinished.request.size_bytes + sum(request.size_bytes for request in self.unfinished.behind)

    def own_bytes(self) -> None:
        """Take all of it out of the buffer that it was received into."""
        if self.unfinished is not None:
            for request in (self.unfinished.request, *self.unfinished.behind):
                request.attachments = _owned(request.attachments)
        if self.queued is not None:
            self.queued.attachments = _owned(self.queued.attachments)

    def drop(self) -> None:
        """The connection ends before the turn of what is left: that is never answered, and nobody waits for it."""
        if self.unfinished is not None:
            if not self.is_begun:
                self.unfinished.request.no_response()
            for request in self.unfinished.behind:
                request.no_response()
        if self.queued is not None:
            self.queued.no_response()


class BurstReader:
    """Reads bursts for one processor. `leaving`: what ended a connection's burst, to be handed over."""

    def __init__(self, channel: RequestChannel, limits: ConnectionLimits, log: RateLimited) -> None:
        self.leaving: dict[Connection, Leaving] = {}
        self._channel = channel
        self._limits = limits
        self._log = log

    def take(
        self, connection: Connection, buffer: bytearray, view: memoryview, have: int, *, is_shared: bool
    ) -> tuple[int, Next]:
        """Take the whole frames of `view[:have]` and have them handled. Returns (bytes used, what is next).

        is_shared: the buffer serves other connections next, so what leaves the burst is copied out of it."""
        room = min(connection.room, self._limits.burst_max_requests)
        requests: list[RequestInHand] = []
        others = position = 0
        next_ = Next.READ
        fault: RemoteProtocolError | None = None
        queued: RequestInHand | None = None
        unfinished: Unfinished | None = None
        connection.expected_bytes = 0
        try:
            while next_ is Next.READ:
                available = have - position
                size = frame_bytes(buffer, position, available, self._limits.max_frame_bytes)
                if size is None:
                    break
                if not connection.dialect_known and available > PREFIX_BYTES:
                    _pick_dialect(connection, buffer[position + PREFIX_BYTES])
                if available < PREFIX_AND_HEADER_BYTES:
                    break
                header = decode_header(buffer, position + PREFIX_BYTES)
                body_start = position + PREFIX_AND_HEADER_BYTES
                body_end, end = body_start + header.body_bytes, position + size
                route = self._channel.routes.get(header.api_key)
                if route is None:
                    raise RemoteProtocolError(f"unknown api key {header.api_key}")
                if body_end > end:
                    raise RemoteProtocolError(f"body of {header.body_bytes} bytes in a frame of {size}")
                if available < size:
                    connection.expected_bytes = size
                    if size > len(view):
                        next_ = Next.LARGE
                    break
                if room <= len(requests):
                    next_ = Next.YIELD if connection.room else Next.ROOM
                    break
                position = end
                request = self._take(connection, route, header, view[body_start:body_end], view[body_end:end])
                others += (header.api_key != ApiKey.PRODUCE) + header.body_bytes // BODY_BYTES_OF_ONE
                if request is None:
                    if connection.finish_reason is not None:
                        next_ = Next.DRAIN
                elif route.kind is Kind.INLINE:
                    requests.append(request)
                else:
                    queued = request
                    next_ = Next.QUEUED
                if others >= MAX_OTHERS_IN_BURST and next_ is Next.READ:
                    next_ = Next.YIELD
        except RemoteProtocolError as error:
            fault = error
        if position:
            connection.note_activity()
            unfinished = self._channel.handle_burst(requests)
        if unfinished is not None or queued is not None:
            leaving = Leaving(unfinished, queued, None if fault is None else str(fault))
            if is_shared:
                leaving.own_bytes()
            self.leaving[connection] = leaving
            return position, Next.QUEUED
        if fault is not None:
            self.break_off(connection, str(fault))
        elif connection.finish_reason is not None:
            next_ = Next.DRAIN
        return position, Next.END if connection.closed else next_

    def _take(
        self, connection: Connection, route: Route, header: FrameHeader, body: memoryview, attachments: memoryview
    ) -> RequestInHand | None:
        """The request of one frame, or None when it is answered with an error already."""
        api_key, version, correlation_id, body_bytes = header
        if not route.lowest_version <= version <= route.highest_version:
            return self._take_other_version(connection, route, header, body, attachments)
        if route.inter_broker_only and not connection.context.is_inter_broker:
            text = f"{ApiKey(api_key).name} is served on the inter-broker listener only"
            self._refuse(connection, route, header, None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)
            return None
        try:
            message = _decode(route, body)
        except RemoteProtocolError as error:
            self._refuse(connection, route, header, None, ErrorCode.INVALID_REQUEST, str(error))
            self._log_fault(connection, str(error))
            connection.finish(str(error))
            return None
        if api_key == 0 and isinstance(message, ProduceRequest) and message.acks == 0:
            slot = ResponseSlot(b"")
        else:
            slot = connection.new_slot()
        size = PREFIX_AND_HEADER_BYTES + body_bytes + len(attachments)
        return RequestInHand(api_key, version, message, attachments, connection, slot, correlation_id, size)

    def _take_other_version(
        self, connection: Connection, route: Route, header: FrameHeader, body: memoryview, attachments: memoryview
    ) -> RequestInHand | None:
        message: Request | None
        try:
            message = _decode(route, body)
        except RemoteProtocolError:
            message = None
        if header.api_key == ApiKey.API_VERSIONS:
            slot = connection.new_slot()
            message = message or ApiVersionsRequest()
            return RequestInHand(
                header.api_key, header.version, message, attachments, connection, slot, header.correlation_id, 0
            )
        text = (
            f"{ApiKey(header.api_key).name} version {header.version} is not served; "
            f"use {route.lowest_version} to {route.highest_version}"
        )
        self._refuse(connection, route, header, message, ErrorCode.UNSUPPORTED_VERSION, text)
        return None

    def _refuse(
        self,
        connection: Connection,
        route: Route,
        header: FrameHeader,
        message: Request | None,
        code: ErrorCode,
        text: str,
    ) -> None:
        """Answer with an error, in the request's place."""
        if message is None:
            response = unreadable_response(route.request_class, code, text)
        else:
            response = error_response(message, code, text)
        head = encode_head(header.api_key, header.version, header.correlation_id, response)
        connection.fill(connection.new_slot(), head, (), 0)

    def break_off(self, connection: Connection, reason: str) -> None:
        """The peer broke the protocol in a way that leaves nothing to answer."""
        self._log_fault(connection, reason)
        connection.close(reason)

    def _log_fault(self, connection: Connection, reason: str) -> None:
        context = connection.context
        self._log.warning(
            ("protocol fault", context.peer.host),
            "closing a connection: its peer broke the protocol",
            peer=str(context.peer),
            listener=context.listener_name,
            client_id=context.client_id,
            reason=reason,
        )


def _decode(route: Route, body: memoryview) -> Request:
    if len(body) <= BROAD_BODY_BYTES:
        return decode_body(route.request_class, body)
    return decode_broad(route.request_class, body, is_bounded=not route.inter_broker_only)


def _owned(attachments: memoryview) -> memoryview:
    """A copy, with the slack behind it that record checks may read."""
    size = len(attachments)
    copy = memoryview(bytearray(size + READER_SLACK_BYTES))[:size]
    copy[:] = attachments
    return copy


def _pick_dialect(connection: Connection, first_byte: int) -> None:
    """Decided once, by the first byte of a connection's first frame."""
    if first_byte != NATIVE_FIRST_BYTE:
        raise RemoteProtocolError(f"the first frame begins with 0x{first_byte:02x}: not a dialect that is spoken here")
    connection.context.dialect = "native"
    connection.dialect_known = True
