"""Bytes to requests: a processor serves its share of the connections with one receive buffer for all of them.

```
wait_readable ─> recv into the shared buffer ─> every whole frame ─> RequestChannel.handle_burst ─> next recv …
                  (kept bytes come back first)     └ error responses        └ end of burst, one send
```
Rules:
* From the first byte in the shared buffer to the end of the burst there is no await (`_turn` is a plain function): so
  all connections can share it. Between turns a connection keeps its unfinished frame as its own bytes.
* A frame above `large_frame_bytes` that is not there whole gets its own allocation, charged to the channel's bytes, and
  is received into place. While a gate holds it, or would hold it, it is charged to the held bytes instead.
* A burst has a budget (the buffer's size in bytes, `burst_max_requests`), a turn a number of bursts, then others run.
* All deadlines are checked by one coarse timer per processor: no cancel scope per request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from strandline.broker.network.connection import Brake, Connection, Debt
from strandline.broker.network.first_request import IsKey, first_of_broker
from strandline.broker.network.held_bytes import HELD_READ_BYTES, Charge
from strandline.broker.network.limits import ConnectionLimits
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_channel import UNCHARGED_REQUEST_BYTES, Held, RequestChannel
from strandline.broker.network.request_context import RequestContext
from strandline.broker.network.request_reader import Leaving, Next, RequestReader
from strandline.protocol.api import Api
from strandline.protocol.messages import Request
from strandline.protocol.records import READER_SLACK_BYTES
from strandline.runtime.beats import next_beat
from strandline.runtime.logging import Logger, RateLimited
from strandline.runtime.network import Transport, TransportClosed

BURSTS_PER_TURN = 4
DRAINED_BELOW_BYTES = 4096
TIMER_INTERVAL_S = 1.0
LAST_READS = 16
"""How often a connection that ends with an answer is emptied first."""
TIMER_CHUNK = 500
"""Connections that the timer looks at between two checkpoints."""


class Processor:
    """See the module. `run` serves what `adopt` brings, until cancelled, or retired and left by the last of them."""

    def __init__(self, number: int, channel: RequestChannel, limits: ConnectionLimits, log: Logger) -> None:
        assert limits.large_frame_bytes < limits.receive_buffer_bytes
        self.number = number
        self.connections: dict[Connection, None] = {}
        self._channel = channel
        self._held = channel.held
        self._limits = limits
        self._log = RateLimited(log)
        # The slack lets record checks read a little past their batch without copying it (protocol/records/validation).
        self._buffer = bytearray(limits.receive_buffer_bytes + READER_SLACK_BYTES)
        self._view = memoryview(self._buffer)[: limits.receive_buffer_bytes]
        self._request_reader = RequestReader(channel, limits, self._log)
        self._reading: dict[Connection, trio.CancelScope] = {}
        self._stopping = False
        self._retired = False
        self._nursery: trio.Nursery | None = None
        self._one_ended = trio.lowlevel.ParkingLot()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve connections until cancelled; then they are closed."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._watch_deadlines, name=f"deadlines of processor {self.number}")
            task_status.started()
            while not self._retired or len(nursery.child_tasks) > 1:  # the deadlines', and one per connection
                await self._one_ended.park()
            nursery.cancel_scope.cancel()

    def retire(self) -> None:
        """It gets no more connections (its owner sees to that), and ends with the last one that it has."""
        self._retired = True
        self._one_ended.unpark_all()

    def adopt(
        self, transport: Transport, context: RequestContext, on_closed: Callable[[], None], received: bytes = b""
    ) -> None:
        """Serve this connection from now on, of which so much is received; `on_closed` is called exactly once, however
        it ends."""
        channel = self._channel
        connection = Connection(
            transport, context, self._limits, channel.dirty, channel.counts, channel.read_failed, channel.warm
        )
        connection.kept = received
        self._begin(partial(self._serve, connection, on_closed), transport, on_closed, f"connection {context.peer}")

    def hold(
        self,
        transport: Transport,
        context: RequestContext,
        on_closed: Callable[[], None],
        held_s: float,
        is_key: IsKey,
    ) -> None:
        """Serve this connection as soon as its first request shows such a key of a broker; one that does not is read
        no further, and closed after so long."""
        await_key = partial(self._await_key, transport, context, on_closed, held_s, is_key)
        self._begin(await_key, transport, on_closed, f"held connection {context.peer}")

    def _begin(
        self, task: Callable[[], Awaitable[None]], transport: Transport, on_closed: Callable[[], None], name: str
    ) -> None:
        """Start the task of a connection, which is closed at once where none is served any more."""
        if self._nursery is None or self._stopping:
            transport.close()
            on_closed()
            return
        self._nursery.start_soon(task, name=name)

    async def _await_key(
        self,
        transport: Transport,
        context: RequestContext,
        on_closed: Callable[[], None],
        held_s: float,
        is_key: IsKey,
    ) -> None:
        first: bytes | None = None
        try:
            with trio.move_on_after(held_s):
                first = await first_of_broker(transport, is_key)
                if first is None:
                    await trio.sleep_forever()
        finally:
            if first is None:
                transport.close()
                on_closed()
            else:
                self.adopt(transport, context, on_closed, first)
            self._one_ended.unpark_all()

    async def stop(self, deadline_s: float) -> None:
        """Read nothing more, let the responses that are due leave, close everything; at most until `deadline_s`
        (trio's clock)."""
        self._stopping = True
        for scope in list(self._reading.values()):
            scope.cancel()
        with trio.move_on_at(deadline_s):
            while self.connections:
                await self._one_ended.park()
        for connection in list(self.connections):
            connection.close("the broker stops")

    # --- one connection ------------------------------------------------------------------------------------------

    async def _serve(self, connection: Connection, on_closed: Callable[[], None]) -> None:
        self.connections[connection] = None
        reason = "the broker stops"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.write_unsent)
                with trio.CancelScope() as scope:
                    self._reading[connection] = scope
                    if self._stopping:
                        scope.cancel()
                    reason = await self._read(connection)
                if scope.cancelled_caught:
                    await connection.wait_drained()
                nursery.cancel_scope.cancel()
        finally:
            connection.close(reason)
            del self.connections[connection]
            self._reading.pop(connection, None)
            self._request_reader.leaving.pop(connection, None)
            self._one_ended.unpark_all()
            on_closed()

    async def _read(self, connection: Connection) -> str:
        """The reader: turn after turn until the connection ends. Returns why it ended."""
        try:
            next_ = Next.YIELD if connection.kept else Next.READ
            while True:
                if next_ is Next.READ:
                    await connection.wait_readable()
                elif next_ is Next.YIELD:
                    await trio.lowlevel.checkpoint()
                elif next_ is Next.ROOM:
                    await connection.wait_for_room()
                elif next_ is Next.QUEUED:
                    await self._hand_over(connection, Charge())
                elif next_ is Next.DRAIN:
                    return await self._drain(connection)
                elif next_ is Next.END:
                    return "closed by the peer"
                if connection.brake is not None:
                    await self._brake(connection)
                next_ = await self._receive_large(connection) if next_ is Next.LARGE else self._turn(connection)
        except TransportClosed as error:
            return str(error)

    def _turn(self, connection: Connection) -> Next:
        """Handle what is there: up to BURSTS_PER_TURN bursts. Plain function: the shared buffer is ours meanwhile."""
        if connection.closed:
            return Next.END
        if connection.finish_reason is not None:
            return Next.DRAIN
        have = len(connection.kept)
        view = self._view
        if self._held.are_too_many and not connection.context.is_inter_broker:
            view = view[: max(have, HELD_READ_BYTES)]
        if have:
            view[:have] = connection.kept
            connection.kept = b""
        next_ = Next.READ
        drained = False
        for _ in range(BURSTS_PER_TURN):
            used = 0
            if have:
                used, next_ = self._request_reader.take(connection, self._buffer, view, have, is_shared=True)
                if used:
                    have -= used
                    view[:have] = view[used : used + have]
                if next_ is not Next.READ:
                    break
                if drained:
                    break
            try:
                received = connection.recv_into_nowait(view[have:])
            except trio.WouldBlock:
                next_ = Next.LARGE if connection.expected_bytes > self._limits.large_frame_bytes else Next.READ
                break
            if not received:
                return Next.END
            have += received
            # A short read of a few small requests emptied the socket: asking again would cost as much as handling one.
            drained = received < DRAINED_BELOW_BYTES
        else:
            next_ = Next.YIELD
        connection.kept = bytes(view[:have])
        return next_

    async def _brake(self, connection: Connection) -> None:
        while (brake := connection.brake) is not None and not connection.closed:
            connection.brake = None
            with self._held.keeping(len(connection.kept)):
                await brake.wait(connection)

    # --- what must wait ------------------------------------------------------------------------------------------

    async def _hand_over(self, connection: Connection, charge: Charge) -> None:
        """Give what left its burst to the channel, one after the other, and wait until its handlers are done.

        charge: what is counted of it already."""
        leaving = self._request_reader.leaving.pop(connection)
        try:
            while leaving.unfinished is not None:
                request, remainder, behind = leaving.unfinished
                if isinstance(remainder, Held):
                    await self._hold(connection, request, remainder.brake, leaving, charge)
                    if connection.closed:
                        break
                    leaving.unfinished = None  # it is the channel's now
                    now = trio.current_time()
                    leaving.unfinished = self._channel.handle_burst([request, *behind], leaving.taken_at, begun_at=now)
                    continue
                await self._reserve(connection, request, leaving.size_bytes, charge)
                connection.muted = True
                await self._channel.enqueue(request, charge.give_away(), remainder)
                leaving.is_begun = True
                await connection.wait_unmuted()
                leaving.is_begun = False
                now = trio.current_time()
                leaving.unfinished = self._channel.handle_burst(behind, leaving.taken_at, begun_at=now)
            if leaving.queued is not None and connection.finish_reason is None and not connection.closed:
                await self._hand_over_queued(connection, leaving.queued, leaving, charge)
        finally:
            charge.release()
            leaving.drop()
            self._channel.flush_responses()
        if leaving.fault is not None:
            self._request_reader.break_off(connection, leaving.fault)

    async def _hand_over_queued(
        self, connection: Connection, request: RequestInHand[Request], leaving: Leaving, charge: Charge
    ) -> None:
        """Its memory comes first: whoever is on the way to its handler waits for none of it, which those might have
        that wait behind."""
        if not charge.size_bytes:
            await self._reserve(connection, request, request.header.size_bytes, charge)
        passage_of = self._channel.passage_of
        passage = None if passage_of is None else passage_of(request)
        try:
            while passage is not None and not connection.closed and (brake := passage.brake()) is not None:
                await self._hold(connection, request, brake, leaving, charge)
            if connection.closed:
                return
            leaving.queued = None
            connection.muted = True
            await self._channel.enqueue(request, charge.give_away(), times=leaving.queued_times)
            await connection.wait_unmuted()
        finally:
            if passage is not None:
                passage.end()

    async def _hold(
        self,
        connection: Connection,
        request: RequestInHand[Request],
        brake: Brake,
        leaving: Leaving,
        charge: Charge,
    ) -> None:
        held_since = trio.current_time()
        self._count_held(charge, request, leaving.all_bytes + len(connection.kept))
        await brake.wait(connection)
        if connection.closed:
            return
        held_s = trio.current_time() - held_since
        request.note_throttled(held_s)
        leaving.note_held(held_s)

    def _count_held(self, charge: Charge, request: RequestInHand[Request], size_bytes: int) -> None:
        """What waits for its turn leaves the budget to others; unless so much has left it that memory would not be
        bounded: more than one client has under way when it begins to owe."""
        budget = self._channel.budget_of(request.api)
        if charge.is_in(budget) and self._held.used_bytes > self._held.most_bytes + budget.max_bytes:
            return
        self._held.take(size_bytes)
        charge.put(self._held, size_bytes)

    async def _reserve(
        self, connection: Connection, request: RequestInHand[Request], size_bytes: int, charge: Charge
    ) -> None:
        """Charge what waits with this request to the budget, unless it is a large frame that brought its charge."""
        budget = self._channel.budget_of(request.api)
        if charge.is_in(budget):
            return
        size_bytes += len(connection.kept)
        if size_bytes < UNCHARGED_REQUEST_BYTES:
            charge.release()  # and it does not wait in the line of the large ones
            return
        await charge.reserve(budget, size_bytes)

    async def _receive_large(self, connection: Connection) -> Next:
        """Receive the frame that `connection.kept` begins into memory of its own, and handle it."""
        size, api = connection.expected_bytes, connection.expected_api
        assert api is not None
        charge = Charge()
        have = 0
        try:
            held_s = await self._before_large(connection, api, size)
            held_s += await self._make_room(connection, api, size, charge)
            if connection.closed:
                return Next.END
            buffer = bytearray(size + READER_SLACK_BYTES)
            view = memoryview(buffer)[:size]
            have = len(connection.kept)
            view[:have] = connection.kept
            connection.kept = b""
            reads = 0
            while have < size:
                try:
                    received = connection.recv_into_nowait(view[have:])
                except trio.WouldBlock:
                    reads = 0
                    await connection.wait_readable()
                    continue
                if not received:
                    return Next.END
                have += received
                reads += 1
                if reads % BURSTS_PER_TURN == 0:
                    await trio.lowlevel.checkpoint()
            if held_s:
                connection.counts.rows[api.key].throttle.add(held_s, 1)
            await connection.wait_for_room()
            _, next_ = self._request_reader.take(connection, buffer, view, have, is_shared=False)
            if next_ is Next.QUEUED:
                await self._hand_over(connection, charge)
            return Next.YIELD if next_ in (Next.READ, Next.QUEUED) else next_
        finally:
            if connection.before_frame is not None:
                connection.before_frame.give_back(size - have)
                connection.before_frame = None
            charge.release()

    async def _before_large(self, connection: Connection, api: Api, size_bytes: int) -> float:
        """Ask the gate until it lets the frame in: what it waits for may be another quota by then. Returns the seconds
        that it was held."""
        held_s = 0.0
        while connection.before_frame is None and not connection.closed:
            before_large = self._channel.before_large
            if before_large is None or (brake := before_large(connection, api, size_bytes)) is None:
                break
            began = trio.current_time()
            with self._held.keeping(len(connection.kept)):
                await brake.wait(connection)
            held_s += trio.current_time() - began
        return held_s

    async def _make_room(self, connection: Connection, api: Api, size_bytes: int, charge: Charge) -> float:
        """Charge a large frame before it is received: to the held bytes where it would be held, else to the budget.
        Returns the seconds that it was held."""
        held_s = 0.0
        while not connection.closed:
            if (debt := self._debt_of(connection, api)) is not None:
                began = trio.current_time()
                if await self._held.reserve(connection, size_bytes, debt):
                    charge.put(self._held, size_bytes)
                held_s += trio.current_time() - began
            else:
                await charge.reserve(self._channel.budget_of(api), size_bytes)
                if self._debt_of(connection, api) is not None:  # since then
                    charge.release()
            if charge.size_bytes:
                break
        return held_s

    def _debt_of(self, connection: Connection, api: Api) -> Debt | None:
        debt_of = self._channel.debt_of
        return None if debt_of is None else debt_of(connection, api)

    async def _drain(self, connection: Connection) -> str:
        """Wait until the responses that are due have left."""
        await connection.wait_drained()
        # A socket that is closed with unread bytes is reset, and the answer may be lost with it.
        for _ in range(LAST_READS):
            try:
                if not connection.recv_into_nowait(self._view):
                    break
            except trio.WouldBlock:
                break
        return connection.finish_reason or ""

    async def _watch_deadlines(self) -> None:
        while True:
            await next_beat(TIMER_INTERVAL_S)
            now = trio.current_time()
            for count, connection in enumerate(list(self.connections)):
                if connection.is_left(now):
                    connection.close("closed by the peer")
                    continue
                reason = connection.overdue(now)
                if reason is not None:
                    self._log.warning(
                        ("overdue", connection.context.peer.host),
                        "closing a connection",
                        peer=str(connection.context.peer),
                        listener=connection.context.listener_name,
                        reason=reason,
                    )
                    connection.close(reason)
                if count % TIMER_CHUNK == TIMER_CHUNK - 1:
                    await trio.lowlevel.checkpoint()
