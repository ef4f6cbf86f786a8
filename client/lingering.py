"""How long a batch waits for more records before it is full: `linger_ms`, or what the producer makes of the moment.

Where `linger_ms` is not set, waiting has to pay. A batch that finds nothing under way to its broker, and nothing else
that waits for it, leaves at once: its records are alone, and more would only cost them time. While requests are under
way records gather (Nagle's idea, RFC 896): that is what the broker's answer costs in any case. When all are answered
the batch leaves as soon as no record came for `QUIET_S`: those that several tasks send and wait for do not come before
their answers, while a steady stream goes on filling its batch. After `ADAPTIVE_LINGER_MS` it leaves whatever happens.

With acks=0 nobody knows what is under way, and nobody waits: then that time counts alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ADAPTIVE_LINGER_MS = 5.0
"""Kafka's default of `linger.ms` since its version 4 (KIP-1030)."""

QUIET_S = 0.001
"""As short as the system's timers allow."""


@dataclass(slots=True)
class Gathering:
    """What was seen of one open batch. Times are those of the event loop, in seconds."""

    records_count: int = 0
    """0: it was not seen yet while others were in front of it."""
    since: float = 0.0
    """When it was first seen with so many."""

    def look(self, records_count: int, now: float, *, is_first: bool) -> float | None:
        """When to look again, infinity where that is at the next answer; None: it leaves now. `is_first`: nothing is
        under way to its broker, and nothing else waits for it."""
        if is_first and self.records_count == 0:
            return None
        if records_count != self.records_count:
            self.records_count, self.since = records_count, now
        if not is_first:
            return math.inf
        due = self.since + QUIET_S
        return due if due > now else None
