"""The bridge between kazoo's thread and the event loop, without a server and with one that stops answering."""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import structlog
import trio
from kazoo import exceptions as kazoo_errors
from kazoo.protocol.serialization import Connect, GetChildren, GetData
from kazoo.protocol.states import KazooState
from structlog.testing import LogCapture

from strandline.cli.zookeeper import EmbeddedZooKeeper
from strandline.runtime.coordination import (
    BadVersion,
    ConnectionLost,
    CoordinationError,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SessionState,
    ZnodeStat,
)
from strandline.runtime.zookeeper.calls import typed_error
from strandline.runtime.zookeeper.client import KazooCoordination
from strandline.runtime.zookeeper.connection import Call, Mailbox, MultiRead, WaveConnection, make_client
from support.coordination_sites import PATIENCE_S


def raise_error(error: Exception) -> None:
    raise error


async def test_letters_from_many_threads_arrive_all_and_in_the_order_of_each() -> None:
    mailbox = Mailbox(trio.lowlevel.current_trio_token(), raise_error)
    arrived: dict[int, list[int]] = {number: [] for number in range(4)}
    done = trio.Event()

    def take(letter: tuple[int, int]) -> None:
        arrived[letter[0]].append(letter[1])
        if all(len(letters) == 500 for letters in arrived.values()):
            done.set()

    def post(number: int) -> None:
        for letter in range(500):
            mailbox.put(take, (number, letter))

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(trio.to_thread.run_sync, post, number)
    with trio.fail_after(PATIENCE_S):
        await done.wait()
    assert arrived == {number: list(range(500)) for number in range(4)}


async def test_a_wave_of_letters_wakes_the_event_loop_once() -> None:
    wakes: list[Callable[[], None]] = []

    class Token:
        def run_sync_soon(self, function: Callable[[], None]) -> None:
            wakes.append(function)

    seen: list[int] = []
    mailbox = Mailbox(Token(), raise_error)
    for number in range(100):
        mailbox.put(seen.append, number)
    assert len(wakes) == 1
    wakes[0]()
    assert seen == list(range(100))
    mailbox.put(seen.append, 100)
    assert len(wakes) == 2


async def test_a_failing_callback_is_reported_and_the_letters_after_it_arrive() -> None:
    errors: list[Exception] = []
    arrived = trio.Event()
    mailbox = Mailbox(trio.lowlevel.current_trio_token(), errors.append)
    mailbox.put(raise_error, ValueError("bad callback"))
    mailbox.put(lambda _: arrived.set(), None)
    with trio.fail_after(PATIENCE_S):
        await arrived.wait()
    assert [str(error) for error in errors] == ["bad callback"]


def test_a_letter_after_the_end_of_the_event_loop_harms_nobody() -> None:
    async def make() -> Mailbox:
        return Mailbox(trio.lowlevel.current_trio_token(), raise_error)

    trio.run(make).put(raise_error, ValueError())


class Wire:
    """A connection loop's sending side, with this test as the server."""

    def __init__(self, session_id: int) -> None:
        self.client, self.connection = make_client("127.0.0.1:1", 4000, logging.Logger("test"), lambda: None)
        self.client._session_id = session_id
        self.connection._xid = 0
        self.connection._read_sock, self.connection._write_sock = socket.socketpair()
        self.connection._socket, self.server = socket.socketpair()

    def send(self) -> None:
        self.connection._send_request(PATIENCE_S, PATIENCE_S)

    def received_xids(self) -> list[int]:
        data, xids = self.server.recv(1 << 20), []
        while data:
            length, xid = struct.unpack_from("!ii", data)
            xids.append(xid)
            data = data[4 + length :]
        return xids

    def close(self) -> None:
        for sock in (self.connection._read_sock, self.connection._write_sock, self.connection._socket, self.server):
            sock.close()


@pytest.fixture
def wire() -> Any:
    wire = Wire(session_id=7)
    yield wire
    wire.close()


def test_queued_requests_leave_in_one_wave_and_one_wake_up(wire: Wire) -> None:
    for _ in range(1000):  # far more bytes than the socket pair would take, had each its own
        wire.connection.submit(Call(GetData("/a", None), 7))
    assert wire.connection._read_sock.recv(10, socket.MSG_PEEK) == b"\0"
    wire.send()
    assert wire.received_xids() == list(range(1, 1001))
    assert len(wire.client._pending) == 1000


