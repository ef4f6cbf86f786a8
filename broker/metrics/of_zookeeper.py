"""The session with ZooKeeper, by the names of Kafka's SessionExpireListener and ZooKeeperClientMetrics."""

from __future__ import annotations

from collections.abc import Iterator

import trio
from prometheus_client.core import Metric

from strandline.broker.metrics.families import counter, gauges, quantiles
from strandline.runtime.coordination import Coordination, SessionState

_LISTENER = "kafka_server_sessionexpirelistener"


class OfZooKeeper:
    """A source. It listens from when it is made, which is when a session has begun."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._times = dict.fromkeys(SessionState, 0)
        self._times[SessionState.CONNECTED] = 1
        coordination.add_session_listener(self._on_session)

    def _on_session(self, state: SessionState) -> None:
        self._times[state] += 1

    def __call__(self) -> Iterator[Metric]:
        coordination, now_s = self._coordination, trio.current_time()
        yield from gauges(
            f"{_LISTENER}_sessionstate",
            "1 for the state that the session is in, else 0",
            ("state",),
            [((state.name,), float(coordination.state is state)) for state in SessionState],
        )
        for name, text, state in (
            ("zookeepersyncconnects", "Times that a server of ZooKeeper was connected to", SessionState.CONNECTED),
            ("zookeeperdisconnects", "Times that ZooKeeper did not answer any more", SessionState.SUSPENDED),
            ("zookeeperexpires", "Sessions that ended for silence", SessionState.EXPIRED),
        ):
            yield counter(f"{_LISTENER}_{name}", text, self._times[state])
        times = coordination.request_times
        text = "Milliseconds from a request to ZooKeeper to its answer"
        rows = [((), times.recent(now_s), times.lifetime().count)]
        yield from quantiles("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", text, (), rows)
