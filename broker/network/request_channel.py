"""From processors to handlers: hot requests are called in their burst, the others queue for the handler tasks.

| kind | handler | when |
|---|---|---|
| inline | plain function of the request | within the burst, in order; answers now or later by `respond` |
| remainder | coroutine that an inline handler returned | by a handler task, the connection is muted meanwhile |
| in steps | the same, where it waits for nobody | by tasks of its own: no creation or deletion delays a question |
| queued | coroutine that returns the response | by one of `num.io.threads` tasks, behind a bounded queue |
| control | the same, from controllers | by one task of its own, so that data load never delays a leader change |

Rules:
* `end_of_burst()` follows the last inline handler of a burst, then the responses that are ready leave, one send per
  connection. Only then a queued request that came behind them is enqueued: arrival order holds across kinds.
* A bug in a handler is one error response (UNKNOWN_SERVER_ERROR) and one log line; a `BrokerError` is answered with its
  code; a RemoteProtocolError (attachments that do not match the body) with INVALID_REQUEST, and the connection ends.
* Nothing here waits for the purgatory.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import trio

from strandline.broker.network.connection import Connection, ResponseSlot
from strandline.broker.network.error_responses import error_response
from strandline.broker.network.limits import ByteBudget
from strandline.broker.network.regions import Segment, Warm, read_here
from strandline.protocol.api import INTER_BROKER_ONLY, ApiKey
from strandline.protocol.errors import BrokerError, ErrorCode, LocalProtocolError, RemoteProtocolError
from strandline.protocol.messages import REQUESTS, Message, ProduceRequest, Request
from strandline.protocol.native.frame import encode_head
from strandline.runtime.logging import Logger, RateLimited

MAX_QUEUED_CONTROL_REQUESTS = 64
"""One controller has one request per broker in flight; more is several controllers or a flood: they wait."""

STEP_TASKS = 4
"""So many remainders in steps take turns: each of them has a step per turn of the loop, and a short one does not wait
for a long one."""

UNCHARGED_REQUEST_BYTES = 64 * 1024
"""Queued requests below this are bounded by their count alone: an admin request never waits behind bulk bytes."""


@dataclass(slots=True)
class RequestInHand:
    """One request between its connection and its answer.

    `attachments` (writable) is valid until `end_of_burst` of its burst for inline handlers; queued handlers own theirs.
    """

    api_key: int
    api_version: int
    # Any: each handler is registered for one API and knows its class.
    message: Any
    attachments: memoryview
    connection: Connection
    slot: ResponseSlot
    correlation_id: int
    size_bytes: int

    def respond(self, message: Message, attachments: Sequence[Segment] = (), attachment_bytes: int = 0) -> None:
        """Encode the answer and put it into its place; `RequestChannel.flush_responses` sends it. `attachment_bytes`:
        the sum of the lengths of `attachments`. Only the first answer counts; after a close nothing happens. Never
        raises: an answer that cannot be encoded becomes UNKNOWN_SERVER_ERROR."""
        connection, slot = self.connection, self.slot
        if connection.closed or slot.head is not None:
            return
        try:
            head = encode_head(self.api_key, self.api_version, self.correlation_id, message, attachment_bytes)
        except LocalProtocolError as error:
            self._respond_unencodable(error)
            return
        connection.fill(slot, head, attachments, attachment_bytes)

    def no_response(self) -> None:
        """This request has no answer (acks=0): later responses do not wait for one."""
        if self.slot.head is None and not self.connection.closed:
            self.connection.fill(self.slot, b"", (), 0)

    def _respond_unencodable(self, error: LocalProtocolError) -> None:
        message = error_response(self.message, ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        try:
            head = encode_head(self.api_key, self.api_version, self.correlation_id, message)
        except LocalProtocolError:
            self.connection.close(f"no answer to api key {self.api_key} can be encoded: {error}")
            return
        self.connection.fill(self.slot, head, (), 0)


Remainder = Callable[[], Awaitable[None]]
"""What an inline handler leaves for a handler task to await (a worker's answer); answers by `respond`."""


@dataclass(frozen=True, slots=True)
class InSteps:
    """A remainder that waits for nobody: it only lets others run between its steps."""

    work: Remainder

    def __call__(self) -> Awaitable[None]:
        return self.work()


InlineHandler = Callable[[RequestInHand], Remainder | None]
QueuedHandler = Callable[[RequestInHand], Awaitable[Message]]


class Kind(enum.Enum):
    """How requests of an API reach their handler."""

    INLINE = "inline"
    QUEUED = "queued"
    CONTROL = "control"


class Route(NamedTuple):
    """What is known of an API before its body is read."""

    request_class: type[Request]
    kind: Kind
    inter_broker_only: bool
    lowest_version: int
    highest_version: int


class Unfinished(NamedTuple):
    """An inline request that left its burst, what is left to do for it, and those behind it that wait for that."""

    request: RequestInHand
    remainder: Remainder
    behind: list[RequestInHand]


class _Queued(NamedTuple):
    """A request in line, with the bytes that it holds of a budget until it is handled."""

    request: RequestInHand
    budget: ByteBudget
    charged_bytes: int
    remainder: Remainder | None


_Work = _Queued | Callable[[], Awaitable[None]]


class _Queue:
    """Work for handler tasks: bounded for requests, which wait for room; submitted work is bounded by what submits it
    (at most one piece per request in flight)."""

    def __init__(self, max_requests: int) -> None:
        self.max_requests = max_requests
        self.items: deque[_Work] = deque()
        self.work_came = trio.lowlevel.ParkingLot()
        self.room_came = trio.lowlevel.ParkingLot()

    def put(self, item: _Work) -> None:
        self.items.append(item)
        self.work_came.unpark()

    async def take(self) -> _Work:
        while not self.items:
            await self.work_came.park()
        item = self.items.popleft()
        self.room_came.unpark_all()
        return item


class RequestChannel:
    """See the module. `inline`, `queued` and `control` map API keys to handlers; what is in none is an unknown API.

    max_queued_requests: `queued.max.requests`. max_queued_bytes: requests above 64 KiB that wait for a handler, and
    frames above the receive buffer, together. num_handlers: `num.io.threads`.
    """

    def __init__(
        self,
        *,
        inline: Mapping[int, InlineHandler],
        queued: Mapping[int, QueuedHandler],
        control: Mapping[int, QueuedHandler],
        end_of_burst: Callable[[], None],
        max_queued_requests: int,
        max_queued_bytes: int,
        num_handlers: int,
        log: Logger,
    ) -> None:
        self._inline = dict(inline)
        self._handlers = {**queued, **control}
        self._end_of_burst = end_of_burst
        self._num_handlers = num_handlers
        self._log = RateLimited(log)
        self._data = _Queue(max_queued_requests)
        self._steps = _Queue(max_queued_requests)
        self._control = _Queue(MAX_QUEUED_CONTROL_REQUESTS)
        self._data_bytes = ByteBudget(max_queued_bytes)
        self._control_bytes = ByteBudget(max_queued_bytes)
        self.read_failed: Callable[[str, OSError], None] = lambda path, error: None
        """Told of files that cannot be read while they are sent; bound by the server."""
        self.warm: Warm = read_here
        """For file regions that would make the loop wait; bound by the server."""
        self.dirty: list[Connection] = []
        """Connections with new answers since the last flush; each appends itself once."""
        self.routes: dict[int, Route] = {}
        for kind, handlers in ((Kind.INLINE, inline), (Kind.QUEUED, queued), (Kind.CONTROL, control)):
            for api_key in handlers:
                assert api_key not in self.routes, f"api key {api_key} has two handlers"
                request_class = REQUESTS[api_key]
                self.routes[int(api_key)] = Route(
                    request_class, kind, api_key in INTER_BROKER_ONLY, *request_class.VERSIONS
                )

    # --- for processors ------------------------------------------------------------------------------------------

    def handle_burst(self, requests: Sequence[RequestInHand]) -> Unfinished | None:
        """Call the inline handlers of one connection's burst in order, end the burst, send what is ready.

        Returns the request that ended it early, if one did: it and those behind it own their bytes from then on, its
        remainder is to be enqueued, and the rest handled as a burst when that is done."""
        unfinished: Unfinished | None = None
        if requests:
            inline = self._inline
            in_order = iter(requests)
            for request in in_order:
                try:
                    remainder = inline[request.api_key](request)
                except Exception as error:
                    self._answer_failure(request, error)
                else:
                    if remainder is not None:
                        unfinished = Unfinished(request, remainder, list(in_order))
            try:
                self._end_of_burst()
            except Exception as error:
                # Which requests it had in hand is not known here; their client learns of it by the close and retries.
                self._log_bug(requests[-1], error)
                requests[-1].connection.close("a bug at the end of a burst, see the log")
        self.flush_responses()
        return unfinished

    async def enqueue(self, request: RequestInHand, charged_bytes: int, remainder: Remainder | None = None) -> None:
        """Put a queued or control request in line, or an inline request's remainder; waits while its queue is full. Its
        connection is muted by now. `charged_bytes` of `budget_of(api_key)` were reserved for it: they are released
        here, however it ends."""
        budget = self.budget_of(request.api_key)
        queue = self._control if budget is self._control_bytes else self._data
        if isinstance(remainder, InSteps):
            queue = self._steps
        try:
            while len(queue.items) >= queue.max_requests:
                await queue.room_came.park()
        except BaseException:
            budget.release(charged_bytes)
            raise
        queue.put(_Queued(request, budget, charged_bytes, remainder))

    def budget_of(self, api_key: int) -> ByteBudget:
        """Where bytes of this API's requests are charged; controllers' requests never wait for data."""
        route = self.routes.get(api_key)
        return self._control_bytes if route is not None and route.kind is Kind.CONTROL else self._data_bytes

    # --- for handlers --------------------------------------------------------------------------------------------

    def flush_responses(self) -> None:
        """Send everything that is ready, one send per connection that got an answer. Never waits, never raises."""
        dirty = self.dirty
        if dirty:
            connections = dirty.copy()
            dirty.clear()
            for connection in connections:
                connection.flush()

    def submit(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` in a handler task (cold reads). It answers and flushes by itself."""
        self._data.put(work)

    @property
    def queued_requests(self) -> int:
        """Requests and submitted work that wait for a task, controllers' excepted."""
        return len(self._data.items) + len(self._steps.items)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The handler tasks; runs until cancelled."""
        async with trio.open_nursery() as nursery:
            for number in range(self._num_handlers):
                nursery.start_soon(self._serve, self._data, name=f"request handler {number}")
            for number in range(STEP_TASKS):
                nursery.start_soon(self._serve, self._steps, name=f"long question {number}")
            nursery.start_soon(self._serve, self._control, name="control request handler")
            task_status.started()

    async def _serve(self, queue: _Queue) -> None:
        while True:
            item = await queue.take()
            if isinstance(item, _Queued):
                await self._handle_queued(item)
            else:
                await self._run_submitted(item)

    async def _handle_queued(self, queued: _Queued) -> None:
        request = queued.request
        try:
            if queued.remainder is not None:  # also after a close: what came whole is carried out
                await queued.remainder()
            elif not request.connection.closed:
                request.respond(await self._handlers[request.api_key](request))
        except Exception as error:
            self._answer_failure(request, error)
        finally:
            queued.budget.release(queued.charged_bytes)
            request.connection.unmute()
        self.flush_responses()

    async def _run_submitted(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            self._log.error("submitted work failed", "submitted work failed", error=repr(error), exc_info=error)
        self.flush_responses()

    # --- failures ------------------------------------------------------------------------------------------------

    def _answer_failure(self, request: RequestInHand, error: Exception) -> None:
        connection, message = request.connection, request.message
        if isinstance(error, BrokerError):
            code, text = error.code, str(error.args[0])
        elif isinstance(error, RemoteProtocolError):
            code, text = ErrorCode.INVALID_REQUEST, str(error)
            connection.finish(text)
        else:
            code, text = ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed to handle the request, see its log"
            self._log_bug(request, error)
        if isinstance(message, ProduceRequest) and message.acks == 0:
            connection.close(f"a produce request with acks=0 failed: {code.name}")
            return
        request.respond(error_response(message, code, text))

    def _log_bug(self, request: RequestInHand, error: Exception) -> None:
        api = ApiKey(request.api_key).name
        self._log.error(
            ("handler failed", request.api_key),
            "a request handler failed",
            api=api,
            correlation_id=request.correlation_id,
            peer=str(request.connection.context.peer),
            client_id=request.connection.context.client_id,
            error=repr(error),
            exc_info=error,
        )
