"""A byte rate for background work: pure."""

from __future__ import annotations


class ByteRate:
    """Whoever has moved some bytes is told how long to pause, so that all of them together keep to the rate."""

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_at_s = 0.0

    def pause_s(self, moved_bytes: int, now_s: float) -> float:
        """now_s: monotonic."""
        self._free_at_s = max(self._free_at_s, now_s) + moved_bytes / max(self.bytes_per_second, 1.0)
        return self._free_at_s - now_s

    def step_bytes(self, step_s: float, least: int, most: int) -> int:
        """What may be moved in one go so that a pause is not much longer than `step_s`."""
        return int(min(most, max(least, self.bytes_per_second * step_s)))
