"""`make bench-metrics`: what counting requests costs the broker, in CPU time per request.

    python tests/benchmarks/metrics_overhead.py [--rounds 6] [--seconds 4] [--scrape-s 15] [--output json]

Two clusters of one broker each, of which one counts nothing (`uncounted/sitecustomize.py`). They get the same load in
turn, in the order A B B A, so that what the machine does beside it strikes both. Per case the medians over the rounds,
and the median of the ratios of neighbours. Nothing is asserted.

| case | |
|---|---|
| one at a time | Produce, acks=all, 1 KiB, one request in flight: the most looks at the clock per request |
| pipelined | the same with 16 in flight on each of two connections |
| scraped | as pipelined, while /metrics is fetched every `--scrape-s` seconds |
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from benchmarks import load
from benchmarks.idle import cpu_seconds
from strandline import Admin
from strandline.cli.admin_ports import admin_port
from strandline.cli.cluster import EmbeddedCluster
from strandline.runtime.network import Address

UNCOUNTED = Path(__file__).with_name("uncounted")
BATCH_BYTES = 1024
PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Case:
    connections: int
    depth: int
    is_scraped: bool = False


CASES = {
    "one at a time": Case(1, 1),
    "pipelined": Case(2, 16),
    "scraped": Case(2, 16, is_scraped=True),
}


@dataclass(frozen=True, slots=True)
class Side:
    """A cluster, where it listens, and where it tells its metrics."""

    cluster: EmbeddedCluster
    leaders: dict[int, Address]
    admin: Address

    def cpu_us_per_request(self, case: Case, seconds: float, scrape_s: float) -> float:
        looks: list[float] = []
        with scraping(self.admin, scrape_s) if case.is_scraped else ExitStack():
            result = load.produce(
                "load",
                self.leaders,
                load.batch_of(BATCH_BYTES),
                connections=case.connections,
                depth=case.depth,
                seconds=seconds,
                on_measure=lambda: looks.append(cpu_seconds(self.cluster)),
            )
        return (looks[1] - looks[0]) * 1e6 / result.measured_requests


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
def side(*, is_counting: bool) -> Iterator[Side]:
    paths = [*([] if is_counting else [str(UNCOUNTED)]), *filter(None, [os.environ.get("PYTHONPATH")])]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="strandline-metrics-") as folder,
            EmbeddedCluster(Path(folder), brokers=1, base_port=None) as cluster,
        ):
            with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
                admin.create_topic("load", num_partitions=PARTITIONS, replication_factor=1)
                (broker,) = admin.describe_cluster().brokers.values()
                admin_address = admin_port(admin, broker)
            yield Side(cluster, dict.fromkeys(range(PARTITIONS), broker.address), admin_address)
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="pairs of measurements of each case")
    parser.add_argument("--seconds", type=float, default=4.0, help="measured part of each")
    parser.add_argument("--scrape-s", type=float, default=15.0, help="seconds between two scrapes")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with side(is_counting=True) as counting, side(is_counting=False) as uncounted:
        for name, case in CASES.items():
            pairs: list[tuple[float, float]] = []
            for number in range(arguments.rounds):
                order = (counting, uncounted) if number % 2 == 0 else (uncounted, counting)
                taken = {
                    id(each): each.cpu_us_per_request(case, arguments.seconds, arguments.scrape_s) for each in order
                }
                pairs.append((taken[id(counting)], taken[id(uncounted)]))
                print(f"{name}: {pairs[-1][0]:.1f} and {pairs[-1][1]:.1f} µs", file=sys.stderr, flush=True)
            found[name] = {
                "counting_us": statistics.median(each for each, _ in pairs),
                "uncounted_us": statistics.median(each for _, each in pairs),
                "overhead_percent": (statistics.median(with_ / without for with_, without in pairs) - 1) * 100,
            }
    if arguments.output == "json":
        print(json.dumps(found, indent=1))
        return
    table = Table("CPU per request", "counting µs", "not counting µs", "more %", title="What counting costs a broker")
    for name, figures in found.items():
        table.add_row(name, *(f"{figures[key]:.1f}" for key in ("counting_us", "uncounted_us", "overhead_percent")))
    Console().print(table)


if __name__ == "__main__":
    main()
