"""Deleted partitions, and which groups have yet to let go of what they committed for them. Pure.

    UpdateMetadata ──> add ──> each group, when somebody asks for it or its turn comes: since ──> forget

Each deletion has a number, from 1 on. A group remembers up to which it let go, and does so before anybody gets at it:
so what it has of these partitions is of before, however soon a topic of that name is made anew and committed.

What was committed for partitions that were deleted while no coordinator heard of it stays until it is too old, as in
Kafka (which looks at deletions only, too): a log names topics without their ids, so nothing tells these from partitions
that are not known here yet, or that an old copy of ZooKeeper's data has lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from strandline.broker.metadata_cache import Deleted


class Deletions:
    """See the module."""

    def __init__(self) -> None:
        self.latest = 0
        self._kept: deque[Deleted] = deque()
        """The last ones, up to the latest."""

    def add(self, deleted: Deleted) -> None:
        self._kept.append(deleted)
        self.latest += 1

    def since(self, number: int) -> Iterator[Deleted]:
        """Those after that one, which are all kept."""
        return islice(self._kept, len(self._kept) - (self.latest - number), None)

    def forget(self, number: int) -> None:
        """Nobody will ask for this one or those before it."""
        while self._kept and self.latest - len(self._kept) < number:
            self._kept.popleft()
