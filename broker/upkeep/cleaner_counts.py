"""What the cleaners have done: plain numbers, for whoever looks."""

from __future__ import annotations

from typing import NamedTuple

import trio


class LastCleaning(NamedTuple):
    """What one cleaner did last. map_used: which share of its memory for keys these took."""

    seconds: float
    bytes_read: int
    bytes_written: int
    map_used: float


class CleanerCounts:
    """cleanings: that were finished; bytes_read and bytes_written: by them."""

    def __init__(self) -> None:
        self.cleanings = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.dirtiest_ratio = 0.0
        """Of the log that was cleaned last, when it was chosen."""
        self.overdue_s = 0.0
        """When a cleaner last looked: how long a log had waited longer than its `max.compaction.lag.ms`, at most."""
        self._looked_s = trio.current_time()
        self._last: dict[int, LastCleaning] = {}
        """By the number of the cleaner."""

    def looked(self) -> None:
        """A cleaner looks for a log to clean, whether there is one or not."""
        self._looked_s = trio.current_time()

    def finished(self, cleaner: int, cleaning: LastCleaning, dirty_ratio: float) -> None:
        """One cleaning."""
        self.cleanings += 1
        self.bytes_read += cleaning.bytes_read
        self.bytes_written += cleaning.bytes_written
        self.dirtiest_ratio = dirty_ratio
        self._last[cleaner] = cleaning

    def ended(self, cleaner: int) -> None:
        """There are too many cleaners: this one is none any more."""
        self._last.pop(cleaner, None)

    # --- of the last cleaning of each cleaner, as Kafka tells them ---------------------------------------------------

    @property
    def longest_s(self) -> float:
        return max((each.seconds for each in self._last.values()), default=0.0)

    @property
    def map_used(self) -> float:
        return max((each.map_used for each in self._last.values()), default=0.0)

    @property
    def recopy_ratio(self) -> float:
        """What they wrote of what they read."""
        read = sum(each.bytes_read for each in self._last.values())
        return sum(each.bytes_written for each in self._last.values()) / read if read else 0.0

    def since_look_s(self, now_s: float) -> float:
        return now_s - self._looked_s
