"""`make bench-background`: what background work costs the hot path, at a fixed rate of produce load.

    python tests/benchmarks/background.py [--brokers 1] [--rounds 5] [--seconds 10] [--rate-mb 20]
                                          [--work retention,compaction,…] [--output json] [--keep DIR]

acks=all, batches of 16 KB at 20 MB/s, and 2 MB/s more into a second topic. One broker is what the question is about:
does what it does beside hold its event loop up? `--brokers 3` (RF=3) asks how a small machine bears three of them:
on two cores these, their cleaners and the load are more than there is, and what one gets another waits for; all
replicas of a partition roll, and so clean, in the same moment. In turn, each time with a fresh cluster and the order
swapped from round to round:
* without: nothing but the load. Segments of 1 GB, no retention, no cleaner, no checkpoints, no flushes.
* with: everything all the time.
  - retention: segments of 4 MB, retention.bytes 16 MB, checked four times a second; deleted files go after 1 s
  - compaction: the second topic's segments of 1 MB are cleaned as soon as they are sealed, each cleaning reads it all
  - checkpoints: recovery points, log starts and high watermarks, twice a second each
  - flushes: every log once a second
Latencies count from when a request was due (`paced.py`). What happened meanwhile is counted in the brokers' logs, so
that a round in which nothing was done is seen. Medians over the rounds; nothing is asserted. The goal: p99 at most
twice what it is without. On a machine that is busy with other things both are mostly what those leave: see how long
the loops waited for a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from benchmarks import load, paced
from strandline import Admin
from strandline.cli.cluster import EmbeddedCluster
from strandline.protocol.records import build_batch
from strandline.runtime.network import Address

HOT, COMPACTED = "hot", "compacted"
PARTITIONS = {HOT: 6, COMPACTED: 3}
BATCH_BYTES = 16384
COMPACTED_RATE_MB = 2.0
KEYED_BATCHES = 1024
"""Of the second topic, all keys different: 16 MB per partition are live after a cleaning, and read by the next."""
WARM_UP_S = 6.0
WORK = ("retention", "compaction", "checkpoints", "flushes")
NEVER_MS = str(3_600_000)
QUIET = {
    "log.retention.check.interval.ms": NEVER_MS,
    "log.flush.offset.checkpoint.interval.ms": NEVER_MS,
    "log.flush.start.offset.checkpoint.interval.ms": NEVER_MS,
    "replica.high.watermark.checkpoint.interval.ms": NEVER_MS,
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.enable": "false",
}
BUSY: Mapping[str, Mapping[str, str]] = {
    "retention": {"log.retention.check.interval.ms": "250"},
    "compaction": {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "100"},
    "checkpoints": {
        "log.flush.offset.checkpoint.interval.ms": "500",
        "log.flush.start.offset.checkpoint.interval.ms": "500",
        "replica.high.watermark.checkpoint.interval.ms": "500",
    },
    "flushes": {"log.flush.interval.ms": "1000"},
}
REMOVED = re.compile(r"old segments removed .*?\bsegments=(\d+)")
CLEANED = re.compile(r"log cleaned .*?\bbytes_read=(\d+) .*?\bseconds=([\d.]+)")


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement. What follows `lag_p99_ms` counts over all brokers, warm-up included."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    longest_ms: float
    requests_per_second: float
    lag_p99_ms: float
    broker_cpu_percent: float
    """Of one broker, all of its threads; workers apart."""
    loop_waited_percent: float
    """How long a broker's event loop was ready to run and got no CPU: what others on this machine take."""
    segments_deleted: int
    cleanings: int
    cleaned_mb: float
    cleaning_s: float


def configs_of(topic: str, work: Collection[str], brokers: int) -> dict[str, str]:
    configs = {"min.insync.replicas": str(min(2, brokers))}
    if topic == HOT and "retention" in work:
        configs |= {"segment.bytes": str(4 * 2**20), "retention.bytes": str(16 * 2**20)}
    if topic == COMPACTED:
        configs |= {"cleanup.policy": "compact"}
        if "compaction" in work:
            configs |= {"segment.bytes": str(2**20), "min.cleanable.dirty.ratio": "0"}
    return configs


def keyed_batches() -> list[bytes]:
    """Of equal size, every record with another key."""
    count = BATCH_BYTES // 1024
    return [
        build_batch([(1_700_000_000_000, b"key-%07d" % (number * count + n), os.urandom(1000)) for n in range(count)])
        for number in range(KEYED_BATCHES)
    ]


def run_round(folder: Path, work: Collection[str], arguments: argparse.Namespace, keyed: list[bytes]) -> Round:
    properties = {**QUIET, "log.segment.bytes": str(2**30)}
    for each in work:
        properties |= BUSY[each]
    cluster = EmbeddedCluster(folder, brokers=arguments.brokers, base_port=None, properties=properties)
    try:
        cluster.start()
        return _measure(cluster, work, arguments, keyed)
    finally:
        cluster.stop(timeout_s=10)
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)  # what was not written back never is


