"""How kazoo's thread and the event loop meet: requests go down in waves, everything comes back through one mailbox.

The rules:
* One thread per session (kazoo's connection loop). It never waits for the event loop, the event loop never for it.
* Replies, watch events and changes of state pass through the same mailbox in the order of the wire, so that a watch
  event is seen before any read that shows the new value. (kazoo's own handler has two worker threads for them, which
  lose that order and cost a switch each.)
* A wave of requests is one wake-up byte and one write; a wave of replies is one wake-up of the event loop.
* A request carries the session that issued it. It is never sent in another one.
* Requests that were not sent yet stay queued while no server answers (kazoo fails them): they are surely not applied.
"""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import trio
from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, ConnectionDropped, ConnectionLoss, NoNodeError, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import CloseInstance, Connect, GetChildren, GetData
from kazoo.retry import KazooRetry

from strandline.runtime.coordination import Znode, ZnodeStat

MAX_WAVE_BYTES = 256 * 1024
RECONNECT_DELAY_S = 0.05
RECONNECT_MAX_DELAY_S = 1.0
MAX_CONNECT_S = 5.0
HANDSHAKE_SHARE = 1 / 3
"""Of the session timeout: how long a server that took a connection may keep silent. A ZooKeeper that is just starting
forgets connections (its log: NullPointerException in removeCnxn), and kazoo would wait until the session is over."""

INT = struct.Struct("!i")
MULTI_HEADER = struct.Struct("!iBi")
STAT = struct.Struct("!qqqqiiiqiiq")
END_OF_OPERATIONS = MULTI_HEADER.pack(-1, 1, -1)


def now_s() -> float:
    """A clock that also runs while the machine sleeps: the server's session timer does not sleep with us."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Mailbox:
    """Takes (function, argument) from any thread and calls them on the event loop, a wave per wake-up."""

    def __init__(self, token: trio.lowlevel.TrioToken, on_error: Callable[[Exception], None]) -> None:
        self._token = token
        self._on_error = on_error
        self._letters: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._scheduled = False

    def put(self, function: Callable[[Any], None], argument: Any) -> None:
        """Never blocks, never raises. The flag is cleared before the drain, so no letter is left behind."""
        self._letters.append((function, argument))
        if not self._scheduled:
            self._scheduled = True
            try:
                self._token.run_sync_soon(self._drain)
            except trio.RunFinishedError:
                self._letters.clear()

    def _drain(self) -> None:
        self._scheduled = False
        letters = self._letters
        while letters:
            function, argument = letters.popleft()
            try:
                function(argument)
            except Exception as error:  # an exception that leaves run_sync_soon would kill the process
                self._on_error(error)


class Call:
    """One request in flight; kazoo's connection loop treats it as its async result."""

    __slots__ = ("abandoned", "done", "finished", "mailbox", "payload", "request", "result", "session_id")

    def __init__(self, request: Any, session_id: int) -> None:
        """session_id: the session that issues the request; 0: whichever comes."""
        self.request = request
        self.session_id = session_id
        self.payload = INT.pack(request.type) + request.serialize()
        self.abandoned = False
        self.finished = False
        self.result: Any = None
        self.done: Callable[[Call], None] | None = None
        self.mailbox: Mailbox | None = None

    def set(self, value: Any = None) -> None:
        self._finish(value)

    def set_exception(self, error: Exception) -> None:
        self._finish(error)

    def _finish(self, result: Any) -> None:
        """The first result counts: at the end kazoo and close() may both fail a call."""
        if self.finished:
            return
        self.finished = True
        self.result = result
        if self.mailbox is not None and self.done is not None:
            self.mailbox.put(self.done, self)


class MultiRead:
    """Opcode 22 (ZooKeeper 3.6): many reads in one request; each ends by itself.

    Request: per read a multi header (type, not done, −1), the path, the watch byte (0); then the closing header.
    Reply: per read a multi header with the type and the answer, or type −1 with the error code.
    """

    type = 22

    def __init__(self, read_type: int, paths: Sequence[str]) -> None:
        """read_type: GetData.type → list of Znode or None; GetChildren.type → list of sorted names or None.
        The paths include the chroot."""
        self.read_type = read_type
        self.paths = paths

    def serialize(self) -> bytes:
        header = MULTI_HEADER.pack(self.read_type, 0, -1)
        parts = []
        for path in self.paths:
            encoded = path.encode()
            parts += [header, INT.pack(len(encoded)), encoded, b"\0"]
        parts.append(END_OF_OPERATIONS)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[Any]:
        """Of each what was read, None for NoNode, kazoo's exception for another error."""
        results: list[Any] = []
        while True:
            kind, done, _ = MULTI_HEADER.unpack_from(buffer, offset)
            offset += MULTI_HEADER.size
            if done:
                return results
            (number,) = INT.unpack_from(buffer, offset)
            offset += INT.size
            if kind == GetData.type:
                data = buffer[offset : offset + number] if number > 0 else b""
                offset += max(number, 0)
                results.append(Znode(bytes(data), znode_stat(STAT.unpack_from(buffer, offset)), number < 0))
                offset += STAT.size
            elif kind == GetChildren.type:
                names = []
                for _ in range(number):
                    (length,) = INT.unpack_from(buffer, offset)
                    offset += INT.size
                    names.append(buffer[offset : offset + length].decode())
                    offset += length
                results.append(sorted(names))
            elif number == NoNodeError.code:
                results.append(None)
            else:
                results.append(EXCEPTIONS[number]())


