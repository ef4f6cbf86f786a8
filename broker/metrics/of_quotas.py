"""Figures of quotas, by the names that jmx_exporter's rule gives Kafka's: who passes how much, and who is throttled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric

from strandline.broker.metrics.families import gauges
from strandline.broker.quotas.entities import decoded
from strandline.broker.quotas.sensors import SensorRow

LABELS = ("resource", "user", "clientId")


def of_quotas(rows: Callable[[], Iterable[SensorRow]]) -> Iterator[Metric]:
    """rows: of every sensor (`Quotas.rows`), of which there are at most some ten thousand of each resource. Whom a
    quota does not tell apart has an empty label."""
    found = list(rows())
    labels = [(row.resource, decoded(row.user), decoded(row.client_id)) for row in found]
    yield from gauges(
        "kafka_server_quota_byte_rate",
        "Passes per second of what a quota limits: bytes, percent of the event loop, or partitions",
        LABELS,
        ((each, row.per_second) for each, row in zip(labels, found, strict=True)),
    )
    yield from gauges(
        "kafka_server_quota_throttle_time",
        "Milliseconds for which whoever exceeds a quota now is held",
        LABELS,
        ((each, row.throttle_s * 1000) for each, row in zip(labels, found, strict=True)),
    )