def _measure(
    cluster: EmbeddedCluster, work: Collection[str], arguments: argparse.Namespace, keyed: list[bytes]
) -> Round:
    leaders: dict[str, dict[int, Address]] = {}
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        for topic, partitions in PARTITIONS.items():
            admin.create_topic(
                topic,
                num_partitions=partitions,
                replication_factor=arguments.brokers,
                configs=configs_of(topic, work, arguments.brokers),
            )
            views = admin.describe_topics([topic])[topic].partitions
            leaders[topic] = {partition: cluster.address(view.leader) for partition, view in views.items()}
    pids = [daemon.id.pid for daemon in cluster.brokers.values() if daemon.id is not None]
    marks: list[tuple[float, float]] = []
    result = paced.produce(
        [
            paced.Flow(
                HOT,
                leaders[HOT],
                [load.batch_of(BATCH_BYTES)],
                arguments.rate_mb * 1e6 / BATCH_BYTES,
                is_measured=True,
            ),
            paced.Flow(COMPACTED, leaders[COMPACTED], keyed, COMPACTED_RATE_MB * 1e6 / len(keyed[0]), connections=1),
        ],
        warm_up_s=WARM_UP_S,
        seconds=arguments.seconds,
        on_measure=lambda: marks.append(cpu_seconds(pids)),
    )
    logs = [daemon.log_path.read_text() for daemon in cluster.brokers.values()]
    cleaned = [(int(read), float(seconds)) for text in logs for read, seconds in CLEANED.findall(text)]
    ms = result.latencies_ms
    return Round(
        p50_ms=ms["p50"],
        p99_ms=ms["p99"],
        p999_ms=ms["p99.9"],
        longest_ms=result.longest_ms,
        requests_per_second=result.requests_per_second,
        lag_p99_ms=result.lag_ms["p99"],
        broker_cpu_percent=(marks[1][0] - marks[0][0]) / arguments.seconds / len(pids) * 100,
        loop_waited_percent=(marks[1][1] - marks[0][1]) / arguments.seconds / len(pids) * 100,
        segments_deleted=sum(int(count) for text in logs for count in REMOVED.findall(text)),
        cleanings=len(cleaned),
        cleaned_mb=sum(read for read, _ in cleaned) / 1e6,
        cleaning_s=sum(seconds for _, seconds in cleaned),
    )


def cpu_seconds(pids: list[int]) -> tuple[float, float]:
    """(used by all threads, waited for by the main ones) of all brokers together."""
    used_ns = waited_ns = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(FileNotFoundError):  # the thread has ended
                used_ns += int(path.read_text().split()[0])
        waited_ns += int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    return used_ns / 1e9, waited_ns / 1e9


def median(rounds: list[Round], name: str) -> float:
    return statistics.median(getattr(each, name) for each in rounds)


def ratios(without: list[Round], with_it: list[Round], name: str) -> list[float]:
    """Of each round, sorted."""
    return sorted(getattr(b, name) / getattr(a, name) for a, b in zip(without, with_it, strict=True))


def table_of(rounds: Mapping[str, list[Round]], brokers: int) -> Table:
    table = Table(title=f"brokers: {brokers}, RF={brokers}, acks=all, batches of 16 KB; medians of the rounds")
    columns = {
        "p50_ms": "p50",
        "p99_ms": "p99",
        "p999_ms": "p99.9",
        "longest_ms": "longest ms",
        "requests_per_second": "requests/s",
        "lag_p99_ms": "generator late p99 ms",
        "broker_cpu_percent": "CPU % of a broker",
        "loop_waited_percent": "its loop waits for CPU %",
        "segments_deleted": "segments deleted",
        "cleanings": "cleanings",
        "cleaned_mb": "MB cleaned",
        "cleaning_s": "s of cleaning",
    }
    table.add_column("background work")
    for title in columns.values():
        table.add_column(title, justify="right")
    for name, own in rounds.items():
        table.add_row(name, *(f"{median(own, column):,.{2 if 'ms' in column else 0}f}" for column in columns))
    without, with_it = rounds.values()
    found = [ratios(without, with_it, name) for name in list(columns)[:3]]
    table.add_row("ratio", *(f"{statistics.median(each):.2f} ({each[0]:.2f}..{each[-1]:.2f})" for each in found))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=1, help="processes on this machine, replicas of each partition")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="measured part of each round")
    parser.add_argument("--rate-mb", type=float, default=20.0, help="MB/s of the measured load")
    parser.add_argument("--work", default=",".join(WORK), help="which background work: " + ", ".join(WORK))
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.add_argument("--keep", metavar="DIR", help="put the data there and leave it")
    arguments = parser.parse_args()
    work = [each for each in arguments.work.split(",") if each]
    if unknown := set(work) - set(WORK):
        parser.error(f"no such work: {', '.join(sorted(unknown))}; there is {', '.join(WORK)}")
    root = Path(arguments.keep or tempfile.mkdtemp(prefix="strandline-background-"))
    # A file or a pipe has no width.
    console = (
        Console(stderr=True) if arguments.output == "json" else Console(width=None if sys.stdout.isatty() else 170)
    )
    load_average = os.getloadavg()[0]
    keyed = keyed_batches()
    rounds: dict[str, list[Round]] = {"without": [], "with": []}
    try:
        for number in range(arguments.rounds):
            order = list(rounds) if number % 2 == 0 else list(reversed(rounds))
            for name in order:
                found = run_round(root / f"{name}-{number}", work if name == "with" else (), arguments, keyed)
                rounds[name].append(found)
                console.print(
                    f"{number + 1} {name:8} p50 {found.p50_ms:.2f}  p99 {found.p99_ms:.2f}  "
                    f"p99.9 {found.p999_ms:.2f} ms"
                    f"  ({found.segments_deleted} segments deleted, {found.cleanings} cleanings)"
                )
    finally:
        if not arguments.keep:
            shutil.rmtree(root, ignore_errors=True)
    if arguments.output == "json":
        document = {
            "brokers": arguments.brokers,
            "rate_mb": arguments.rate_mb,
            "work": work,
            "load_average_before": load_average,
            "cores": os.cpu_count(),
            "rounds": {name: [asdict(each) for each in own] for name, own in rounds.items()},
            "ratio": {
                name: statistics.median(ratios(rounds["without"], rounds["with"], name))
                for name in ("p50_ms", "p99_ms", "p999_ms")
            },
        }
        json.dump(document, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        console.print(table_of(rounds, arguments.brokers))
        console.print(f"load average before the first round: {load_average:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
