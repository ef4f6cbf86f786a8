"""`metrics()` of clients for Prometheus, under the names that jmx_exporter gives to those of Kafka's clients.

jmx_exporter makes `kafka_producer_producer_metrics_record_send_total{client_id="…"}` of the attribute
`record-send-total` of `kafka.producer:type=producer-metrics,client-id=…`, so a dashboard of Kafka's clients finds ours.
Figures that Kafka keeps for each broker (request latency of consumers) or topic (`byte-total`) are those of the whole
client here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from strandline.client.errors import ClientError

Family = CounterMetricFamily | GaugeMetricFamily


class Measured(Protocol):
    """Any producer, consumer or admin client: for threads, for trio or for asyncio."""

    def metrics(self) -> dict[str, float]:
        """Numbers under Kafka's names."""


class ClientCollector:
    """What a `CollectorRegistry` asks at each scrape: `registry.register(ClientCollector(producer, consumer))`.

    The label `client_id` is the setting of that name; who has none is `producer-1`, `consumer-1` and so on, and a
    second client with the same one gets a number behind it, since two series must not have the same labels. A client
    that was ended by a failure has no series any more; one that was closed keeps its series until `discard`.
    """

    def __init__(self, *clients: Measured) -> None:
        self._named: dict[Measured, tuple[str, str]] = {}
        for client in clients:
            self.add(client)

    def add(self, client: Measured) -> None:
        """From the next scrape on. Once is enough."""
        if client not in self._named:
            kind = _kind_of(client)
            self._named[client] = (kind, self._free_name(kind, _client_id_of(client)))

    def discard(self, client: Measured) -> None:
        """No longer; one that is not there does no harm."""
        self._named.pop(client, None)

    def describe(self) -> list[Metric]:
        """Nothing: a registry need not ask clients for their names, which may be added later."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One family for each figure, with a series for each client that has it."""
        families: dict[str, Family] = {}
        for client, (kind, name) in list(self._named.items()):  # a copy: other threads may add some
            try:
                told = client.metrics()
            except ClientError:  # ended by a failure, which its own calls tell
                continue
            for metric, value in told.items():
                _add(families, kind, name, metric, value)
        yield from families.values()

    def _free_name(self, kind: str, client_id: str) -> str:
        taken = {name for of_kind, name in self._named.values() if of_kind == kind}
        name, number = client_id or f"{kind}-1", 1
        while name in taken:
            number += 1
            name = f"{client_id or kind}-{number}"
        return name


_ROOTS = {
    "producer": "kafka_producer_producer_metrics",
    "consumer": "kafka_consumer_consumer_metrics",
    "admin": "kafka_admin_client_admin_client_metrics",
}
_OF_FETCHES = "kafka_consumer_consumer_fetch_manager_metrics"
_ELSEWHERE = {
    "records-consumed-total": _OF_FETCHES,
    "bytes-consumed-total": _OF_FETCHES,
    "records-lag-max": _OF_FETCHES,
    "records-lag": _OF_FETCHES,
    "fetch-throttle-time-avg": _OF_FETCHES,
    "fetch-throttle-time-max": _OF_FETCHES,
    "assigned-partitions": "kafka_consumer_consumer_coordinator_metrics",
}
"""Kafka's consumer keeps these in other beans than the rest."""

_LAG = "records-lag."
_AGE = "metadata-age"


def _add(families: dict[str, Family], kind: str, client_id: str, metric: str, value: float) -> None:
    labels = {"client_id": client_id}
    if metric.startswith(_LAG):
        topic, _, partition = metric.removeprefix(_LAG).rpartition("-")  # both dots and dashes may be in a topic's name
        labels |= {"topic": topic, "partition": partition}
        metric = "records-lag"
    if metric == _AGE:
        if value < 0:  # never heard, which is no age
            return
        value /= 1000  # Kafka's is in seconds
    name = f"{_ELSEWHERE.get(metric, _ROOTS[kind])}_{metric.replace('-', '_')}"
    family = families.get(name)
    if family is None:
        make: type[Family] = CounterMetricFamily if metric.endswith("-total") else GaugeMetricFamily
        family = families[name] = make(name, f"{metric} of metrics() of the {kind}", labels=list(labels))
    family.add_metric(list(labels.values()), value)


def _kind_of(client: Any) -> str:
    """By what it can do: looking for its class would load all others."""
    if hasattr(client, "send_many"):
        return "producer"
    return "consumer" if hasattr(client, "poll") else "admin"


def _client_id_of(client: Any) -> str:
    """A front has no settings of its own, but a client behind it that has."""
    settings = getattr(client, "settings", None) or client._client.settings
    return str(settings.client_id)
