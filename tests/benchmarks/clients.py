"""`make bench-clients`: how fast the Python client is, beside a bare round trip and beside other people's clients.

One broker and ZooKeeper on loopback, records of 100 bytes, acks=all. All loads take turns, so that what else the
machine does meets all of them; figures are medians of the rounds. Rates are to be read as ratios to one of them,
latencies as ratios to a bare Produce request with one record. Other clients speak Kafka's protocol; they are measured
where `scripts/kafka-clients` has installed them (`make compat` does), or where this Python has them.

    python tests/benchmarks/clients.py [--rounds 3] [--records 200000] [--only send] [--output json]

Prints a table for people, or with `--output json` a document for programs. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from benchmarks import client_loads as ours
from strandline import Admin
from strandline.cli.cluster import EmbeddedCluster

PARTITIONS = 6
LATENCY_TIMES = 300
COMPAT_PYTHON = Path(__file__).parents[2] / ".cache/kafka-clients/venv/bin/python"
TIMEOUT_S = 300.0

Measure = Callable[[str, str, int], float]
"""(bootstrap servers, topic, count) → the figure."""

Wait = Callable[[str, str, int, float | None], float]
"""The same with `linger_ms`; None: the producer's own choice."""


@dataclass(frozen=True, slots=True)
class Load:
    """`reads`: the topic that is full of records; otherwise one of its own. `share`: of the records, for slow ones."""

    name: str
    measure: Measure
    share: float = 1.0
    reads: bool = False


RATES_BASE, LATENCY_BASE = "send_many", "bare Produce round trip"


def rates() -> list[Load]:
    return [
        Load("send", ours.send),
        Load(RATES_BASE, ours.send_many, share=5),
        Load("trio send", ours.trio_send),
        Load("aio send", ours.aio_send, share=0.5),
        *(Load(f"{name} produce", partial(_other, name, "produce")) for name in others()),
        Load("poll, objects", ours.poll, share=5, reads=True),
        Load("poll_columns", ours.poll_columns, share=5, reads=True),
        Load("poll_columns, values as bytes", ours.poll_columns_values, share=5, reads=True),
        Load("fetch_batches, undecoded", ours.fetch_batches, share=5, reads=True),
        *(Load(f"{name} consume", partial(_other, name, "consume"), share=5, reads=True) for name in others()),
    ]


def latencies() -> list[Load]:
    waits: list[tuple[str, Wait]] = [
        ("send().result()", ours.send_and_wait),
        ("trio send, await", ours.trio_send_and_wait),
        ("aio send, await", ours.aio_send_and_wait),
    ]
    return [
        Load(LATENCY_BASE, ours.bare_produce),
        Load("bare Produce round trip from a thread", ours.bare_produce_from_thread),
        Load("bare ApiVersions round trip", ours.bare_api_versions),
        *(
            Load(name if linger_ms is None else f"{name}, linger_ms=0", partial(_with_linger, wait, linger_ms))
            for name, wait in waits
            for linger_ms in (None, 0)
        ),
        *(Load(f"{name}, linger 0", partial(_other, name, "send_and_wait")) for name in others()),
    ]


def _with_linger(
    wait: Callable[[str, str, int, float | None], float],
    linger_ms: float | None,
    bootstrap: str,
    topic: str,
    times: int,
) -> float:
    return wait(bootstrap, topic, times, linger_ms)


def others() -> dict[str, str]:
    """Other people's clients → the Python that has them."""
    found = {}
    for name in ("confluent_kafka", "aiokafka"):
        if COMPAT_PYTHON.exists():
            found[name] = str(COMPAT_PYTHON)
        elif find_spec(name) is not None:
            found[name] = sys.executable
    return found


def _other(name: str, load: str, bootstrap: str, topic: str, count: int) -> float:
    script = Path(__file__).with_name("other_client_loads.py")
    command = [others()[name], str(script), name, load, bootstrap, topic, str(count)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout)


def measure(
    loads: list[Load], bootstrap: str, rounds: int, count: int, tell: Callable[[str], None]
) -> dict[str, float]:
    """The median figure of each, all of them once per round."""
    figures: dict[str, list[float]] = {load.name: [] for load in loads}
    with Admin(bootstrap) as admin:
        for turn in range(rounds):
            for load in loads:
                tell(f"round {turn + 1} of {rounds}: {load.name}")
                topic = "full"
                if not load.reads:
                    topic = "written"
                    admin.create_topic(topic, PARTITIONS, 1)
                figures[load.name].append(load.measure(bootstrap, topic, int(count * load.share)))
                if not load.reads:
                    admin.delete_topic(topic)
    return {name: statistics.median(each) for name, each in figures.items()}


def print_table(console: Console, title: str, figures: dict[str, float], base: str) -> None:
    table = Table(title=title)
    for column in ("", "figure", f"to {base}"):
        table.add_column(column, justify="right" if column else "left")
    for name, figure in figures.items():
        ratio = f"{figure / figures[base]:.2f}" if base in figures else ""
        table.add_row(name, f"{figure:,.0f}", ratio)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=200_000, help="of one load; fast ones take five times as many")
    parser.add_argument("--only", action="append", default=[], help="loads whose name contains this, and their base")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    given = parser.parse_args()
    console = Console(width=120, stderr=given.output == "json")

    def wanted(loads: list[Load], base: str) -> list[Load]:
        named = [load for load in loads if not given.only or any(each in load.name for each in given.only)]
        return [load for load in loads if load in named or (named and load.name == base)]

    properties = {"log.segment.bytes": str(2**30), "log.segment.delete.delay.ms": "1000"}
    with (
        tempfile.TemporaryDirectory(prefix="strandline-bench-") as folder,
        console.status("starting a broker") as status,
        EmbeddedCluster(Path(folder), brokers=1, base_port=None, properties=properties) as cluster,
    ):
        bootstrap = cluster.bootstrap_servers
        with Admin(bootstrap) as admin:
            admin.create_topic("full", PARTITIONS, 1)
        ours.send_many(bootstrap, "full", given.records * 5)
        by_rate = measure(wanted(rates(), RATES_BASE), bootstrap, given.rounds, given.records, status.update)
        by_latency = measure(wanted(latencies(), LATENCY_BASE), bootstrap, given.rounds, LATENCY_TIMES, status.update)
    if given.output == "json":
        print(json.dumps({"records_per_second": by_rate, "latency_us": by_latency}, indent=2))
        return
    print_table(console, "records per second, 100 B", by_rate, RATES_BASE)
    print_table(console, "median latency, µs", by_latency, LATENCY_BASE)


if __name__ == "__main__":
    main()
