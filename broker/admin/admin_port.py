"""The admin port: what probes, Prometheus and people ask a broker over HTTP.

    GET /live      204 while the event loop turns
    GET /ready     200 once this broker does its share, 503 before, with the reasons (`health_check`)
    GET /status    JSON: broker, controller, partitions, versions
    GET /metrics   Prometheus' and OpenMetrics' text

HTTP is served by hypercorn (`http_server`), the pages are an ASGI application (`pages`); this file has the connections.
Loopback unless configured otherwise (`admin.listener`), bounded in connections, bytes and time, and apart from the data
plane: it has no part in its queues, and a broker whose data plane is full still answers here. However many ask at once,
the data plane waits for no more than a step of one scrape and a step of one other question in a turn of the event loop.
Whoever comes when all connections are taken gets the place of the one that asked nothing for the longest time. Nothing
that a peer sends, and no bug behind an answer, ends more than its own connection. A new page is a row of the table.

hypercorn sends under a shield, so that a peer who does not read its answer would keep a broker from ever ending: the
connections are closed before anybody waits for who serves them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

import trio

from strandline.broker.admin.http_server import FAILED, HttpServer
from strandline.broker.admin.pages import Answer, Page, Pages, json_answer
from strandline.broker.admin.transport_stream import TransportStream
from strandline.broker.steps import Steps
from strandline.runtime.logging import Logger, RateLimited
from strandline.runtime.network import Address, Network, Transport

MAX_CONNECTIONS = 64
ACCEPT_BACKOFF_S = 0.1

T = TypeVar("T")

Scrape = Callable[[Mapping[str, str]], Answer]
"""Takes the request's headers, as a page does, at once: what is long is in the pieces of the answer."""


class Health(Protocol):
    """Of this broker; `HealthCheck` says what the answers mean."""

    def waits(self) -> Steps[Sequence[str]]: ...
    def status(self) -> Steps[Mapping[str, object]]: ...


class AdminPort:
    """See the module."""

    def __init__(self, address: Address, network: Network, health: Health, metrics: Scrape, log: Logger) -> None:
        self._address = address
        self._network = network
        self._health = health
        self._log = log
        self._limited = RateLimited(log)
        self._metrics = metrics
        self._open: dict[Transport, None] = {}
        """Every connection, the one that asked nothing for the longest time first."""
        self._turn = trio.Lock()
        """Fair: those who ask for what takes steps take turns."""
        pages: dict[str, Page] = {
            "/live": self._live,
            "/ready": self._ready,
            "/status": self._status,
            "/metrics": self._scrape,
        }
        self._server = HttpServer(Pages(pages), self._limited)

    async def run(self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED) -> None:
        """Bind (CannotListen), report the real address, answer until cancelled; then the address is free again."""
        listener = await self._network.listen(self._address)
        self._log.info("admin port", bound=str(listener.address))
        task_status.started(listener.address)
        try:
            async with trio.open_nursery() as nursery:
                try:
                    while True:
                        try:
                            transport = await listener.accept()
                        except OSError as error:  # out of descriptors or memory
                            self._log.warning("admin port cannot accept", error=str(error))
                            await trio.sleep(ACCEPT_BACKOFF_S)
                            continue
                        if len(self._open) >= MAX_CONNECTIONS:
                            longest_idle = next(iter(self._open))
                            del self._open[longest_idle]
                            longest_idle.close()
                        self._open[transport] = None
                        nursery.start_soon(self._serve, transport)
                finally:
                    for transport in list(self._open):
                        transport.close()
        finally:
            listener.close()

    async def _serve(self, transport: Transport) -> None:
        def asked() -> None:
            if transport in self._open:
                del self._open[transport]
                self._open[transport] = None  # behind all that were silent meanwhile

        try:
            await self._server.serve(TransportStream(transport), asked)
        except* Exception as error:  # a bug here or in a library: no reason for a broker to end
            self._limited.error(FAILED, FAILED, error=repr(error), exc_info=error)
        finally:
            transport.close()
            self._open.pop(transport, None)

    async def _live(self, _: Mapping[str, str]) -> Answer:
        return Answer(204)

    async def _ready(self, _: Mapping[str, str]) -> Answer:
        return await self._in_turns(self._health.waits(), _ready_or_not)

    async def _status(self, _: Mapping[str, str]) -> Answer:
        return await self._in_turns(self._health.status(), partial(json_answer, 200))

    async def _in_turns(self, work: Steps[T], answer: Callable[[T], Answer]) -> Answer:
        """answer: of what the work has found."""
        while True:
            async with self._turn:
                try:
                    next(work)
                except StopIteration as end:
                    return answer(end.value)

    async def _scrape(self, headers: Mapping[str, str]) -> Answer:
        return self._metrics(headers)


def _ready_or_not(waits: Sequence[str]) -> Answer:
    return json_answer(503 if waits else 200, {"ready": not waits, "waits": waits})
