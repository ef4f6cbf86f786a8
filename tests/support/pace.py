"""A bounded rate of records for whoever writes from a trio task."""

from __future__ import annotations

import trio


class Pace:
    """How many records are due; what could not be sent in time is not due any more, so a stall is not caught up."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._before = trio.current_time()
        self._due = 0.0

    def due(self) -> int:
        now = trio.current_time()
        self._due = min(self._due + (now - self._before) * self._per_second, max(1.0, self._per_second / 5))
        self._before = now
        count = int(self._due)
        self._due -= count
        return count
