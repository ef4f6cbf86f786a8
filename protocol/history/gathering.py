"""The events of a few logs kept together, and what they amount to: some partitions' history in one place. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from strandline.protocol.history.earlier import as_it_was
from strandline.protocol.history.figures import Range, in_range
from strandline.protocol.history.lines import OF_PARTITIONS, Event
from strandline.protocol.history.lives import NEVER_MS, Run, Runs, lives
from strandline.protocol.history.merging import Told
from strandline.protocol.history.summary import HistorySummary, Sources, summarised
from strandline.protocol.history.timeline import LONG_HAND_OVER_MS, histories

MOST_EARLIER = 16
"""Events of one partition before the range begins; with one more only what is left of them is kept."""


class TooManyEvents(Exception):
    """More than are kept; ask for less. The text says of what."""


class Gathering:
    """Of [since_ms, until_ms); None: from the first line on, to the last one. most_events: of partitions, in that
    range, and as many for how they were before: a few for each. Those of brokers and controllers are few."""

    def __init__(self, most_events: int, since_ms: int | None = None, until_ms: int | None = None) -> None:
        self._since_ms, self._until_ms = since_ms, until_ms
        # Who takes over just then says so a moment later.
        self._end_ms = NEVER_MS if until_ms is None else until_ms + LONG_HAND_OVER_MS
        self._most_events = most_events
        self._kept = 0
        self._kept_earlier = 0
        self._most_earlier = most_events
        """So many may be kept of before until all of that is looked through."""
        self._earlier: dict[tuple[str, int], list[Event]] = defaultdict(list)
        self._of_partitions: dict[tuple[str, int], list[Event]] = defaultdict(list)
        self._others: list[Event] = []
        self._runs: dict[int, Runs] = defaultdict(Runs)

    def add(self, told: Told, events: Iterable[Event]) -> None:
        """events: those of the line that are asked for. TooManyEvents."""
        self._runs[told.log].add(told.line)
        is_earlier = self._since_ms is not None and told.line.time_ms < self._since_ms
        for event in events:
            if event.kind not in OF_PARTITIONS:
                self._others.append(event)
            elif is_earlier:
                self._keep_earlier(event)
            elif told.line.time_ms < self._end_ms:
                self._kept += 1
                if self._kept > self._most_events:
                    raise TooManyEvents(f"more than {self._most_events:,} changes")
                self._of_partitions[event.topic, event.partition].append(event)

    def _keep_earlier(self, event: Event) -> None:
        own = self._earlier[event.topic, event.partition]
        own.append(event)
        self._kept_earlier += 1
        if len(own) > MOST_EARLIER:
            self._shorten(own)
        if self._kept_earlier > self._most_earlier:
            for each in self._earlier.values():
                self._shorten(each)
            if self._kept_earlier > self._most_events:
                raise TooManyEvents(f"{len(self._earlier):,} partitions")
            self._most_earlier = max(self._most_events, 2 * self._kept_earlier)  # or it were done again and again

    def _shorten(self, own: list[Event]) -> None:
        self._kept_earlier -= len(own)
        own[:] = as_it_was(own)
        self._kept_earlier += len(own)

    def summary(self, sources: Sources, shown: int) -> HistorySummary:
        """shown: so many partitions and outages. There has to be a line. What no log tells of is for `gaps` to find."""
        since_ms, until_ms = self._since_ms, self._until_ms
        runs: list[Run] = [run for each in self._runs.values() for run in each.end()]
        found = lives(self._others, runs)
        span = Range(
            min(run.first_ms for run in runs) if since_ms is None else since_ms,
            NEVER_MS if until_ms is None else until_ms,
            max(run.last_ms for run in runs),
        )
        names = {**self._earlier, **self._of_partitions}
        of_each = ([*self._earlier.get(name, ()), *self._of_partitions.get(name, ())] for name in names)
        told = [each._replace(unknown_changes=0) for own in of_each for each in histories(own, found)]
        cut = [each for each in (in_range(each, span) for each in told) if each is not None]
        return summarised(cut, found, runs, span, sources, shown)
