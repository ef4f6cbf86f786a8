"""Requests are read from bytes: whole frames become requests, and a peer's mistakes become error responses.

```
bytes ─> dialect ─> header ─> API known? whole frame? room? ─> listener ─> version ─> body ─> RequestInHand
          └ closed: framing lost, unknown dialect or API          └ error responses ──┴─ then closed
```
Rules:
* What the bytes mean its dialect knows (`dialects`), which checks every length before memory is taken or more awaited.
  The first frame's first byte tells which one it is; the four before it, its length, mean nothing until then.
* A peer's faults end only its own connection: framing lost, unknown dialect, an API that is unknown or not spoken in
  that dialect → closed, unless the dialect has a `refusal` that its sender understands: then the connection goes on; a
  body that cannot be read → INVALID_REQUEST in its turn, then closed. An unsupported version →
  UNSUPPORTED_VERSION (ApiVersions goes to its handler, which answers whatever the version; what can be read and
  has no answer is closed); an API between brokers on a client listener → CLUSTER_AUTHORIZATION_FAILED; after these two
  the connection goes on, unless the dialect cannot write such an answer: then it is closed in its turn. A body that
  names too much counts as one that cannot be read (`request_bounds`), and many large bodies end their burst.
* What came whole before a fault is handled first. Produce with acks=0 takes no place in the response order.
"""

from __future__ import annotations

import enum
from contextlib import suppress
from dataclasses import dataclass, replace

from strandline.broker.network.connection import Connection
from strandline.broker.network.dialects import PREFIX_BYTES, Dialect, Header
from strandline.broker.network.limits import ConnectionLimits
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_bounds import LIMITS, MAX_CLIENT_BODY_BYTES
from strandline.broker.network.request_channel import RequestChannel, Unfinished
from strandline.broker.network.request_counts import RequestTimes
from strandline.broker.network.response_slot import ResponseSlot
from strandline.protocol.api import Api, ApiKey, Scheduling
from strandline.protocol.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from strandline.protocol.messages import ApiVersionsRequest, Message, Request
from strandline.runtime.logging import RateLimited

MAX_OTHERS_IN_BURST = 16
"""Requests other than Produce in one burst: a Metadata request of 20 bytes can have an answer of a megabyte, and the
pending bytes of a connection are looked at once per burst."""

BODY_BYTES_OF_ONE = 2048
"""So many bytes of a body count as one more of these, Produce included: some hundred partitions."""

MAX_REFUSED_BYTES = 64 * 1024
"""A longer frame that asks for an API which is not spoken is not awaited."""

MAX_FRAME_BYTES_WITHOUT_RECORDS = 4 * MAX_CLIENT_BODY_BYTES
"""A longer request of clients that brings no record batches is refused by its header, for which 100 MiB would be taken
otherwise. Somewhat shorter ones are awaited: who is still sending when the connection ends may never see the answer."""

_PRODUCE, _INLINE = ApiKey.PRODUCE, Scheduling.INLINE
"""Looked up once: a member of an enum takes as long to find as a small object to make."""


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
    queued: RequestInHand[Request] | None
    taken_at: float
    """When they came, in monotonic seconds."""
    fault: str | None = None
    queued_times: RequestTimes | None = None
    is_begun: bool = False
    """The remainder is in line or being done: it answers its request itself."""

    @property
    def size_bytes(self) -> int:
        """Of the requests that wait for the remainder, and its own."""
        if self.unfinished is None:
            return 0
        return sum(r.header.size_bytes for r in (self.unfinished.request, *self.unfinished.behind))

    @property
    def all_bytes(self) -> int:
        """Also of what ended the burst."""
        return self.size_bytes + (0 if self.queued is None else self.queued.header.size_bytes)

    def own_bytes(self) -> None:
        """Take all of it out of the buffer that it was received into."""
        if self.unfinished is not None:
            for request in (self.unfinished.request, *self.unfinished.behind):
                request.own_records()
        if self.queued is not None:
            self.queued.own_records()

    def note_held(self, seconds: float) -> None:
        """It waited for no handler meanwhile."""
        self.taken_at += seconds
        if self.queued_times is not None:
            self.queued_times.taken_at += seconds

    def drop(self) -> None:
        """The connection ends before the turn of what is left: that is never answered, and nobody waits for it."""
        if self.unfinished is not None:
            if not self.is_begun:
                self.unfinished.request.no_response()
            for request in self.unfinished.behind:
                request.no_response()
        if self.queued is not None:
            self.queued.no_response()


