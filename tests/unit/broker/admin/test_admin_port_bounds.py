"""The admin port against peers that are slow, greedy or ask for something else: each costs its own connection only."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import trio
import trio.testing

from strandline.broker.admin import admin_port, http_server, transport_stream
from strandline.broker.admin.pages import Answer
from strandline.runtime.network import Transport, TransportClosed
from support.admin_site import Site, get, parse, read_all, whole_answers

CLOSE = b"GET /live HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n"


class Endless:
    """A page whose answer goes on for ever, and who knows how much of it was made."""

    def __init__(self) -> None:
        self.made = 0
        self.is_over = False

    def __call__(self, _: object) -> Answer:
        return Answer(200, {}, self._pieces())

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                self.made += 1
                yield b"x" * 10_000
                await trio.lowlevel.checkpoint()
        finally:
            self.is_over = True


async def is_closed(transport: Transport) -> bool:
    await trio.testing.wait_all_tasks_blocked()
    try:
        return transport.recv_into_nowait(memoryview(bytearray(1))) == 0
    except trio.WouldBlock:
        return False
    except TransportClosed:
        return True


# --- time ----------------------------------------------------------------------------------------------------------


async def test_a_silent_peer_is_left_after_a_while(site: Site, autojump_clock: Any) -> None:
    transport = await site.connect()
    transport.send_nowait([b"GET /li"])
    assert await read_all(transport, until_closed=True) == b""
    assert trio.current_time() >= http_server.IDLE_S


async def test_a_head_that_comes_byte_by_byte_is_not_waited_for_longer(site: Site, autojump_clock: Any) -> None:
    transport = await site.connect()
    with pytest.raises(TransportClosed):
        for byte in get("/live?" + "x" * 100):
            transport.send_nowait([bytes([byte])])
            await trio.sleep(1)
    assert http_server.IDLE_S <= trio.current_time() < http_server.IDLE_S + 2


async def test_a_body_that_comes_byte_by_byte_is_not_waited_for_longer(site: Site, autojump_clock: Any) -> None:
    transport = await site.connect()
    transport.send_nowait([b"GET /live HTTP/1.1\r\nHost: b\r\nContent-Length: 100\r\n\r\n"])
    with pytest.raises(TransportClosed):
        while True:
            transport.send_nowait([b"x"])
            await trio.sleep(1)
    assert http_server.REQUEST_S <= trio.current_time() < http_server.REQUEST_S + 2


async def test_requests_in_a_row_have_the_time_for_one_each(site: Site, autojump_clock: Any) -> None:
    transport = await site.connect()
    for _ in range(3):
        await trio.sleep(http_server.IDLE_S - 1)
        transport.send_nowait([b"GET /live HTTP/1.1\r\nHost: b\r\nContent-Length: 1\r\n\r\n"])
        await trio.sleep(http_server.REQUEST_S - 1)
        transport.send_nowait([b"x"])
        assert parse(await read_all(transport, until_closed=False))[0] == 204


@pytest.mark.parametrize("request_bytes", [get("/metrics"), get("/metrics") * 2])
async def test_a_peer_that_takes_nothing_holds_a_piece_and_is_left_after_a_while(
    site: Site, request_bytes: bytes, autojump_clock: Any
) -> None:
    site.metrics = endless = Endless()
    transport = await site.connect()
    transport.send_nowait([request_bytes])
    await trio.sleep(http_server.REQUEST_S - 1)
    window = site.network.link("broker", "client").window_bytes
    assert endless.made <= window / 10_000 + 2
    assert not endless.is_over
    await trio.sleep(2)
    assert endless.is_over
    with pytest.raises(TransportClosed):
        transport.send_nowait([b"x"])
    assert (await site.ask(get("/live")))[0] == 204


async def test_a_broker_that_stops_waits_for_no_reader(site: Site, nursery: trio.Nursery, autojump_clock: Any) -> None:
    site.metrics = endless = Endless()
    slow = [await site.connect() for _ in range(3)]
    slow[0].send_nowait([get("/metrics")])
    slow[1].send_nowait([get("/metrics") * 2])
    slow[2].send_nowait([b"GET /live HTTP/1.1\r\nHost: b\r\nContent-Length: 99999999\r\n\r\n"])  # it would linger
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    await site.stop()
    assert trio.current_time() == began
    assert endless.is_over
    assert site.events() == ["admin port"]


# --- bytes and connections -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_bytes", "expected", "reason"),
    [
        (b"nonsense\r\n\r\n", 400, "no HTTP/1.1 request"),
        (b"GET /" + b"x" * 20_000, 431, "a head has at most 16384 bytes"),
        (b"POST /live HTTP/1.1\r\nHost: b\r\nContent-Length: 65537\r\n\r\n", 413, "a body has at most 65536 bytes"),
    ],
)
async def test_who_is_refused_reads_why(
    site: Site, request_bytes: bytes, expected: int, reason: str, autojump_clock: Any
) -> None:
    transport = await site.connect()
    transport.send_nowait([request_bytes])
    status, headers, body = parse(await read_all(transport, until_closed=True))
    assert (status, headers["connection"], headers["content-type"]) == (expected, "close", "application/json")
    assert reason in json.loads(body)["error"]


def head_of(size_bytes: int) -> bytes:
    head = b"GET /live?%s HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\n"
    return head % (b"x" * (size_bytes - len(head % b"")))


@pytest.mark.parametrize("before", [b"", get("/live")], ids=["first", "later"])
async def test_a_head_is_refused_from_the_first_byte_on_that_is_too_many(
    site: Site, before: bytes, autojump_clock: Any
) -> None:
    """It comes whole, with a body and another request behind it."""
    for too_many, expected in ((0, [204, 204]), (1, [431])):
        transport = await site.connect()
        transport.send_nowait([before + head_of(http_server.MAX_HEAD_BYTES + too_many) + b"abc" + CLOSE])
        answers = whole_answers(await read_all(transport, until_closed=True))
        assert [status for status, _, _ in answers] == ([204] if before else []) + expected


async def test_a_flood_of_bytes_is_not_taken(site: Site, autojump_clock: Any) -> None:
    transport = await site.connect()
    transport.send_nowait([b"GET /live HTTP/1.1\r\nHost: b\r\nContent-Length: 99999999999\r\n\r\n"])
    with pytest.raises(TransportClosed):
        while True:
            transport.send_nowait([b"x" * 1000])
            await trio.sleep(0.1)
    assert transport_stream.LINGER_S <= trio.current_time() < 2 * transport_stream.LINGER_S, "long enough to read why"


async def test_many_requests_on_one_connection_count_their_bytes_one_by_one(site: Site, autojump_clock: Any) -> None:
    """More bytes than one request may have, with heads and bodies in the same packets."""
    one = b"GET /live HTTP/1.1\r\nHost: b\r\nContent-Length: 500\r\n\r\n" + b"x" * 500
    transport = await site.connect()
    packets = one * 300 + CLOSE
    assert len(packets) > http_server.MAX_HEAD_BYTES + http_server.MAX_BODY_BYTES
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_all, transport, packets)
        answers = whole_answers(await read_all(transport, until_closed=True))
    assert [status for status, _, _ in answers] == [204] * 301


async def send_all(transport: Transport, data: bytes) -> None:
    while data:
        try:
            data = data[transport.send_nowait([data]) :]
        except trio.WouldBlock:
            await transport.wait_writable()


async def test_whoever_comes_when_all_connections_are_taken_gets_the_one_that_was_silent_longest(site: Site) -> None:
    taken = [await site.connect() for _ in range(admin_port.MAX_CONNECTIONS)]
    await trio.testing.wait_all_tasks_blocked()
    taken[0].send_nowait([get("/live")])  # it asks something, and is the last to go now
    assert parse(await read_all(taken[0], until_closed=False))[0] == 204
    assert (await site.ask(get("/ready")))[0] == 200
    assert [await is_closed(transport) for transport in taken[:3]] == [False, True, False]


# --- answers in pieces ---------------------------------------------------------------------------------------------


async def pieces(*given: bytes | Exception) -> AsyncGenerator[bytes, None]:
    for piece in given:
        await trio.lowlevel.checkpoint()
        if isinstance(piece, Exception):
            raise piece
        yield piece


async def test_an_answer_in_pieces_is_one_answer_and_the_next_request_has_its_own(site: Site) -> None:
    site.metrics = lambda _: Answer(200, {"Content-Type": "text/plain"}, pieces(b"a", b"", b"b\n"))
    transport = await site.connect()
    transport.send_nowait([get("/metrics") + get("/metrics", "HEAD") + get("/metrics") + CLOSE])
    answers = whole_answers(await read_all(transport, until_closed=True), "GET", "HEAD", "GET", "GET")
    assert [(status, body) for status, _, body in answers] == [(200, b"ab\n"), (200, b""), (200, b"ab\n"), (204, b"")]
    assert [headers.get("content-type") for _, headers, _ in answers[:3]] == ["text/plain"] * 3


async def test_a_head_request_makes_nothing_of_an_answer_in_pieces(site: Site) -> None:
    site.metrics = endless = Endless()
    assert (await site.ask(get("/metrics", "HEAD")))[0] == 200
    assert endless.made == 0


async def test_who_asked_for_a_head_before_is_told_why_the_next_request_is_refused(
    site: Site, autojump_clock: Any
) -> None:
    transport = await site.connect()
    transport.send_nowait([get("/live", "HEAD") + b"nonsense\r\n\r\n"])
    answers = whole_answers(await read_all(transport, until_closed=True), "HEAD", "GET")
    assert [(status, bool(body)) for status, _, body in answers] == [(204, False), (400, True)]


async def test_an_old_client_reads_until_the_connection_ends(site: Site) -> None:
    site.metrics = lambda _: Answer(200, {}, pieces(b"a", b"b\n"))
    transport = await site.connect()
    transport.send_nowait([b"GET /metrics HTTP/1.0\r\n\r\n"])
    assert parse(await read_all(transport, until_closed=True))[2] == b"ab\n"


async def test_no_more_of_an_answer_is_made_when_the_peer_has_left(site: Site) -> None:
    site.metrics = endless = Endless()
    transport = await site.connect()
    transport.send_nowait([get("/metrics")])
    await trio.testing.wait_all_tasks_blocked()
    assert not endless.is_over
    transport.close()
    await trio.testing.wait_all_tasks_blocked()
    assert endless.is_over
    assert site.events() == ["admin port"]


async def test_a_bug_in_the_middle_of_an_answer_breaks_it_off(site: Site) -> None:
    site.metrics = lambda _: Answer(200, {}, pieces(b"a", KeyError("a bug")))
    transport = await site.connect()
    transport.send_nowait([get("/metrics")])
    answer = await read_all(transport, until_closed=True)
    assert b"\r\n\r\n1\r\na\r\n" in answer
    assert not answer.endswith(b"0\r\n\r\n"), "it would look whole"
    assert "KeyError('a bug')" in site.log.entries[-1]["error"]


async def test_the_log_tells_of_a_bug_once_a_second_and_nothing_goes_elsewhere(
    site: Site, autojump_clock: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    site.health = None
    for _ in range(5):
        assert (await site.ask(get("/status")))[0] == 500
    await trio.sleep(1)
    assert (await site.ask(get("/status")))[0] == 500
    assert site.events() == ["admin port", http_server.FAILED, http_server.FAILED]
    assert site.log.entries[-1]["left_out"] == 4
    assert capfd.readouterr() == ("", "")


# --- other protocols -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "upgrade",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    ],
    ids=["h2c", "websocket"],
)
async def test_who_asks_for_another_protocol_is_answered_in_this_one(site: Site, upgrade: bytes) -> None:
    transport = await site.connect()
    transport.send_nowait([b"GET /live HTTP/1.1\r\nHost: b\r\n" + upgrade + b"\r\n" + CLOSE])
    answers = whole_answers(await read_all(transport, until_closed=True))
    assert [(status, "upgrade" in headers) for status, headers, _ in answers] == [(204, False)] * 2


async def test_who_speaks_http_2_without_asking_is_refused(site: Site, autojump_clock: Any) -> None:
    transport = await site.connect()
    transport.send_nowait([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 9])
    status, headers, _ = parse(await read_all(transport, until_closed=True))
    assert (status, headers["connection"]) == (505, "close")
    assert site.events() == ["admin port"]


async def test_who_waits_to_be_told_to_go_on_is_told(site: Site) -> None:
    transport = await site.connect()
    transport.send_nowait([b"GET /live HTTP/1.1\r\nHost: b\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"])
    assert (await read_all(transport, until_closed=False)).startswith(b"HTTP/1.1 100 ")
    transport.send_nowait([b"abc"])
    assert parse(await read_all(transport, until_closed=False))[0] == 204
