"""One client's connection: who it is, the order of its responses, and getting them out.

```
request ─> new_slot() ── ring of slots, in request order ── ready prefix ─> out queue ─> transport
                fill(slot) from anywhere, any time ──┘                        └ unsent: the writer task
```
Rules:
* Responses leave in the order of their requests. `fill` only stores and marks the connection dirty; `flush` sends
  everything that is ready at the head of the order in one system call (file regions excepted).
* `flush` comes from other connections' tasks: it tries once, never waits, never raises. What the peer does not take now
  belongs to the writer task of this connection, so a slow reader never holds anybody else's task.
* A file region whose file was cut since, or ended early, ends the connection: its bytes were promised in the header.
* Closing is immediate and idempotent; a closed connection swallows whatever is still answered.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from strandline.broker.network.counted_later import CountedLater
from strandline.broker.network.dialects import Dialect
from strandline.broker.network.limits import MIN_FRAME_RATE_BYTES, ConnectionLimits
from strandline.broker.network.regions import Piece, StaleRegion, Warm, cold_ahead, read_here, read_whole
from strandline.broker.network.request_context import RequestContext
from strandline.broker.network.request_counts import NOT_YET, CountsByApi, RequestTimes
from strandline.broker.network.response_slot import Answered, ResponseSlot
from strandline.protocol.api import Api
from strandline.runtime.disk import Buffer, FileRegion
from strandline.runtime.network import Transport, TransportClosed

SENDFILE_MIN_BYTES = 64 * 1024
"""From here on sendfile beats reading and joining (3-5 times cheaper)."""

RUN_BYTES = 1024 * 1024
"""How much memory is gathered into one send."""

JOIN_BYTES = 64 * 1024
"""Below this, copying small buffers together is cheaper than a long vector of them."""

SEND_TURN_BYTES = 8 * 1024 * 1024
"""After so much in one go the rest is the writer's, which lets other tasks run."""


class Brake(Protocol):
    """How a gate slows a connection down: what is not read meanwhile costs the broker nothing, and TCP pushes back."""

    async def wait(self, connection: Connection) -> None:
        """Until this connection may go on, or is closed. Its reader calls it, and no other task."""


class Debt(Protocol):
    """Why a gate would hold a request of a connection now."""

    async def wait(self, connection: Connection, goes_on: Callable[[], bool]) -> None:
        """Until it is settled, or `goes_on`, which is asked anew when the connection is woken, or that is closed."""


class BeforeFrame(Protocol):
    """What a gate asked of a connection before a large frame was received."""

    def give_back(self, missing_bytes: int) -> None:
        """The frame ended without so much of it."""


def _ignore(path: str, error: OSError) -> None:
    """For connections that send no files of logs."""


