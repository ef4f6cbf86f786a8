"""How busy the event loop is, and who is connected.

A Kafka tells how idle its threads are. Here one loop does their work, so both figures are the share of time that it did
not compute. Whether one step keeps all others waiting is seen by a task that wants to wake at each beat, and is late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

import trio
from prometheus_client.core import Metric

from strandline.broker.metrics.families import gauge, gauges
from strandline.runtime.beats import BEAT_S, next_beat
from strandline.runtime.clock import thread_cpu_s
from strandline.runtime.recent_times import RecentTimes

BEATS_PER_SAMPLE = 50
SAMPLES = 12
"""So the share is that of the last minute."""


class LoopWatch:
    """`run` in the loop that is watched. cpu_s: processor time of its thread."""

    def __init__(self, cpu_s: Callable[[], float] = thread_cpu_s) -> None:
        self._cpu_s = cpu_s
        self._lateness = RecentTimes()
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES + 1)
        """(the loop's time, processor time)"""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._samples.append((trio.current_time(), self._cpu_s()))
            for _ in range(BEATS_PER_SAMPLE):
                beat_s = await next_beat(BEAT_S)
                self._lateness.record_s(max(trio.current_time() - beat_s, 0.0))

    def longest_step_s(self) -> float:
        """The longest that a beat was late in the last one or two minutes."""
        return self._lateness.recent(trio.current_time()).max_us / 1e6

    def idle_share(self) -> float:
        """Of the last minute, 0 to 1."""
        now_s, cpu_s = trio.current_time(), self._cpu_s()
        since_s, before_s = self._samples[0] if self._samples else (now_s, cpu_s)
        elapsed_s = now_s - since_s
        return min(max(1 - (cpu_s - before_s) / elapsed_s, 0.0), 1.0) if elapsed_s > 0 else 1.0


class OfLoop:
    """A source. connections: (listener, number of a processor) → how many."""

    def __init__(self, watch: LoopWatch, connections: Callable[[], Mapping[tuple[str, int], int]]) -> None:
        self._watch = watch
        self._connections = connections

    def __call__(self) -> Iterator[Metric]:
        idle = self._watch.idle_share()
        text = "The share of time, 0 to 1, in which the event loop had nothing to compute"
        yield gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", text, idle)
        yield gauge("kafka_network_socketserver_networkprocessoravgidle_percent", text, idle)
        text = "How late the event loop came to something that was due, at most, in the last one or two minutes"
        yield gauge("strandline_event_loop_longest_step_seconds", text, self._watch.longest_step_s())
        yield from gauges(
            "kafka_server_socket_server_metrics_connection_count",
            "Connections that are open",
            ("listener", "networkProcessor"),
            [((name, str(number)), float(count)) for (name, number), count in self._connections().items()],
        )
