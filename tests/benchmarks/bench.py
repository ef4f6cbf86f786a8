"""`make bench`: what the write path and consumer fetch reach on this machine, as ratios to what it could at best.

Per case, three rounds in turn: the ceiling (`ceiling.py`, the smallest possible replicated write path, no --wrap, the
same congestion control, size and duration), then three broker processes with RF=3 and acks=all. Before the first round
the machine's memory is touched once. After each round the replicas' files are compared and their batches counted.

    python tests/benchmarks/bench.py [--rounds 3] [--seconds 3] [--case 16k-2x32] [--output results.json]

Prints a table for people; writes JSON for programs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from benchmarks import fetch_reference, load
from strandline import Admin
from strandline.cli.cluster import EmbeddedCluster
from strandline.protocol.records import HEADER_BYTES, scan
from strandline.runtime.network import Address

PARTITIONS = 6
BROKERS = 3
FETCH_CHUNK_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Case:
    """`connections` per leader, each with `depth` requests in flight."""

    name: str
    batch_bytes: int
    connections: int
    depth: int


CASES = (
    Case("1k-1x1", 1024, 1, 1),
    Case("1k-2x64", 1024, 2, 64),
    Case("16k-2x8", 16384, 2, 8),
    Case("16k-2x32", 16384, 2, 32),
)


@dataclass(slots=True)
class Round:
    """One measurement of one system. CPU is of all three brokers together."""

    megabytes_per_second: float
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    broker_cpu_us_per_request: float
    p95_ms: float | None = None
    broker_rss_mb: float | None = None


def run_ceiling(case: Case, seconds: float) -> Round:
    """The ceiling in a process of its own; its line of figures, parsed."""
    command = [
        sys.executable,
        str(Path(__file__).with_name("ceiling.py")),
        *("--size", str(case.batch_bytes), "--conns", str(case.connections), "--depth", str(case.depth)),
        *("--secs", str(seconds), "--cc", "cubic"),
    ]
    line = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 60).stdout
    found = re.search(
        r"([\d.]+) MB/s\s+(\d+) req/s\s+lat p50 ([\d.]+) p99 ([\d.]+) p99\.9 ([\d.]+) ms .* (\d+) us/req", line
    )
    if found is None:
        raise RuntimeError(f"the ceiling printed no figures: {line!r}")
    return Round(*(float(figure) for figure in found.groups()))


class Cluster:
    """Three broker processes, and what is asked of them between rounds."""

    def __init__(self, embedded: EmbeddedCluster) -> None:
        self.embedded = embedded
        self.admin = Admin(bootstrap_servers=embedded.bootstrap_servers)
        self._topics = 0

    def new_topic(self) -> tuple[str, dict[int, Address]]:
        """A fresh topic and the leader of each partition."""
        self._topics += 1
        topic = f"bench-{self._topics}"
        self.admin.create_topic(
            topic, num_partitions=PARTITIONS, replication_factor=BROKERS, configs={"min.insync.replicas": "2"}
        )
        description = self.admin.describe_topics([topic])[topic]
        leaders = {p: self.embedded.address(view.leader) for p, view in description.partitions.items()}
        return topic, leaders

    def pids(self) -> list[int]:
        return [daemon.id.pid for daemon in self.embedded.brokers.values() if daemon.id is not None]

    def cpu_seconds(self) -> float:
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9 for pid in self.pids())

    def rss_mb(self) -> float:
        """The largest resident set of the brokers, in 10^6 bytes."""
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids()]
        return max(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def log_files(self, topic: str, partition: int, broker_id: int) -> list[Path]:
        return sorted((self.embedded.log_dir(broker_id) / f"{topic}-{partition}").glob("*.log"))


def run_cluster(cluster: Cluster, case: Case, seconds: float) -> Round:
    topic, leaders = cluster.new_topic()
    batch = load.batch_of(case.batch_bytes)
    marks: list[float] = []
    result = load.produce(
        topic,
        leaders,
        batch,
        connections=case.connections,
        depth=case.depth,
        seconds=seconds,
        on_measure=lambda: marks.append(cluster.cpu_seconds()),
    )
    rss_mb = cluster.rss_mb()
    verify(cluster, topic, result.acked)
    cluster.admin.delete_topic(topic)
    cpu_us = (marks[1] - marks[0]) * 1e6 / result.measured_requests
    ms = result.latencies_ms
    return Round(
        result.megabytes_per_second,
        result.requests_per_second,
        ms["p50"],
        ms["p99"],
        ms["p99.9"],
        cpu_us,
        ms["p95"],
        rss_mb,
    )


def verify(cluster: Cluster, topic: str, acked: int) -> None:
    """Every acknowledged batch stands once in each replica, whole, and the replicas are equal byte for byte."""
    batches = 0
    for partition in range(PARTITIONS):
        contents = [
            b"".join(path.read_bytes() for path in cluster.log_files(topic, partition, broker_id))
            for broker_id in range(1, BROKERS + 1)
        ]
        if any(content != contents[0] for content in contents[1:]):
            raise RuntimeError(f"the replicas of {topic}-{partition} differ")
        batches += sum(1 for _ in scan(memoryview(contents[0])))
    if batches != acked:
        raise RuntimeError(f"{acked} batches were acknowledged, the log of {topic} holds {batches}")


def run_fetch(cluster: Cluster, seconds: float) -> tuple[float, float]:
    """(MB/s of consumer fetch, MB/s of a bare sendfile loop over the same files), both from the page cache."""
    topic, leaders = cluster.new_topic()
    load.produce(topic, leaders, load.batch_of(16384), connections=2, depth=8, seconds=seconds, on_measure=lambda: None)
    files = [
        (path, broker_id)
        for broker_id in range(1, BROKERS + 1)
        for partition, address in leaders.items()
        if address == cluster.embedded.address(broker_id)
        for path in cluster.log_files(topic, partition, broker_id)
    ]
    reference = fetch_reference.measure([path for path, _ in files], FETCH_CHUNK_BYTES)
    received, elapsed = 0, 0.0
    for address in sorted(set(leaders.values())):
        consumer = load.RawConsumer(address, topic, [p for p, at in leaders.items() if at == address])
        with fetch_reference.stopwatch() as watch:
            received += consumer.fetch_all(FETCH_CHUNK_BYTES)
        elapsed += watch.seconds
    expected = sum(path.stat().st_size for path, _ in files)
    if received != expected:
        raise RuntimeError(f"consumers got {received} bytes of {expected}")
    cluster.admin.delete_topic(topic)
    return received / elapsed / 1e6, reference


def touch_memory(folder: Path, gigabytes: float) -> None:
    """Write and delete a scratch file: the first touch of memory on a virtual machine costs twice."""
    block = os.urandom(2**20)
    scratch = folder / "scratch"
    with scratch.open("wb") as file:
        for _ in range(int(gigabytes * 1000)):
            file.write(block)
    scratch.unlink()


def rounds_of(case: Case, cluster: Cluster, rounds: int, seconds: float) -> Iterator[tuple[Round, Round]]:
    for _ in range(rounds):
        yield run_ceiling(case, seconds), run_cluster(cluster, case, seconds)


def median(values: list[float]) -> float:
    return statistics.median(values)


def summary(case: Case, pairs: list[tuple[Round, Round]]) -> dict[str, object]:
    ratios = sorted(ours.megabytes_per_second / ceiling.megabytes_per_second for ceiling, ours in pairs)
    p50_ratios = sorted(ours.p50_ms / ceiling.p50_ms for ceiling, ours in pairs)
    return {
        "case": case.name,
        "ratio": median(ratios),
        "ratio_range": [ratios[0], ratios[-1]],
        "p50_ratio": median(p50_ratios),
        "strandline": [asdict(ours) for _, ours in pairs],
        "ceiling": [asdict(ceiling) for ceiling, _ in pairs],
    }


def produce_table(results: list[dict[str, Any]], pairs_of: dict[str, list[tuple[Round, Round]]]) -> Table:
    table = Table(title="RF=3, acks=all, 3 broker processes; medians")
    for column in ("case", "MB/s", "requests/s", "p50", "p95", "p99", "p99.9 ms", "µs CPU/req", "RSS MB"):
        table.add_column(column, justify="left" if column == "case" else "right")
    table.add_column("ceiling MB/s", justify="right")
    table.add_column("ratio (min..max)", justify="right", style="bold")
    table.add_column("p50 ratio", justify="right")
    for result in results:
        pairs = pairs_of[str(result["case"])]
        ours = [pair[1] for pair in pairs]
        low, high = result["ratio_range"]
        table.add_row(
            str(result["case"]),
            f"{median([r.megabytes_per_second for r in ours]):.1f}",
            f"{median([r.requests_per_second for r in ours]):,.0f}",
            f"{median([r.p50_ms for r in ours]):.2f}",
            f"{median([r.p95_ms or 0 for r in ours]):.2f}",
            f"{median([r.p99_ms for r in ours]):.2f}",
            f"{median([r.p999_ms for r in ours]):.2f}",
            f"{median([r.broker_cpu_us_per_request for r in ours]):.0f}",
            f"{max(r.broker_rss_mb or 0 for r in ours):.0f}",
            f"{median([pair[0].megabytes_per_second for pair in pairs]):.1f}",
            f"{result['ratio']:.2f} ({low:.2f}..{high:.2f})",
            f"{result['p50_ratio']:.1f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="measured part of each round")
    parser.add_argument("--case", action="append", choices=[c.name for c in CASES] + ["fetch"], help="only these")
    parser.add_argument("--output", type=Path, default=Path(".cache/bench.json"))
    parser.add_argument("--touch-gb", type=float, default=8.0, help="memory to touch first")
    arguments = parser.parse_args()
    wanted = arguments.case or [case.name for case in CASES] + ["fetch"]
    console = Console() if sys.stdout.isatty() else Console(width=150)  # a file or a pipe has no width
    results: list[dict[str, object]] = []
    pairs_of: dict[str, list[tuple[Round, Round]]] = {}
    fetches: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as folder, console.status("touching memory") as status:
        touch_memory(Path(folder), arguments.touch_gb)
        status.update("starting 3 brokers")
        properties = {"log.segment.bytes": str(2**30), "log.segment.delete.delay.ms": "1000"}
        with EmbeddedCluster(Path(folder), brokers=BROKERS, base_port=None, properties=properties) as embedded:
            cluster = Cluster(embedded)
            idle_rss_mb = cluster.rss_mb()
            for case in CASES:
                if case.name in wanted:
                    status.update(f"{case.name}: ceiling and brokers in turn")
                    pairs_of[case.name] = list(rounds_of(case, cluster, arguments.rounds, arguments.seconds))
                    results.append(summary(case, pairs_of[case.name]))
            if "fetch" in wanted:
                status.update("consumer fetch and a bare sendfile loop in turn")
                fetches = [run_fetch(cluster, arguments.seconds) for _ in range(arguments.rounds)]
            cluster.admin.close()
    if results:
        console.print(produce_table(results, pairs_of))
    fetch = {}
    if fetches:
        fetch = {"mb_per_second": [f for f, _ in fetches], "sendfile_mb_per_second": [r for _, r in fetches]}
        ratio = fetch["ratio"] = median([ours / bare for ours, bare in fetches])
        console.print(
            f"consumer fetch {median([f for f, _ in fetches]):,.0f} MB/s, bare sendfile loop "
            f"{median([r for _, r in fetches]):,.0f} MB/s: ratio [bold]{ratio:.2f}[/]"
        )
    console.print(f"idle broker: {idle_rss_mb:.0f} MB resident before the first load")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    document = {"produce": results, "fetch": fetch, "idle_rss_mb": idle_rss_mb, "batch_header_bytes": HEADER_BYTES}
    arguments.output.write_text(json.dumps(document, indent=2))
    console.print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
