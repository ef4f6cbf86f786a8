"""`make bench-failover BENCH="--table"`: the longest time without an ack, by fault and role, ours beside Kafka's.

    python tests/benchmarks/failure_table.py [--system strandline] [--runs 3] [--output json]

Three brokers each (`systems`), one after the other: Kafka 3.9 in ZooKeeper mode and ours, both asked by the same client
(aiokafka: acks=all, no linger, requests and records given up after 3 s), which sends a record to each of 12 partitions
every 20 ms. A run has a fault
happen to a broker that is not the controller, then to the controller, each time with a new topic; the gap is that of
the worst partition that the victim led (leader), or only followed (follower), and of the worst of all where it was the
controller. What is held (stopped, cut off, ZooKeeper) is held for 15 s, longer than a session (6 s), and then let go.

| fault | what happens |
|---|---|
| kill -9 | SIGKILL, and a start 15 s later |
| SIGTERM | an orderly stop, and a start |
| SIGSTOP | the process stands still, its machine answers |
| cut off | nothing that is sent to the broker arrives (by way of proxies that go silent), and it reaches no ZooKeeper |
| ZooKeeper away | its process is killed and started again; nobody's role matters |

Figures are medians of the runs. Needs Kafka's jars, which Maven fetches (`scripts/maven`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).parents[1]))

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from rich.console import Console
from rich.table import Table

from benchmarks.systems import CLUSTERS, System
from support.pauses import Pauses
from support.proxies import BrokerProxies

PARTITIONS = 12
INTERVAL_S = 0.02
HELD_S = 15.0
WARM_S = 5.0
PATIENCE_S = 120.0
REQUEST_TIMEOUT_MS = 3_000
FAULTS = ("kill -9", "SIGTERM", "SIGSTOP", "cut off", "ZooKeeper away")
ROLES = ("leader", "follower", "controller")
Gaps = dict[tuple[str, str], list[float]]
"""(fault, role) → seconds, one per run."""


class Load:
    """A record to each partition of a topic every 20 ms, within a `with` block."""

    def __init__(self, system: System, topic: str) -> None:
        self.pauses = Pauses(PARTITIONS)
        self._system = system
        self._topic = topic

    async def flows(self) -> None:
        """Wait until every partition has acknowledged something since now."""
        since, deadline = time.monotonic(), time.monotonic() + PATIENCE_S
        while not self.pauses.flow_since(since):
            if time.monotonic() > deadline:
                raise RuntimeError("records are not acknowledged any more")
            await asyncio.sleep(0.05)

    async def __aenter__(self) -> Self:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._system.bootstrap, acks="all", request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        await self._producer.start()
        self._tasks = [asyncio.create_task(self._produce(partition)) for partition in range(PARTITIONS)]
        await self.flows()
        await asyncio.sleep(WARM_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._producer.stop()

    async def _produce(self, partition: int) -> None:
        """One that waits for room keeps no other waiting."""
        while True:
            with suppress(KafkaError):
                future = await self._producer.send(self._topic, b"x" * 100, partition=partition)
                future.add_done_callback(partial(self._settled, partition))
            await asyncio.sleep(INTERVAL_S)

    def _settled(self, partition: int, future: asyncio.Future[object]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.pauses.came(partition, time.monotonic())


class Trial:
    """The faults of one system. `proxies`: what its brokers are reached by, where they can be cut off."""

    def __init__(self, system: System, proxies: BrokerProxies | None) -> None:
        self._system = system
        self._cluster = system.cluster
        self._proxies = proxies
        self._topics = 0

    async def run(self, fault: str, gaps: Gaps) -> None:
        """One run: once to somebody else than the controller, then to the controller."""
        for is_controller in (False, True):
            self._topics += 1
            topic = f"trial-{self._topics}"
            await asyncio.to_thread(self._system.create_topic, topic, PARTITIONS)
            controller, leaders = await asyncio.to_thread(self._system.layout, topic)
            others = [leader for leader in sorted(set(leaders.values())) if leader != controller]
            victim = controller if is_controller else others[0]
            async with Load(self._system, topic) as load:
                load.pauses.begin()
                await self._happens(fault, victim)
                await load.flows()
                longest_s = load.pauses.longest_s()
            await asyncio.to_thread(self._system.wait_complete)
            if is_controller or fault == "ZooKeeper away":
                gaps.setdefault((fault, "controller"), []).append(max(longest_s.values()))
                continue
            for role in ("leader", "follower"):
                its = [longest_s[p] for p in range(PARTITIONS) if (leaders[p] == victim) == (role == "leader")]
                gaps.setdefault((fault, role), []).append(max(its))

    async def _happens(self, fault: str, victim: int) -> None:
        async def call(function: Callable[..., object], *args: object) -> None:
            await asyncio.to_thread(function, *args)

        cluster, proxies = self._cluster, self._proxies
        beginnings: dict[str, Callable[[], Awaitable[None]]] = {
            "kill -9": partial(call, cluster.kill_broker, victim),
            "SIGTERM": partial(call, cluster.stop_broker, victim),
            "SIGSTOP": partial(call, cluster.pause_broker, victim),
            "cut off": partial(call, proxies.silence if proxies else None, victim),
            "ZooKeeper away": partial(call, cluster.stop_zookeeper),
        }
        ends: dict[str, Callable[[], Awaitable[None]]] = {
            "SIGSTOP": partial(call, cluster.resume_broker, victim),
            "cut off": partial(call, proxies.let_through if proxies else None, victim),
            "ZooKeeper away": partial(call, cluster.start_zookeeper),
        }
        await beginnings[fault]()
        await asyncio.sleep(HELD_S)
        await ends.get(fault, partial(call, cluster.start_broker, victim))()


def measure(name: str, runs: int, console: Console) -> Gaps:
    gaps: Gaps = {}
    with tempfile.TemporaryDirectory(prefix="strandline-table-") as folder:
        for is_proxied in (False, True):
            system = System(name, Path(folder) / ("proxied" if is_proxied else "plain"))
            proxies = BrokerProxies(system.cluster) if is_proxied else None
            with system:
                trial = Trial(system, proxies)
                for fault in FAULTS:
                    if (fault == "cut off") is is_proxied:
                        for _ in range(runs):
                            asyncio.run(trial.run(fault, gaps))
                            found = {role: gaps.get((fault, role), [-1.0])[-1] for role in ROLES}
                            console.print(f"{name}, {fault}: " + ", ".join(f"{r} {g:.2f} s" for r, g in found.items()))
            if proxies is not None:
                proxies.close()
    return gaps


def shown(by_system: dict[str, Gaps]) -> Table:
    table = Table("fault", "role", *by_system, title="longest time without an acknowledgement, s")
    for fault in FAULTS:
        for role in ROLES:
            its = [gaps.get((fault, role)) for gaps in by_system.values()]
            if any(its):
                table.add_row(fault, role, *(f"{statistics.median(each):.2f}" if each else "" for each in its))
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=tuple(CLUSTERS), action="append", help="only this one")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--output", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # each error that it gets over is a line
    console = Console(stderr=options.output == "json", width=None if sys.stdout.isatty() else 120)
    by_system = {name: measure(name, options.runs, console) for name in options.system or CLUSTERS}
    if options.output == "json":
        rows = [
            {"system": name, "fault": fault, "role": role, "gaps_s": its}
            for name, gaps in by_system.items()
            for (fault, role), its in gaps.items()
        ]
        json.dump(rows, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        console.print(shown(by_system))


if __name__ == "__main__":
    main()
