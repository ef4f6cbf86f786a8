"""However many partitions, topics and groups a broker has, a scrape does a bounded piece of work between two turns of
the loop. Work is counted in lines of Python that are executed, which no clock and no other process changes; all sources
are those of a real broker.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from prometheus_client.core import Metric
from trio.testing import MockClock

from strandline.broker.server import Broker
from strandline.testkit.cluster import MemoryCluster
from support.wide_broker import widen


class Lines:
    """How many lines were executed while the block ran."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Lines:
        self.count = 0
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._executed

    def _executed(self, frame: FrameType, event: str, argument: object) -> Any:
        self.count += event == "line"
        return self._executed


def longest_steps(metrics: Iterator[Metric]) -> dict[str, int]:
    """In lines, by the family that they led to."""
    lines, longest = Lines(), dict[str, int]()
    while True:
        with lines:
            metric = next(metrics, None)
        name = metric.name if metric is not None else "the end"
        longest[name] = max(longest.get(name, 0), lines.count)
        if metric is None:
            return longest


async def steps_of(topics: int, partitions_each: int, groups: int, *, led: bool) -> dict[str, int]:
    cluster = MemoryCluster(brokers=1)
    async with cluster.running():
        broker: Broker = cluster.broker(1)
        widen(broker, topics, partitions_each, groups=groups, led=led)
        longest = longest_steps(broker.metrics.collect())
        assert not broker.metrics.failing.lately()
        return longest


@pytest.mark.parametrize("led", [True, False])
async def test_no_step_of_a_scrape_grows_with_what_there_is(led: bool, autojump_clock: MockClock) -> None:
    """With ten times as much there are more steps, and none is longer by as much as a line for each partition."""
    some = await steps_of(1000, 1, 1000, led=led)
    many = await steps_of(10_000, 1, 10_000, led=led)
    grown = {name: (some.get(name), lines) for name, lines in many.items() if lines > some.get(name, 0) + 5000}
    assert not grown
