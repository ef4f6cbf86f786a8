"""How long something took: lately, and since the beginning. Pure; the caller says what time it is.

Who scrapes wants quantiles of the last minute, not of all months (Kafka's decay, too, with a reservoir); counters must
never fall. So one histogram takes what comes, and is put behind it once a minute by who looks.
"""

from __future__ import annotations

from strandline.runtime.histogram import Histogram

WINDOW_S = 60.0


class RecentTimes:
    """`record_s` where it happens, `recent` and `lifetime` where somebody looks."""

    def __init__(self) -> None:
        self._current = Histogram()
        self._previous = Histogram()
        self._older = Histogram()
        """What has left both windows."""
        self._since_s = 0.0

    def record_s(self, seconds: float, count: int = 1) -> None:
        """`count` times that long."""
        self._current.record(int(seconds * 1e6), count)

    def recent(self, now_s: float) -> Histogram:
        """Of the last one to two minutes; of longer where nobody looked meanwhile."""
        if now_s - self._since_s >= WINDOW_S:
            self._older.add(self._previous)
            self._previous, self._current = self._current, Histogram()
            self._since_s = now_s
        return Histogram.sum((self._previous, self._current))

    def lifetime(self) -> Histogram:
        """Of all the time."""
        return Histogram.sum((self._older, self._previous, self._current))
