"""Figures of quotas, by the names that jmx_exporter's rule gives Kafka's: who passes how much, and who is throttled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric

from strandline.broker.metrics.bounds import Bounds, may_be_a_label
from strandline.broker.metrics.families import gauges
from strandline.broker.quotas.entities import decoded
from strandline.broker.quotas.sensors import SensorRow

LABELS = ("resource", "user", "clientId")
MAX_SENSORS_TOLD = 1000
"""Of all resources together."""
ROWS_PER_STEP = 250
RATE, THROTTLE_TIME = "kafka_server_quota_byte_rate", "kafka_server_quota_throttle_time"
_RATE_TEXT = "Passes per second of what a quota limits: bytes, percent of the event loop, or partitions"


class OfQuotas:
    """A source. rows: of every sensor (`Quotas.rows`), of which there are at most some ten thousand of each resource:
    they are gone through in steps. Whom a quota does not tell apart has an empty label; who shares a sensor is told
    together with a client that bears its name."""

    def __init__(self, rows: Callable[[], Iterable[SensorRow]], bounds: Bounds) -> None:
        self._rows = rows
        self._bounds = bounds

    def __call__(self) -> Iterator[Metric]:
        told: dict[tuple[str, str, str], tuple[float, float]] = {}
        left_out = 0
        for number, row in enumerate(self._rows(), 1):
            if number % ROWS_PER_STEP == 0:
                yield Metric(RATE, _RATE_TEXT, "gauge")  # without a sample: for the loop to turn
            labels = row.resource, decoded(row.user), decoded(row.client_id)
            per_second, throttle_s = told.get(labels, (0.0, 0.0))
            if labels not in told and (len(told) >= MAX_SENSORS_TOLD or not all(map(may_be_a_label, labels))):
                left_out += 1
                continue
            told[labels] = per_second + row.per_second, max(throttle_s, row.throttle_s)
        for family in (RATE, THROTTLE_TIME):
            self._bounds.note(family, left_out)
        yield from gauges(RATE, _RATE_TEXT, LABELS, ((each, rate) for each, (rate, _) in told.items()))
        yield from gauges(
            THROTTLE_TIME,
            "Milliseconds for which whoever exceeds a quota now is held",
            LABELS,
            ((each, throttle_s * 1000) for each, (_, throttle_s) in told.items()),
        )
