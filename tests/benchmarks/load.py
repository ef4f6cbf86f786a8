"""A load generator that is never the limit: prebuilt frames, blocking sends, one selector, no client library.

It pipelines like `ceiling.py`: per leader some connections, each with `depth` requests in flight; an answer is counted,
its error code looked at where it lies in the bytes, and the next request sent. One process, one thread.
"""

from __future__ import annotations

import collections
import os
import selectors
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from strandline.protocol.api import ApiKey
from strandline.protocol.messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from strandline.protocol.native.frame import PREFIX_AND_HEADER_BYTES, decode_body, encode_head, read_header
from strandline.protocol.records import BatchBuilder
from strandline.runtime.network import Address

CORRELATION_POSITION = 4 + 8
"""Of the correlation id's four bytes in a frame: length prefix, array header, API key, version, its tag."""
WARM_UP_S = 0.5


def batch_of(size_bytes: int, record_bytes: int = 1024) -> bytes:
    """One uncompressed batch of exactly `size_bytes`, of records of about `record_bytes` with random values."""
    records = max(1, size_bytes // record_bytes)
    share = (size_bytes - 61) // records
    for last_value_bytes in range(share, 0, -1):
        builder = BatchBuilder("none", size_bytes * 2)
        now_ms = int(time.time() * 1000)
        for _ in range(records - 1):
            builder.append(now_ms, None, os.urandom(share - 12))
        builder.append(now_ms, None, os.urandom(last_value_bytes + 12 * (records - 1)))
        batch = bytes(builder.build())
        if len(batch) == size_bytes:
            return batch
        if len(batch) < size_bytes:
            break
    raise ValueError(f"no batch of exactly {size_bytes} bytes with {records} records")


def connect(address: Address) -> socket.socket:
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    except OSError:
        pass  # what the system has then serves both sides alike
    return connection


@dataclass(slots=True)
class _Stream:
    """One connection: prebuilt frames (one per partition), when each request in flight was sent, what is half read."""

    connection: socket.socket
    frames: list[bytearray]
    error_position: int
    next_id: int = 0
    sent_at: collections.deque[float] = field(default_factory=collections.deque)
    half: bytes = b""

    def send(self) -> None:
        frame = self.frames[self.next_id % len(self.frames)]
        struct.pack_into(">I", frame, CORRELATION_POSITION, self.next_id)
        self.next_id += 1
        self.connection.sendall(frame)
        self.sent_at.append(time.perf_counter())


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """`acked` counts every acknowledgement of the run; the rates are of the measured part."""

    megabytes_per_second: float
    requests_per_second: float
    latencies_ms: dict[str, float]
    measured_requests: int
    acked: int


def produce_frame(topic: str, partition: int, batch: bytes, acks: int) -> bytearray:
    message = ProduceRequest(acks, 30_000, [TopicProduceData(topic, [PartitionProduceData(partition, len(batch))])])
    return bytearray(encode_head(ApiKey.PRODUCE, 0, 0, message, len(batch)) + batch)


def produce(
    topic: str,
    leaders: Mapping[int, Address],
    batch: bytes,
    *,
    connections: int,
    depth: int,
    seconds: float,
    on_measure: collections.abc.Callable[[], None],
    warm_up_s: float = WARM_UP_S,
) -> ProduceResult:
    """Produce with acks=all for `seconds` after a warm-up. `leaders`: partition → address of its leader.

    `on_measure` is called at the beginning and at the end of the measured part. RuntimeError on the first refused
    request, naming the error.
    """
    by_leader: dict[Address, list[int]] = {}
    for partition, address in sorted(leaders.items()):
        by_leader.setdefault(address, []).append(partition)
    error_position = PREFIX_AND_HEADER_BYTES + 4 + len(topic) + 3
    assert len(topic) < 32 and max(leaders) < 128, "the error code is looked for behind one-byte msgpack headers"
    streams = [
        _Stream(connect(address), [produce_frame(topic, p, batch, -1) for p in partitions], error_position)
        for address, partitions in by_leader.items()
        for _ in range(connections)
    ]
    selector = selectors.DefaultSelector()
    for stream in streams:
        selector.register(stream.connection, selectors.EVENT_READ, stream)
    for stream in streams:
        for _ in range(depth):
            stream.send()
    try:
        return _drive(selector, len(batch), warm_up_s, seconds, on_measure)
    finally:
        for stream in streams:
            stream.connection.close()


def _drive(
    selector: selectors.BaseSelector,
    batch_bytes: int,
    warm_up_s: float,
    seconds: float,
    on_measure: collections.abc.Callable[[], None],
) -> ProduceResult:
    latencies: list[float] = []
    acked = 0
    begin = time.perf_counter() + warm_up_s
    end = begin + seconds
    measuring_since: float | None = None
    while True:
        now = time.perf_counter()
        if measuring_since is None and now >= begin:
            latencies.clear()
            measuring_since = now
            on_measure()
        if now >= end:
            break
        for key, _ in selector.select(2):
            answered = _receive(key.data, latencies)
            acked += answered
            for _ in range(answered):
                key.data.send()
    on_measure()
    assert measuring_since is not None
    elapsed = time.perf_counter() - measuring_since
    outstanding = sum(len(key.data.sent_at) for key in selector.get_map().values())
    measured = len(latencies)
    while outstanding:  # what is in flight is waited for, so that the files can be compared with what was acked
        for key, _ in selector.select(10):
            answered = _receive(key.data, latencies)
            acked += answered
            outstanding -= answered
    return ProduceResult(
        measured * batch_bytes / elapsed / 1e6, measured / elapsed, percentiles(latencies[:measured]), measured, acked
    )


def _receive(stream: _Stream, latencies: list[float]) -> int:
    """Read what is there; count whole answers and note how long each took."""
    received = stream.connection.recv(65536)
    if not received:
        raise RuntimeError("a broker closed the connection")
    data = stream.half + received if stream.half else received
    now = time.perf_counter()
    position, answered, size = 0, 0, len(data)
    while size - position >= 4:
        total = 4 + int.from_bytes(data[position : position + 4], "big")
        if size - position < total:
            break
        if data[position + stream.error_position]:
            frame = memoryview(data)[position : position + total]
            raise RuntimeError(f"refused: {decode_body(ProduceResponse, frame[PREFIX_AND_HEADER_BYTES:])}")
        latencies.append(now - stream.sent_at.popleft())
        position += total
        answered += 1
    stream.half = data[position:]
    return answered


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {name: ordered[min(last, int(len(ordered) * q))] * 1e3 for name, q in QUANTILES.items()} if ordered else {}


QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


# --- consuming --------------------------------------------------------------------------------------------------


class RawConsumer:
    """Fetches one broker's partitions from their beginning in lock step, and looks at nothing but batch headers."""

    def __init__(self, address: Address, topic: str, partitions: Sequence[int]) -> None:
        self._connection = connect(address)
        self._topic = topic
        self._offsets = dict.fromkeys(partitions, 0)
        self._buffer = memoryview(bytearray(16 * 2**20))

    def fetch_all(self, max_bytes: int = 8 * 2**20) -> int:
        """Everything below the HW; returns bytes of record batches."""
        total = 0
        while received := self._fetch(max_bytes):
            total += received
        self._connection.close()
        return total

    def _fetch(self, max_bytes: int) -> int:
        wanted = [FetchPartition(p, offset, max_bytes) for p, offset in self._offsets.items()]
        request = FetchRequest(0, 1, max_bytes, [FetchTopic(self._topic, wanted)])
        self._connection.sendall(encode_head(ApiKey.FETCH, 0, 1, request))
        view = self._buffer
        have = 0
        total = 4
        while have < total:
            count = self._connection.recv_into(view[have:])
            if not count:
                raise RuntimeError("a broker closed the connection")
            have += count
            if have >= 4:
                total = 4 + int.from_bytes(view[:4], "big")
        header = read_header(view, 0, len(view))
        body_end = PREFIX_AND_HEADER_BYTES + header.body_bytes
        response = decode_body(FetchResponse, view[PREFIX_AND_HEADER_BYTES:body_end])
        position = body_end
        received = 0
        # The partition that got data comes last in the next request, so that all of them are read.
        for data in response.responses[0].partitions:
            if data.error_code:
                raise RuntimeError(f"refused: {data}")
            if data.records_size > 0:
                end = position + data.records_size
                self._offsets.pop(data.partition_index)
                self._offsets[data.partition_index] = next_offset(view, position, end)
                position = end
                received += data.records_size
        return received


def next_offset(view: memoryview, position: int, end: int) -> int:
    """The offset after the last whole batch in `view[position:end]`."""
    offset = 0
    while position < end:
        base_offset, length = struct.unpack_from(">qi", view, position)
        (last_delta,) = struct.unpack_from(">i", view, position + 23)
        offset = base_offset + last_delta + 1
        position += 12 + length
    return offset
