"""`make bench-scrape`: what it costs a broker of 10,000 partitions to be asked how it is, in all and at a stretch.

    python tests/benchmarks/scrape.py [--partitions 10000] [--topics 10] [--groups 10000] [--runs 5]

The sources are those of a real broker, and so are the partitions but for their logs (`support.wide_broker`). It leads
them all, and each lacks a replica, so that each is a problem, too. Without `--topics` it is measured twice: with ten
topics, and with a topic for each partition. A step is what a task does between two checkpoints, in CPU time of the
thread, so that other processes of the machine are no part of it. Per case: the median and the longest of the runs'
longest steps, how often that is the longest one of an idle broker in the same time, after which family or in which task
it was, and the CPU time of all. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import structlog
import trio
from prometheus_client.core import Metric
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from strandline.broker.admin.pages import json_body
from strandline.broker.metrics.csv_reporter import REPORTER, CsvReporter
from strandline.broker.metrics.exposition import Exposition
from strandline.broker.server import Broker
from strandline.broker.steps import in_turns
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.production import tune_garbage_collection
from strandline.testkit.cluster import MemoryCluster
from support.wide_broker import widen

OPENMETRICS = {"accept": "application/openmetrics-text;version=1.0.0", "accept-encoding": "gzip"}
AT_ONCE = 4


class Steps(trio.abc.Instrument):
    """The longest step of any task but those that only look. now_at: what is being told."""

    def __init__(self) -> None:
        self.now_at = ""
        self.longest_ns = 0
        self.place = ""
        self.cpu_ns = 0
        self._began_ns = time.thread_time_ns()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began_ns = time.thread_time_ns()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took_ns = time.thread_time_ns() - self._began_ns
        self.cpu_ns += took_ns
        if took_ns > self.longest_ns:
            self.longest_ns = took_ns
            self.place = self.now_at or task.name.rpartition(".")[2]

    def told(self, metrics: Generator[Metric, None, None]) -> Generator[Metric, None, None]:
        """The same, and notes how far it has come."""
        self.now_at = "the first family"
        try:
            for metric in metrics:
                yield metric
                self.now_at = metric.name
        finally:
            self.now_at = ""


@dataclass(frozen=True, slots=True)
class Found:
    longest_ms: float
    place: str
    cpu_ms: float


Case = Callable[[Steps], Awaitable[None]]


async def measured(case: Case) -> Found:
    steps = Steps()
    gc.collect()
    await trio.lowlevel.checkpoint()
    trio.lowlevel.add_instrument(steps)
    try:
        await case(steps)
        await trio.lowlevel.checkpoint()  # the step that ends it
    finally:
        trio.lowlevel.remove_instrument(steps)
    return Found(steps.longest_ns / 1e6, steps.place, steps.cpu_ns / 1e6)


class Cases:
    """What a broker is asked for, by name."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def table(self) -> dict[str, Case]:
        return {
            "text": self._text,
            "OpenMetrics, gzip": self._packed,
            f"{AT_ONCE} scrapes at once": self._at_once,
            "CSV": self._csv,
            "/status": self._status,
            "/ready": self._ready,
            "search for problems": self._problems,
        }

    async def _text(self, steps: Steps) -> None:
        await self._scrape(steps, {})

    async def _packed(self, steps: Steps) -> None:
        await self._scrape(steps, OPENMETRICS)

    async def _at_once(self, steps: Steps) -> None:
        exposition = Exposition(lambda: steps.told(self._broker.metrics.collect()))
        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(_drain, exposition, OPENMETRICS)

    async def _scrape(self, steps: Steps, headers: dict[str, str]) -> None:
        await _drain(Exposition(lambda: steps.told(self._broker.metrics.collect())), headers)

    async def _csv(self, steps: Steps) -> None:
        environment = SimpleNamespace(
            wall_clock=self._broker.environment.wall_clock, blocking=_Nowhere(), disk=self._broker.environment.disk
        )
        given = {"broker.id": "1", "zookeeper.connect": "memory:2181", "kafka.metrics.reporters": REPORTER}
        reporter = CsvReporter(
            lambda: steps.told(self._broker.metrics.collect()),
            load_broker_config(given),
            cast(Any, environment),
            structlog.get_logger(),
        )
        await reporter.report()

    async def _status(self, steps: Steps) -> None:
        json_body(await in_turns(self._broker.health.status()))

    async def _ready(self, steps: Steps) -> None:
        await in_turns(self._broker.health.waits())

    async def _problems(self, steps: Steps) -> None:
        await in_turns(self._broker.health.problems.now())


class _Nowhere:
    """A worker thread that writes nothing: it is not the loop's time."""

    async def run_in(self, *arguments: object, **options: object) -> None:
        await trio.lowlevel.checkpoint()


async def _drain(exposition: Exposition, headers: dict[str, str]) -> None:
    body = exposition.answer(headers).body
    assert not isinstance(body, bytes)
    async for _ in body:
        await trio.lowlevel.checkpoint()  # as whoever sends it


async def measure(partitions: int, topics: int, groups: int, runs: int) -> Table:
    cluster = MemoryCluster(brokers=1, network_latency_s=0.0, zookeeper_latency_s=0.0)
    title = f"{partitions} partitions of {topics} topics, {groups} groups"
    table = Table(
        "asked for", "longest step ms", "in the worst run", "times idle", "it was at", "CPU ms in all", title=title
    )
    async with cluster.running():
        broker = cluster.broker(1)
        widen(broker, topics, partitions // topics, groups=groups)
        tune_garbage_collection()
        for name, case in Cases(broker).table().items():
            taken = [await measured(case) for _ in range(runs)]
            idle = await measured(partial(_nothing, max(taken[0].cpu_ms / 1000, 0.05)))
            worst = max(taken, key=lambda each: each.longest_ms)
            longest = statistics.median(each.longest_ms for each in taken)
            table.add_row(
                name,
                f"{longest:.1f}",
                f"{worst.longest_ms:.1f}",
                f"{longest / idle.longest_ms:.0f}",
                worst.place,
                f"{statistics.median(each.cpu_ms for each in taken):.0f}",
            )
    return table


async def _nothing(seconds: float, steps: Steps) -> None:
    end = trio.current_time() + seconds
    while trio.current_time() < end:
        await trio.sleep(0.001)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--topics", type=int, help="only this case")
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5, help="measurements of each case")
    arguments = parser.parse_args()
    for topics in (arguments.topics,) if arguments.topics else (10, arguments.partitions):
        table = trio.run(measure, arguments.partitions, topics, arguments.groups, arguments.runs)
        Console().print(table)


if __name__ == "__main__":
    main()
