"""What a broker tells of itself as a whole: where it stands between start and stop, and what it is built of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum

from prometheus_client.core import Metric

from strandline.broker.metrics.families import Source, gauge, gauges


class BrokerState(IntEnum):
    """Kafka's numbers. Its 2, recovering from an unclean shutdown, is a part of 1 here: nobody could read it, since the
    admin port opens after it."""

    NOT_RUNNING = 0
    STARTING = 1
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


def broker_life(state: Callable[[], BrokerState], versions: Mapping[str, str]) -> Source:
    """state: asked at each scrape. versions: with those of `strandline` and `python`."""

    def source() -> Iterator[Metric]:
        yield gauge(
            "kafka_server_kafkaserver_brokerstate",
            "0 not running, 1 starting, 3 running, 6 handing over its leaderships, 7 shutting down",
            state(),
        )
        yield from gauges(
            "strandline_build_info",
            "Always 1; the labels are the versions of what runs",
            ("version", "python"),
            [((versions["strandline"], versions["python"]), 1)],
        )

    return source
