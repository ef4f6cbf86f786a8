"""What connections that a gate holds have received and not handled: it stays in memory until their turn.

It is counted for all of them together. While that is more than `most_bytes`, no client's connection is read in pieces
larger than `HELD_READ_BYTES`, and a longer frame is not received before the gate lets it in: what else its peers have
sent waits in the sockets. So the bound is `most_bytes`, one receive buffer, and a piece for each connection. Nobody is
refused or ended for what others send, and while few are held everybody is read as fast as ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

MAX_HELD_BYTES = 64 * 1024 * 1024
"""Of all connections of a broker."""

HELD_READ_BYTES = 64 * 1024
"""As much as is awaited of a frame that asks for an API which is not spoken (`request_reader`)."""


class HeldBytes:
    """See the module."""

    def __init__(self, most_bytes: int = MAX_HELD_BYTES) -> None:
        self.most_bytes = most_bytes
        self.used_bytes = 0

    @property
    def are_too_many(self) -> bool:
        return self.used_bytes > self.most_bytes

    @contextmanager
    def keeping(self, size_bytes: int) -> Iterator[None]:
        """A connection that has received so much is held for as long as the block runs."""
        self.used_bytes += size_bytes
        try:
            yield
        finally:
            self.used_bytes -= size_bytes
