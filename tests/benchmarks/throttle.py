"""`make bench-throttle`: what filling a replica costs producers, at full speed and under a throttle.

    python tests/benchmarks/throttle.py [--rounds 3] [--seconds 6] [--rate-mb 5] [--fill-mb 2000] [--throttle-mb 10]
                                        [--output json]

Three brokers. 1 and 2 lead and replicate `hot`, which gets batches of 16 KB at a fixed rate with acks=all, and have all
of `bulk`. 3 was away while `bulk` was written, so it has to be filled; it has nothing of `hot`. In each round, on a
fresh cluster, the load is measured three times:
* held: a throttle of 1 byte/s, so nothing is filled
* throttled: both throttles at the rate
* full speed: no throttle
Latencies count from when a request was due (`paced.py`). Nothing is asserted: medians over the rounds, and ratios to
`held`. Where `full speed` has filled everything before its end, so that its last seconds were quiet, the table says so:
give more to fill.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from benchmarks import load, paced
from strandline import Admin
from strandline.cli.cluster import EmbeddedCluster
from strandline.protocol.messages import ConfigResource
from strandline.protocol.records import build_batch
from strandline.runtime.network import Address

HOT, BULK = "hot", "bulk"
HOT_REPLICAS = {0: [1, 2], 1: [2, 1], 2: [1, 2], 3: [2, 1]}
BULK_REPLICAS = {0: [1, 2, 3], 1: [2, 1, 3], 2: [1, 2, 3], 3: [2, 1, 3]}
FILLED = 3
BATCH_BYTES = 16384
BULK_BATCH_BYTES = 2**18
FILL_S = 20.0
"""So long `bulk` is written, evenly."""
WARM_UP_S = 0.7
"""Longer than a changed rate needs to count."""
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
CASES = ("held", "throttled", "full speed")
SHOWN = {
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "p999_ms": "p99.9 ms",
    "longest_ms": "longest ms",
    "filled_mb_per_s": "filled MB/s",
    "lag_p99_ms": "generator late p99 ms",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement. is_over: there was nothing left to fill at its end."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    longest_ms: float
    filled_mb_per_s: float
    lag_p99_ms: float
    is_over: bool


def run_round(folder: Path, arguments: argparse.Namespace) -> dict[str, Case]:
    properties = {"log.segment.bytes": str(2**30), "log.cleaner.enable": "false"}
    cluster = EmbeddedCluster(folder, brokers=3, base_port=None, properties=properties)
    try:
        cluster.start()
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            leaders = begin_with(admin, cluster, arguments.fill_mb)
            rates = {"held": 1, "throttled": int(arguments.throttle_mb * 1e6), "full speed": None}
            return {name: measure(admin, cluster, leaders, rate, arguments) for name, rate in rates.items()}
    finally:
        cluster.stop(timeout_s=10)
        shutil.rmtree(folder, ignore_errors=True)


def begin_with(admin: Admin, cluster: EmbeddedCluster, fill_mb: int) -> dict[int, Address]:
    """Returns who leads `hot`."""
    admin.create_topic(HOT, assignments=HOT_REPLICAS, configs={"min.insync.replicas": "2"})
    admin.create_topic(BULK, assignments=BULK_REPLICAS, configs=dict.fromkeys(REPLICAS, "*"))
    set_rate(admin, 1)
    views = admin.describe_topics([HOT, BULK])
    cluster.stop_broker(FILLED)
    batch = bytes(build_batch([(1_700_000_000_000, None, os.urandom(1000))] * (BULK_BATCH_BYTES // 1000)))
    bulk = {partition: cluster.address(view.leader) for partition, view in views[BULK].partitions.items()}
    paced.produce(
        [paced.Flow(BULK, bulk, [batch], fill_mb * 1e6 / len(batch) / FILL_S, is_measured=True)],
        warm_up_s=0.0,
        seconds=FILL_S,
        on_measure=lambda: None,
    )
    cluster.start_broker(FILLED)
    return {partition: cluster.address(view.leader) for partition, view in views[HOT].partitions.items()}


def set_rate(admin: Admin, rate: int | None) -> None:
    """None: no throttle."""
    admin.alter_configs(ConfigResource.BROKER, "", dict.fromkeys(RATES, None if rate is None else str(rate)))


def measure(
    admin: Admin, cluster: EmbeddedCluster, leaders: dict[int, Address], rate: int | None, arguments: argparse.Namespace
) -> Case:
    marks: list[tuple[float, int]] = []
    set_rate(admin, rate)
    flow = paced.Flow(
        HOT, leaders, [load.batch_of(BATCH_BYTES)], arguments.rate_mb * 1e6 / BATCH_BYTES, is_measured=True
    )
    result = paced.produce(
        [flow],
        warm_up_s=WARM_UP_S,
        seconds=arguments.seconds,
        on_measure=lambda: marks.append((time.perf_counter(), bulk_bytes(cluster, FILLED))),
    )
    (began, before), (ended, after) = marks
    ms = result.latencies_ms
    return Case(
        p50_ms=ms["p50"],
        p99_ms=ms["p99"],
        p999_ms=ms["p99.9"],
        longest_ms=result.longest_ms,
        filled_mb_per_s=(after - before) / 1e6 / (ended - began),
        lag_p99_ms=result.lag_ms["p99"],
        is_over=after >= bulk_bytes(cluster, 1),
    )


def bulk_bytes(cluster: EmbeddedCluster, broker_id: int) -> int:
    """Of `bulk` on that broker's disk."""
    return sum(path.stat().st_size for path in cluster.log_dir(broker_id).glob(f"{BULK}-*/*.log"))