def test_a_request_of_another_session_is_never_sent(wire: Wire) -> None:
    stale, fresh, any_session = Call(GetData("/a", None), 6), Call(GetData("/a", None), 7), Call(GetData("/a", None), 0)
    for call in (stale, fresh, any_session):
        wire.connection.submit(call)
    wire.send()
    assert isinstance(stale.result, kazoo_errors.SessionExpiredError)
    assert [entry[1] for entry in wire.client._pending] == [fresh, any_session]
    assert wire.received_xids() == [1, 2]


def test_an_abandoned_request_is_never_sent(wire: Wire) -> None:
    call = Call(GetData("/a", None), 7)
    wire.connection.submit(call)
    call.abandoned = True
    wire.send()
    assert not wire.client._pending


def test_a_large_wave_is_sent_in_parts(wire: Wire) -> None:
    for _ in range(5):
        wire.connection.submit(Call(MultiRead(GetData.type, ["/" + "x" * 100_000]), 7))
    wire.connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    drained = threading.Thread(target=lambda: [wire.server.recv(1 << 20) for _ in range(1)])
    drained.start()
    wire.send()
    drained.join(PATIENCE_S)
    assert 0 < len(wire.client._pending) < 5
    assert wire.connection._read_sock.recv(10, socket.MSG_PEEK) == b"\0"


def test_requests_that_flow_do_not_hide_a_silent_server(wire: Wire) -> None:
    wire.connection.submit(Call(GetData("/a", None), 7))
    wire.send()
    wire.connection._unanswered_since_s -= 2 * PATIENCE_S
    wire.connection.submit(Call(GetData("/a", None), 7))
    with pytest.raises(kazoo_errors.ConnectionDropped):
        wire.send()


def test_a_server_that_takes_a_connection_and_is_silent_leaves_time_for_another_one_within_the_session(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited_s: list[float] = []

    def invoke(self: Any, timeout: float, request: Any, xid: int | None = None) -> Any:
        waited_s.append(timeout)
        raise wire.client.handler.timeout_exception

    monkeypatch.setattr(WaveConnection.__mro__[1], "_invoke", invoke)
    for timeout_s in (4.0, 0.5):  # the session's; of one server among eight
        with pytest.raises(wire.client.handler.timeout_exception):
            wire.connection._invoke(timeout_s, Connect(0, 0, 4000, 7, b"", False))
    assert waited_s == [pytest.approx(4 / 3), 0.5]


def test_the_first_result_of_a_call_counts() -> None:
    letters: list[Any] = []

    class Box:
        def put(self, function: Any, argument: Any) -> None:
            letters.append(argument)

    call = Call(GetData("/a", None), 7)
    call.mailbox, call.done = Box(), lambda _: None
    call.set_exception(kazoo_errors.ConnectionLoss())
    call.set_exception(kazoo_errors.ConnectionClosedError())
    assert letters == [call] and type(call.result) is kazoo_errors.ConnectionLoss


def multi_reply(*parts: bytes) -> bytes:
    return b"".join(parts) + struct.pack("!iBi", -1, 1, -1)


def test_the_reply_to_a_multi_read_is_decoded_entry_by_entry() -> None:
    stat = struct.pack("!qqqqiiiqiiq", 11, 12, 0, 0, 3, 4, 0, 77, 2, 5, 13)
    header, missing = struct.pack("!iBi", 4, 0, 0), struct.pack("!iBii", -1, 0, -101, -101)
    reply = multi_reply(header + struct.pack("!i", 2) + b"ab" + stat, missing, header + struct.pack("!i", -1) + stat)
    results = MultiRead(GetData.type, ["/a", "/b", "/c"]).deserialize(b"head" + reply, 4)
    expected = ZnodeStat(version=3, cversion=4, czxid=11, mzxid=12, ephemeral_owner=77, num_children=5)
    assert [result and result.data for result in results] == [b"ab", None, b""]
    assert results[0].stat == expected
    names = struct.pack("!iBi", 8, 0, 0) + struct.pack("!i", 2)
    names += struct.pack("!i", 1) + b"z" + struct.pack("!i", 2) + "é".encode()
    assert MultiRead(GetChildren.type, ["/"]).deserialize(multi_reply(names), 0) == [["z", "é"]]
    refused = struct.pack("!iBii", -1, 0, -102, -102)
    both = MultiRead(GetData.type, ["/a", "/b"]).deserialize(multi_reply(refused, missing), 0)
    assert isinstance(both[0], kazoo_errors.NoAuthError) and both[1] is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (kazoo_errors.NoNodeError(), NoNode),
        (kazoo_errors.NodeExistsError(), NodeExists),
        (kazoo_errors.BadVersionError(), BadVersion),
        (kazoo_errors.NotEmptyError(), NotEmpty),
        (kazoo_errors.ConnectionLoss(), ConnectionLost),
        (kazoo_errors.ConnectionClosedError(), ConnectionLost),
        (kazoo_errors.OperationTimeoutError(), ConnectionLost),
        (kazoo_errors.SessionExpiredError(), SessionExpired),
        (kazoo_errors.NoAuthError(), NoAuth),
        (kazoo_errors.APIError(), CoordinationError),
    ],
)
def test_an_error_of_kazoo_becomes_one_of_the_seam(error: Exception, expected: type[CoordinationError]) -> None:
    ours = typed_error(error, "set", "/a")
    assert type(ours) is expected
    assert str(ours).startswith("set /a: ")


