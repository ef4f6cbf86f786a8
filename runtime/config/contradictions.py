"""Values of a broker that are allowed each by itself and not together (Kafka's KafkaConfig.validateValues)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from strandline.runtime.config.broker import BROKER_KEYS
from strandline.runtime.config.values import InvalidConfig, Value

_LEAST_DEDUPE_BYTES = 2**20
_ORDERED = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("inter.broker.connections.reserved", "max.connections"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)
"""The first must not be above the second."""


class Contradiction(NamedTuple):
    error: InvalidConfig
    keys: tuple[str, str]
    """The two that contradict each other."""


def contradictions(values: Mapping[str, Value]) -> Iterator[Contradiction]:
    """values: attribute of BrokerConfig → value."""
    for smaller, larger in _ORDERED:
        low, high = values[BROKER_KEYS[smaller].attribute], values[BROKER_KEYS[larger].attribute]
        if low > high:
            yield Contradiction(InvalidConfig(smaller, low, f"must not be above {larger}={high}"), (smaller, larger))
    threads, buffer_bytes = values["log_cleaner_threads"], values["log_cleaner_dedupe_buffer_size"]
    if values["log_cleaner_enable"] and buffer_bytes < threads * _LEAST_DEDUPE_BYTES:
        buffer, count = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
        error = InvalidConfig(buffer, buffer_bytes, f"must be 1 MiB for each of {count}={threads}")
        yield Contradiction(error, (buffer, count))
    if values["kafka_csv_metrics_reporter_enabled"] and not values["kafka_metrics_reporters"]:
        enabled, reporters = "kafka.csv.metrics.reporter.enabled", "kafka.metrics.reporters"
        error = InvalidConfig(enabled, True, f"has no effect unless {reporters} names the reporter")
        yield Contradiction(error, (enabled, reporters))
