"""What fetching could reach at best: a bare sendfile loop over the same files, in chunks over one connection."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.load import connect
from strandline.runtime.network import Address

_REQUEST = struct.Struct(">IQQ")  # file index, position, length


class Stopwatch:
    seconds = 0.0


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    watch = Stopwatch()
    begin = time.perf_counter()
    yield watch
    watch.seconds = time.perf_counter() - begin


def measure(paths: Sequence[Path], chunk_bytes: int) -> float:
    """MB/s (10^6) at which the files arrive, chunk by chunk in lock step, from a process that only sends."""
    listener = socket.socket()
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    pid = os.fork()
    if pid == 0:
        try:
            _serve(listener, paths)
        finally:
            os._exit(0)
    try:
        connection = connect(Address(*listener.getsockname()))
        buffer = memoryview(bytearray(chunk_bytes))
        total = 0
        with stopwatch() as watch:
            for index, path in enumerate(paths):
                total += _receive_file(connection, buffer, index, path.stat().st_size)
        connection.close()
    finally:
        os.waitpid(pid, 0)
        listener.close()
    return total / watch.seconds / 1e6


def _receive_file(connection: socket.socket, buffer: memoryview, index: int, size: int) -> int:
    position = 0
    while position < size:
        length = min(len(buffer), size - position)
        connection.sendall(_REQUEST.pack(index, position, length))
        have = 0
        while have < length:
            count = connection.recv_into(buffer[have:length])
            if not count:
                raise RuntimeError("the sendfile loop ended early")
            have += count
        position += length
    return size


def _serve(listener: socket.socket, paths: Sequence[Path]) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    files = [os.open(path, os.O_RDONLY) for path in paths]
    while request := connection.recv(_REQUEST.size, socket.MSG_WAITALL):
        index, position, length = _REQUEST.unpack(request)
        end = position + length
        while position < end:
            position += os.sendfile(connection.fileno(), files[index], position, end - position)
