"""An admin port in memory, and what a client needs to ask it."""

from __future__ import annotations

from typing import NamedTuple

import h11
import structlog
import trio
from structlog.testing import LogCapture

from strandline.broker.admin.admin_port import AdminPort, Scrape
from strandline.broker.admin.pages import Answer
from strandline.broker.steps import Steps
from strandline.runtime.network import Address, Transport
from strandline.testkit.network import MemoryNetwork


class Told(NamedTuple):
    """What a broker says of its health."""

    reasons: tuple[str, ...]
    shown: dict[str, object]

    def waits(self) -> tuple[str, ...]:
        return self.reasons

    def status(self) -> dict[str, object]:
        return self.shown


READY = Told((), {"broker_id": 1})
NOT_READY = Told(("not registered in ZooKeeper",), {})


class Site:
    """One admin port in memory, whose broker's health is `health`."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.health = READY
        self.address = Address("broker", 0)
        self.log = LogCapture()
        self._scope = trio.CancelScope()
        self._is_over = trio.Event()
        self.metrics: Scrape = lambda _: Answer(200, {}, b"up 1\n")

    def waits(self) -> Steps[tuple[str, ...]]:
        yield
        return self.health.waits()

    def status(self) -> Steps[dict[str, object]]:
        yield
        return self.health.status()

    async def run(self, nursery: trio.Nursery) -> None:
        log = structlog.wrap_logger(None, processors=[self.log])
        port = AdminPort(
            Address("broker", 0),
            self.network.node("broker"),
            self,
            lambda headers: self.metrics(headers),
            log,
        )

        async def run(task_status: trio.TaskStatus[Address]) -> None:
            with self._scope:
                await port.run(task_status=task_status)
            self._is_over.set()

        self.address = await nursery.start(run)

    async def stop(self) -> None:
        """Returns when nothing of the port runs any more."""
        self._scope.cancel()
        await self._is_over.wait()

    def events(self) -> list[str]:
        return [entry["event"] for entry in self.log.entries]

    async def connect(self) -> Transport:
        return await self.network.node("client").connect(self.address)

    async def ask(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        transport = await self.connect()
        transport.send_nowait([request])
        answer = await read_all(transport, until_closed=b"close" in request.lower())
        transport.close()
        return parse(answer)


async def read_all(transport: Transport, *, until_closed: bool) -> bytes:
    """What comes until the peer closes, or one answer with its body."""
    data = b""
    buffer = bytearray(65536)
    while until_closed or not is_whole(data):
        try:
            count = transport.recv_into_nowait(memoryview(buffer))
        except trio.WouldBlock:
            await transport.wait_readable()
            continue
        if count == 0:
            break
        data += buffer[:count]
    return data


def is_whole(data: bytes) -> bool:
    _, separator, body = data.partition(b"\r\n\r\n")
    if not separator:
        return False
    _, headers, _ = parse(data)
    return len(body) >= int(headers.get("content-length", 0))


def parse(data: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return int(lines[0].split()[1]), headers, body


def whole_answers(data: bytes, *methods: str) -> list[tuple[int, dict[str, str], bytes]]:
    """All answers in it, each with its body put together. methods: that were asked, GET where nothing is said.
    h11.RemoteProtocolError for what is no answer or not whole."""
    client = h11.Connection(h11.CLIENT)
    client.receive_data(data)
    client.receive_data(b"")
    answers = []
    while client.trailing_data[0]:
        method = methods[len(answers)] if methods else "GET"
        client.send(h11.Request(method=method, target="/", headers=[("Host", "b")]))
        client.send(h11.EndOfMessage())
        response = client.next_event()
        assert isinstance(response, h11.Response)
        body = b""
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            assert isinstance(event, h11.Data)
            body += event.data
        headers = {name.decode(): value.decode() for name, value in response.headers}
        answers.append((response.status_code, headers, body))
        if client.our_state is h11.DONE and client.their_state is h11.DONE:
            client.start_next_cycle()
    return answers


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: broker\r\n\r\n".encode()
