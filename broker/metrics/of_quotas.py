"""Figures of quotas, by the names that jmx_exporter's rule gives Kafka's: who passes how much, and who is throttled.

| of | family |
|---|---|
| bytes produced and fetched | `kafka_server_quota_byte_rate` |
| percent of the event loop | `kafka_server_quota_request_time` |
| partitions created and deleted | `kafka_server_quota_mutation_rate`, `kafka_server_quota_tokens` |
| new connections of an address | `kafka_server_socket_server_metrics_connection_accept_rate` |
| for how long who exceeds one is held | `kafka_server_quota_throttle_time` |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice

from prometheus_client.core import Metric

from strandline.broker.metrics.bounds import may_be_a_label
from strandline.broker.metrics.families import LeftOut, gauges
from strandline.broker.quotas.entities import decoded
from strandline.broker.quotas.sensors import SensorRow

LABELS = ("resource", "user", "clientId")
MAX_SENSORS_TOLD = 1000
"""Of each resource; and of addresses."""
ROWS_PER_STEP = 250
RATE, THROTTLE_TIME = "kafka_server_quota_byte_rate", "kafka_server_quota_throttle_time"
REQUEST_TIME, MUTATION_RATE = "kafka_server_quota_request_time", "kafka_server_quota_mutation_rate"
TOKENS = "kafka_server_quota_tokens"
ACCEPT_RATE = "kafka_server_socket_server_metrics_connection_accept_rate"
_RATES = {
    RATE: "Bytes per second of whom a quota counts for",
    REQUEST_TIME: "Percent of the event loop's time that requests take of whom a quota counts for, writing and sending "
    "at the end of their bursts included",
    MUTATION_RATE: "Partitions per second that are created and deleted by whom a quota counts for",
}
_RATE_OF = {"Produce": RATE, "Fetch": RATE, "Request": REQUEST_TIME, "ControllerMutation": MUTATION_RATE}
_ACCEPT_TEXT = "Connections per second of addresses that have a quota of their own, or the default"


Labels = tuple[str, str, str]


class OfQuotas:
    """A source. rows: of every sensor (`Quotas.rows`), of which there are at most some ten thousand of each resource:
    they are gone through in steps. Where they are too many, those that hold somebody are told before the others. Whom a
    quota does not tell apart has an empty label; who shares a sensor is told together with a client that bears its
    name. connection_rows: see `Quotas`."""

    def __init__(
        self,
        rows: Callable[[], Iterable[SensorRow]],
        connection_rows: Callable[[], Iterable[tuple[str, float]]],
    ) -> None:
        self._rows = rows
        self._connection_rows = connection_rows

    def __call__(self) -> Iterator[Metric]:
        by_resource = {resource: _Told() for resource in _RATE_OF}
        for number, row in enumerate(self._rows(), 1):
            if number % ROWS_PER_STEP == 0:
                yield Metric(RATE, _RATES[RATE], "gauge")  # without a sample: for the loop to turn
            by_resource[row.resource].add(row)
        for family, text in _RATES.items():
            these = [told for resource, told in by_resource.items() if _RATE_OF[resource] == family]
            yield from _family(family, text, these, lambda row: row.per_second)
        text = "Partitions that may be created or deleted at once; negative: so many too many were"
        these = [told for resource, told in by_resource.items() if _RATE_OF[resource] == MUTATION_RATE]
        yield from _family(TOKENS, text, these, lambda row: row.left)
        text = "Milliseconds for which whoever exceeds a quota now is held"
        yield from _family(THROTTLE_TIME, text, by_resource.values(), lambda row: row.throttle_s * 1000)
        yield from self._connections()

    def _connections(self) -> Iterator[Metric]:
        """There may be ten thousand addresses, too."""
        rates = (((ip,), per_second) for ip, per_second in self._connection_rows())
        yield from gauges(ACCEPT_RATE, _ACCEPT_TEXT, ("ip",), rates, MAX_SENSORS_TOLD)


class _Told:
    """Of one resource: which rows are told, by their labels."""

    def __init__(self) -> None:
        self._holding: dict[Labels, SensorRow] = {}
        self._others: dict[Labels, SensorRow] = {}
        self._beyond = 0

    def add(self, row: SensorRow) -> None:
        labels = row.resource, decoded(row.user), decoded(row.client_id)
        before = self._holding.pop(labels, None) or self._others.pop(labels, None)
        if before is not None:
            row = _together(before, row)
        kept = self._holding if row.throttle_s else self._others
        if len(kept) < MAX_SENSORS_TOLD and all(map(may_be_a_label, labels)):
            kept[labels] = row
        else:
            self._beyond += 1

    @property
    def rows(self) -> Iterator[tuple[Labels, SensorRow]]:
        return islice(chain(self._holding.items(), self._others.items()), MAX_SENSORS_TOLD)

    @property
    def left_out(self) -> int:
        return self._beyond + max(len(self._holding) + len(self._others) - MAX_SENSORS_TOLD, 0)


def _family(name: str, text: str, these: Collection[_Told], figure: Callable[[SensorRow], float]) -> Iterator[Metric]:
    yield from gauges(name, text, LABELS, ((labels, figure(row)) for told in these for labels, row in told.rows))
    yield LeftOut(name, sum(told.left_out for told in these))


def _together(one: SensorRow, other: SensorRow) -> SensorRow:
    return one._replace(
        per_second=one.per_second + other.per_second,
        throttle_s=max(one.throttle_s, other.throttle_s),
        left=one.left + other.left,
    )
