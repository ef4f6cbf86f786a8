"""What the cleaners have done: plain numbers, for whoever looks."""

from __future__ import annotations

import trio


class CleanerCounts:
    """cleanings: that were finished; bytes_read and bytes_written: by them. last_ratio: of the last one, what was
    written of what was read. longest_s: the longest of the last hour."""

    def __init__(self) -> None:
        self.cleanings = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.last_ratio = 0.0
        self.dirtiest_ratio = 0.0
        """Of the log that was cleaned last, when it was chosen."""
        self._looked_s = trio.current_time()
        self._longest: tuple[float, float] = (0.0, 0.0)

    def looked(self) -> None:
        """A cleaner has looked for a log to clean, whether there was one or not."""
        self._looked_s = trio.current_time()

    def finished(self, seconds: float, bytes_read: int, bytes_written: int, dirty_ratio: float) -> None:
        """One cleaning."""
        now_s = trio.current_time()
        self.cleanings += 1
        self.bytes_read += bytes_read
        self.bytes_written += bytes_written
        self.last_ratio = bytes_written / bytes_read if bytes_read else 0.0
        self.dirtiest_ratio = dirty_ratio
        if seconds >= self.longest_s(now_s):
            self._longest = (seconds, now_s)

    def longest_s(self, now_s: float) -> float:
        seconds, ended_s = self._longest
        return seconds if now_s - ended_s < LONGEST_OF_S else 0.0

    def since_look_s(self, now_s: float) -> float:
        return now_s - self._looked_s


LONGEST_OF_S = 3600.0
