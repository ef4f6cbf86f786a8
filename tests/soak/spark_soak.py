"""`make spark-soak MINUTES=10`: streaming queries of Spark whose drivers are killed, over brokers that are killed.

    python tests/soak/spark_soak.py [--minutes 10] [--seed 1] [--rounds N] [--only-streams] [--rows 0] [--output json]

Each round has a seed of its own, which is told, and a topic that is written meanwhile, with every codec:

| round | from it | into |
|---|---|---|
| topic | a topic that grows | a topic, by our sink |
| parquet | a topic that grows | Parquet files |
| compacted | a topic in which newer records of a key replace the older ones | Parquet files |
| truncated | a topic whose beginning is deleted, with failOnDataLoss=false | Parquet files |

Drivers and their workers die (SIGKILL) at points of `support/spark_faults.py`, one after the other, chosen by the seed;
brokers die and come back. At the end one driver may live. Promises, compared record by record:
* topic, parquet: every record exactly once, and no other
* compacted, truncated: nothing twice, nothing that was not written, and everything that still stands in the topic

Before that a sink meets every fault of a batch (`spark_faults.CASES`), which leaves each row once, and with
`--rows 10000000` so many rows go through source and sink in one batch, compared by checksum.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from strandline import Admin, TopicPartition
from strandline.cli.cluster import EmbeddedCluster
from strandline.client.errors import ClientError
from support import copies, spark_job
from support.spark import spark_session
from support.spark_faults import CASES, SINK_POINTS, SOURCE_POINTS, Faults

KINDS = ("topic", "parquet", "compacted", "truncated")
KEYS = 50
"""Of a compacted topic."""
PARTS, PART = 8, 500
"""So many times so many records are written, each time with one codec: the last driver shall come to an end."""
BROKERS = {"log.cleaner.backoff.ms": "200", "log.cleaner.min.cleanable.ratio": "0.01", "min.insync.replicas": "2"}
CONFIGS = {"compacted": {"cleanup.policy": "compact", "segment.bytes": "20000"}}
AWAY_S = (1.0, 8.0)


@dataclass(frozen=True, slots=True)
class Told:
    """Of one round. `struck`: which faults did. `wrong`: the broken promise, empty where all hold."""

    seed: int
    kind: str
    records: int
    struck: list[str]
    brokers_killed: int
    seconds: float
    wrong: str


class Round:
    """Everything that a seed decides, and what came of it."""

    def __init__(self, cluster: EmbeddedCluster, spark: Any, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed, self.kind = seed, KINDS[seed % len(KINDS)]
        self.cluster, self.spark, self.folder = cluster, spark, folder / f"round-{seed}"
        self.source, self.target = f"from-{seed}", f"to-{seed}"
        self.partitions = self.random.randint(1, 4)
        self.keys = KEYS if self.kind == "compacted" else 0
        self.written = 0
        self.brokers_killed = 0
        self.failed: list[BaseException] = []

    def run(self) -> Told:
        began = time.monotonic()
        with Admin(self.cluster.bootstrap_servers) as admin:
            admin.create_topic(self.source, self.partitions, 3, {**copies.KEPT, **CONFIGS.get(self.kind, {})})
            admin.create_topic(self.target, 3, 3, copies.KEPT)
        self.folder.mkdir()
        faults, arguments = Faults(self.folder / "faults"), self.arguments()
        struck = []
        with self.under_fire():
            for point in self.points():
                kind = self.random.choice(("jvm", "jvm", "worker"))
                faults.arm(point, self.random.randint(1, 3), kind)
                if not self.ended_well(spark_job.run(faults, *arguments)):
                    assert faults.has_struck, "what has ended the driver?"
                if faults.has_struck:
                    struck.append(f"{kind} {point}")
        faults.disarm()
        assert self.ended_well(spark_job.run(faults, *arguments)), "nothing strikes this one"
        return Told(
            self.seed,
            self.kind,
            self.written,
            struck,
            self.brokers_killed,
            round(time.monotonic() - began, 1),
            self.wrong(),
        )

    def ended_well(self, driver: subprocess.CompletedProcess[str]) -> bool:
        with (self.folder / "drivers.log").open("a") as log:
            log.write(driver.stderr)
        return driver.returncode == 0

    def arguments(self) -> list[str]:
        target = self.target if self.kind == "topic" else str(self.folder / "written")
        options = [f"maxOffsetsPerTrigger={self.random.choice((300, 700, 5_000))}"]
        if self.random.random() < 0.5:
            options.append(f"minPartitions={2 * self.partitions}")
        if self.kind == "truncated":
            options.append("failOnDataLoss=false")
        checkpoint = str(self.folder / "checkpoint")
        return ["stream", self.cluster.bootstrap_servers, self.source, target, checkpoint, *options]

    def points(self) -> list[str]:
        points = [*SOURCE_POINTS, *SINK_POINTS] if self.kind == "topic" else [*SOURCE_POINTS]
        return self.random.sample(points, self.random.randint(2, 4))

    # --- what goes on meanwhile ---

    @contextmanager
    def under_fire(self) -> Iterator[None]:
        """Records are written, brokers die and come back, until the block ends; then all are up."""
        over = threading.Event()
        threads = [threading.Thread(target=self.guarded, args=(each, over)) for each in (self.write, self.kill_brokers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()
        if self.failed:
            raise self.failed[0]

    def guarded(self, work: Any, over: threading.Event) -> None:
        try:
            work(over)
        except BaseException as error:
            self.failed.append(error)

    def write(self, over: threading.Event) -> None:
        """The first part at once; also grows the topic, or deletes from it."""
        chosen = random.Random(f"write {self.seed}")
        while not self.written or (self.written < PARTS * PART and not over.wait(chosen.uniform(1.0, 15.0))):
            numbers = range(self.written, self.written + PART)
            copies.write(self.cluster.bootstrap_servers, self.source, numbers, chosen.choice(copies.CODECS), self.keys)
            self.written = numbers.stop
            if chosen.random() < 0.4:
                self.change(chosen)

    def change(self, chosen: random.Random) -> None:
        """Where no broker is away: otherwise it may be refused, another time it will not."""
        with suppress(ClientError), Admin(self.cluster.bootstrap_servers) as admin:
            if self.kind == "truncated":
                partition = TopicPartition(self.source, chosen.randrange(self.partitions))
                admin.delete_records({partition: self.written // self.partitions // 2})
            elif self.kind != "compacted" and not self.cluster.dead_members() and self.partitions < 8:
                admin.create_partitions(self.source, self.partitions + 1)
                self.partitions += 1

    def kill_brokers(self, over: threading.Event) -> None:
        chosen = random.Random(f"kill {self.seed}")
        while not over.wait(chosen.uniform(5.0, 15.0)):
            broker_id = chosen.choice(self.cluster.broker_ids)
            self.cluster.kill_broker(broker_id)
            self.brokers_killed += 1
            over.wait(chosen.uniform(*AWAY_S))
            self.cluster.start_broker(broker_id)

    # --- what came of it ---

    def wrong(self) -> str:
        servers = self.cluster.bootstrap_servers
        wanted = copies.expected(range(self.written), self.keys)
        if self.kind == "topic":
            return copies.unlike(copies.standing(servers, self.target), wanted)
        found = copies.contents(self.spark.read.parquet(str(self.folder / "written")).collect())
        if self.kind == "parquet":
            return copies.unlike(found, wanted)
        lost = copies.standing(servers, self.source) - found
        if lost:
            return f"{lost.total()} records that stand in the topic are missing"
        return copies.unlike(found, wanted & found)


# --- Many rows ---------------------------------------------------------------------------------------------------


def checksum(spark: Any, bootstrap: str, topic: str) -> tuple[Any, ...]:
    """(rows, a sum over all of them that no order changes)."""
    frame = spark.read.format("strandline").options(servers=bootstrap, includeHeaders="true").load(topic)
    of_row = "xxhash64(key, value, unix_millis(timestamp), headers)"
    row = frame.selectExpr("count(*)", f"sum(cast({of_row} as decimal(38, 0)))", f"bit_xor({of_row})").first()
    return tuple(row)


def many_rows(cluster: EmbeddedCluster, spark: Any, rows: int) -> Told:
    """Through source and sink: a share of them with each codec."""
    began, servers = time.monotonic(), cluster.bootstrap_servers
    with Admin(servers) as admin:
        for topic in ("many", "many-again"):
            admin.create_topic(topic, 6, 3, copies.KEPT)
    share = rows // len(copies.CODECS)
    for number, codec in enumerate(copies.CODECS):
        copies.write(servers, "many", range(number * share, (number + 1) * share), codec)
    options = {"servers": servers, "includeHeaders": "true"}
    frame = spark.read.format("strandline").options(**options).load("many").drop("topic")
    frame.write.format("strandline").options(topic="many-again", **options).mode("append").save()
    before, after = (checksum(spark, servers, topic) for topic in ("many", "many-again"))
    written = share * len(copies.CODECS)
    wrong = "" if before == after and before[0] == written else f"{before} became {after}; written: {written}"
    return Told(0, "many rows", written, [], 0, round(time.monotonic() - began, 1), wrong)


def batches(cluster: EmbeddedCluster, folder: Path) -> Told:
    """Every fault that can strike a task that writes."""
    began, servers, topic = time.monotonic(), cluster.bootstrap_servers, "batches"
    with Admin(servers) as admin:
        admin.create_topic(topic, 3, 3)
    faults = Faults(folder / "faults")
    ended = spark_job.run(faults, "batches", servers, topic, str(faults.folder), "long")
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    struck = [" ".join(map(str, each["case"])) for each in lines if each["has_struck"]]
    found = copies.values(servers, topic)
    wrong = "" if found == spark_job.expected_of_batches("long") else "not each row once"
    if ended.returncode or len(struck) != len(CASES["long"]):
        wrong = f"ended with {ended.returncode} after {len(struck)} faults: {ended.stderr[-1000:]}"
    return Told(0, "batches", found.total(), struck, 0, round(time.monotonic() - began, 1), wrong)


# --- The whole ---------------------------------------------------------------------------------------------------


def show(console: Console, told: list[Told]) -> None:
    table = Table(title="Streams of Spark under faults")
    for heading in ("seed", "round", "records", "what died, and where", "brokers killed", "s", "promises"):
        table.add_column(heading, overflow="fold")
    for each in told:
        cells = each.seed, each.kind, f"{each.records:,}", ", ".join(each.struck), each.brokers_killed, each.seconds
        table.add_row(*map(str, cells), each.wrong or "hold", style="red" if each.wrong else None)
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="no round begins later")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--rounds", type=int, help="end after so many, however long it takes")
    parser.add_argument("--only-streams", action="store_true", help="leave out the faults of batches")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--output", choices=("table", "json"), default="table")
    given = parser.parse_args()
    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # with everything that it has started
    told: list[Told] = []
    with tempfile.TemporaryDirectory(prefix="spark-soak-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (
            EmbeddedCluster(folder / "cluster", 3, properties=BROKERS) as cluster,
            spark_session(folder / "spark", spark__ui__showConsoleProgress="false") as spark,
        ):
            if not given.only_streams:
                told.append(batches(cluster, folder))
                console.print(told[-1])
            if given.rows:
                told.append(many_rows(cluster, spark, given.rows))
                console.print(told[-1])
            end = time.monotonic() + given.minutes * 60
            for seed in itertools.count(given.seed):
                if seed - given.seed == given.rounds or (given.rounds is None and time.monotonic() >= end):
                    break
                told.append(Round(cluster, spark, folder, seed).run())
                console.print(told[-1])
    if given.output == "json":
        sys.stdout.write(json.dumps([asdict(each) for each in told], indent=1) + "\n")
    else:
        show(Console(), told)
    return int(any(each.wrong for each in told))


if __name__ == "__main__":
    sys.exit(main())
