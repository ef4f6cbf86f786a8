"""From processors to handlers: hot requests are called in their burst, the others queue for the handler tasks.

| kind | handler | when |
|---|---|---|
| inline | plain function of the request | within the burst, in order; answers now or later by `respond` |
| remainder | coroutine that an inline handler returned | by a handler task, the connection is muted meanwhile |
| in steps | the same, where it waits for nobody | by tasks of its own: no creation or deletion delays a question |
| queued | coroutine that returns the response | by one of `num.io.threads` tasks, behind a bounded queue |
| admin | the same, of what waits for the controller or ZooKeeper | by tasks of its own: data never waits for it |
| leaving | the same, of brokers that shut down | by tasks of its own: no client's requests delay it |
| control | the same, from controllers | by one task of its own, so that data load never delays a leader change |

Rules:
* `end_of_burst()` follows the last inline handler of a burst: the responses that are ready leave, one send per
  connection. Only then a queued request that came behind them is enqueued: arrival order holds across kinds.
* A bug in a handler is one error response (UNKNOWN_SERVER_ERROR) and one log line; a `BrokerError` is answered with its
  code.
* Nothing here waits for the purgatory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import trio

from strandline.broker.network.burst_counts import count_burst, count_mixed_burst, size_of_any
from strandline.broker.network.connection import Brake, Connection, Debt
from strandline.broker.network.dialects import Dialect
from strandline.broker.network.held_bytes import Charge, HeldBytes
from strandline.broker.network.limits import ByteBudget
from strandline.broker.network.regions import Warm, read_here
from strandline.broker.network.request import Remainder, RequestInHand
from strandline.broker.network.request_counts import FETCH, NOT_YET, CountsByApi, RequestTimes
from strandline.broker.network.unflushed_connections import UnflushedConnections
from strandline.broker.steps import InSteps
from strandline.protocol.api import APIS, Api, ApiKey, Scheduling
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import Request
from strandline.runtime.logging import Logger, RateLimited

MAX_QUEUED_CONTROL_REQUESTS = 64
"""One controller has one request per broker in flight; more is several controllers or a flood: they wait."""

STEP_TASKS = 4
"""So many remainders in steps take turns: each of them has a step per turn of the loop, and a short one does not wait
for a long one."""

UNCHARGED_REQUEST_BYTES = 64 * 1024
"""Queued requests below this are bounded by their count alone: an admin request never waits behind bulk bytes."""


Handler = Callable[[RequestInHand[Any]], Any]
"""Of an inline API it answers by itself and returns None, or a Remainder; of others it returns an awaitable response.
Any: each is registered for one API, and knows its message."""

Gate = Callable[[Api, Handler], Handler]
"""Puts something before the handler of an API, once, when the table of handlers is built: the handler itself where
there is nothing to do for it. What the gate's handler raises is answered as a handler's error: that is how it refuses.
The answer it meets by `RequestInHand.on_answer`. Its request goes on to the handler as the same object: what leaves a
burst takes along what that object holds."""

EndOfBurst = Callable[[], None]
"""Writes what the burst appended, and sends the answers that are ready."""


class Held(NamedTuple):
    """What a gate returns instead of calling the handler of an inline API where the request has to wait: it stays in
    its connection with those behind it, which is not read meanwhile, and comes again when the brake lets it."""

    brake: Brake


class Passage(Protocol):
    """The way of a request that queues, from its connection to its handler."""

    def brake(self) -> Brake | None:
        """What holds it, to be asked anew after that was waited for; None: it is put in line for its handler now."""

    def end(self) -> None:
        """Its connection does not wait for its handler any more."""


class Unfinished(NamedTuple):
    """An inline request that left its burst, what is left to do for it, and those behind it that wait for that."""

    request: RequestInHand[Request]
    remainder: Remainder | Held
    behind: list[RequestInHand[Request]]

    @property
    def unhandled(self) -> list[RequestInHand[Request]]:
        """Which no handler has seen."""
        return [self.request, *self.behind] if isinstance(self.remainder, Held) else self.behind


class _Queued(NamedTuple):
    """A request in line, with its bytes, which are counted until it is handled."""

    request: RequestInHand[Request]
    charge: Charge
    remainder: Remainder | None
    times: RequestTimes | None


_Work = _Queued | Callable[[], Awaitable[None]]


class WorkQueue:
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

    async def take(self, is_wanted: Callable[[], bool]) -> _Work | None:
        """The next piece; None where who asks is not wanted any more (`work_came.unpark_all()` has them look)."""
        while is_wanted():
            if self.items:
                item = self.items.popleft()
                self.room_came.unpark_all()
                return item
            await self.work_came.park()
        return None


@dataclass(eq=False, slots=True)
class _Line:
    """Where requests of a kind wait for its tasks. `budget`: of the bytes that they hold meanwhile. `tasks`: those that
    run, by number; as many as `num_tasks` are wanted."""

    queue: WorkQueue
    budget: ByteBudget
    task_name: str
    num_tasks: int
    tasks: set[int] = field(default_factory=set)

    def is_wanted(self, number: int) -> bool:
        return number < self.num_tasks


class RequestChannel:
    """See the module. What has no handler is an unknown API. `gates` stand before the handlers, the first one
    outermost: the place for authorising, for time stamps and for throttling. `dialects`: what connections may speak.

    end_of_burst: also flushes the `unflushed_connections`. work: of the handlers, which submit to it (cold reads), and
    the queued requests. warm: for file regions that would make the loop wait. read_failed: told of files that cannot be
    read while they are sent. max_queued_bytes: of each kind, requests above 64 KiB that wait for a handler, and frames
    above the receive buffer, together. num_handlers: `num.io.threads` at the start.
    """

    def __init__(
        self,
        *,
        handlers: Mapping[ApiKey, Handler],
        gates: Sequence[Gate] = (),
        dialects: Sequence[Dialect],
        end_of_burst: EndOfBurst,
        unflushed_connections: UnflushedConnections,
        work: WorkQueue,
        warm: Warm = read_here,
        read_failed: Callable[[str, OSError], None] = lambda path, error: None,
        max_queued_bytes: int,
        num_handlers: int,
        log: Logger,
    ) -> None:
        self.apis: dict[int, Api] = {key: APIS[key] for key in handlers}
        """What is served."""
        self.counts = CountsByApi(self.apis.values())
        self._rows = self.counts.rows
        self.dialects = {dialect.first_byte: dialect for dialect in dialects}
        self._lasting_gates = tuple(gates)
        self._behind_gates = dict(handlers)
        self._handlers = self._gated(())
        self._plain_end = self._end_of_burst = end_of_burst
        self._log = RateLimited(log)
        self._nursery: trio.Nursery | None = None
        data = _Line(work, ByteBudget(max_queued_bytes), "request handler", num_handlers)
        self._steps = _Line(WorkQueue(work.max_requests), data.budget, "long question", STEP_TASKS)
        admin = _Line(WorkQueue(work.max_requests), ByteBudget(max_queued_bytes), "admin request handler", num_handlers)
        leaving = _Line(
            WorkQueue(work.max_requests), ByteBudget(max_queued_bytes), "leaving broker handler", num_handlers
        )
        self._resizable = (data, admin, leaving)
        self._lines = {
            Scheduling.INLINE: data,
            Scheduling.QUEUED: data,
            Scheduling.ADMIN: admin,
            Scheduling.LEAVING: leaving,
            Scheduling.CONTROL: _Line(
                WorkQueue(MAX_QUEUED_CONTROL_REQUESTS), ByteBudget(max_queued_bytes), "control request handler", 1
            ),
        }
        self.before_large: Callable[[Connection, Api, int], Brake | None] | None = None
        """What a connection waits for before a large frame of that API, of so many bytes, is received."""
        self.debt_of: Callable[[Connection, Api], Debt | None] | None = None
        """What would hold a request of that API, if it were received now: it takes no memory then that others wait
        for."""
        self.passage_of: Callable[[RequestInHand[Request]], Passage | None] | None = None
        """How a request that queues comes to its handler; None: nothing holds it."""
        self.held = HeldBytes()
        """What connections that a gate holds have received."""
        self.read_failed = read_failed
        self.warm = warm
        self.dirty = unflushed_connections.dirty
        self.flush_responses = unflushed_connections.flush

    def switch_gate(self, gate: Gate | None, end_burst: Callable[[EndOfBurst], None] | None = None) -> None:
        """Put a gate before all others, outermost, in place of the one that this put there before: what is not needed
        for the time being costs nothing. end_burst: calls the end of each burst, for a gate that has to do with it."""
        self._handlers = self._gated(() if gate is None else (gate,))
        self._end_of_burst = self._plain_end if end_burst is None else partial(end_burst, self._plain_end)

    def _gated(self, outermost: Sequence[Gate]) -> dict[ApiKey, Handler]:
        handlers = self._behind_gates
        for gate in reversed((*outermost, *self._lasting_gates)):
            handlers = {key: gate(APIS[key], handler) for key, handler in handlers.items()}
        return handlers

    # --- for processors ------------------------------------------------------------------------------------------

    def handle_burst(
        self,
        requests: Sequence[RequestInHand[Request]],
        taken_at: float,
        is_mixed: bool = True,
        begun_at: float = NOT_YET,
    ) -> Unfinished | None:
        """Call the inline handlers of one connection's burst in order, end the burst, send what is ready. taken_at,
        begun_at: see `RequestTimes`. is_mixed: they may be of several APIs.

        Returns the request that ended it early, if one did: it and those behind it own their bytes from then on, its
        remainder is to be enqueued, and the rest handled as a burst when that is done."""
        unfinished: Unfinished | None = None
        if requests:
            handlers = self._handlers
            in_order = iter(requests)
            for request in in_order:
                try:
                    remainder = handlers[request.api.key](request)
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
            if unfinished is not None:
                requests = requests[: -len(unfinished.unhandled) or None]
                is_mixed = True
            if requests:
                first = requests[0]
                connection, key = first.connection, first.header.api_key
                if is_mixed:
                    count_mixed_burst(connection, requests, taken_at, begun_at)
                    return unfinished
                row = self._rows[key]
                if key == FETCH and first.context.is_inter_broker:
                    row = self.counts.row(key, first)
                if connection.all_sent_at >= taken_at:
                    # Nearly all bursts end here, so that it is written out: a call would cost as much again.
                    row.untimed += len(requests)
                    if connection.all_sent_at >= row.timed_from:
                        size_bytes = size_of_any(requests, taken_at)
                        row.time_burst(len(requests), size_bytes, taken_at, connection.left_at, connection.all_sent_at)
                else:
                    count_burst(connection, row, requests, taken_at, begun_at)
        else:
            self.flush_responses()
        return unfinished

    async def enqueue(
        self,
        request: RequestInHand[Request],
        charge: Charge,
        remainder: Remainder | None = None,
        times: RequestTimes | None = None,
    ) -> None:
        """Put a request that is not inline in line, or an inline request's remainder; waits while its queue is full.
        Its connection is muted by now. charge: of its bytes, which are released here, however it ends.

        times: of one that is not inline; when it is begun and done is written down there."""
        line = self._steps if isinstance(remainder, InSteps) else self._lines[request.api.scheduling]
        queue = line.queue
        try:
            while len(queue.items) >= queue.max_requests:
                await queue.room_came.park()
        except BaseException:
            charge.release()
            raise
        queue.put(_Queued(request, charge, remainder, times))

    def budget_of(self, api: Api) -> ByteBudget:
        """Where bytes of this API's requests are charged."""
        return self._lines[api.scheduling].budget

    def queues(self) -> Iterator[WorkQueue]:
        """Where requests wait."""
        for line in dict.fromkeys((*self._lines.values(), self._steps)):
            yield line.queue

    # --- its tasks -----------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The handler tasks; runs until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for line in dict.fromkeys((*self._lines.values(), self._steps)):
                self._fill(line)
            task_status.started()
            await trio.sleep_forever()

    def set_num_handlers(self, count: int) -> None:
        """So many tasks from now on (`num.io.threads`). One too many ends when it has nothing in hand."""
        for line in self._resizable:
            line.num_tasks = count
            self._fill(line)
            line.queue.work_came.unpark_all()

    def _fill(self, line: _Line) -> None:
        for number in range(line.num_tasks):
            if self._nursery is not None and number not in line.tasks:
                line.tasks.add(number)
                self._nursery.start_soon(self._serve, line, number, name=f"{line.task_name} {number}")

    async def _serve(self, line: _Line, number: int) -> None:
        while (item := await line.queue.take(partial(line.is_wanted, number))) is not None:
            if isinstance(item, _Queued):
                await self._handle_queued(item)
            else:
                await self._run_submitted(item)
        line.tasks.discard(number)

    async def _handle_queued(self, queued: _Queued) -> None:
        request, times = queued.request, queued.times
        if times is not None:
            times.begun_at = trio.current_time()
        try:
            if queued.remainder is not None:  # also after a close: what came whole is carried out
                await queued.remainder()
            elif not request.connection.closed:
                answer = await self._handlers[request.api.key](request)
                if times is not None:
                    times.handled_at = trio.current_time()
                request.respond(answer)
        except Exception as error:
            if times is not None and times.handled_at < 0:
                times.handled_at = trio.current_time()
            self._answer_failure(request, error)
        finally:
            queued.charge.release()
            request.connection.unmute()
        self.flush_responses()

    async def _run_submitted(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            self._log.error("submitted work failed", "submitted work failed", error=repr(error), exc_info=error)
        self.flush_responses()

    # --- failures ------------------------------------------------------------------------------------------------

    def _answer_failure(self, request: RequestInHand[Request], error: Exception) -> None:
        if isinstance(error, BrokerError):
            code, text = error.code, str(error.args[0])
        else:
            code, text = ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed to handle the request, see its log"
            self._log_bug(request, error)
        request.refuse(code, text)

    def _log_bug(self, request: RequestInHand[Request], error: Exception) -> None:
        self._log.error(
            ("handler failed", request.api.key),
            "a request handler failed",
            api=request.api.key.name,
            correlation_id=request.header.correlation_id,
            peer=str(request.context.peer),
            client_id=request.context.client_id,
            error=repr(error),
            exc_info=error,
        )
