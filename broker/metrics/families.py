"""How figures become families of the exposition: names, kinds and labels as dashboards of Kafka know them.

The names follow jmx_exporter's rule for Kafka: `kafka_<domain>_<type>_<name>` in small letters; what JMX counts per
second ends in `_total`; a histogram is a gauge per quantile, and `_count`. A source yields families lazily, and large
ones in slices of at most `SLICE_SAMPLES`, so that the loop can turn between any two: slices of one family follow each
other and have the same name. What a family lacks because it would have too many series is told by `LeftOut`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from strandline.runtime.histogram import Histogram

Source = Callable[[], Iterable[Metric]]
"""Called at each scrape, within the loop; advanced step by step."""
Labelled = tuple[Sequence[str], float]
"""Values of the labels, and the figure."""
SLICE_SAMPLES = 250
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
BUCKET_LIMITS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Of native histograms."""


class LeftOut(Metric):
    """How many rows a family lacks, since it would have too many. It has no samples: whoever collects (`sources`) adds
    these up and tells of them, so that what one scrape has left out says nothing about another one."""

    def __init__(self, family: str, rows: int) -> None:
        super().__init__(family, "", "gauge")
        self.rows = rows


def gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_text, value)


def counter(name: str, help_text: str, value: float) -> Metric:
    """name: without `_total`, which the exposition appends."""
    return CounterMetricFamily(name, help_text, value)


def gauges(
    name: str, help_text: str, labels: Sequence[str], rows: Iterable[Labelled | None], limit: int | None = None
) -> Iterator[Metric]:
    """None among the rows: what was looked at and is not told, which is as much work and fills slices, too. limit: how
    many rows are told; the others are counted (`LeftOut`)."""
    return _slices(GaugeMetricFamily, name, help_text, labels, rows, limit)


def counters(
    name: str, help_text: str, labels: Sequence[str], rows: Iterable[Labelled | None], limit: int | None = None
) -> Iterator[Metric]:
    """name: without `_total`. rows, limit: see `gauges`."""
    return _slices(CounterMetricFamily, name, help_text, labels, rows, limit)


def quantiles(
    name: str,
    help_text: str,
    labels: Sequence[str],
    rows: Iterable[tuple[Sequence[str], Histogram, int]],
    *,
    unit: int = 1000,
) -> Iterator[Metric]:
    """A gauge for each quantile, and `<name>_count`.

    rows: values of the labels, what was measured lately, how often it was measured ever. unit: what was recorded is so
    much smaller than what is told (milliseconds)."""
    taken = list(rows)
    yield from gauges(
        name,
        help_text,
        (*labels, "quantile"),
        (
            ((*values, quantile), times.percentile_us(float(quantile) * 100) / unit)
            for values, times, _ in taken
            for quantile in QUANTILES
        ),
    )
    yield from gauges(f"{name}_count", f"How often: {help_text}", labels, ((values, n) for values, _, n in taken))


def histograms(
    name: str, help_text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], Sequence[int], int, float]]
) -> Iterator[Metric]:
    """Native histograms in seconds, of all the time. name: ends in `_seconds`.

    rows: values of the labels, how many took at most each of `BUCKET_LIMITS_S`, how many there are, their sum."""
    for values, at_most, count, sum_s in rows:
        buckets = [(str(limit_s), float(below)) for limit_s, below in zip(BUCKET_LIMITS_S, at_most, strict=True)]
        family = HistogramMetricFamily(name, help_text, labels=labels)
        family.add_metric(values, buckets=[*buckets, ("+Inf", count)], sum_value=sum_s)
        yield family


def _slices(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    help_text: str,
    labels: Sequence[str],
    rows: Iterable[Labelled | None],
    limit: int | None,
) -> Iterator[Metric]:
    taken = iter(rows)
    found = 0
    while piece := list(islice(taken, SLICE_SAMPLES)):
        family = kind(name, help_text, labels=labels)
        for row in piece:
            if row is not None:
                found += 1
                if limit is None or found <= limit:
                    family.add_metric(*row)
        yield family
    if limit is not None:
        yield LeftOut(name, max(found - limit, 0))
