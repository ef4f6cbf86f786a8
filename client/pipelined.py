"""A connection with many requests in flight, answered in order: what producers and consumers send through.

Rules: `submit` never waits and never switches tasks; answers go to plain callbacks, in the order of the requests, and
exactly once each: with the message or with the error that ended the connection. Two tasks per connection (`run`), none
per request. The oldest request's deadline is the only timer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import trio

from strandline.client.connection import Connection, check_header, unsent
from strandline.client.errors import BrokerMisbehaved, ClientError, ConnectionLost, RequestTimedOut
from strandline.protocol.api import API_OF, Api
from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.messages import Message, Request
from strandline.protocol.native.frame import decode_body, encode_head
from strandline.runtime.disk import Buffer
from strandline.runtime.network import TransportClosed

BURSTS_PER_CHECKPOINT = 4
"""Without a checkpoint now and then a fast broker would keep the other tasks of this loop waiting."""

NOTHING = memoryview(b"")

OnAnswer = Callable[[Message | Exception, memoryview], None]
"""(answer or error, attached bytes: valid during the call only)."""


@dataclass(slots=True)
class _InFlight:
    api: Api
    version: int
    correlation_id: int
    deadline: float
    timeout_ms: float
    on_answer: OnAnswer


class PipelinedConnection:
    """Takes over an open `Connection`. Somebody must run `run`; until it returns, `submit` may be called."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._transport = connection.transport
        self._reader = connection.reader
        self._in_flight: deque[_InFlight] = deque()
        self._unsent: list[memoryview] = []
        self._wake_writer = trio.Event()
        self._timer = trio.CancelScope()
        self._next_correlation_id = 1 << 16  # not those of the handshake: a late answer to it is noticed
        self._failure: Exception | None = None
        self.on_drained: Callable[[], None] = lambda: None
        """Called when everything submitted has left, if some of it had to wait."""

    @property
    def sending(self) -> bool:
        """Something submitted has not left yet."""
        return bool(self._unsent)

    @property
    def name(self) -> str:
        return self._connection.name

    @property
    def closed(self) -> bool:
        return self._connection.closed

    @property
    def in_flight(self) -> int:
        """Requests without an answer."""
        return len(self._in_flight)

    def submit(
        self, message: Request, attachments: Sequence[Buffer], timeout_ms: float, on_answer: OnAnswer | None
    ) -> None:
        """Send a request; without `on_answer` the broker gives none (acks=0).

        Errors raised here (nothing was sent): UnsupportedApiVersion, ConnectionLost. Later ones go to `on_answer`.
        """
        api = API_OF[type(message)]
        version = self._connection.version_of(api)
        if self.closed:
            raise ConnectionLost(f"the connection to {self.name} is closed")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        sizes = sum(memoryview(part).nbytes for part in attachments)
        head = encode_head(api.key, version, correlation_id, message, sizes)
        if on_answer is not None:
            deadline = trio.current_time() + timeout_ms / 1000
            self._in_flight.append(_InFlight(api, version, correlation_id, deadline, timeout_ms, on_answer))
            if len(self._in_flight) == 1 and deadline < self._timer.deadline:
                self._timer.deadline = deadline
        self._unsent.append(memoryview(head))
        self._unsent.extend(memoryview(part).cast("B") for part in attachments)
        if len(self._unsent) == 1 + len(attachments):  # else the writer is at work: keep the order
            self._send()
            if self._unsent:
                self._wake_writer.set()

    async def run(self) -> Exception:
        """Serve until the connection ends; every request still in flight gets the returned error."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                await self._read()
                nursery.cancel_scope.cancel()
        finally:
            self.close()
            failure = self._failure or ConnectionLost(f"the connection to {self.name} was closed by this client")
            while self._in_flight:
                self._in_flight.popleft().on_answer(failure, NOTHING)
        return failure

    def close(self, why: str | None = None) -> None:
        """`why`: the text of the ConnectionLost that requests in flight get."""
        if why is not None and self._failure is None:
            self._failure = ConnectionLost(why)
        self._connection.close()

    async def _read(self) -> None:
        """Until the connection fails; the reason is in `_failure`."""
        try:
            while True:
                oldest = self._in_flight[0] if self._in_flight else None
                # It stays for many answers, and rings too early then: a timer of its own costs as much as an answer.
                with trio.CancelScope(deadline=oldest.deadline if oldest else math.inf) as self._timer:
                    await self._read_answers()
                self._raise_if_late()
        except TransportClosed as error:
            lost = ConnectionLost(f"{self.name} ended the connection: {error}; it may have stopped")
            self._failure = self._failure or lost
        except RemoteProtocolError as error:
            self._failure = BrokerMisbehaved(f"{self.name} broke the protocol: {error}")
        except ClientError as error:
            self._failure = error

    async def _read_answers(self) -> NoReturn:
        """TransportClosed, RemoteProtocolError, or cancelled by the timer."""
        bursts = 0
        while True:
            try:
                if not self._reader.receive_nowait():
                    raise TransportClosed("the peer closed it")
            except trio.WouldBlock:
                bursts = 0
                await self._transport.wait_readable()
                continue
            while (frame := self._reader.next_frame()) is not None:
                if not self._in_flight:
                    raise RemoteProtocolError("an answer that nothing asked for")
                oldest = self._in_flight[0]
                check_header(frame.header, oldest.api, oldest.version, oldest.correlation_id)
                answer = decode_body(oldest.api.response, frame.body)
                del self._in_flight[0]
                oldest.on_answer(answer, frame.attachments)
            bursts += 1
            if bursts % BURSTS_PER_CHECKPOINT == 0:
                await trio.lowlevel.checkpoint()

    def _raise_if_late(self) -> None:
        oldest = self._in_flight[0] if self._in_flight else None
        if oldest is not None and oldest.deadline <= trio.current_time():
            raise RequestTimedOut(
                f"{self.name} did not answer {oldest.api.request.__name__} within {oldest.timeout_ms:g} ms "
                f"(request_timeout_ms)"
            )

    async def _write(self) -> None:
        """Send what did not go at once."""
        while True:
            await self._wake_writer.wait()
            while self._unsent and not self.closed:
                try:
                    await self._transport.wait_writable()
                except TransportClosed:
                    break
                self._send()
            self._wake_writer = trio.Event()
            if self.closed:
                return
            self.on_drained()

    def _send(self) -> None:
        """As much as goes now. A broken transport is closed; the reader reports it."""
        try:
            while self._unsent:
                self._unsent = unsent(self._unsent, self._transport.send_nowait(self._unsent))
        except trio.WouldBlock:
            pass
        except TransportClosed:
            self._connection.close()
