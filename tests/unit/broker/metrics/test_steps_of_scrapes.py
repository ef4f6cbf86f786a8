"""However many partitions, topics and groups a broker has, a scrape, `/status`, `/ready` and the watch for problems do
a bounded piece of work between two turns of the loop. Work is counted in lines of Python that are executed, which no
clock and no other process changes; all sources are those of a real broker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from prometheus_client.core import Metric
from trio.testing import MockClock

from strandline.broker.server import Broker
from strandline.testkit.cluster import MemoryCluster
from support.wide_broker import widen

END = Metric("the_end", "Of all work", "unknown")


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


def longest_steps(work: Iterator[Metric | None]) -> dict[str, int]:
    """In lines, by the family that they led to, where they did."""
    lines, longest = Lines(), dict[str, int]()
    while True:
        with lines:
            step = next(work, END)
        name = step.name if step is not None else "a step"
        longest[name] = max(longest.get(name, 0), lines.count)
        if step is END:
            return longest


ASKED: dict[str, Callable[[Broker], Iterator[Metric | None]]] = {
    "/metrics": lambda broker: broker.metrics.collect(),
    "/status": lambda broker: broker.health.status(),
    "/ready": lambda broker: broker.health.waits(),
    "problems": lambda broker: broker.health.problems.now(),
}


async def steps_of(asked: str, topics: int, partitions_each: int, groups: int, *, led: bool) -> dict[str, int]:
    cluster = MemoryCluster(brokers=1)
    async with cluster.running():
        broker: Broker = cluster.broker(1)
        widen(broker, topics, partitions_each, groups=groups, led=led)
        longest = longest_steps(ASKED[asked](broker))
        assert not broker.metrics.failing.lately()
        return longest


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("led", [True, False])
async def test_no_step_grows_with_what_there_is(led: bool, asked: str, autojump_clock: MockClock) -> None:
    """With ten times as much there are more steps, and none is longer by as much as a line for each partition."""
    some = await steps_of(asked, 1000, 1, 1000, led=led)
    many = await steps_of(asked, 10_000, 1, 10_000, led=led)
    grown = {name: (some.get(name), lines) for name, lines in many.items() if lines > some.get(name, 0) + 5000}
    assert not grown
