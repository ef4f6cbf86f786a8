"""Bytes of a file, pipe or terminal as they come, with a pulse while nothing comes: whoever waits for input can look
after what else is going on. Plain blocking code, for commands."""

from __future__ import annotations

import io
import os
import select
from collections.abc import Callable, Iterator
from typing import IO

PULSE_S = 0.05
CHUNK_BYTES = 65_536


def input_chunks(source: IO[bytes], pulse: Callable[[], None], pulse_s: float = PULSE_S) -> Iterator[bytes]:
    """What is there, none of it empty, until the end. `pulse` is called every `pulse_s` while nothing is there; what it
    raises is raised here. Nothing may have been read through `source` before."""
    try:
        descriptor = source.fileno()
    except io.UnsupportedOperation:
        # Bytes in memory: they never let anybody wait.
        while chunk := source.read(CHUNK_BYTES):
            yield chunk
        return
    while chunk := _read(descriptor, pulse, pulse_s):
        yield chunk


def _read(descriptor: int, pulse: Callable[[], None], pulse_s: float) -> bytes:
    """What is there now, empty at the end."""
    while True:
        ready, _, _ = select.select([descriptor], [], [], pulse_s)
        if not ready:
            pulse()
            continue
        try:
            return os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            continue  # of a descriptor that does not block: another reader was faster
