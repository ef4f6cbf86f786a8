"""What a benchmark counts: records, bytes, latencies and failures, in all and by interval. Pure.

Whoever drives a benchmark says what happened and what time it is; nothing here looks at a clock. An interval is over
when somebody asks for it after its end, so it may last a little longer than planned: rates are by its true length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from strandline.runtime.histogram import Histogram

MIB = 1024 * 1024
PERCENTILES = (50.0, 95.0, 99.0, 99.9)


@dataclass(slots=True)
class Interval:
    """From `start_s` to `end_s` of the benchmark. The latencies have a value for each record, where they are those of
    records."""

    start_s: float
    end_s: float
    records: int = 0
    size_bytes: int = 0
    latencies: Histogram = field(default_factory=Histogram)

    @property
    def length_s(self) -> float:
        return max(self.end_s - self.start_s, 1e-9)

    @property
    def records_per_second(self) -> float:
        return self.records / self.length_s

    @property
    def mib_per_second(self) -> float:
        return self.size_bytes / MIB / self.length_s

    def note(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.size_bytes += size_bytes


class Failure(NamedTuple):
    """How many records had an error of that kind, and what the first one said."""

    records: int
    first: str


class Result(NamedTuple):
    """A whole benchmark, or the sum of several that ran side by side."""

    total: Interval
    intervals: list[Interval]
    failures: dict[str, Failure]

    @property
    def failed(self) -> int:
        """How many records failed."""
        return sum(each.records for each in self.failures.values())


class Measurement:
    """Filled while a benchmark runs; times are seconds since it began."""

    def __init__(self, interval_s: float) -> None:
        self.total = Interval(0, 0)
        self.intervals: list[Interval] = []
        """Those that are over."""
        self.failures: dict[str, Failure] = {}
        self._interval_s = interval_s
        self._open = Interval(0, 0)

    def note(self, records: int, size_bytes: int) -> None:
        """So many went well."""
        for each in (self.total, self._open):
            each.note(records, size_bytes)

    def latency(self, value_us: int, count: int = 1) -> None:
        for each in (self.total, self._open):
            each.latencies.record(value_us, count)

    def failed(self, error: BaseException, records: int = 1) -> None:
        """Errors are counted by what `kind_of` calls them."""
        kind = kind_of(error)
        before = self.failures.get(kind, Failure(0, str(error)))
        self.failures[kind] = before._replace(records=before.records + records)

    def next_interval(self, now_s: float) -> Interval | None:
        """The interval that is over by now, once."""
        if now_s - self._open.start_s < self._interval_s:
            return None
        return self._cut(now_s)

    def end(self, now_s: float) -> Result:
        """All of it; the last interval is what is left, where anything is."""
        self.total.end_s = now_s
        if self._open.records or self._open.latencies.count or not self.intervals:
            self._cut(now_s)
        return Result(self.total, self.intervals, self.failures)

    def _cut(self, now_s: float) -> Interval:
        over, self._open = self._open, Interval(now_s, now_s)
        over.end_s = now_s
        self.intervals.append(over)
        return over


def kind_of(error: BaseException) -> str:
    """Its type, and of a record that was not delivered the last cause, a broker's code by its name."""
    name, cause = type(error).__name__, getattr(error, "cause", None)
    if cause is None:
        return name
    code = getattr(cause, "code", None)
    return f"{name} ({type(cause).__name__ if code is None else code.name})"


def result_fields(result: Result) -> dict[str, Any]:
    """What `--output json` has of a result, and `result_of_fields` reads."""
    return {
        "records": result.total.records,
        "failed": result.failed,
        "errors": {kind: {"records": each.records, "first": each.first} for kind, each in result.failures.items()},
        **_fields(result.total),
        "intervals": [{"start_s": each.start_s, "records": each.records, **_fields(each)} for each in result.intervals],
    }


def _fields(interval: Interval) -> dict[str, Any]:
    latencies = interval.latencies
    named = {f"p{percent:g}": latencies.percentile_us(percent) / 1000 for percent in PERCENTILES}
    return {
        "bytes": interval.size_bytes,
        "seconds": interval.length_s,
        "records_per_second": interval.records_per_second,
        "mib_per_second": interval.mib_per_second,
        "latency_ms": {"avg": latencies.mean_us / 1000, **named, "max": latencies.max_us / 1000},
        "histogram": latencies.fields(),
    }


def result_of_fields(fields: Mapping[str, Any]) -> Result:
    """What `result_fields` made."""
    return Result(
        _of_fields(fields),
        [_of_fields(each) for each in fields["intervals"]],
        {kind: Failure(each["records"], each["first"]) for kind, each in fields["errors"].items()},
    )


def _of_fields(fields: Mapping[str, Any]) -> Interval:
    start_s = fields.get("start_s", 0.0)
    latencies = Histogram.of_fields(fields["histogram"])
    return Interval(start_s, start_s + fields["seconds"], fields["records"], fields["bytes"], latencies)


def side_by_side(results: Iterable[Result]) -> Result:
    """The sum of what ran at the same time: records add up, the longest tells how long it took."""
    listed = list(results)
    longest = max((each.intervals for each in listed), key=len, default=[])
    intervals = [
        _summed([each.intervals[place] for each in listed if place < len(each.intervals)])
        for place in range(len(longest))
    ]
    failures: dict[str, Failure] = {}
    for result in listed:
        for kind, failure in result.failures.items():
            before = failures.get(kind, Failure(0, failure.first))
            failures[kind] = before._replace(records=before.records + failure.records)
    return Result(_summed([each.total for each in listed]), intervals, failures)


def _summed(intervals: list[Interval]) -> Interval:
    return Interval(
        min(each.start_s for each in intervals),
        max(each.end_s for each in intervals),
        sum(each.records for each in intervals),
        sum(each.size_bytes for each in intervals),
        Histogram.sum(each.latencies for each in intervals),
    )