@pytest.mark.parametrize("servers", ["", "/chroot", " , /x", "host:1/a/../b"])
def test_a_server_string_without_a_server_is_refused(servers: str) -> None:
    with pytest.raises(CoordinationError):
        KazooCoordination(servers)


async def test_a_server_that_stops_answering_is_noticed_while_requests_flow_and_its_return_too(
    real_zookeeper: EmbeddedZooKeeper,
) -> None:
    client = KazooCoordination(real_zookeeper.address, session_timeout_ms=2000, connection_timeout_ms=1000 * PATIENCE_S)
    await client.start()
    assert real_zookeeper.process.id is not None
    pid = real_zookeeper.process.id.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with trio.fail_after(PATIENCE_S):
            while client.state is SessionState.CONNECTED:
                with suppress(ConnectionLost), trio.move_on_after(0.05):
                    await client.get("/")
        assert client.seconds_since_contact() > 0
    finally:
        os.kill(pid, signal.SIGCONT)
    with trio.fail_after(PATIENCE_S):
        # a get that waits is answered in the old session, or fails with it when that has expired
        answered = False
        while not answered:
            with suppress(ConnectionLost, SessionExpired):
                assert (await client.get("/")).data == b""
                answered = client.state is SessionState.CONNECTED
    await client.close()


async def test_close_leaves_no_thread_behind(real_zookeeper: EmbeddedZooKeeper) -> None:
    before = set(threading.enumerate())
    client = KazooCoordination(real_zookeeper.address, connection_timeout_ms=1000 * PATIENCE_S)
    await client.start()
    assert any(isinstance(thread, threading.Thread) for thread in set(threading.enumerate()) - before)
    await client.close()
    assert not set(threading.enumerate()) - before


def test_the_connection_loop_starts_again_after_a_failure_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[bool] = []
    client, connection = make_client("127.0.0.1:1", 4000, logging.Logger("test"), lambda: stopped.append(True))
    client._stopped.clear()
    runs: list[int] = []

    def loop(self: Any) -> None:
        runs.append(1)
        if len(runs) == 1:
            raise RuntimeError("xids do not match")
        client._stopped.set()

    monkeypatch.setattr(WaveConnection.__mro__[1], "zk_loop", loop)
    monkeypatch.setattr(client.handler, "sleep_func", lambda _: None, raising=False)
    connection.logger.addHandler(logging.NullHandler())
    connection.zk_loop()
    assert (len(runs), stopped) == (2, [True])


async def test_the_log_has_one_line_per_change_of_state() -> None:
    capture = LogCapture()
    client = KazooCoordination("127.0.0.1:1", log=structlog.wrap_logger(structlog.PrintLogger(), processors=[capture]))
    client._on_state((KazooState.CONNECTED, 7, ""))
    client._on_state((KazooState.SUSPENDED, 7, "Connection dropped: socket connection broken"))
    client._on_state((KazooState.CONNECTED, 7, "Connection dropped: the third server"))
    client._on_state((KazooState.LOST, 0, ""))
    lines = [(line["event"], line.get("session") or line["reason"]) for line in capture.entries]
    assert lines == [
        ("connected to ZooKeeper", "0x7"),
        ("ZooKeeper does not answer, connecting again", "Connection dropped: socket connection broken"),
        ("connected to ZooKeeper", "0x7"),
        ("session with ZooKeeper expired", "0x7"),
    ]
