"""Every source of metrics of one broker, by name: whoever builds a part of the broker adds what tells of it.

A scrape asks them in the order in which they were added, slice by slice. One that raises, or that repeats a family
which was there already (a parser would refuse the whole answer), is left out from there on, which the log and a family
of its own tell; the others are asked all the same. At the end stands how much of each family this scrape has left out.
"""

from __future__ import annotations

from collections.abc import Generator

import trio
from prometheus_client.core import Metric

from strandline.broker.metrics.families import LeftOut, Source, counters, gauges
from strandline.runtime.logging import Logger, RateLimited

FAILURE_TOLD_INTERVAL_S = 60.0
FAILING_S = 300.0
"""Longer than scrapes and reports are apart."""
FAILURES = "strandline_metrics_source_failures"
_SUFFIXES = {"counter": ("", "_total"), "histogram": ("", "_bucket", "_count", "_sum"), "info": ("", "_info")}
"""What the samples of a family may be called, by its kind; those of another kind have its name."""


class Failing:
    """Which sources had to be left out lately, and why. One is among them for `FAILING_S` after it failed last: who
    collects another time, for another reader, may have more luck, and who has stopped to collect says nothing."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[str, float]] = {}
        """Why, and when that was."""

    def note(self, source: str, why: str) -> None:
        self._noted[source] = why, trio.current_time()

    def lately(self) -> dict[str, str]:
        """Source → why, as it is now."""
        now_s = trio.current_time()
        return {source: why for source, (why, noted_s) in self._noted.items() if now_s - noted_s < FAILING_S}


class MetricSources:
    """See the module."""

    def __init__(self, log: Logger) -> None:
        self._log = RateLimited(log, interval_s=FAILURE_TOLD_INTERVAL_S)
        self._sources: dict[str, Source] = {}
        self._failures: dict[str, int] = {}
        self.failing = Failing()

    def add(self, name: str, source: Source) -> None:
        """name: for the log, and for the label of the failures; no two have the same."""
        assert name not in self._sources, name
        self._sources[name] = source
        self._failures[name] = 0

    def collect(self) -> Generator[Metric, None, None]:
        """Everything there is now, lazily. Nothing is raised. What is thrown in, because the family that was yielded
        cannot be written, counts as a failure of its source."""
        taken: set[str] = set()
        left_out: dict[str, int] = {}
        for name, source in list(self._sources.items()):
            try:
                yield from _told(source, taken, left_out)
            except Exception as error:  # a bug of one source: no reason to tell nothing of the others
                self._failures[name] += 1
                self.failing.note(name, repr(error))
                said = "metrics of this source are left out"
                self._log.error(name, said, source=name, error=repr(error), exc_info=error)
        yield from gauges(
            "strandline_metrics_left_out",
            "Rows that a family lacks, since it would have too many",
            ("family",),
            [((family,), count) for family, count in sorted(left_out.items())],
        )
        yield from counters(
            FAILURES,
            "How often a scrape had to leave out what this source tells, see the log",
            ("source",),
            [((name,), count) for name, count in self._failures.items()],
        )


def _told(source: Source, taken: set[str], left_out: dict[str, int]) -> Generator[Metric, None, None]:
    """The slices of a source; what it leaves out is added to `left_out`, by family. ValueError for a family of which a
    sample's name is taken by another one."""
    last = None
    for metric in source():
        if isinstance(metric, LeftOut):
            left_out[metric.name] = metric.rows
            continue
        if metric.name != last:
            names = {metric.name + suffix for suffix in _SUFFIXES.get(metric.type, ("",))}
            if not names.isdisjoint(taken):
                raise ValueError(f"a second family {metric.name}, or slices of it that do not follow each other")
            taken |= names
            last = metric.name
        yield metric
