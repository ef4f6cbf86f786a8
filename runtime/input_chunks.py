"""Lines of a file, pipe or terminal, with a pulse while nothing comes: whoever waits for input can look after what else
is going on. Plain blocking code, for commands.

A line is what stands between two `\\n`; the last one may lack it. Bytes are never decoded.
"""

from __future__ import annotations

import io
import os
import select
from collections.abc import Callable, Iterator
from typing import IO

PULSE_S = 0.05
_CHUNK_BYTES = 65_536


def input_lines(source: IO[bytes], pulse: Callable[[], None], pulse_s: float = PULSE_S) -> Iterator[bytes]:
    """The lines without their `\\n`. `pulse` is called every `pulse_s` while the next line is not there; what it raises
    is raised here. Nothing may have been read through `source` before."""
    try:
        descriptor = source.fileno()
    except io.UnsupportedOperation:
        # Bytes in memory: they never let anybody wait.
        yield from (line.removesuffix(b"\n") for line in source)
        return
    begun: list[bytes] = []
    while True:
        chunk = _read(descriptor, pulse, pulse_s)
        first, *others = chunk.split(b"\n")
        begun.append(first)
        if others:
            yield b"".join(begun)
            yield from others[:-1]
            begun = [others[-1]]
        if not chunk:
            if last := b"".join(begun):
                yield last
            return


def _read(descriptor: int, pulse: Callable[[], None], pulse_s: float) -> bytes:
    """What is there now, empty at the end."""
    while True:
        ready, _, _ = select.select([descriptor], [], [], pulse_s)
        if not ready:
            pulse()
            continue
        try:
            return os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            continue  # of a descriptor that does not block: another reader was faster
