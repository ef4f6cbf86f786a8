"""The events of a few logs kept together, and what they amount to: some partitions' history in one place. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from strandline.protocol.history.figures import Range, in_range
from strandline.protocol.history.lines import OF_PARTITIONS, Event
from strandline.protocol.history.lives import NEVER_MS, Run, Runs, lives
from strandline.protocol.history.merging import Told
from strandline.protocol.history.summary import HistorySummary, Sources, summarised
from strandline.protocol.history.timeline import histories


class TooManyEvents(Exception):
    """More than are kept; ask for less."""


class Gathering:
    """most_events: of partitions; those of brokers and controllers are few."""

    def __init__(self, most_events: int) -> None:
        self._most_events = most_events
        self._kept = 0
        self._of_partitions: dict[tuple[str, int], list[Event]] = defaultdict(list)
        self._others: list[Event] = []
        self._runs: dict[int, Runs] = defaultdict(Runs)

    def add(self, told: Told, events: Iterable[Event]) -> None:
        """events: those of the line that are asked for. TooManyEvents."""
        self._runs[told.log].add(told.line)
        for event in events:
            if event.kind in OF_PARTITIONS:
                self._kept += 1
                if self._kept > self._most_events:
                    raise TooManyEvents
                self._of_partitions[event.topic, event.partition].append(event)
            else:
                self._others.append(event)

    def summary(self, since_ms: int | None, until_ms: int | None, sources: Sources, shown: int) -> HistorySummary:
        """Of [since_ms, until_ms); None: from the first line on, to the last one. shown: so many partitions and
        outages. There has to be a line."""
        runs: list[Run] = [run for each in self._runs.values() for run in each.end()]
        found = lives(self._others, runs)
        span = Range(
            min(run.first_ms for run in runs) if since_ms is None else since_ms,
            NEVER_MS if until_ms is None else until_ms,
            max(run.last_ms for run in runs),
        )
        told = [each for own in self._of_partitions.values() for each in histories(own, found)]
        cut = [each for each in (in_range(each, span) for each in told) if each is not None]
        return summarised(cut, found, runs, span, sources, shown)
