"""The lines of several change logs as one, by time. Pure, and in the memory of one line per log.

Lines of one log stay in their order: where its clock went back, a line follows at once those before it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from strandline.protocol.history.lines import Line


class Told(NamedTuple):
    """A line that was understood, and where it stands. log: the number of its log. beats: that log has a line a minute
    at least. number: of the line in its file, from 1 on."""

    log: int
    beats: bool
    file: str
    number: int
    line: Line


def in_order(logs: Iterable[Iterable[Told]]) -> Iterator[Told]:
    """Of lines of the same time, that of the first log is the first."""
    return heapq.merge(*logs, key=lambda told: told.line.time_ms)
