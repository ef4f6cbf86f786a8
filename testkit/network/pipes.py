"""The pipes of the in-memory network: what happens to bytes between two ends of one connection (see `network`)."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import trio

from strandline.runtime.disk import Buffer, File
from strandline.runtime.network import Address, TransportClosed
from strandline.testkit.clock import common_time

DEFAULT_WINDOW_BYTES = 256 * 1024
FIRST_REPEAT_PAUSE_S = 0.2
_FOREVER = float("inf")


class Hub(Protocol):
    """What a transport tells the network it belongs to."""

    def at(self, time_s: float, act: Callable[[], None]) -> None: ...

    def break_connection(self, transport: MemoryTransport, why: str) -> None: ...

    def forget(self, transport: MemoryTransport) -> None: ...


@dataclass(slots=True)
class MemoryLink:
    """One direction between two nodes; change the fields at any time (then call `MemoryNetwork.changed`, as
    `heal` does).

    latency_s, jitter_s: each piece arrives after the latency plus a draw from [0, jitter], never before an earlier one.
    bytes_per_s: None is unlimited. window_bytes: unread bytes a connection may hold. max_piece_bytes: sends and reads
    are cut into random pieces up to this size (None: as they come). drop_after_bytes: so many bytes pass, then the
    connection that carries the last of them breaks, once. held: bytes wait, as in the kernels while a process is
    stopped. lost_since: from then on every packet is lost, as in a cut. refused: connecting in this direction is.
    """

    random: random.Random
    latency_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float | None = None
    window_bytes: int = DEFAULT_WINDOW_BYTES
    max_piece_bytes: int | None = None
    drop_after_bytes: int | None = None
    held: bool = False
    lost_since: float | None = None
    refused: bool = False

    @property
    def blocked(self) -> bool:
        return self.held or self.lost_since is not None

    def arrival(self, now: float, length: int, not_before: float) -> float:
        start = max(now, not_before)
        if self.bytes_per_s is not None:
            start += length / self.bytes_per_s
        jitter = self.random.uniform(0.0, self.jitter_s) if self.jitter_s else 0.0
        return max(start, now + self.latency_s + jitter)

    def piece(self, length: int) -> int:
        if self.max_piece_bytes is None or length <= 1:
            return length
        return self.random.randint(1, min(length, self.max_piece_bytes))


@dataclass(slots=True)
class Pipe:
    """One direction of one connection: pieces in flight or unread, in order."""

    link: MemoryLink
    pieces: deque[tuple[float, bytes]] = field(default_factory=deque)
    unread_bytes: int = 0
    last_arrival: float = 0.0
    ends_at: float | None = None
    """When the writer's close arrives; the stream ends after the pieces before it."""
    breaks_after_pieces: bool = False
    """The connection breaks once everything in flight has been read (a cut in the middle of a frame)."""
    reader_gone_at: float | None = None
    """When the writer learns that the reader has closed."""

    def put(self, data: bytes, now: float) -> None:
        self.last_arrival = self.link.arrival(now, len(data), self.last_arrival)
        self.pieces.append((self.last_arrival, data))
        self.unread_bytes += len(data)

    def repeat(self, now: float) -> None:
        """The cut is over: what was lost arrives when TCP sends it again, which it does ever more rarely."""
        lost_at = self.pieces[0][0] if self.pieces else self.ends_at
        if lost_at is None or lost_at > now:
            return
        pause_s = FIRST_REPEAT_PAUSE_S
        while lost_at < now:
            lost_at += pause_s
            pause_s *= 2
        self.pieces = deque((max(at, lost_at), data) for at, data in self.pieces)
        self.last_arrival = max(self.last_arrival, lost_at)
        if self.ends_at is not None:
            self.ends_at = max(self.ends_at, lost_at)

    def next_event(self) -> float:
        if self.link.blocked:
            return _FOREVER
        if self.pieces:
            return self.pieces[0][0]
        return self.ends_at if self.ends_at is not None else _FOREVER


