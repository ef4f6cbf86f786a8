"""Connections that have responses to send."""

from __future__ import annotations

import trio

from strandline.broker.network.connection import Connection


class UnflushedConnections:
    """Each connection puts itself into `dirty` when its next response is ready; `flush` is one send per connection."""

    def __init__(self) -> None:
        self.dirty: list[Connection] = []

    def flush(self) -> None:
        """Send everything that is ready. Never waits, never raises."""
        dirty = self.dirty
        if dirty:
            connections = dirty.copy()
            dirty.clear()
            now = trio.current_time()
            for connection in connections:
                now = connection.flush(now)
