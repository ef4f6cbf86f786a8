"""`make bench-metrics`: what counting requests costs the broker, in CPU time per request.

    python tests/benchmarks/metrics_overhead.py [--rounds 30] [--seconds 0.25] [--only "fetch 1"] [--output json]

One broker, which counts and does not count in turn (`uncounted/sitecustomize.py`), under the same load, in short rounds
in the order A B B A, so that what the machine does beside it strikes both. Per case the medians over the rounds, the
median of the ratios of neighbours, and between which two ratios that lies with 95 %. Nothing is asserted but that it
counts where it is to count, and nowhere else.

| case | |
|---|---|
| produce 1 KiB, one at a time | acks=all, one request in flight: the most looks at the clock per request |
| produce 1 or 64 KiB, pipelined | the same with 16 in flight on each of two connections |
| fetch nothing | of a consumer that follows, and has everything: one request in flight, answered at once |
| fetch 1 or 64 KiB | one batch, one request in flight |
| fetch 1 KiB, pipelined | 16 in flight on each of two connections |
| scraped | as produce 1 KiB, pipelined, with a scrape each `--scrape-s` seconds, in a tenth of the rounds |
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from benchmarks import load, repeated
from benchmarks.idle import cpu_seconds
from strandline import Admin, Producer
from strandline.cli.admin_ports import admin_port
from strandline.cli.cluster import EmbeddedCluster
from strandline.runtime.network import Address

UNCOUNTED = Path(__file__).with_name("uncounted")
PARTITIONS = 4
WARM_UP_S = 0.1
"""Short, as all of a round is: what the machine does beside it lasts for longer, and so strikes both sides."""
KIB = 1024
PRODUCED = re.compile(r'^kafka_network_requestmetrics_requests_total\{request="Produce"\} (.*)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Case:
    """fetches: the topic of which it fetches, and from where; None: it produces."""

    connections: int
    depth: int
    batch_bytes: int = KIB
    fetches: tuple[str, int] | None = None
    is_scraped: bool = False


CASES = {
    "produce 1 KiB, one at a time": Case(1, 1),
    "produce 1 KiB, pipelined": Case(2, 16),
    "produce 64 KiB, pipelined": Case(2, 16, 64 * KIB),
    "fetch nothing": Case(1, 1, fetches=("small", 1)),
    "fetch 1 KiB": Case(1, 1, fetches=("small", 0)),
    "fetch 64 KiB": Case(1, 1, fetches=("large", 0)),
    "fetch 1 KiB, pipelined": Case(2, 16, fetches=("small", 0)),
    "scraped": Case(2, 16, is_scraped=True),
}
FETCHED = {"small": KIB, "large": 64 * KIB}
"""Topic → bytes of its only batch, which is one record."""


@dataclass(frozen=True, slots=True)
class Switchable:
    """A broker, where it listens, and where it tells its metrics."""

    cluster: EmbeddedCluster
    leaders: dict[int, Address]
    admin: Address

    def cpu_us_per_request(self, case: Case, seconds: float, scrape_s: float, *, is_counting: bool) -> float:
        (broker,) = self.cluster.brokers.values()
        assert broker.id is not None
        os.kill(broker.id.pid, signal.SIGUSR1 if is_counting else signal.SIGUSR2)
        time.sleep(WARM_UP_S)  # what it does just now ends as it began
        before = self._counted()
        looks: list[float] = []

        def look() -> None:
            looks.append(cpu_seconds(self.cluster))

        with scraping(self.admin, scrape_s) if case.is_scraped else ExitStack():
            requests = self._load(case, seconds, look)
        if (self._counted() > before) != (is_counting and case.fetches is None):
            raise SystemExit("it does not count where it is to count, or counts where it is not to")
        return (looks[1] - looks[0]) * 1e6 / requests

    def _load(self, case: Case, seconds: float, look: Callable[[], None]) -> int:
        if case.fetches is not None:
            topic, offset = case.fetches
            frame = repeated.fetch_frame(topic, offset, max_bytes=FETCHED[topic])
            return repeated.repeat(
                self.leaders[0],
                frame,
                connections=case.connections,
                depth=case.depth,
                warm_up_s=WARM_UP_S,
                seconds=seconds,
                on_measure=look,
            )
        result = load.produce(
            "load",
            self.leaders,
            load.batch_of(case.batch_bytes),
            connections=case.connections,
            depth=case.depth,
            seconds=seconds,
            on_measure=look,
            warm_up_s=WARM_UP_S,
        )
        return result.measured_requests

    def _counted(self) -> float:
        """Requests that clients produced."""
        text = urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=10).read().decode()
        found = PRODUCED.search(text)
        return 0.0 if found is None else float(found[1])


@contextmanager
def scraping(admin: Address, interval_s: float) -> Iterator[None]:
    """Fetch /metrics in the middle of each interval until the block ends."""
    stop = Event()

    def scrape() -> None:
        while not stop.wait(interval_s / 2):
            urllib.request.urlopen(f"http://{admin}/metrics", timeout=10).read()
            stop.wait(interval_s / 2)

    thread = Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def switchable() -> Iterator[Switchable]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(UNCOUNTED), *filter(None, [before])])
    try:
        with (
            tempfile.TemporaryDirectory(prefix="strandline-metrics-") as folder,
            EmbeddedCluster(Path(folder), brokers=1, base_port=None) as cluster,
        ):
            with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
                admin.create_topic("load", num_partitions=PARTITIONS, replication_factor=1)
                for topic in FETCHED:
                    admin.create_topic(topic, num_partitions=1, replication_factor=1)
                (broker,) = admin.describe_cluster().brokers.values()
                admin_address = admin_port(admin, broker)
            with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                for topic, size_bytes in FETCHED.items():
                    producer.send(topic, os.urandom(size_bytes - 80), partition=0)
                producer.flush()
            yield Switchable(cluster, dict.fromkeys(range(PARTITIONS), broker.address), admin_address)
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="pairs of measurements of each case")
    parser.add_argument("--seconds", type=float, default=0.25, help="measured part of each")
    parser.add_argument("--scrape-s", type=float, default=5.0, help="seconds between two scrapes")
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with switchable() as broker:
        for name, case in CASES.items():
            if arguments.only not in name:
                continue
            pairs: list[tuple[float, float]] = []
            seconds, rounds = arguments.seconds, arguments.rounds
            if case.is_scraped:  # there is one scrape in each
                seconds, rounds = arguments.scrape_s, max(rounds // 10, 1)
            for number in range(rounds):
                taken: dict[bool, float] = {}
                for is_counting in (True, False) if number % 2 == 0 else (False, True):
                    taken[is_counting] = broker.cpu_us_per_request(
                        case, seconds, arguments.scrape_s, is_counting=is_counting
                    )
                pairs.append((taken[True], taken[False]))
            found[name] = summary(pairs)
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
