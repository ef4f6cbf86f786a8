"""Quotas as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric

from strandline.broker.metrics.bounds import Bounds
from strandline.broker.metrics.of_quotas import RATE, THROTTLE_TIME, OfQuotas
from strandline.broker.quotas.sensors import OVERFLOW, SensorRow


def told(rows: Iterable[SensorRow], bounds: Bounds | None = None) -> list[Metric]:
    return [each for each in OfQuotas(lambda: rows, bounds or Bounds())() if each.samples]


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


def test_the_series_are_bounded_and_what_is_left_out_is_counted() -> None:
    bounds = Bounds()
    rows = [SensorRow("Produce", "", "x" * 250, 1.0, 0.0)]
    rows += [SensorRow("Produce", "", f"{number}", 1.0, 0.0) for number in range(1200)]
    families = told(rows, bounds)
    assert sum(len(each.samples) for each in families if each.name == RATE) == 1000
    [left_out] = bounds.left_out()
    assert {sample.labels["family"]: sample.value for sample in left_out.samples} == {RATE: 201, THROTTLE_TIME: 201}


def test_the_loop_turns_while_sensors_are_gone_through() -> None:
    seen = []

    def rows() -> Iterable[SensorRow]:
        for number in range(1000):
            seen.append(number)
            yield SensorRow("Produce", "", f"{number}", 1.0, 0.0)

    next(iter(OfQuotas(rows, Bounds())()))
    assert len(seen) == 250