class Connection:
    """See the module. `dirty` is the request channel's list of connections to flush."""

    __slots__ = (
        "_dirty_list",
        "_drained_by",
        "_filled",
        "_last_active",
        "_limits",
        "_out",
        "_read_failed",
        "_reader_lot",
        "_reader_waits",
        "_region_sent",
        "_stalled_since",
        "_transport",
        "_warm",
        "_writer_lot",
        "all_sent_at",
        "before_frame",
        "brake",
        "closed",
        "context",
        "counts",
        "dialect",
        "droppable_from",
        "expected_api",
        "expected_bytes",
        "finish_reason",
        "frame_started_at",
        "has_errors",
        "has_greeted",
        "kept",
        "later",
        "left_at",
        "muted",
        "now",
        "pending_bytes",
        "sent_at",
        "slots",
        "why_closed",
    )

    def __init__(
        self,
        transport: Transport,
        context: RequestContext,
        limits: ConnectionLimits,
        dirty: list[Connection],
        counts: CountsByApi,
        read_failed: Callable[[str, OSError], None] = _ignore,
        warm: Warm = read_here,
    ) -> None:
        """counts: of all requests. read_failed: told the path of a file that could not be read while it was sent."""
        self.context = context
        """Of the requests to come."""
        self.counts = counts
        self._read_failed = read_failed
        self._warm = warm
        self.closed = False
        self.why_closed = ""
        self.finish_reason: str | None = None
        """Set: nothing more is read; closed for this reason once the pending responses are out."""
        self.muted = False
        """A queued request of this connection is being handled; later ones wait."""
        self.droppable_from = math.inf
        """From then on (trio's clock) what its reader waits with is dropped where its peer has ended (`is_left`)."""
        self.has_greeted = False
        """A gate has seen the ApiVersions that it begins with."""
        self.brake: Brake | None = None
        """Set by a gate: it is waited for before anything more is read."""
        self.before_frame: BeforeFrame | None = None
        """What a gate noted of the large frame that is being received; gone with it."""
        self.pending_bytes = 0
        """Of responses that are encoded and not sent."""
        # The reader's state (broker/network/processor.py).
        self.dialect: Dialect | None = None
        """Not known before the first frame begins."""
        self.kept: bytes | bytearray = b""
        """Received and not handled yet: the start of an unfinished frame, or what must wait its turn."""
        self.expected_bytes = 0
        """Size of the unfinished frame in `kept` with its prefix; 0: not known."""
        self.expected_api: Api | None = None
        """Of that frame."""
        self.frame_started_at: float | None = None
        """Since when the rest of a begun frame is awaited."""
        self._transport = transport
        self._limits = limits
        self.slots: deque[ResponseSlot] = deque()
        """Of requests whose answers have not left, in their order."""
        self.later = CountedLater()
        """What is counted of these."""
        self._out: deque[Piece] = deque()
        self.left_at = self.sent_at = NOT_YET
        """When the last answers came into `_out`, and when the last that went at once were with the kernel."""
        self.all_sent_at = NOT_YET
        """The same, as long as no other answer is due, and no error is to be counted."""
        self._region_sent = 0
        self._dirty_list = dirty
        self._filled: list[ResponseSlot] = []
        """Since the last flush; if there are any it is dirty."""
        self.has_errors = False
        """Since a burst was last counted an error came to stand in some answer."""
        self._reader_lot = trio.lowlevel.ParkingLot()
        self._reader_waits = False
        self._writer_lot = trio.lowlevel.ParkingLot()
        self.now = trio.lowlevel.current_clock().current_time
        """What `trio.current_time()` is, for a third of its cost."""
        self._last_active = self.now()
        self._stalled_since: float | None = None
        self._drained_by: float | None = None

    def __repr__(self) -> str:
        return f"<Connection {self.context.peer} on {self.context.listener_name}{' closed' if self.closed else ''}>"

    # --- answering -----------------------------------------------------------------------------------------------

    def new_slot(self) -> ResponseSlot:
        """The next place in the response order."""
        slot = ResponseSlot()
        self.slots.append(slot)
        self.all_sent_at = NOT_YET
        return slot

    def fill(self, slot: ResponseSlot, head: bytes, attachments: Sequence[Piece], attachment_bytes: int) -> None:
        """Store an answer; `flush` sends it when its turn has come."""
        slot.attachments = attachments
        slot.head = head
        self.pending_bytes += len(head) + attachment_bytes
        filled = self._filled
        if not filled:
            self._dirty_list.append(self)
        filled.append(slot)

    def flush(self, now: float) -> float:
        """Send what is ready at the head of the order. Never waits, never raises. Returns when that was done: the time
        now, if it took any."""
        if self.closed or self._out:  # the writer gathers again after what is unsent
            self._note_waiting(now)
            return now
        self.left_at = now
        self._send_ready()
        self.sent_at = now = self.now()
        if self._out:
            self._stalled_since = now
            self._writer_lot.unpark_all()
            self.later.sent_in_part(self.left_at, now)
        else:
            later = self.later
            if later.staying or later.leaving:
                later.sent(self.left_at, now)
        if self.pending_bytes:
            self._note_waiting(now)
        else:
            self._filled.clear()
            if not (self.slots or self.closed or self.has_errors):
                self.all_sent_at = now
        if self._reader_waits:
            self._reader_lot.unpark_all()
        return now

    def count_answered(self, times: RequestTimes, count: int) -> None:
        """The answers to so many requests of a burst left at its end; maybe the kernel did not take all of them. Where
        nothing left since they were taken they have no answer."""
        if self.left_at < times.taken_at:
            now = self.now()
            times.took(count, NOT_YET, now, now)
        elif self._out:
            self.later.leave_at_once(times, count, self.left_at)
        else:
            times.took(count, NOT_YET, self.left_at, self.sent_at)

    def _note_waiting(self, now: float) -> None:
        """Some of the new answers wait for those to earlier requests, or to be sent: note since when."""
        good, wrong = Answered(now, has_error=False), Answered(now, has_error=True)
        for slot in self._filled:
            if slot.answered is None:
                slot.answered = good
            elif slot.answered.has_error:
                slot.answered = wrong
        self._filled.clear()

    async def write_unsent(self) -> None:
        """The writer task: sends what `flush` could not, whenever the peer takes more. Ends when closed."""
        while not self.closed:
            if not self._out:
                await self._writer_lot.park()
                continue
            try:
                await self._transport.wait_writable()
            except TransportClosed as error:
                self.close(str(error))
                return
            left = self.pending_bytes
            self.left_at = trio.current_time()
            await self._warm_ahead()
            self.left_at = trio.current_time()
            self._send_ready()
            now = trio.current_time()
            if self.pending_bytes != left:
                self._stalled_since = self._last_active = now
            if not self._out:
                self._stalled_since = None
                self.later.sent(self.left_at, now)
            else:
                self.later.sent_in_part(self.left_at, now)
            if self._reader_waits:
                self._reader_lot.unpark_all()

    def _gather(self) -> None:
        slots, out, count = self.slots, self._out, 0
        answered: Answered | None = None
        while slots and slots[0].head is not None:
            slot = slots.popleft()
            if slot.head:
                out.append(slot.head)
                if slot.attachments:
                    out.extend(slot.attachments)
            if slot.answered is not answered:
                self.later.leave(count, answered, self.left_at)
                answered, count = slot.answered, 0
            count += 1
        if answered is None:
            self.later.left += count
        else:
            self.later.leave(count, answered, self.left_at)

    async def _warm_ahead(self) -> None:
        """What has gone cold while a slow peer read is not read by the event loop. `flush` sends nothing meanwhile,
        since some is unsent."""
        self._gather()
        self.later.leave(0, None, self.left_at)
        for region in cold_ahead(self._out, self._region_sent, SEND_TURN_BYTES):
            try:
                await self._warm(region)
            except OSError as error:
                self._disk_failed(region, error)
            self._stalled_since = trio.current_time()  # it was not the peer that kept us waiting

    def _send_ready(self) -> None:
        self._gather()
        out = self._out
        try:
            budget = SEND_TURN_BYTES
            while out and budget > 0:
                first = out[0]
                if isinstance(first, FileRegion) and first.length >= SENDFILE_MIN_BYTES:
                    budget -= self._send_region(first)
                else:
                    budget -= self._send_run()
        except trio.WouldBlock:
            pass
        except TransportClosed as error:
            self.close(str(error))
        except StaleRegion as error:
            self.close(f"a response cannot be finished: {error}")
        except OSError as error:  # the disk's: of the region that stands first
            self._disk_failed(out[0], error)

    def _disk_failed(self, piece: Piece, error: OSError) -> None:
        if isinstance(piece, FileRegion):
            self._read_failed(piece.file.path, error)
        self.close(f"a response cannot be finished: {error}")

    def _send_run(self) -> int:
        """Send buffers and small regions from the head of the queue as one piece. Returns the bytes sent; WouldBlock
        when not all of them went (the rest stays)."""
        out = self._out
        run: list[Buffer] = []
        size = 0
        more = False
        while out and size < RUN_BYTES:
            piece = out[0]
            if isinstance(piece, FileRegion):
                if piece.length >= SENDFILE_MIN_BYTES:
                    more = True
                    break
                piece = read_whole(piece)
            out.popleft()
            run.append(piece)
            size += len(piece)
        if len(run) > 1 and size <= JOIN_BYTES:
            run = [b"".join(run)]
        sent = 0
        try:
            sent = self._transport.send_nowait(run, more)
        finally:
            self.pending_bytes -= sent
            self.counts.sent_bytes += sent
            if sent < size:
                self._put_back(run, sent)
        if sent < size:
            raise trio.WouldBlock
        return sent

    def _put_back(self, run: list[Buffer], sent: int) -> None:
        for index, buffer in enumerate(run):
            if sent < len(buffer):
                rest = run[index + 1 :]
                self._out.extendleft(reversed(rest))
                self._out.appendleft(memoryview(buffer)[sent:])
                return
            sent -= len(buffer)

    def _send_region(self, region: FileRegion) -> int:
        if region.is_stale:
            raise StaleRegion(f"{region.file.path} was truncated under a response")
        position = region.position + self._region_sent
        sent = self._transport.send_file_nowait(region.file, position, region.length - self._region_sent)
        if sent == 0:
            raise StaleRegion(f"{region.file.path} ends at {position}, inside a response")
        self.pending_bytes -= sent
        self.counts.sent_bytes += sent
        self._region_sent += sent
        if self._region_sent == region.length:
            self._region_sent = 0
            self._out.popleft()
        return sent

    # --- what the reader asks and waits for ----------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more requests may be taken now; 0: the peer has enough responses to read first."""
        if self.pending_bytes >= self._limits.max_pending_bytes:
            return 0
        return max(0, self._limits.max_in_flight - len(self.slots))

    @property
    def has_unsent(self) -> bool:
        """Whether its peer has yet to take what was to leave at once."""
        return bool(self._out)

    def recv_into_nowait(self, buffer: memoryview) -> int:
        received = self._transport.recv_into_nowait(buffer)
        self.counts.received_bytes += received
        return received

    def note_activity(self, now: float) -> None:
        """A whole frame came: the connection is not idle, and the frame's deadline is met."""
        self._last_active = now
        self.frame_started_at = None

    async def wait_readable(self) -> None:
        """Until bytes (or the end) are there; TransportClosed. A begun frame's deadline runs while waiting here."""
        if self.frame_started_at is None and (self.kept or self.expected_bytes):
            self.frame_started_at = trio.current_time()
        await self._transport.wait_readable()

    async def wait_for_room(self) -> None:
        """Until `room` > 0 or closed."""
        await self._wait_until(lambda: self.room > 0)

    async def wait_unmuted(self) -> None:
        await self._wait_until(lambda: not self.muted)

    async def wait_drained(self) -> None:
        """Until every response is out, or closed."""
        if self._drained_by is None:
            self._drained_by = trio.current_time() + self._limits.send_timeout_ms / 1000
        await self._wait_until(lambda: not self.slots and not self._out)

    async def wait_for_time(self, until: Callable[[], float]) -> None:
        """Until that time is over (trio's clock), or closed. `wake` has it asked for again."""
        self.frame_started_at = None
        while not self.closed and (at := until()) > trio.current_time():
            with trio.move_on_at(at):
                await self._reader_lot.park()

    def wake(self) -> None:
        self._reader_lot.unpark_all()

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        self.frame_started_at = None  # it is us who do not read now
        self._reader_waits = True
        try:
            while not self.closed and not condition():
                await self._reader_lot.park()
        finally:
            self._reader_waits = False

    def unmute(self) -> None:
        self.muted = False
        self._reader_lot.unpark_all()

    # --- ending --------------------------------------------------------------------------------------------------

    def finish(self, reason: str) -> None:
        """Read nothing more, and close for this reason once the responses that are due are out."""
        if self.finish_reason is None:
            self.finish_reason = reason

    def close(self, reason: str) -> None:
        """Close now. Idempotent, never waits; unsent responses are dropped."""
        if self.closed:
            return
        self.closed = True
        self.why_closed = reason
        self.all_sent_at = NOT_YET
        self.slots.clear()
        self._out.clear()
        self.later.close()
        self.kept = b""
        self.pending_bytes = 0
        self._transport.close()
        self._reader_lot.unpark_all()
        self._writer_lot.unpark_all()

    def is_left(self, now: float) -> bool:
        """Whether its peer has ended, and what still waits here is not worth a connection any more."""
        return now >= self.droppable_from and self._transport.has_ended()

    def overdue(self, now: float) -> str | None:
        """Why this connection has had its time, or None. Called by the processor's coarse timer."""
        limits = self._limits
        if self._stalled_since is not None and now - self._stalled_since > limits.send_timeout_ms / 1000:
            return f"the peer took no response for {limits.send_timeout_ms} ms"
        if self._drained_by is not None and now > self._drained_by:
            return f"{self.finish_reason or 'shutting down'}; pending responses did not finish in time"
        if self.frame_started_at is not None:
            allowed = limits.frame_deadline_ms / 1000 + self.expected_bytes / MIN_FRAME_RATE_BYTES
            if now - self.frame_started_at > allowed:
                return f"a frame was begun and not finished in {allowed:.0f} s"
        if not self.slots and not self._out and now - self._last_active > limits.max_idle_ms / 1000:
            return f"idle for {limits.max_idle_ms} ms (connections.max.idle.ms)"
        return None
