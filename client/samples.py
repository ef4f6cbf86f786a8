"""Averages and maxima of the last moments, as Kafka's clients tell them: of two samples of 30 s (`metrics.num.samples`,
`metrics.sample.window.ms`), the one that goes on and the one before. Pure; the caller says what time it is.

What was added leaves after 30 to 60 s, whether or not anything comes after it, and whether or not anybody looks.
"""

from __future__ import annotations

WINDOW_S = 30.0


class _Sample:
    __slots__ = ("count", "maximum", "number", "total")

    def __init__(self, number: int) -> None:
        self.number = number
        """Of its window, counted from the beginning of the clock."""
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0


class Samples:
    """Of one figure."""

    def __init__(self) -> None:
        self._previous, self._current = _Sample(-1), _Sample(0)

    def add(self, value: float, now_s: float) -> None:
        number = int(now_s // WINDOW_S)
        if number != self._current.number:
            self._previous, self._current = self._current, _Sample(number)
        sample = self._current
        sample.count += 1
        sample.total += value
        sample.maximum = max(sample.maximum, value)

    def average(self, now_s: float) -> float:
        """0 where there was nothing."""
        recent = self._recent(now_s)
        count = sum(each.count for each in recent)
        return sum(each.total for each in recent) / count if count else 0.0

    def maximum(self, now_s: float) -> float:
        """The same of the largest."""
        return max((each.maximum for each in self._recent(now_s)), default=0.0)

    def _recent(self, now_s: float) -> list[_Sample]:
        number = int(now_s // WINDOW_S)
        return [each for each in (self._previous, self._current) if each.number >= number - 1]