def znode_stat(fields: Sequence[int]) -> ZnodeStat:
    """Of the eleven fields on the wire: czxid mzxid ctime mtime version cversion aversion ephemeralOwner dataLength
    numChildren pzxid."""
    return ZnodeStat(fields[4], fields[5], fields[0], fields[1], fields[7], fields[9])


class DirectHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler without its two worker threads: callbacks only fill the mailbox, so they run where they arise."""

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        options["timeout"] = min(options.get("timeout") or MAX_CONNECT_S, MAX_CONNECT_S)
        return super().create_connection(*arguments, **options)


class WaveConnection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection loop, sending in waves, knowing when a server last answered, and never dying unasked."""

    def __init__(self, client: Any, retry: KazooRetry, logger: logging.Logger, on_stopped: Callable[[], None]) -> None:
        super().__init__(client, retry, logger=logger)
        self.last_contact_s = now_s()
        self.negotiated_timeout_ms = 0
        self._on_stopped = on_stopped
        self._outgoing: deque[Call] = deque()
        self._unanswered_since_s: float | None = None
        self._wake_sent = False

    # -- called on the event loop

    def submit(self, call: Call) -> None:
        self._outgoing.append(call)
        self._wake()

    def send_close(self) -> None:
        """Stop for good: end the session if a server answers, else just end the loop."""
        self.client._stopped.set()
        self.submit(Call(CloseInstance, 0))

    def break_socket(self) -> None:
        """End a wait for a server that does not answer."""
        try:
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it was not connected, or is closed already

    def release(self) -> None:
        """After the loop has stopped: its thread is at its end, its sockets can go."""
        if self._connection_routine is not None:
            self._connection_routine.join(1.0)
        self.close()

    def fail_unsent(self) -> None:
        while self._outgoing:
            self._outgoing.popleft().set_exception(ConnectionLoss())

    # -- called on kazoo's thread

    def _wake(self) -> None:
        """At most one byte is on its way, so that no number of requests can fill the socket pair and block."""
        if not self._wake_sent:
            self._wake_sent = True
            try:
                self._write_sock.send(b"\0")
            except (AttributeError, OSError):
                pass  # closed: close() fails what is left

    def zk_loop(self) -> None:
        while True:
            try:
                super().zk_loop()
            except Exception:
                self.logger.exception("the connection loop to ZooKeeper failed; it starts again with a new session")
            if self.client._stopped.is_set():
                break
            self.handler.sleep_func(RECONNECT_MAX_DELAY_S)
        self._on_stopped()

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if isinstance(request, Connect):
            timeout = min(timeout, self.client._session_timeout / 1000 * HANDSHAKE_SHARE)
        result = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and result[0].time_out > 0:
            self.negotiated_timeout_ms = result[0].time_out
        return result

    def _read(self, length: int, timeout: float) -> bytes:
        data: bytes = super()._read(length, timeout)
        self.last_contact_s = now_s()
        self._unanswered_since_s = None
        return data

    def _write(self, message: bytes, timeout: float) -> None:
        if self._unanswered_since_s is None:
            self._unanswered_since_s = now_s()
        super()._write(message, timeout)

    def _connect(self, host: str, host_ip: str, port: int) -> Any:
        self._unanswered_since_s = None
        return super()._connect(host, host_ip, port)

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Send what is queued. kazoo sends no ping while requests flow, so a silent server is noticed here."""
        self._read_sock.recv(4096)
        self._wake_sent = False
        if self._unanswered_since_s is not None and now_s() - self._unanswered_since_s > read_timeout:
            raise ConnectionDropped(f"no answer to a request for {read_timeout} s")
        wave = bytearray()
        while self._outgoing and len(wave) < MAX_WAVE_BYTES:
            call = self._outgoing.popleft()
            if call.abandoned:
                continue
            if call.session_id not in (0, self.client._session_id):
                call.set_exception(SessionExpiredError())
                continue
            self._xid: int = self._xid % 0x7FFFFFFF + 1
            wave += INT.pack(len(call.payload) + INT.size) + INT.pack(self._xid) + call.payload
            self.client._pending.append((call.request, call, self._xid))
        if self._outgoing:
            self._wake()
        if wave:
            self._write(bytes(wave), connect_timeout)


def make_client(
    hosts: str, session_timeout_ms: int, logger: logging.Logger, on_stopped: Callable[[], None]
) -> tuple[KazooClient, WaveConnection]:
    """A kazoo client that connects for ever with small delays; not started. `hosts` has no chroot (the caller adds
    it), `on_stopped` is called on kazoo's thread as its last act."""
    handler = DirectHandler()
    retry = KazooRetry(
        max_tries=-1,
        delay=RECONNECT_DELAY_S,
        backoff=1.5,
        max_delay=RECONNECT_MAX_DELAY_S,
        sleep_func=handler.sleep_func,
    )
    client = KazooClient(
        hosts, timeout=session_timeout_ms / 1000, handler=handler, connection_retry=retry, logger=logger
    )
    connection = WaveConnection(client, client._conn_retry.copy(), logger, on_stopped)
    client._connection = connection
    return client, connection