def ratio(rounds: list[dict[str, Case]], case: str, name: str) -> float:
    """To `held`, the median of the rounds."""
    return statistics.median(getattr(each[case], name) / getattr(each["held"], name) for each in rounds)


def table_of(rounds: list[dict[str, Case]], arguments: argparse.Namespace) -> Table:
    title = f"3 brokers, acks=all, {arguments.rate_mb:g} MB/s, throttle {arguments.throttle_mb:g} MB/s; medians"
    table = Table(title=title)
    table.add_column("a replica is filled")
    for column in SHOWN.values():
        table.add_column(column, justify="right")
    for case in CASES:
        cells = (f"{statistics.median(getattr(each[case], name) for each in rounds):,.2f}" for name in SHOWN)
        table.add_row(case + (", done early" if any(each[case].is_over for each in rounds) else ""), *cells)
    for case in CASES[1:]:
        table.add_row(f"{case} / held", *(f"{ratio(rounds, case, name):.2f}" for name in list(SHOWN)[:4]))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="measured part of each case")
    parser.add_argument("--rate-mb", type=float, default=5.0, help="MB/s of the measured load")
    parser.add_argument("--throttle-mb", type=float, default=10.0, help="MB/s of the throttle")
    parser.add_argument("--fill-mb", type=int, default=2000, help="what the replica lacks")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="strandline-throttle-"))
    # A file or a pipe has no width.
    console = (
        Console(stderr=True) if arguments.output == "json" else Console(width=None if sys.stdout.isatty() else 150)
    )
    load_average = os.getloadavg()[0]
    rounds: list[dict[str, Case]] = []
    try:
        for number in range(arguments.rounds):
            rounds.append(run_round(root / str(number), arguments))
            for name, case in rounds[-1].items():
                console.print(
                    f"{number + 1} {name:10} p99 {case.p99_ms:.2f} ms, {case.filled_mb_per_s:.0f} MB/s filled"
                )
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if arguments.output == "json":
        document = {
            **vars(arguments),
            "load_average_before": load_average,
            "cores": os.cpu_count(),
            "rounds": [{name: asdict(case) for name, case in each.items()} for each in rounds],
            "ratio": {case: {name: ratio(rounds, case, name) for name in list(SHOWN)[:4]} for case in CASES[1:]},
        }
        json.dump(document, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        console.print(table_of(rounds, arguments))
        console.print(f"load average before the first round: {load_average:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
