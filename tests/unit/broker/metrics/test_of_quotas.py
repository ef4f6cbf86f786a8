"""Quotas as Prometheus reads them."""

from __future__ import annotations

from strandline.broker.metrics.of_quotas import of_quotas
from strandline.broker.quotas.sensors import SensorRow


def test_each_sensor_has_a_rate_and_a_throttle_time_under_its_own_name() -> None:
    rows = [SensorRow("Produce", "CN%3Da%20b", "", 1000.0, 2.5), SensorRow("Fetch", "", "app", 0.0, 0.0)]
    [rate, throttle] = of_quotas(lambda: rows)
    assert (rate.name, throttle.name) == ("kafka_server_quota_byte_rate", "kafka_server_quota_throttle_time")
    assert [(sample.labels, sample.value) for sample in rate.samples] == [
        ({"resource": "Produce", "user": "CN=a b", "clientId": ""}, 1000.0),
        ({"resource": "Fetch", "user": "", "clientId": "app"}, 0.0),
    ]
    assert [sample.value for sample in throttle.samples] == [2500.0, 0.0]