class RequestReader:
    """Reads the connections of one processor, a burst of one of them at a time. `leaving`: what ended a connection's
    burst, to be handed over."""

    def __init__(self, channel: RequestChannel, limits: ConnectionLimits, log: RateLimited) -> None:
        self.leaving: dict[Connection, Leaving] = {}
        self._channel = channel
        self._limits = limits
        self._max_refused_bytes = min(MAX_REFUSED_BYTES, limits.large_frame_bytes, limits.receive_buffer_bytes)
        self._log = log

    def take(
        self, connection: Connection, buffer: bytearray, view: memoryview, have: int, *, is_shared: bool
    ) -> tuple[int, Next]:
        """Take the whole frames of `view[:have]` and have them handled. Returns (bytes used, what is next).

        is_shared: the buffer serves other connections next, so what leaves the burst is copied out of it."""
        limits, apis = self._limits, self._channel.apis
        room = min(connection.room, limits.burst_max_requests)
        requests: list[RequestInHand[Request]] = []
        last_api: Api | None = None
        others, position, is_other, is_mixed, next_ = 0, 0, True, False, Next.READ
        fault: str | None = None
        queued: RequestInHand[Request] | None = None
        unfinished: Unfinished | None = None
        connection.expected_bytes = 0
        taken_at = connection.now()
        try:
            dialect = connection.dialect or self._pick_dialect(connection, buffer, have)
            if dialect is None:
                return 0, Next.READ
            while True:
                available = have - position
                header = dialect.read_header(buffer, position, available, limits.max_frame_bytes)
                if header is None:
                    break
                api, size = apis.get(header.api_key), header.size_bytes
                routed = None if api is None else dialect.versions(api)
                if routed is None and size > self._max_refused_bytes:
                    raise RemoteProtocolError(f"unknown api key {header.api_key}")
                if available < size:
                    if self._refuse_if_too_long(connection, dialect, api, header):
                        position = have
                    else:
                        connection.expected_bytes, connection.expected_api = size, api
                        connection.context = dialect.named(connection.context, header)
                        next_ = Next.LARGE if size > len(view) else next_
                    break
                if room <= len(requests):
                    next_ = Next.YIELD if connection.room else Next.ROOM
                    break
                frame = view[position : position + size]
                if api is None or routed is None:
                    self._refuse_unknown(connection, dialect, header, frame)
                    request = None
                else:
                    request = self._take(connection, dialect, api, routed, header, frame)
                position += size
                if request is not None:
                    header = request.header
                    if request.api.scheduling is not _INLINE:
                        queued = request
                        next_ = Next.QUEUED
                        break
                    if api is not last_api:
                        last_api, is_other, is_mixed = api, request.api.key is not _PRODUCE, last_api is not None
                    requests.append(request)
                elif connection.finish_reason is not None:
                    next_ = Next.DRAIN
                    break
                others += (is_other or request is None) + header.body_bytes // BODY_BYTES_OF_ONE
                if others >= MAX_OTHERS_IN_BURST:
                    next_ = Next.YIELD
                    break
        except RemoteProtocolError as error:
            fault = str(error)
        if position:
            connection.note_activity(taken_at)
            unfinished = self._channel.handle_burst(requests, taken_at, is_mixed=is_mixed)
        if unfinished is not None or queued is not None:
            self._leave(connection, Leaving(unfinished, queued, taken_at, fault), is_shared=is_shared)
            return position, Next.QUEUED
        return position, self._next_after(connection, fault, next_)

    def _leave(self, connection: Connection, leaving: Leaving, *, is_shared: bool) -> None:
        queued = leaving.queued
        if queued is not None:
            key, size_bytes = queued.header.api_key, queued.header.size_bytes
            counts = self._channel.counts.row(key, queued)
            counts.requests += 1
            leaving.queued_times = times = RequestTimes(counts, size_bytes, leaving.taken_at)
            slots, later = connection.slots, connection.later
            if slots and slots[-1] is queued.slot:  # it is open, and there will be an answer
                times.end = later.left + len(slots)
                times.first = times.end - 1
                later.stay(times)
        if is_shared:
            leaving.own_bytes()
        self.leaving[connection] = leaving

    def _next_after(self, connection: Connection, fault: str | None, next_: Next) -> Next:
        """What follows a burst of which nothing is left to do."""
        if fault is not None:
            self.break_off(connection, fault)
        elif connection.finish_reason is not None:
            next_ = Next.DRAIN
        return Next.END if connection.closed else next_

    def _pick_dialect(self, connection: Connection, buffer: bytearray, have: int) -> Dialect | None:
        """Decided once, by the first byte of a connection's first frame. None: it is not there yet."""
        if have <= PREFIX_BYTES:
            return None
        first_byte = buffer[PREFIX_BYTES]
        dialect = self._channel.dialects.get(first_byte)
        if dialect is None:
            raise RemoteProtocolError(f"the first frame begins with 0x{first_byte:02x}: no dialect spoken here")
        connection.context = replace(connection.context, dialect=dialect.name)
        connection.dialect = dialect
        return dialect

    def _take(
        self,
        connection: Connection,
        dialect: Dialect,
        api: Api,
        routed: tuple[int, int],
        header: Header,
        frame: memoryview,
    ) -> RequestInHand[Request] | None:
        """The request of one frame, or None when it is answered with an error already."""
        if api.inter_broker_only and not connection.context.is_inter_broker:
            # First of all: what follows may read the body, without the bounds that clients' requests have.
            text = f"{api.key.name} is served to brokers of the cluster only"
            failure = api.failure(None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)
            self._refuse(connection, dialect, api, header, failure)
            return None
        lowest, highest = routed
        if not lowest <= header.version <= highest:
            return self._take_other_version(connection, dialect, api, routed, header, frame)
        try:
            context, header, message, records = dialect.decode(connection.context, api, header, frame)
        except RemoteProtocolError as error:
            self._refuse_unread(connection, dialect, api, header, str(error))
            return None
        connection.context = context
        slot = connection.new_slot() if message.has_answer else ResponseSlot(b"")
        return RequestInHand(api, message, records, context, header, dialect, connection, slot)

    def _refuse_if_too_long(self, connection: Connection, dialect: Dialect, api: Api | None, header: Header) -> bool:
        """Answer a frame that is too long to be awaited. False: it is not. Brokers' orders may be as long."""
        if api is None or api.key is _PRODUCE or header.size_bytes <= MAX_FRAME_BYTES_WITHOUT_RECORDS:
            return False
        if api.inter_broker_only and connection.context.is_inter_broker:
            return False
        self._refuse_unread(connection, dialect, api, header, f"a request of {header.size_bytes} bytes ({LIMITS})")
        return True

    def _refuse_unread(self, connection: Connection, dialect: Dialect, api: Api, header: Header, text: str) -> None:
        self._refuse(connection, dialect, api, header, api.failure(None, ErrorCode.INVALID_REQUEST, text))
        self._finish(connection, text)

    def _refuse_unknown(self, connection: Connection, dialect: Dialect, header: Header, frame: memoryview) -> None:
        """Answer a request for an API that is not spoken. RemoteProtocolError: its sender would not understand it."""
        answer = dialect.refusal(header, frame)
        if answer is None:
            raise RemoteProtocolError(f"unknown api key {header.api_key}")
        connection.fill(connection.new_slot(), answer, (), 0)

    def _take_other_version(
        self,
        connection: Connection,
        dialect: Dialect,
        api: Api,
        routed: tuple[int, int],
        header: Header,
        frame: memoryview,
    ) -> RequestInHand[Request] | None:
        message: Request | None = None
        with suppress(RemoteProtocolError):
            connection.context, header, message, _ = dialect.decode(connection.context, api, header, frame)
        if api.key is ApiKey.API_VERSIONS:
            message, slot = message or ApiVersionsRequest(), connection.new_slot()
            return RequestInHand(api, message, (), connection.context, header, dialect, connection, slot)
        text = f"{api.key.name} version {header.version} is not served; use {routed[0]} to {routed[1]}"
        if message is not None and not message.has_answer:
            self._finish(connection, text)
            return None
        self._refuse(connection, dialect, api, header, api.failure(message, ErrorCode.UNSUPPORTED_VERSION, text))
        return None

    def _refuse(self, connection: Connection, dialect: Dialect, api: Api, header: Header, failure: Message) -> None:
        """Answer with an error, in the request's place. Where the dialect cannot write it (it does not know how that
        version's answers look), the close is the answer."""
        self._channel.counts.of_refusal(header.api_key, header.size_bytes, failure)
        try:
            answer = dialect.encode(api, header, failure, ())
        except LocalProtocolError as error:
            self._finish(connection, f"a refusal cannot be encoded: {error}")
            return
        connection.fill(connection.new_slot(), *answer)

    def _finish(self, connection: Connection, reason: str) -> None:
        """The peer's fault is answered, or cannot be: nothing more is read, and what is due leaves before the close."""
        self._log_fault(connection, reason)
        connection.finish(reason)

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
