"""Quotas as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import Metric

from strandline.broker.metrics.families import LeftOut
from strandline.broker.metrics.of_quotas import (
    ACCEPT_RATE,
    MUTATION_RATE,
    RATE,
    REQUEST_TIME,
    THROTTLE_TIME,
    TOKENS,
    OfQuotas,
)
from strandline.broker.quotas.sensors import OVERFLOW, SensorRow


def told(rows: Iterable[SensorRow]) -> list[Metric]:
    return [each for each in OfQuotas(lambda: rows, tuple)() if each.samples]


def left_out(families: Iterable[Metric]) -> dict[str, int]:
    return {family.name: family.rows for family in families if isinstance(family, LeftOut)}


def test_each_sensor_has_a_rate_and_a_throttle_time_under_its_own_name() -> None:
    [rate, throttle] = told(
        [SensorRow("Produce", "CN%3Da%20b", "", 1000.0, 2.5), SensorRow("Fetch", "", "app", 0.0, 0.0)]
    )
    assert (rate.name, throttle.name) == (RATE, THROTTLE_TIME)
    assert [(sample.labels, sample.value) for sample in rate.samples] == [
        ({"resource": "Produce", "user": "CN=a b", "clientId": ""}, 1000.0),
        ({"resource": "Fetch", "user": "", "clientId": "app"}, 0.0),
    ]
    assert [sample.value for sample in throttle.samples] == [2500.0, 0.0]


def test_no_series_stands_twice_whatever_clients_are_called() -> None:
    """A scrape with one is refused as a whole."""
    rows = [SensorRow("Produce", "", OVERFLOW, 1.0, 3.0), SensorRow("Produce", "", OVERFLOW, 2.0, 1.0)]
    [rate, throttle] = told(rows)
    assert [sample.value for sample in rate.samples] == [3.0]
    assert [sample.value for sample in throttle.samples] == [3000.0]


def test_the_series_of_a_resource_are_bounded_and_what_is_left_out_is_counted_where_it_lacks() -> None:
    rows = [SensorRow("Produce", "", "x" * 250, 1.0, 0.0)]
    rows += [SensorRow("Produce", "", f"{number}", 1.0, 0.0) for number in range(1200)]
    rows += [SensorRow("Fetch", "", "app", 1.0, 0.0), SensorRow("ControllerMutation", "", "app", 1.0, 0.0)]
    families = list(OfQuotas(lambda: rows, tuple)())
    told_of = Counter(sample.labels["resource"] for each in families if each.name == RATE for sample in each.samples)
    assert told_of == {"Produce": 1000, "Fetch": 1}, "many of one leave the places of another alone"
    assert left_out(families) == {
        RATE: 201,
        THROTTLE_TIME: 201,
        REQUEST_TIME: 0,
        MUTATION_RATE: 0,
        TOKENS: 0,
        ACCEPT_RATE: 0,
    }


def test_of_too_many_those_that_hold_somebody_are_told() -> None:
    rows = [SensorRow("Produce", "", f"{number}", 1.0, 3.0 * (number >= 1190)) for number in range(1200)]
    rows.append(SensorRow("Produce", "", "0", 1.0, 4.0))
    families = list(OfQuotas(lambda: rows, tuple)())
    samples = [sample for each in families if each.name == THROTTLE_TIME for sample in each.samples]
    assert len(samples) == 1000 and left_out(families)[THROTTLE_TIME] == 200
    held = {sample.labels["clientId"]: sample.value for sample in samples if sample.value}
    assert held == {"0": 4000.0, **{f"{number}": 3000.0 for number in range(1190, 1200)}}


def test_percent_and_partitions_are_no_bytes() -> None:
    """Each has the family that Kafka's attribute has, so that a sum over one makes sense."""
    families = told(
        [
            SensorRow("Fetch", "", "a", 1000.0, 0.0),
            SensorRow("Request", "", "a", 12.5, 0.0),
            SensorRow("ControllerMutation", "", "a", 2.0, 0.5, -1.0),
        ]
    )
    figures = {(each.name, sample.labels["resource"]): sample.value for each in families for sample in each.samples}
    assert figures == {
        (RATE, "Fetch"): 1000.0,
        (REQUEST_TIME, "Request"): 12.5,
        (MUTATION_RATE, "ControllerMutation"): 2.0,
        (TOKENS, "ControllerMutation"): -1.0,
        (THROTTLE_TIME, "Fetch"): 0.0,
        (THROTTLE_TIME, "Request"): 0.0,
        (THROTTLE_TIME, "ControllerMutation"): 500.0,
    }


def test_addresses_that_have_a_quota_are_told_with_their_connections() -> None:
    rows = [(f"10.0.{number // 250}.{number % 250}", 1.5) for number in range(1003)]
    families = list(OfQuotas(tuple, lambda: rows)())
    samples = [sample for each in families for sample in each.samples]
    assert {each.name for each in families if each.samples} == {ACCEPT_RATE} and len(samples) == 1000
    assert (samples[0].labels, samples[0].value) == ({"ip": "10.0.0.0"}, 1.5)
    assert left_out(families)[ACCEPT_RATE] == 3


def test_the_loop_turns_while_sensors_are_gone_through() -> None:
    seen = []

    def rows() -> Iterable[SensorRow]:
        for number in range(1000):
            seen.append(number)
            yield SensorRow("Produce", "", f"{number}", 1.0, 0.0)

    next(iter(OfQuotas(rows, tuple)()))
    assert len(seen) == 250
