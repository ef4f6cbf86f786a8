"""A load at a fixed rate, whose latencies count from when each request was due: what waits in the generator, because a
broker took too long, counts, too (no coordinated omission).

As in `load.py`: prebuilt bytes, one process, one thread, one selector. Nothing blocks: what a socket does not take
waits in its stream. `lag` says how late the generator itself was, so that it can be told from the brokers.
"""

from __future__ import annotations

import collections
import itertools
import random
import selectors
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.load import CORRELATION_POSITION, connect, percentiles
from strandline.protocol.api import ApiKey
from strandline.protocol.messages import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from strandline.protocol.native.frame import PREFIX_AND_HEADER_BYTES, decode_body, encode_head
from strandline.runtime.network import Address

REQUEST_TIMEOUT_MS = 30_000
DRAIN_S = 30.0
UNEVENNESS = 0.4
"""How much more than the first partition the last one gets: no load lets all of them roll in the same instant."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Batches for one topic at a fixed rate, over its partitions at random, the same each time. `is_measured`: its
    latencies count."""

    topic: str
    leaders: Mapping[int, Address]
    batches: Sequence[bytes]
    per_second: float
    connections: int = 2
    is_measured: bool = False


@dataclass(slots=True)
class _Stream:
    """One connection: when each request in flight was due, what is half read, what is to be written."""

    connection: socket.socket
    error_position: int
    is_measured: bool
    due_at: collections.deque[float] = field(default_factory=collections.deque)
    half: bytes = b""
    unsent: collections.deque[memoryview] = field(default_factory=collections.deque)
    next_id: int = 0

    def send(self, head: bytearray, batch: bytes, due_at: float) -> None:
        struct.pack_into(">I", head, CORRELATION_POSITION, self.next_id)
        self.next_id += 1
        self.due_at.append(due_at)
        self.unsent.append(memoryview(bytes(head)))
        self.unsent.append(memoryview(batch))
        self.flush()

    def flush(self) -> None:
        while self.unsent:
            parts = list(itertools.islice(self.unsent, 16))
            try:
                sent = self.connection.sendmsg(parts)
            except BlockingIOError:
                return
            for part in parts:
                if sent < len(part):
                    self.unsent[0] = part[sent:]
                    break
                sent -= len(part)
                self.unsent.popleft()

    def receive(self, latencies: list[float]) -> None:
        """Whole answers; RuntimeError on the first refused request."""
        received = self.connection.recv(65536)
        if not received:
            raise RuntimeError("a broker closed the connection")
        data = self.half + received if self.half else received
        now, position = time.perf_counter(), 0
        while len(data) - position >= 4:
            total = 4 + int.from_bytes(data[position : position + 4], "big")
            if len(data) - position < total:
                break
            if data[position + self.error_position]:
                frame = memoryview(data)[position : position + total]
                raise RuntimeError(f"refused: {decode_body(ProduceResponse, frame[PREFIX_AND_HEADER_BYTES:])}")
            latency = now - self.due_at.popleft()
            if self.is_measured:
                latencies.append(latency)
            position += total
        self.half = data[position:]


class _Schedule:
    """Of one flow: when the next request is due, and where it goes."""

    def __init__(self, flow: Flow, begin: float, selector: selectors.BaseSelector) -> None:
        self.interval_s = 1 / flow.per_second
        self.next_due = begin
        self._batches = itertools.cycle(flow.batches)
        # The error code is looked for behind one-byte msgpack headers.
        assert len(flow.topic) < 32 and max(flow.leaders) < 128
        error_position = PREFIX_AND_HEADER_BYTES + 4 + len(flow.topic) + 3
        streams: dict[Address, list[_Stream]] = {}
        for address in sorted(set(flow.leaders.values())):
            for _ in range(flow.connections):
                connection = connect(address)
                connection.setblocking(False)
                stream = _Stream(connection, error_position, flow.is_measured)
                selector.register(connection, selectors.EVENT_READ, stream)
                streams.setdefault(address, []).append(stream)
        size_bytes = len(flow.batches[0])
        ways = [
            [(stream, _head(flow.topic, partition, size_bytes)) for stream in streams[address]]
            for partition, address in sorted(flow.leaders.items())
        ]
        self._partitions = [itertools.cycle(each) for each in ways]
        self._weights = [1 + UNEVENNESS * place / len(ways) for place in range(len(ways))]
        self._random = random.Random(1)

    def send_due(self, now: float, lags: list[float]) -> None:
        while self.next_due <= now:
            (way,) = self._random.choices(self._partitions, self._weights)
            stream, head = next(way)
            lags.append(now - self.next_due)
            stream.send(head, next(self._batches), self.next_due)
            self.next_due += self.interval_s


def _head(topic: str, partition: int, batch_bytes: int) -> bytearray:
    data = [TopicProduceData(topic, [PartitionProduceData(partition, batch_bytes)])]
    return bytearray(encode_head(ApiKey.PRODUCE, 0, 0, ProduceRequest(-1, REQUEST_TIMEOUT_MS, data), batch_bytes))


@dataclass(frozen=True, slots=True)
class Paced:
    """Of the measured part. `requests_per_second`: answered."""

    latencies_ms: dict[str, float]
    longest_ms: float
    lag_ms: dict[str, float]
    requests_per_second: float
    requests: int


def produce(flows: Sequence[Flow], *, warm_up_s: float, seconds: float, on_measure: Callable[[], None]) -> Paced:
    """acks=all. `on_measure` is called at the beginning and at the end of the measured part. All batches of a flow have
    the same size."""
    selector = selectors.SelectSelector()  # epoll's timeouts are whole milliseconds
    latencies: list[float] = []
    lags: list[float] = []
    begin = time.perf_counter() + 0.1
    schedules = [_Schedule(flow, begin, selector) for flow in flows]
    streams: list[_Stream] = [key.data for key in selector.get_map().values()]
    try:
        _drive(selector, schedules, begin + warm_up_s, latencies, lags)
        latencies.clear()
        lags.clear()
        on_measure()
        _drive(selector, schedules, begin + warm_up_s + seconds, latencies, lags)
        on_measure()
        answered = len(latencies)
        # What is in flight counts, too: it was due in the measured part.
        deadline = time.perf_counter() + DRAIN_S
        while any(stream.due_at for stream in streams) and time.perf_counter() < deadline:
            _turn(selector, 0.1, latencies)
    finally:
        for stream in streams:
            stream.connection.close()
    return Paced(percentiles(latencies), max(latencies) * 1e3, percentiles(lags), answered / seconds, len(latencies))


def _drive(
    selector: selectors.BaseSelector,
    schedules: Sequence[_Schedule],
    until: float,
    latencies: list[float],
    lags: list[float],
) -> None:
    while (now := time.perf_counter()) < until:
        for schedule in schedules:
            schedule.send_due(now, lags)
        next_due = min(schedule.next_due for schedule in schedules)
        _turn(selector, max(0.0, min(next_due, until) - time.perf_counter()), latencies)


def _turn(selector: selectors.BaseSelector, timeout_s: float, latencies: list[float]) -> None:
    for key in list(selector.get_map().values()):
        stream: _Stream = key.data
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if stream.unsent else 0)
        if key.events != events:
            selector.modify(key.fileobj, events, stream)
    for key, mask in selector.select(timeout_s):
        if mask & selectors.EVENT_WRITE:
            key.data.flush()
        if mask & selectors.EVENT_READ:
            key.data.receive(latencies)
