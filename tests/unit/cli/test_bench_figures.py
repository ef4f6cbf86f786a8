"""What benchmarks count and when they send, without a cluster."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.bench_load import DIFFERENT_VALUES, Schedule, load
from strandline.cli.bench_measure import Measurement, kind_of, result_fields, result_of_fields, side_by_side
from strandline.cli.bench_page import bench_page, thinned
from strandline.cli.bench_text import (
    consumer_interval,
    consumer_total,
    failure_line,
    milliseconds,
    producer_interval,
    producer_total,
    round_trips_total,
)
from strandline.client.errors import AnsweredError, DeliveryFailed, DeliveryTimeout
from strandline.protocol.errors import ErrorCode
from strandline.runtime.histogram import Histogram

values = st.lists(st.integers(0, 2**40), min_size=1, max_size=200)


def histogram_of(numbers: list[int]) -> Histogram:
    found = Histogram()
    for number in numbers:
        found.record(number)
    return found


@given(values, st.floats(0, 100))
def test_a_percentile_is_within_a_hundredth_of_the_true_one(numbers: list[int], percent: float) -> None:
    rank = max(math.ceil(len(numbers) * percent / 100), 1)
    true = sorted(numbers)[rank - 1]
    found = histogram_of(numbers).percentile_us(percent)
    assert true <= found <= true * 1.01


@given(values, values)
def test_added_histograms_are_that_of_all_values(some: list[int], others: list[int]) -> None:
    added = histogram_of(some)
    added.add(histogram_of(others))
    whole = histogram_of(some + others)
    assert added.fields() == whole.fields()
    assert (added.count, added.mean_us) == (whole.count, pytest.approx(sum(some + others) / whole.count))
    assert Histogram.of_fields(json.loads(json.dumps(whole.fields()))).fields() == whole.fields()


def test_small_values_are_exact_and_the_largest_one_always_is() -> None:
    found = histogram_of([*range(256), 1_234_567])
    assert [found.percentile_us(100 * (number + 1) / 257) for number in range(256)] == list(range(256))
    assert found.percentile_us(100) == found.max_us == 1_234_567
    assert Histogram().percentile_us(50) == Histogram().mean_us == 0


def test_a_rate_that_was_not_kept_up_counts_from_when_records_were_due() -> None:
    schedule = Schedule(records=None, seconds=10, rate=100, at_once=50)
    assert schedule.due(0, 0.0) == 1
    assert schedule.due(1, 0.005) == 0, "the next one is due after 10 ms"
    assert schedule.due(1, 0.0101) == 1
    assert schedule.due(10, 1.0) == 50, "behind: no more than a call takes"
    assert schedule.intended_s(10, 1.0) == pytest.approx(0.1), "not when it is sent at last"
    assert schedule.is_over(0, 10.0) and not schedule.is_over(10**9, 9.9)


def test_without_a_rate_as_much_is_sent_as_there_is() -> None:
    schedule = Schedule(records=120, seconds=None, rate=None, at_once=50)
    assert [schedule.due(sent, 7.0) for sent in (0, 50, 100, 120)] == [50, 50, 20, 0]
    assert schedule.intended_s(3, 7.0) == 7.0
    assert schedule.is_over(120, 0.0) and not schedule.is_over(119, 1e9)


def test_values_differ_and_are_the_same_in_each_run_and_keys_are_as_many_as_asked_for() -> None:
    plain, keyed = load(40, 0), load(40, 7)
    assert plain == load(40, 0)
    assert len({value for _, value in plain.pairs}) == DIFFERENT_VALUES
    assert {len(value) for _, value in plain.pairs} == {40} and plain.pairs[0][1].isupper()
    counts = [key for key, _ in keyed.slice(0, 7_000)]
    assert {counts.count(key) for key in set(counts)} == {1_000} and len(set(counts)) == 7
    assert plain.slice(990, 20) == plain.pairs[990:] + plain.pairs[:10]
    assert len({key for key, _ in load(10, 2_500).pairs}) == 2_500


def measured() -> Measurement:
    """Two intervals, and a failure."""
    measurement = Measurement(interval_s=1.0)
    for second in range(2):
        measurement.note(1_000, 1_048_576)
        measurement.latency(2_000 * (second + 1), 1_000)
        assert measurement.next_interval(second + 0.9) is None
        assert measurement.next_interval(second + 1.0) is not None
    measurement.failed(ValueError("full <disk>\n"), 3)
    measurement.failed(ValueError("another"), 2)
    return measurement


def test_the_lines_are_those_of_kafkas_tools() -> None:
    result = measured().end(2.0)
    first, second = result.intervals
    assert producer_interval(second) == (
        "1000 records sent, 1000.0 records/sec (1.00 MB/sec), 4.0 ms avg latency, 4.0 ms max latency."
    )
    assert producer_total(result.total) == (
        "2000 records sent, 1000.000000 records/sec (1.00 MB/sec), 3.00 ms avg latency, 4.00 ms max latency, "
        "2 ms 50th, 4 ms 95th, 4 ms 99th, 4 ms 99.9th."
    )
    assert consumer_total(result.total, 1_700_000_000_250, 0.5) == (
        "2023-11-14 22:13:20:250, 2023-11-14 22:13:22:750, 2.0000, 0.8000, 2000, 800.0000, 500, 2000, 1.0000, 1000.0000"
    )
    assert consumer_interval(first, first, 1_700_000_000_250, 1.0) == (
        "2023-11-14 22:13:22:250, 0, 1.0000, 0.5000, 1000, 500.0000, 1000, 1000, 1.0000, 1000.0000"
    )
    assert round_trips_total(result.total) == (
        "Avg latency: 3.0000 ms\nPercentiles: 50th = 2.007, 99th = 4.000, 99.9th = 4.000"
    )
    assert failure_line(result) == "5 records failed: 5 x ValueError, first: full <disk>"
    assert [milliseconds(each) for each in (412, 12_345, 1_250_000)] == ["0.412 ms", "12.3 ms", "1,250 ms"]


def test_what_programs_read_is_the_whole_result_and_adds_up() -> None:
    result = measured().end(2.0)
    fields = json.loads(json.dumps(result_fields(result)))
    assert (fields["records"], fields["failed"], fields["errors"]["ValueError"]["records"]) == (2_000, 5, 5)
    assert fields["latency_ms"] == {"avg": 3.0, "p50": 2.007, "p95": 4.0, "p99": 4.0, "p99.9": 4.0, "max": 4.0}
    again = result_of_fields(fields)
    assert result_fields(again) == result_fields(result)
    both = side_by_side([result, again])
    assert (both.total.records, both.total.records_per_second, both.failed) == (4_000, 2_000, 10)
    assert [each.records for each in both.intervals] == [2_000, 2_000]
    assert both.total.latencies.count == 4_000


def test_what_was_settled_late_makes_a_last_interval() -> None:
    measurement = measured()
    measurement.note(1, 10)
    assert [each.records for each in measurement.end(2.5).intervals] == [1_000, 1_000, 1]
    assert len(Measurement(1.0).end(0.5).intervals) == 1, "also where nothing happened"


def test_the_page_tells_all_of_it_and_escapes_what_brokers_said() -> None:
    result = measured().end(2.0)
    told = bench_page("strandline bench produce", result, {"topic": "<b>"}, "acknowledgements")
    assert "full &lt;disk&gt;" in told and "&lt;b&gt;" in told and "<b>&" not in told
    assert told.count("<polyline") == 4, "median, 99th, maximum; by share"
    assert "records per second: 1,000" in told
    nothing = bench_page("strandline bench e2e", Measurement(1.0).end(0.0), {}, "round trips")
    assert "nothing to show" in nothing


def test_long_benchmarks_are_drawn_with_fewer_bars() -> None:
    measurement = Measurement(1.0)
    for second in range(301):
        measurement.note(1, 1)
        measurement.next_interval(second + 1.0)
    drawn = thinned(measurement.end(301.0).intervals, 120)
    assert len(drawn) == 101 and sum(each.records for each in drawn) == 301
    assert (drawn[0].start_s, drawn[0].end_s, drawn[-1].end_s) == (0, 3, 301)


def test_what_was_not_delivered_is_counted_by_its_cause() -> None:
    refused = AnsweredError(ErrorCode.NOT_ENOUGH_REPLICAS, "refused")
    assert kind_of(DeliveryFailed("lost", outcome_unknown=True, cause=ValueError())) == "DeliveryFailed (ValueError)"
    assert (
        kind_of(DeliveryTimeout("late", outcome_unknown=False, cause=refused))
        == "DeliveryTimeout (NOT_ENOUGH_REPLICAS)"
    )
    assert kind_of(ValueError()) == "ValueError"
