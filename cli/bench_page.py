"""The page about a benchmark: throughput and latency over time, and how many records took how long. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from strandline.cli.bench_measure import Interval, Result
from strandline.cli.bench_text import milliseconds, table_rows
from strandline.runtime.histogram import Histogram
from strandline.spark_connector.pipelines.pictures import bars, curves, figures, page, section, table

MOST_BARS = 120
"""Of a picture; intervals are put together where there are more."""

_NINES = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)


def bench_page(title: str, result: Result, settings: Mapping[str, str], latency_of: str) -> str:
    """settings: what was measured, for who finds the page later. latency_of: what the latencies are those of."""
    total = result.total
    intervals = thinned(result.intervals, MOST_BARS)
    sections = [
        figures(
            [
                ("records per second", f"{total.records_per_second:,.0f}"),
                ("MiB per second", f"{total.mib_per_second:,.2f}"),
                ("median", milliseconds(total.latencies.percentile_us(50))),
                ("99th percentile", milliseconds(total.latencies.percentile_us(99))),
                ("failed", f"{result.failed:,}"),
            ]
        ),
        section("Records per second", _throughput(intervals), note="By interval, since the beginning."),
        section(f"Latency of {latency_of} over time", _over_time(intervals)),
        section(
            f"Latency of {latency_of} by share",
            latency_by_share({"latency": total.latencies}),
            note="So many of a hundred take no longer than that. Each step to the right leaves a tenth.",
        ),
        section("Figures", table(("what", "how much"), table_rows(result, latency_of), ("how much",))),
        section("What was measured", table(("setting", "value"), list(settings.items()))),
    ]
    if result.failures:
        rows = [(kind, f"{each.records:,}", each.first) for kind, each in sorted(result.failures.items())]
        sections.insert(1, section("Failures", table(("error", "records", "the first"), rows, ("records",))))
    return page(title, sections)


def thinned(intervals: Sequence[Interval], most: int) -> list[Interval]:
    """At most so many: neighbours are put together."""
    every = math.ceil(len(intervals) / most) or 1
    found = []
    for place in range(0, len(intervals), every):
        group = intervals[place : place + every]
        found.append(
            Interval(
                group[0].start_s,
                group[-1].end_s,
                sum(each.records for each in group),
                sum(each.size_bytes for each in group),
                Histogram.sum(each.latencies for each in group),
            )
        )
    return found


def _throughput(intervals: Sequence[Interval]) -> str:
    labels = [f"{each.start_s:.1f} s" for each in intervals]
    return bars(labels, {"records per second": [each.records_per_second for each in intervals]}, unit="records/s")


def _over_time(intervals: Sequence[Interval]) -> str:
    measured = [each for each in intervals if each.latencies.count]
    lines = {
        name: [(each.end_s, each.latencies.percentile_us(percent)) for each in measured]
        for name, percent in (("median", 50.0), ("99th percentile", 99.0), ("maximum", 100.0))
    }
    end_s = intervals[-1].end_s if intervals else 0.0
    ticks = {end_s * part / 4: f"{end_s * part / 4:.1f} s" for part in range(5)}
    return curves(lines, unit="", shown=milliseconds, ticks=ticks)


def latency_by_share(histograms: Mapping[str, Histogram]) -> str:
    """There is as much room from 90 to 99 percent as from 99 to 99.9: the slowest are what is looked for."""
    lines = {
        name: [(_place(100 * (below - 1) / each.count), float(value_us)) for value_us, below in each.cumulated()]
        for name, each in histograms.items()
    }
    end = max((points[-1][0] for points in lines.values() if points), default=0.0)
    ticks = {_place(percent): f"{percent:g} %" for percent in _NINES if _place(percent) <= max(end, 1.0)}
    ticks = {**ticks, end: ticks.get(end, "")} if end else ticks
    return curves(lines, unit="", shown=milliseconds, ticks=ticks)


def _place(percent: float) -> float:
    return -math.log10(max(1 - percent / 100, 1e-9))