class MemoryTransport:
    """One end of a connection. reach_timeout_s: it ends after so long a cut."""

    def __init__(
        self,
        network: Hub,
        node: str,
        peer: Address,
        incoming: Pipe,
        outgoing: Pipe,
        reach_timeout_s: float = _FOREVER,
    ) -> None:
        self._reach_timeout_s = reach_timeout_s
        self.peer = peer
        self.node = node
        self.other: MemoryTransport | None = None
        self._network = network
        self._incoming = incoming
        self._outgoing = outgoing
        self._dead_because: str | None = None
        self._readers = trio.lowlevel.ParkingLot()
        self._writers = trio.lowlevel.ParkingLot()
        self._wakes_at = _FOREVER  # the next entry in the network's agenda that wakes who waits here

    def recv_into_nowait(self, buffer: memoryview) -> int:
        self._check()
        pipe, now = self._incoming, common_time()
        if pipe.next_event() > now:
            raise trio.WouldBlock
        if not pipe.pieces:
            return 0
        taken = 0
        limit = pipe.link.piece(len(buffer))
        while pipe.pieces and taken < limit and pipe.pieces[0][0] <= now:
            arrival, data = pipe.pieces[0]
            part = data[: limit - taken]
            buffer[taken : taken + len(part)] = part
            taken += len(part)
            if len(part) == len(data):
                pipe.pieces.popleft()
            else:
                pipe.pieces[0] = (arrival, data[len(part) :])
        pipe.unread_bytes -= taken
        if self.other is not None and self.other._writers:
            self.other.wake()  # the window opened
        if pipe.breaks_after_pieces and not pipe.pieces:
            self._network.break_connection(self, "dropped in the middle of the stream")
        return taken

    def send_nowait(self, buffers: Sequence[Buffer], more: bool = False) -> int:
        self._check()
        pipe, now = self._outgoing, common_time()
        if self._is_reader_gone(now):
            raise TransportClosed(f"connection with {self.peer} failed: closed by the peer")
        link = pipe.link
        room = link.window_bytes - pipe.unread_bytes
        total = sum(memoryview(buffer).nbytes for buffer in buffers)
        if room <= 0 and total:
            raise trio.WouldBlock
        taken = link.piece(min(room, total))
        data = b"".join(buffers)[:taken]
        if pipe.breaks_after_pieces:
            return taken  # lost on the way
        if link.drop_after_bytes is not None and link.drop_after_bytes < len(data):
            data, pipe.breaks_after_pieces = data[: link.drop_after_bytes], True
            link.drop_after_bytes = None
            if not data and not pipe.pieces:
                self._network.break_connection(self, "dropped in the middle of the stream")
                return taken
        elif link.drop_after_bytes is not None:
            link.drop_after_bytes -= len(data)
        if data:
            pipe.put(data, now)
        if self.other is not None:
            self.other.wake()
        return taken

    def send_file_nowait(self, file: File, position: int, length: int) -> int:
        room = self._outgoing.link.window_bytes - self._outgoing.unread_bytes
        self._check()
        if room <= 0:
            raise trio.WouldBlock
        piece = file.pread(min(length, room), position)
        return self.send_nowait([piece]) if piece else 0

    def has_ended(self) -> bool:
        if self._dead_because is not None:
            return True
        ends_at = self._incoming.ends_at
        return ends_at is not None and ends_at <= common_time() and not self._incoming.link.blocked

    async def wait_readable(self) -> None:
        await self._wait(self._readers, self._incoming.next_event)

    async def wait_writable(self) -> None:
        await self._wait(self._writers, self._writable_at)

    def _writable_at(self) -> float:
        pipe = self._outgoing
        if pipe.unread_bytes < pipe.link.window_bytes:
            return 0.0
        if pipe.reader_gone_at is not None and not self._incoming.link.blocked:
            return pipe.reader_gone_at
        return _FOREVER

    async def _wait(self, lot: trio.lowlevel.ParkingLot, next_event: Callable[[], float]) -> None:
        self._check()
        if self._is_due(next_event()):
            await trio.lowlevel.checkpoint()
            self._check()
        while not self._is_due(next_event()):
            await lot.park()
            self._check()

    def _is_due(self, event_at: float) -> bool:
        """Otherwise who waits for it is woken by then."""
        out_of_reach_at = self._out_of_reach_at()
        ready_at = event_at if event_at < out_of_reach_at else out_of_reach_at
        if ready_at == _FOREVER:
            return False
        if ready_at <= common_time():
            return True
        if ready_at < self._wakes_at:
            self._wakes_at = ready_at
            self._network.at(ready_at, self._wake_up)
        return False

    def _wake_up(self) -> None:
        self._wakes_at = _FOREVER
        self.wake()

    def close(self) -> None:
        self._end(f"connection with {self.peer} was closed by this side")

    def repeat(self) -> None:
        """What was lost on its way here is sent again."""
        self._incoming.repeat(common_time())
        self.wake()

    @property
    def incoming_link(self) -> MemoryLink:
        return self._incoming.link

    def _out_of_reach_at(self) -> float:
        there, back = self._outgoing.link.lost_since, self._incoming.link.lost_since
        if there is None and back is None:
            return _FOREVER
        return min(since for since in (there, back) if since is not None) + self._reach_timeout_s

    def _end(self, why: str) -> None:
        if self._dead_because is not None:
            return
        now = common_time()
        self._die(why)
        self._outgoing.ends_at = self._outgoing.link.arrival(now, 0, self._outgoing.last_arrival)
        self._incoming.reader_gone_at = now + self._outgoing.link.latency_s
        self._network.forget(self)
        if self.other is not None:
            self.other.wake()

    def fail(self, why: str) -> None:
        """Break this end only, as a reset does. Idempotent."""
        if self._dead_because is None:
            self._die(f"connection with {self.peer} failed: {why}")
            self._network.forget(self)

    def wake(self) -> None:
        """Something changed: wake whoever can go on now, and see to it that others are woken in time."""
        if self._readers and self._is_due(self._incoming.next_event()):
            self._readers.unpark_all()
        if self._writers and self._is_due(self._writable_at()):
            self._writers.unpark_all()

    def _die(self, why: str) -> None:
        self._dead_because = why
        self._readers.unpark_all()
        self._writers.unpark_all()

    def _is_reader_gone(self, now: float) -> bool:
        gone_at = self._outgoing.reader_gone_at
        return gone_at is not None and gone_at <= now and not self._incoming.link.blocked

    def _check(self) -> None:
        if self._dead_because is None:
            out_of_reach_at = self._out_of_reach_at()
            if out_of_reach_at < _FOREVER and out_of_reach_at <= common_time():
                self._end(f"connection with {self.peer} failed: timed out")
        if self._dead_because is not None:
            raise TransportClosed(self._dead_because)
