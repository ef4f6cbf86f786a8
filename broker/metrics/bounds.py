"""How many series a family may have: who scrapes thousands of brokers pays for each, and a client can make as many
groups as it likes. What is left out is counted, by family, so that nobody takes a part for the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from prometheus_client.core import Metric

from strandline.broker.metrics.families import gauges

MAX_TOPICS = 1000
MAX_GROUPS = 1000
MAX_PARTITIONS = 10_000
"""In all of a family that has a series per partition."""

MAX_LABEL_CHARACTERS = 249
"""As long as a topic's name may be. Clients give their groups far longer ones."""

T = TypeVar("T")


def may_be_a_label(name: str) -> bool:
    """Whether it can be told, and is short enough to be told in each of many series."""
    if len(name) > MAX_LABEL_CHARACTERS:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:  # half a character, which a client may name its group
        return False
    return True


class Bounds:
    """What the last scrape left out."""

    def __init__(self) -> None:
        self._left_out: dict[str, int] = {}

    def first(self, family: str, rows: Sequence[T], limit: int) -> Sequence[T]:
        """The first rows; the others are counted."""
        self.note(family, max(len(rows) - limit, 0))
        return rows[:limit]

    def note(self, family: str, left_out: int) -> None:
        """So many of a family are not told."""
        self._left_out[family] = left_out

    def left_out(self) -> Iterator[Metric]:
        """A source; it comes after those that it tells of."""
        yield from gauges(
            "strandline_metrics_left_out",
            "Rows that a family lacks, since it would have too many",
            ("family",),
            [((family,), count) for family, count in sorted(self._left_out.items())],
        )
