"""`make bench-metrics`: what counting requests costs the broker, in CPU time per request.

    python tests/benchmarks/metrics_overhead.py [--rounds 30] [--seconds 1] [--only "fetch 1"] [--output json]

One broker under load, which counts and does not count in turn, a few milliseconds each (`uncounted/sitecustomize.py`).
Per case the medians over the rounds, the median of the rounds' ratios, and between which two ratios that lies with
95 %. What a follower's broker takes for a request belongs to it, too; a row of its own tells of the leader alone.

| case | |
|---|---|
| produce 1 KiB, one at a time | acks=all, one request in flight: the most looks at the clock per request |
| produce 1 or 64 KiB, pipelined | the same with 16 in flight on each of two connections |
| produce 1 KiB, two replicas | pipelined, too; a request waits for the follower, whose fetches count as well |
| fetch nothing | of a consumer that follows, and has everything: one request in flight, answered at once |
| fetch 1 or 64 KiB | one batch, one request in flight |
| fetch 1 KiB, pipelined | 16 in flight on each of two connections |
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest
from rich.console import Console
from rich.table import Table

from benchmarks import load, repeated
from benchmarks.idle import CPUCLOCK_SCHED
from strandline import Admin, Producer
from strandline.cli.cluster import EmbeddedCluster
from strandline.runtime.network import Address

UNCOUNTED = Path(__file__).with_name("uncounted")
PARTITIONS = 4
WARM_UP_S = 0.1
"""Short, as all of a round is: what the machine does beside it lasts for longer, and so strikes both sides."""
KIB = 1024


@dataclass(frozen=True, slots=True)
class Case:
    """fetches: the topic of which it fetches, and from where; None: it produces to `topic`."""

    connections: int
    depth: int
    batch_bytes: int = KIB
    topic: str = "load"
    fetches: tuple[str, int] | None = None


CASES = {
    "produce 1 KiB, one at a time": Case(1, 1),
    "produce 1 KiB, pipelined": Case(2, 16),
    "produce 64 KiB, pipelined": Case(2, 16, 64 * KIB),
    "produce 1 KiB, two replicas": Case(2, 16, topic="replicated"),
    "fetch nothing": Case(1, 1, fetches=("small", 1)),
    "fetch 1 KiB": Case(1, 1, fetches=("small", 0)),
    "fetch 64 KiB": Case(1, 1, fetches=("large", 0)),
    "fetch 1 KiB, pipelined": Case(2, 16, fetches=("small", 0)),
}
FETCHED = {"small": KIB, "large": 64 * KIB}
"""Topic → bytes of its only batch, which is one record."""


class Round(NamedTuple):
    """CPU per request in microseconds: of the leader's broker, counting and not, and of the follower's meanwhile."""

    counting: float
    uncounted: float
    follower: float


@dataclass(frozen=True, slots=True)
class Switchable:
    """The processes of the broker that leads everything and of that of the followers, where the first one listens, and
    the file in which its figures come to stand."""

    leader: int
    follower: int
    address: Address
    figures: Path

    def cpu_us_per_request(self, case: Case, seconds: float) -> Round:
        """Of one round of a load."""
        begin_and_end = iter((signal.SIGUSR1, signal.SIGUSR2))
        known = len(self._lines())
        follower_s: list[float] = []

        def look() -> None:
            follower_s.append(time.clock_gettime(~self.follower << 3 | CPUCLOCK_SCHED))
            os.kill(self.leader, next(begin_and_end))

        self._load(case, seconds, look)
        while len(lines := self._lines()) == known:
            time.sleep(0.01)
        both = json.loads(lines[-1])
        counting, uncounted = (each["cpu_ns"] / each["requests"] / 1000 for each in both)
        requests = sum(each["requests"] for each in both)
        return Round(counting, uncounted, (follower_s[1] - follower_s[0]) * 1e6 / requests)

    def _lines(self) -> list[str]:
        return self.figures.read_text().splitlines()

    def _load(self, case: Case, seconds: float, look: Callable[[], None]) -> None:
        if case.fetches is not None:
            topic, offset = case.fetches
            frame = repeated.fetch_frame(topic, offset, max_bytes=FETCHED[topic])
            repeated.repeat(
                self.address,
                frame,
                connections=case.connections,
                depth=case.depth,
                warm_up_s=WARM_UP_S,
                seconds=seconds,
                on_measure=look,
            )
            return
        load.produce(
            case.topic,
            dict.fromkeys(range(PARTITIONS), self.address),
            load.batch_of(case.batch_bytes),
            connections=case.connections,
            depth=case.depth,
            seconds=seconds,
            on_measure=look,
            warm_up_s=WARM_UP_S,
        )


@contextmanager
def switchable() -> Iterator[Switchable]:
    with tempfile.TemporaryDirectory(prefix="strandline-metrics-") as folder, pytest.MonkeyPatch.context() as patch:
        figures = Path(folder, "figures")
        figures.touch()
        patch.setenv("PYTHONPATH", str(UNCOUNTED), prepend=os.pathsep)
        patch.setenv("STRANDLINE_UNCOUNTED_FIGURES", str(figures))
        with EmbeddedCluster(Path(folder, "cluster"), brokers=2, base_port=None) as cluster:
            with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
                for topic, replicas in (("load", [1]), ("replicated", [1, 2]), *((each, [1]) for each in FETCHED)):
                    admin.create_topic(topic, assignments=dict.fromkeys(range(PARTITIONS), replicas))
                address = admin.describe_cluster().brokers[1].address
            with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                for topic, size_bytes in FETCHED.items():
                    producer.send(topic, os.urandom(size_bytes - 80), partition=0)
                producer.flush()
            leader, follower = (cluster.brokers[number].id for number in (1, 2))
            assert leader is not None
            assert follower is not None
            yield Switchable(leader.pid, follower.pid, address, figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="measurements of each case")
    parser.add_argument("--seconds", type=float, default=1.0, help="measured part of each")
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with switchable() as broker:
        for name, case in CASES.items():
            if arguments.only in name:
                rounds = [broker.cpu_us_per_request(case, arguments.seconds) for _ in range(arguments.rounds)]
                found[name] = summary([each[:2] for each in rounds])
                if case.topic == "replicated":
                    found[f"{name}: leader"] = found[name]
                    found[name] = summary(
                        [(each.counting + each.follower, each.uncounted + each.follower) for each in rounds]
                    )
                print(f"{name}: {found[name]['overhead_percent']:.1f} % more", file=sys.stderr, flush=True)
    if arguments.output == "json":
        print(json.dumps(found, indent=1))
        return
    table = Table(
        "CPU per request", "counting µs", "not counting µs", "more %", "with 95 %", title="What counting costs"
    )
    for name, figures in found.items():
        figures_us = (f"{figures[key]:.1f}" for key in ("counting_us", "uncounted_us", "overhead_percent"))
        table.add_row(name, *figures_us, f"{figures['low_percent']:.1f} to {figures['high_percent']:.1f}")
    Console().print(table)


def summary(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """pairs: CPU per request, counting and not counting."""
    ratios = sorted(counting / uncounted for counting, uncounted in pairs)
    outside = _outside(len(ratios))
    return {
        "counting_us": statistics.median(each for each, _ in pairs),
        "uncounted_us": statistics.median(each for _, each in pairs),
        "overhead_percent": (statistics.median(ratios) - 1) * 100,
        "low_percent": (ratios[outside] - 1) * 100,
        "high_percent": (ratios[-1 - outside] - 1) * 100,
    }


def _outside(count: int) -> int:
    """How many values at each end lie outside of an interval that has the median with 95 %: each value is above or
    below it with equal odds. With fewer than six all are inside, and that is less than 95 %."""
    below, outside = 0.0, -1
    while (below := below + math.comb(count, outside + 1) / 2**count) <= 0.025:
        outside += 1
    return max(outside, 0)


if __name__ == "__main__":
    main()
