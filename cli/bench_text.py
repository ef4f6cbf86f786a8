"""The lines of Kafka's performance tools, so that figures of both can be compared, and a table for people. Pure.

MB are 1024 × 1024 bytes there, and so they are here. Percentiles are whole milliseconds in the line of a producer, as
there; of round trips, most of which take less than one, they have decimals.
"""

from __future__ import annotations

from datetime import UTC, datetime

from strandline.cli.bench_measure import MIB, PERCENTILES, Interval, Result
from strandline.cli.wording import counted, printable

CONSUMER_COLUMNS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, "
    "fetch.nMsg.sec"
)
CONSUMER_HEADER = f"start.time, end.time, {CONSUMER_COLUMNS}"
CONSUMER_INTERVAL_HEADER = f"time, threadId, {CONSUMER_COLUMNS}"


def producer_interval(interval: Interval) -> str:
    """As kafka-producer-perf-test every five seconds."""
    return (
        f"{interval.records} records sent, {interval.records_per_second:.1f} records/sec "
        f"({interval.mib_per_second:.2f} MB/sec), {interval.latencies.mean_us / 1000:.1f} ms avg latency, "
        f"{interval.latencies.max_us / 1000:.1f} ms max latency."
    )


def producer_total(total: Interval) -> str:
    """As kafka-producer-perf-test at the end."""
    shares = ", ".join(f"{total.latencies.percentile_us(percent) // 1000} ms {percent:g}th" for percent in PERCENTILES)
    return (
        f"{total.records} records sent, {total.records_per_second:f} records/sec ({total.mib_per_second:.2f} MB/sec), "
        f"{total.latencies.mean_us / 1000:.2f} ms avg latency, {total.latencies.max_us / 1000:.2f} ms max latency, "
        f"{shares}."
    )


def consumer_total(total: Interval, began_ms: int, preparing_s: float) -> str:
    """As kafka-consumer-perf-test at the end. preparing_s: before the first fetch, for which its `rebalance.time` has
    its place."""
    whole_s = total.length_s + preparing_s
    end_ms = began_ms + round(whole_s * 1000)
    return f"{_moment(began_ms)}, {_moment(end_ms)}, " + _consumed(total, total, whole_s, preparing_s)


def consumer_interval(interval: Interval, so_far: Interval, began_ms: int, preparing_s: float) -> str:
    """As `--show-detailed-stats` there: sizes so far, rates of the interval."""
    moment = _moment(began_ms + round((interval.end_s + preparing_s) * 1000))
    before_s = preparing_s if interval.start_s == 0 else 0.0
    return f"{moment}, 0, " + _consumed(interval, so_far, interval.length_s + before_s, before_s)


def _consumed(interval: Interval, so_far: Interval, whole_s: float, preparing_s: float) -> str:
    return (
        f"{so_far.size_bytes / MIB:.4f}, {interval.size_bytes / MIB / whole_s:.4f}, {so_far.records}, "
        f"{interval.records / whole_s:.4f}, {preparing_s * 1000:.0f}, {interval.length_s * 1000:.0f}, "
        f"{interval.mib_per_second:.4f}, {interval.records_per_second:.4f}"
    )


def _moment(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}:{time_ms % 1000:03d}"


def round_trips_interval(interval: Interval, so_far: int) -> str:
    """As EndToEndLatency every thousand records: how many there were, and how long one took."""
    return f"{so_far}\t{interval.latencies.mean_us / 1000}"


def round_trips_total(total: Interval) -> str:
    """As EndToEndLatency at the end: its two lines."""
    latencies = total.latencies
    shares = ", ".join(f"{name} = {latencies.percentile_us(percent) / 1000:.3f}" for name, percent in _SHARES)
    return f"Avg latency: {latencies.mean_us / 1000:.4f} ms\nPercentiles: {shares}"


_SHARES = (("50th", 50), ("99th", 99), ("99.9th", 99.9))


def table_rows(result: Result, latency_of: str) -> list[tuple[str, str]]:
    """What and how much, for people. latency_of: what the latencies are those of."""
    total = result.total
    rows = [
        ("records", f"{total.records:,}"),
        ("seconds", f"{total.length_s:.2f}"),
        ("records/s", f"{total.records_per_second:,.0f}"),
        ("MiB/s", f"{total.mib_per_second:,.2f}"),
        (f"{latency_of}: average", milliseconds(total.latencies.mean_us)),
    ]
    rows += [(f"p{percent:g}", milliseconds(total.latencies.percentile_us(percent))) for percent in PERCENTILES]
    rows.append(("max", milliseconds(total.latencies.max_us)))
    if result.failed:
        rows.append(("failed", f"{result.failed:,}"))
    return rows


def milliseconds(value_us: float) -> str:
    """`0.412 ms`, `12.3 ms`, `1,250 ms`: three digits that mean something."""
    value_ms = value_us / 1000
    return f"{value_ms:.3f} ms" if value_ms < 10 else f"{value_ms:.1f} ms" if value_ms < 100 else f"{value_ms:,.0f} ms"


def failure_line(result: Result) -> str:
    """What became of the records that failed: one line."""
    kinds = "; ".join(f"{each.records} x {kind}, first: {each.first}" for kind, each in sorted(result.failures.items()))
    return printable(f"{counted(result.failed, 'record')} failed: {kinds}")
