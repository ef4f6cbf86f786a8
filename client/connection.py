"""One connection to a broker: frames out, frames in, one request at a time.

Rules: no background task; every wait is bounded by a timeout; the receive buffer is reused and grows with the bytes
that really came, never with what a peer announces; a peer that breaks the protocol (`RemoteProtocolError`) loses the
connection at once. Fetchers, the controller and the admin client use `Connection`; `pipelined` builds on the same
parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar, cast

import trio

from strandline.client.errors import (
    BrokerMisbehaved,
    BrokerRefuses,
    CannotReachBroker,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedApiVersion,
    WrongBroker,
    error_for,
)
from strandline.client.strangers import WHAT_DROPS, who_answers
from strandline.protocol.api import API_OF, APIS, Api, ApiKey
from strandline.protocol.errors import ErrorCode, RemoteProtocolError, error_code
from strandline.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, Message, Request
from strandline.protocol.native.frame import (
    MAX_FRAME_BYTES,
    PREFIX_AND_HEADER_BYTES,
    FrameHeader,
    decode_body,
    encode_head,
    read_header,
)
from strandline.protocol.types import NO_BROKER
from strandline.runtime.disk import Buffer
from strandline.runtime.network import Address, CannotConnect, ConnectionRefused, Network, Transport, TransportClosed

SOFTWARE_NAME = "strandline-python"

_FIRST_BUFFER_BYTES = 64 * 1024

R = TypeVar("R", bound=Message)


class Frame(NamedTuple):
    """One received frame; the views end with the next receive."""

    header: FrameHeader
    body: memoryview
    attachments: memoryview


class FrameReader:
    """The receive side: a buffer that holds at least one frame, and where the bytes in it begin and end."""

    def __init__(self, transport: Transport, max_frame_bytes: int) -> None:
        self._transport = transport
        self._max_frame_bytes = max_frame_bytes
        self._view = memoryview(bytearray(_FIRST_BUFFER_BYTES))
        self._start = 0
        self._end = 0

    @property
    def buffered_bytes(self) -> int:
        """Received bytes that no frame was made of yet."""
        return self._end - self._start

    @property
    def received(self) -> bytes:
        """Those bytes."""
        return bytes(self._view[self._start : self._end])

    def next_frame(self) -> Frame | None:
        """A whole frame out of what was received, None until one is there. RemoteProtocolError on nonsense."""
        header = read_header(self._view, self._start, self.buffered_bytes, self._max_frame_bytes)
        if header is None or header.size_bytes > self.buffered_bytes:
            self._make_room(0 if header is None else header.size_bytes)
            return None
        body_start, end = self._start + PREFIX_AND_HEADER_BYTES, self._start + header.size_bytes
        body_end = body_start + header.body_bytes
        self._start = end
        return Frame(header, self._view[body_start:body_end], self._view[body_end:end])

    def make_room(self) -> None:
        """Before the first `receive_nowait` of an answer; `next_frame` does it for the following ones."""
        self._make_room(0)

    def receive_nowait(self) -> bool:
        """Read what is there; False at the end of the stream. WouldBlock: nothing there yet."""
        received = self._transport.recv_into_nowait(self._view[self._end :])
        self._end += received
        return received > 0

    def _make_room(self, frame_total: int) -> None:
        """Space behind the received bytes. A buffer at most doubles: a lying length costs its sender the bytes."""
        pending = self.buffered_bytes
        capacity = len(self._view)
        if pending == 0:
            self._start = self._end = 0
        if self._end < capacity and self._start + frame_total <= capacity:
            return
        if pending * 2 > capacity:
            # A new one, not a resize: views of the old one may still be in somebody's hands.
            grown = memoryview(bytearray(max(capacity * 2, _FIRST_BUFFER_BYTES)))
        elif self._start > 0:
            grown = self._view
        else:
            return
        grown[:pending] = self._view[self._start : self._end]
        self._view, self._start, self._end = grown, 0, pending


def choose_versions(answer: ApiVersionsResponse) -> dict[int, int]:
    """API key → the highest version that both sides speak; keys without one are left out."""
    chosen: dict[int, int] = {}
    for offered in answer.api_keys:
        api = APIS.get(offered.api_key)
        if api is None:
            continue
        lowest, highest = api.native
        version = min(highest, offered.max_version)
        if version >= max(lowest, offered.min_version):
            chosen[offered.api_key] = version
    return chosen


def check_header(header: FrameHeader, api: Api, version: int, correlation_id: int) -> None:
    """RemoteProtocolError unless this answers that request."""
    if header.correlation_id != correlation_id:
        raise RemoteProtocolError(f"correlation id {header.correlation_id} instead of {correlation_id}")
    if header.api_key != api.key or header.version != version:
        raise RemoteProtocolError(
            f"API key {header.api_key} version {header.version} instead of {api.key} version {version}"
        )


def broker_name(broker_id: int, address: Address) -> str:
    return f"broker {broker_id} at {address}" if broker_id != NO_BROKER else f"the broker at {address}"


class Connection:
    """Lock-step requests over one transport. Not for use by several tasks at a time.

    After any error but `UnsupportedApiVersion` the connection is closed; `closed` tells. Made by `open`.
    """

    def __init__(
        self, transport: Transport, address: Address, *, client_id: str, timeout_ms: float, max_frame_bytes: int
    ) -> None:
        self.transport = transport
        self.address = address
        self.client_id = client_id
        self.timeout_ms = timeout_ms
        self.broker_id = NO_BROKER
        self.cluster_id = ""
        self.versions: dict[int, int] = {ApiKey.API_VERSIONS: APIS[ApiKey.API_VERSIONS].native[1]}
        self.closed = False
        self.reader = FrameReader(transport, max_frame_bytes)
        self._next_correlation_id = 0
        self._busy = False

    @classmethod
    async def open(
        cls,
        network: Network,
        address: Address,
        *,
        client_id: str = "",
        timeout_ms: float = 30_000,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        broker_id: int = NO_BROKER,
        broker_key: str = "",
        connect_timeout_ms: float | None = None,
    ) -> Connection:
        """Connect and agree on versions. `broker_id`: who should answer there (`WrongBroker` if another one does).
        `broker_key`: that one's, by which it knows that another broker asks.

        `timeout_ms` bounds each request, `connect_timeout_ms` (default: the same) connecting together with the first
        answer. Errors: CannotReachBroker, BrokerRefuses, WrongBroker, BrokerMisbehaved.
        """
        name = broker_name(broker_id, address)
        limit_ms = timeout_ms if connect_timeout_ms is None else connect_timeout_ms
        connection: Connection | None = None
        try:
            with trio.fail_after(limit_ms / 1000):
                transport = await network.connect(address)
                connection = cls(
                    transport, address, client_id=client_id, timeout_ms=timeout_ms, max_frame_bytes=max_frame_bytes
                )
                await connection._handshake(broker_id, broker_key)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, Exception) and (told := _unreachable(error, name, address, limit_ms, connection)):
                raise told from error
            raise
        return connection

    @property
    def name(self) -> str:
        """For messages: broker id, as far as known, and address."""
        return broker_name(self.broker_id, self.address)

    def close(self) -> None:
        """Idempotent; wakes a waiting `roundtrip` with ConnectionLost."""
        self.closed = True
        self.transport.close()

    def version_of(self, api: Api) -> int:
        """The agreed version. UnsupportedApiVersion if there is none."""
        try:
            return self.versions[api.key]
        except KeyError:
            raise UnsupportedApiVersion(
                f"{self.name} serves no version of {api.request.__name__} that this client speaks; use a client and "
                f"brokers of the same release"
            ) from None

    async def roundtrip(
        self, message: Request, attachments: Sequence[Buffer] = (), *, timeout_ms: float | None = None
    ) -> tuple[Message, memoryview]:
        """Send one request, wait for its answer: the message and its attached bytes, which stay valid until the next
        `roundtrip`. Errors: ConnectionLost, RequestTimedOut, BrokerMisbehaved, UnsupportedApiVersion."""
        limit_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        try:
            with trio.fail_after(limit_ms / 1000):
                return await self.exchange(message, attachments)
        except trio.TooSlowError as error:
            raise RequestTimedOut(
                f"{self.name} did not answer {type(message).__name__} within {limit_ms:g} ms (request_timeout_ms)"
            ) from error

    async def exchange(self, message: Request, attachments: Sequence[Buffer] = ()) -> tuple[Message, memoryview]:
        """`roundtrip` without a limit of its own, which costs as much as the rest of it: for whoever watches many
        connections by one timer and closes what is late."""
        api = API_OF[type(message)]
        version = self.version_of(api)
        if self.closed:
            raise ConnectionLost(f"the connection to {self.name} is closed")
        assert not self._busy, "a Connection carries one request at a time"
        self._busy = True
        answered = False
        try:
            correlation_id = await self._send(api, version, message, attachments)
            answer = await self._receive(api, version, correlation_id)
            answered = True
            return answer
        except TransportClosed as error:
            raise ConnectionLost(
                f"{self.name} ended the connection during {api.request.__name__}: {error}; it may have stopped"
            ) from error
        except RemoteProtocolError as error:
            raise BrokerMisbehaved(
                f"{self.name} broke the protocol in answer to {api.request.__name__}: {error}; is it a strandline "
                f"broker's port?"
            ) from error
        finally:
            self._busy = False
            if not answered:  # also when cancelled: the answer would be taken for that of the next request
                self.close()

    async def until_broken(self) -> None:
        """Wait, between two requests, until the connection ends; what comes in although nothing was asked ends it,
        too."""
        with suppress(TransportClosed):
            await self.transport.wait_readable()
        self.close()

    async def call(self, message: Request, answer: type[R], *, timeout_ms: float | None = None) -> R:
        """`roundtrip` for requests whose answer has no attachments; `answer` is the class that comes back."""
        assert API_OF[type(message)].response is answer
        response, _ = await self.roundtrip(message, timeout_ms=timeout_ms)
        return cast(R, response)

    async def _handshake(self, expected_broker_id: int, broker_key: str) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_id=self.client_id, broker_key=broker_key
        )
        answer = await self.call(request, ApiVersionsResponse)
        if answer.error_code and error_code(answer.error_code) is not ErrorCode.UNSUPPORTED_VERSION:
            raise error_for(answer.error_code, f"connecting to {self.address}", self.name)
        if expected_broker_id != NO_BROKER and answer.broker_id not in (expected_broker_id, NO_BROKER):
            raise WrongBroker(
                f"broker {expected_broker_id} is advertised at {self.address}, but broker {answer.broker_id} answers "
                f"there; check advertised.listeners of both"
            )
        self.broker_id = answer.broker_id
        self.cluster_id = answer.cluster_id
        self.versions = choose_versions(answer)

    async def _send(self, api: Api, version: int, message: Request, attachments: Sequence[Buffer]) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        views = [memoryview(part).cast("B") for part in attachments] if attachments else []
        attachment_bytes = sum(view.nbytes for view in views)
        head = encode_head(api.key, version, correlation_id, message, attachment_bytes)
        pending = [memoryview(head), *views]
        while pending:
            try:
                sent = self.transport.send_nowait(pending)
            except trio.WouldBlock:
                await self.transport.wait_writable()
                continue
            pending = unsent(pending, sent)
        return correlation_id

    async def _receive(self, api: Api, version: int, correlation_id: int) -> tuple[Message, memoryview]:
        self.reader.make_room()
        while True:
            # Waiting first: right after the request nothing can be there, and others get their turn in any case.
            await self.transport.wait_readable()
            try:
                if not self.reader.receive_nowait():
                    raise TransportClosed("the peer closed it")
            except trio.WouldBlock:
                continue
            if (frame := self.reader.next_frame()) is not None:
                break
        check_header(frame.header, api, version, correlation_id)
        if self.reader.buffered_bytes:
            raise RemoteProtocolError(f"{self.reader.buffered_bytes} bytes more than the answer")
        return decode_body(api.response, frame.body), frame.attachments


def _unreachable(
    error: Exception, name: str, address: Address, limit_ms: float, connection: Connection | None
) -> ClientError | None:
    """What `Connection.open` raises in place of `error`, where it has more to say."""
    if isinstance(error, CannotConnect):
        kind = BrokerRefuses if isinstance(error, ConnectionRefused) else CannotReachBroker
        return kind(
            f"{name} cannot be reached: {error}; is it running, and are bootstrap_servers and its advertised.listeners "
            f"right?"
        ).because(str(error).removeprefix(f"cannot connect to {address}: "))
    if isinstance(error, ConnectionLost):
        why = f"it took the connection and dropped it at the first request, {WHAT_DROPS}"
        return CannotReachBroker(f"{name} took the connection and dropped it: {error}").because(why)
    if isinstance(error, RequestTimedOut | trio.TooSlowError):
        why = "no answer" if connection is None else "it takes connections and does not answer"
        return CannotReachBroker(
            f"{name} cannot be reached: {why} within {limit_ms:g} ms (socket_connection_setup_timeout_ms)"
        ).because(why)
    if isinstance(error, BrokerMisbehaved) and connection is not None:
        return error.because(who_answers(connection.reader.received))
    return None


def unsent(pending: Sequence[memoryview], sent: int) -> list[memoryview]:
    """What is left of `pending` after the first `sent` bytes went."""
    for index, part in enumerate(pending):
        if sent < part.nbytes:
            return [part[sent:], *pending[index + 1 :]]
        sent -= part.nbytes
    return []
