"""One prebuilt request over and over: what a broker costs per request, where the answers are of no interest.

Per connection `depth` requests are in flight; whole answers are counted by their length prefix and thrown away.
"""

from __future__ import annotations

import math
import selectors
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.load import CORRELATION_POSITION, connect
from strandline.protocol.api import ApiKey
from strandline.protocol.messages import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.native.frame import encode_head
from strandline.runtime.network import Address


def fetch_frame(topic: str, offset: int, *, max_bytes: int) -> bytearray:
    """Of partition 0, without waiting. At least one batch comes where there is one, however small `max_bytes` is."""
    wanted = [FetchTopic(topic, [FetchPartition(0, offset, max_bytes)])]
    return bytearray(encode_head(ApiKey.FETCH, 0, 0, FetchRequest(0, 0, max_bytes, wanted)))


@dataclass(slots=True)
class _Stream:
    connection: socket.socket
    frame: bytearray
    next_id: int = 0
    half: bytearray = field(default_factory=bytearray)

    def send(self) -> None:
        struct.pack_into(">I", self.frame, CORRELATION_POSITION, self.next_id)
        self.next_id += 1
        self.connection.sendall(self.frame)

    def receive(self) -> int:
        """How many answers ended."""
        data = self.connection.recv(2**20)
        if not data:
            raise RuntimeError("a broker closed the connection")
        self.half += data
        answered, position = 0, 0
        while len(self.half) - position >= 4:
            total = 4 + int.from_bytes(self.half[position : position + 4], "big")
            if len(self.half) - position < total:
                break
            position += total
            answered += 1
        del self.half[:position]
        return answered


def repeat(
    address: Address,
    frame: bytes,
    *,
    connections: int,
    depth: int,
    warm_up_s: float,
    seconds: float,
    on_measure: Callable[[], None],
) -> int:
    """How many were answered between the two calls of `on_measure`, `seconds` apart."""
    streams = [_Stream(connect(address), bytearray(frame)) for _ in range(connections)]
    selector = selectors.DefaultSelector()
    for stream in streams:
        selector.register(stream.connection, selectors.EVENT_READ, stream)
        for _ in range(depth):
            stream.send()
    begin, end = time.perf_counter() + warm_up_s, math.inf
    measured, is_measuring = 0, False
    try:
        while (now := time.perf_counter()) < end:
            if not is_measuring and now >= begin:
                is_measuring, end = True, now + seconds
                on_measure()
            for key, _ in selector.select(2):
                answered = key.data.receive()
                measured += answered * is_measuring
                for _ in range(answered):
                    key.data.send()
        on_measure()
    finally:
        for stream in streams:
            stream.connection.close()
    return measured
