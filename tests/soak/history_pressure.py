"""Clients that ask a broker for much and read nothing, while it may take little more memory than it has (F28)."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trio

from strandline.protocol.messages import FetchPartition, FetchRequest, FetchTopic, MetadataRequest
from strandline.protocol.types import TopicPartition
from strandline.runtime.network import Address
from support.raw_client import request_frame

SLOW_READERS, AT_LEAST = 1_000, 900
"""So many as are wanted, and so many as a broker that lives must let in."""
THEIR_REQUESTS, THEIR_MAX_BYTES = 20, 10 * 2**20
UNREAD_REQUESTS = 10_000
"""Of a connection that never reads an answer."""
NAMES = [f"there-is-no-topic-{number}" for number in range(500)]
"""A Metadata answer that names them all takes some 20 kB: ten thousand are as much as the broker may take."""
SPARE_MEMORY_BYTES = 256 * 2**20
"""Less than the answers that nobody takes would need."""
TASKS = 20
"""How many connect at a time: no more wait than the broker's queue takes."""
CONNECTED_WITHIN_S = 60.0
LOOK_INTERVAL_S = 0.5


class Pressure:
    """On one broker, whose process is `pid`. readers: how many asked for records and read nothing. requests: how many
    each of two others could send that never read, the first small ones, the second such as have large answers."""

    def __init__(self, address: Address, pid: int, wanted: TopicPartition) -> None:
        self.readers = 0
        self.requests = [0, 0]
        self._peak = 0
        """The most memory that the broker had, in kilobytes."""
        self._address = address
        self._pid = pid
        topic = FetchTopic(wanted.topic, [FetchPartition(wanted.partition, 0, THEIR_MAX_BYTES)])
        self._fetches = request_frame(FetchRequest(500, 1, THEIR_MAX_BYTES, [topic])) * THEIR_REQUESTS

    async def last(self, seconds: float) -> int:
        """From when all are connected. Returns by how many bytes the broker grew meanwhile, as far as it lives."""
        self._peak = before = _kilobytes(self._pid, "VmRSS")
        with _limited_memory(self._pid):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._look)
                for which, question in enumerate([MetadataRequest(None), MetadataRequest(NAMES)]):
                    nursery.start_soon(self._never_read, which, request_frame(question))
                streams: list[trio.SocketStream] = []
                with trio.move_on_after(CONNECTED_WITHIN_S):
                    async with trio.open_nursery() as connecting:
                        for _ in range(TASKS):
                            connecting.start_soon(self._ask, streams)
                await trio.sleep(seconds)
                for stream in streams:
                    await trio.aclose_forcefully(stream)
                nursery.cancel_scope.cancel()
        return (self._peak - before) * 1024

    async def _look(self) -> None:
        while True:
            self._peak = max(self._peak, _kilobytes(self._pid, "VmRSS"))
            await trio.sleep(LOOK_INTERVAL_S)

    async def _ask(self, streams: list[trio.SocketStream]) -> None:
        """Readers that ask and read nothing, until there are as many as wanted; fewer where connections break."""
        for _ in range(SLOW_READERS // TASKS):
            with suppress(OSError, trio.BrokenResourceError):
                streams.append(stream := await trio.open_tcp_stream(self._address.host, self._address.port))
                await stream.send_all(self._fetches)
                self.readers += 1

    async def _never_read(self, which: int, question: bytes) -> None:
        with suppress(OSError, trio.BrokenResourceError):
            async with await trio.open_tcp_stream(self._address.host, self._address.port) as stream:
                for _ in range(UNREAD_REQUESTS):
                    await stream.send_all(question)
                    self.requests[which] += 1
                await trio.sleep_forever()


@contextmanager
def _limited_memory(pid: int) -> Iterator[None]:
    """Of what it writes to: threads' stacks count, mapped files do not. Nothing is done to one that has ended."""
    before = None
    with suppress(ProcessLookupError):
        if kilobytes := _kilobytes(pid, "VmData"):
            soft, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
            resource.prlimit(pid, resource.RLIMIT_DATA, (kilobytes * 1024 + SPARE_MEMORY_BYTES, hard))
            before = soft, hard
    try:
        yield
    finally:
        if before is not None:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_DATA, before)


def _kilobytes(pid: int, field: str) -> int:
    """0: it has ended."""
    try:
        found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(found[1]) if found else 0
