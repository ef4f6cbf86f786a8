"""Where batches begin, remembered: what makes a fetch at the tail of a log cost no look at the disk.

Two memories, both bounded. *Recent* ones are the last batches of the active segment, in two sorted columns: a
follower or consumer at the tail finds both ends of its read by bisection. *Visited* ones are the ends of earlier reads
elsewhere, by offset: who reads a log from its beginning comes next for exactly that offset.
"""

from __future__ import annotations

from array import array

from strandline.storage.segments.segment import Segment

_RECENT_MAX = 2048
"""Batches, 16 bytes each; cut to half when full. At 1 KB a batch that is still one whole follower response (1 MB)."""
_VISITED_MAX = 64


class Boundaries:
    """Of one log."""

    __slots__ = ("offsets", "positions", "visited")

    def __init__(self) -> None:
        self.offsets = array("q")
        """Base offsets of the recent batches of the active segment."""
        self.positions = array("q")
        """Where each begins in the .log file."""
        self.visited: dict[int, tuple[Segment, int]] = {}

    def trim(self) -> None:
        """Forget the older half of the recent ones once there are too many."""
        if len(self.offsets) > _RECENT_MAX:
            del self.offsets[: -_RECENT_MAX // 2]
            del self.positions[: -_RECENT_MAX // 2]

    def start_segment(self) -> None:
        """Another segment is the active one now."""
        del self.offsets[:]
        del self.positions[:]

    def visit(self, offset: int, segment: Segment, position: int) -> None:
        """A read ended at `position`, where the batch at `offset` begins."""
        if len(self.visited) >= _VISITED_MAX:
            del self.visited[next(iter(self.visited))]
        self.visited[offset] = (segment, position)

    def forget(self) -> None:
        """Something was cut or removed: nothing remembered can be relied on."""
        self.start_segment()
        self.visited.clear()
