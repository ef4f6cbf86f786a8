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

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric

from strandline.broker.metrics.bounds import may_be_a_label
from strandline.broker.metrics.families import LeftOut, gauges
from strandline.broker.quotas.entities import decoded
from strandline.broker.quotas.sensors import SensorRow

LABELS = ("resource", "user", "clientId")
MAX_SENSORS_TOLD = 1000
"""Of all resources together; and of addresses."""
ROWS_PER_STEP = 250
RATE, THROTTLE_TIME = "kafka_server_quota_byte_rate", "kafka_server_quota_throttle_time"
REQUEST_TIME, MUTATION_RATE = "kafka_server_quota_request_time", "kafka_server_quota_mutation_rate"
TOKENS = "kafka_server_quota_tokens"
ACCEPT_RATE = "kafka_server_socket_server_metrics_connection_accept_rate"
_RATES = {
    RATE: "Bytes per second of whom a quota counts for",
    REQUEST_TIME: "Percent of the event loop's time that requests take of whom a quota counts for",
    MUTATION_RATE: "Partitions per second that are created and deleted by whom a quota counts for",
}
_RATE_OF = {"Produce": RATE, "Fetch": RATE, "Request": REQUEST_TIME, "ControllerMutation": MUTATION_RATE}
_ACCEPT_TEXT = "Connections per second of addresses that have a quota of their own, or the default"


class OfQuotas:
    """A source. rows: of every sensor (`Quotas.rows`), of which there are at most some ten thousand of each resource:
    they are gone through in steps. Whom a quota does not tell apart has an empty label; who shares a sensor is told
    together with a client that bears its name. connection_rows: see `Quotas`."""

    def __init__(
        self,
        rows: Callable[[], Iterable[SensorRow]],
        connection_rows: Callable[[], Iterable[tuple[str, float]]],
    ) -> None:
        self._rows = rows
        self._connection_rows = connection_rows

    def __call__(self) -> Iterator[Metric]:
        told: dict[tuple[str, str, str], SensorRow] = {}
        left_out = 0
        for number, row in enumerate(self._rows(), 1):
            if number % ROWS_PER_STEP == 0:
                yield Metric(RATE, _RATES[RATE], "gauge")  # without a sample: for the loop to turn
            labels = row.resource, decoded(row.user), decoded(row.client_id)
            before = told.get(labels)
            if before is None and (len(told) >= MAX_SENSORS_TOLD or not all(map(may_be_a_label, labels))):
                left_out += 1
            else:
                told[labels] = row if before is None else _together(before, row)
        for family in (*_RATES, TOKENS, THROTTLE_TIME):
            yield LeftOut(family, left_out)
        for family, text in _RATES.items():
            rates = [(each, row.per_second) for each, row in told.items() if _RATE_OF[row.resource] == family]
            yield from gauges(family, text, LABELS, rates)
        text = "Partitions that may be created or deleted at once; negative: so many too many were"
        tokens = ((each, row.left) for each, row in told.items() if _RATE_OF[row.resource] == MUTATION_RATE)
        yield from gauges(TOKENS, text, LABELS, tokens)
        text = "Milliseconds for which whoever exceeds a quota now is held"
        yield from gauges(THROTTLE_TIME, text, LABELS, ((each, row.throttle_s * 1000) for each, row in told.items()))
        yield from self._connections()

    def _connections(self) -> Iterator[Metric]:
        """There may be ten thousand addresses, too."""
        rates = (((ip,), per_second) for ip, per_second in self._connection_rows())
        yield from gauges(ACCEPT_RATE, _ACCEPT_TEXT, ("ip",), rates, MAX_SENSORS_TOLD)


def _together(one: SensorRow, other: SensorRow) -> SensorRow:
    return one._replace(
        per_second=one.per_second + other.per_second,
        throttle_s=max(one.throttle_s, other.throttle_s),
        left=one.left + other.left,
    )
