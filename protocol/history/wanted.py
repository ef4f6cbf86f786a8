"""Which events of change logs are asked for. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from strandline.protocol.history.lines import OF_PARTITIONS, Event


class Wanted(NamedTuple):
    """Those of these partitions, and what is of no partition. topics: a pattern for the whole name; empty: all.
    partitions empty: all."""

    topics: str = ""
    partitions: frozenset[int] = frozenset()

    def has(self, event: Event) -> bool:
        if self.partitions and event.kind in OF_PARTITIONS and event.partition not in self.partitions:
            return False
        return not self.topics or not event.topic or re.fullmatch(self.topics, event.topic) is not None

    @property
    def is_all(self) -> bool:
        return not self.topics and not self.partitions
