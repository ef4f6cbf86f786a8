"""Pauses: for how long nothing came from a partition, no acknowledgement or no record. Pure: whoever has a clock says
when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pause:
    """Between two signs of life of a partition, in seconds of the caller's clock."""

    partition: int
    began_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s


NONE_YET = Pause(-1, 0.0, 0.0)


class Pauses:
    """Of each partition of a topic the last sign of life, and its longest pause since `begin`."""

    def __init__(self, partitions: int) -> None:
        self._last_s: dict[int, float | None] = dict.fromkeys(range(partitions))
        self._longest: dict[int, Pause] = {}

    def came(self, partition: int, now_s: float) -> None:
        """Something came from there. The first time ends no pause."""
        before_s = self._last_s[partition]
        if before_s is not None:
            pause = Pause(partition, before_s, now_s)
            if pause.seconds > self.longest_of(partition).seconds:
                self._longest[partition] = pause
        self._last_s[partition] = now_s

    def begin(self) -> None:
        """Forget the pauses that have ended. One that goes on counts from its beginning."""
        self._longest = {}

    def flow_since(self, moment_s: float) -> bool:
        """Whether something came from every partition after that moment: no pause of before goes on."""
        return all(last_s is not None and last_s > moment_s for last_s in self._last_s.values())

    def longest_of(self, partition: int) -> Pause:
        """Its longest pause that has ended; NONE_YET before the first one."""
        return self._longest.get(partition, NONE_YET)

    def longest(self) -> Pause:
        """The longest of all partitions."""
        return max(self._longest.values(), key=lambda pause: pause.seconds, default=NONE_YET)

    def longest_s(self) -> Mapping[int, float]:
        """Seconds, of each partition."""
        return {partition: self.longest_of(partition).seconds for partition in self._last_s}
