"""What requests cost, by the names of Kafka's RequestMetrics; and by stage in native histograms, which add up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import trio
from prometheus_client.core import Metric

from strandline.broker.metrics.families import (
    BUCKET_LIMITS_S,
    Labelled,
    counter,
    counters,
    gauge,
    histograms,
    quantiles,
)
from strandline.broker.network.request_channel import RequestChannel
from strandline.broker.network.request_counts import STAGES, Buckets, RequestCounts, histogram_of, name_of_code
from strandline.runtime.histogram import Histogram
from strandline.runtime.recent_times import WINDOW_S

PREFIX = "kafka_network_requestmetrics"
KAFKAS_NAMES = {
    "queue": ("requestqueuetimems", "Milliseconds in the queue of a handler"),
    "local": ("localtimems", "Milliseconds until the handler was done"),
    "remote": ("remotetimems", "Milliseconds of waiting for followers, for data or for a worker"),
    "throttle": ("throttletimems", "Milliseconds for which a quota held it in line, or its connection after it"),
    "response_queue": ("responsequeuetimems", "Milliseconds behind the answers to earlier requests"),
    "send": ("responsesendtimems", "Milliseconds until the kernel had the answer"),
    "total": ("totaltimems", "Milliseconds in all"),
}


PARTS = tuple(stage for stage in STAGES if stage != "throttle")
"""Of the total, and the total itself. For how long quotas hold is noted before the answer, so that the number of
answered requests has not caught up with it."""


class OfRequests:
    """A source. What is counted only grows; what is told as recent is what came since one to two minutes ago. unsent:
    how many connections have answers to send."""

    def __init__(self, channel: RequestChannel, unsent: Callable[[], int]) -> None:
        self._channel = channel
        self._unsent = unsent
        self._since_s = 0.0
        self._before: dict[tuple[str, str], list[int]] = {}
        """(request, stage) → the buckets of one window ago, and how many were answered by then."""
        self._before_that: dict[tuple[str, str], list[int]] = {}
        self._without_error: dict[str, int] = {}
        """As it was told last: a counter must not fall."""

    def __call__(self) -> Iterator[Metric]:
        came, text = f"{PREFIX}_requests", "Requests that came"
        for _ in self._channel.counts.settle():
            yield Metric(came, text, "counter")  # without a sample: for the loop to turn
        rows = [(name, counts) for name, counts in self._channel.counts.named() if counts.requests]
        self._turn(rows)
        yield from counters(came, text, ("request",), (((name,), row.requests) for name, row in rows))
        yield from counters(
            f"{PREFIX}_errors",
            "How often an error code stood in answers, each place counts; NONE: how many answers have none",
            ("request", "error"),
            self._errors(rows),
        )
        for stage, (kafkas_name, help_text) in KAFKAS_NAMES.items():
            yield from quantiles(
                f"{PREFIX}_{kafkas_name}",
                help_text,
                ("request",),
                [((name,), self._recent(name, stage, row), row.answered) for name, row in rows],
            )
        yield from quantiles(
            f"{PREFIX}_requestbytes",
            "Bytes of a request",
            ("request",),
            [((name,), self._recent(name, "sizes", row), sum(row.sizes.counts)) for name, row in rows],
            unit=1,
        )
        yield from histograms(
            "strandline_request_stage_seconds",
            "Time of a request, by stage",
            ("request", "stage"),
            (_all_the_time(name, row, stage) for name, row in rows for stage in PARTS),
        )
        counts = self._channel.counts
        for name, text, value in (
            ("incoming", "Bytes received on all listeners", counts.received_bytes),
            ("outgoing", "Bytes sent on all listeners", counts.sent_bytes),
        ):
            yield counter(f"kafka_server_socket_server_metrics_{name}_byte", text, value)
        queued = sum(len(queue.items) for queue in self._channel.queues())
        yield gauge("kafka_network_requestchannel_requestqueuesize", "Requests that wait for a handler", queued)
        text = "Connections with answers that their peers did not take at once"
        yield gauge("kafka_network_requestchannel_responsequeuesize", text, self._unsent())

    def _errors(self, rows: list[tuple[str, RequestCounts]]) -> Iterator[Labelled]:
        for name, row in rows:
            told = self._without_error[name] = max(self._without_error.get(name, 0), row.without_error)
            yield (name, name_of_code(0)), told
            for code, count in sorted(row.errors.items()):
                yield (name, name_of_code(code)), count

    def _turn(self, rows: list[tuple[str, RequestCounts]]) -> None:
        """Move the window on, once a minute."""
        now = trio.current_time()
        if now - self._since_s < WINDOW_S:
            return
        self._since_s = now
        self._before_that = self._before
        self._before = {
            (name, stage): [*_buckets(row, stage).counts, row.answered] for name, row in rows for stage in _ALL
        }

    def _recent(self, name: str, stage: str, row: RequestCounts) -> Histogram:
        found = _buckets(row, stage)
        counts = [*found.counts, row.answered]
        before = self._before_that.get((name, stage))
        if before is not None:
            counts = [now - then for now, then in zip(counts, before, strict=True)]
        *buckets, answered = counts
        if stage == "sizes":
            return histogram_of(buckets, found.limits, unit=1)
        made = histogram_of(buckets, found.limits, unit=1e6)
        if answered > made.count:  # those that this stage took no time of
            made.record(0, answered - made.count)
        return made


_ALL = (*STAGES, "sizes")


def _all_the_time(name: str, row: RequestCounts, stage: str) -> tuple[tuple[str, str], list[int], int, float]:
    """For `histograms`."""
    buckets, passed_by = _buckets(row, stage), row.passed_by(stage)
    at_most = [passed_by + below for below in buckets.at_most(BUCKET_LIMITS_S)]
    return (name, stage), at_most, passed_by + sum(buckets.counts), buckets.total


def _buckets(row: RequestCounts, stage: str) -> Buckets:
    found: Buckets = getattr(row, stage)
    return found
