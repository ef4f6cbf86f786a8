"""Rows per second that Spark writes to a topic: our sink, and Spark's own Kafka sink beside it; what a micro-batch
costs; how much memory a Python worker takes.

    python tests/benchmarks/spark_sink.py [--rows 1000000] [--runs 3] [--part rates|batches|memory] [--tcp]

Three brokers and ZooKeeper on loopback, a topic of six partitions, Spark with `local[2]`, all on this machine. Rates
are medians of some runs, after one that is not counted; the sinks take turns. The peer runs where its jars are (`make
compat` fetches them). Spark and its Python workers talk over Unix sockets, or with `--tcp` as they do by default.
Nothing is asserted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.spark_source import add_tcp, fill, in_turns, session
from strandline import Admin
from strandline.cli.cluster import EmbeddedCluster

PARTITIONS = 6
BATCH_ROWS = 10_000
BATCHES = 12

SINKS = {
    "strandline": {},
    "strandline, exactlyOnce=false": {"exactlyOnce": "false"},
    "kafka": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of 100 bytes; a quarter of them of 1 KB")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--part", choices=("rates", "batches", "memory"), action="append", help="only this one")
    add_tcp(parser)
    given = parser.parse_args()
    parts = given.part or ("rates", "batches", "memory")
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedCluster(Path(folder) / "cluster", 3) as cluster,
        session(Path(folder), tcp=given.tcp) as (spark, formats),
    ):
        for size_bytes, rows in ((100, given.rows), (1000, given.rows // 4)):
            if "rates" in parts:
                print_rates(spark, formats, cluster.bootstrap_servers, size_bytes, rows, given.runs)
        if "batches" in parts:
            print_batches(spark, cluster.bootstrap_servers, Path(folder))
        if "memory" in parts:
            print_memory(spark, cluster.bootstrap_servers, given.rows)


def print_rates(spark: Any, formats: list[str], bootstrap: str, size_bytes: int, rows: int, runs: int) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(f"to-{size_bytes}", PARTITIONS, 1)
    frame = generated(spark, rows, size_bytes)
    sinks = {name: options for name, options in SINKS.items() if name.split(",")[0] in formats}

    def write(name: str) -> Callable[[], None]:
        def save() -> None:
            writer = frame.write.format(name.split(",")[0]).option("kafka.bootstrap.servers", bootstrap)
            writer.options(topic=f"to-{size_bytes}", **sinks[name]).mode("append").save()

        return save

    seconds = in_turns({name: write(name) for name in sinks}, lambda save: save(), runs)
    nowhere = in_turns({"noop": frame}, lambda each: each.write.format("noop").mode("overwrite").save(), runs)
    seconds["(no sink)"] = nowhere["noop"]
    for name, each in seconds.items():
        print(f"write {size_bytes:5} B: {name:32} {rows / each / 1000:6.0f} K rows/s", flush=True)
    if "kafka" in seconds:
        print(f"write {size_bytes:5} B: x{seconds['kafka'] / seconds['strandline']:.2f}", flush=True)


def generated(spark: Any, rows: int, size_bytes: int) -> Any:
    return spark.range(0, rows, 1, 6).selectExpr(
        "cast(id % 1000 as string) as key", f"rpad(cast(id as string), {size_bytes}, 'abcdefghij') as value"
    )


def print_batches(spark: Any, bootstrap: str, folder: Path) -> None:
    """Micro-batches from a topic, to nowhere and to another topic: how long Spark says that a trigger took."""
    fill(bootstrap, "batches-from", 100, BATCH_ROWS * BATCHES)
    medians = {}
    for name in ("noop", "strandline"):
        source = spark.readStream.format("strandline").option("servers", bootstrap)
        source = source.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(BATCH_ROWS)).load("batches-from")
        query = source.select("key", "value").writeStream.format(name)
        query = query.options(servers=bootstrap, topic="batches-to", checkpointLocation=str(folder / f"cp-{name}"))
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        taken = [each["durationMs"]["triggerExecution"] for each in running.recentProgress if each["numInputRows"]]
        medians[name] = statistics.median(taken[1:])
        print(f"micro-batch of {BATCH_ROWS} rows to {name:10}: {medians[name]:.0f} ms (median of {len(taken) - 1})")
    print(f"the sink adds {medians['strandline'] - medians['noop']:.0f} ms", flush=True)


def print_memory(spark: Any, bootstrap: str, rows: int) -> None:
    """The largest Python worker while one task reads a whole partition, and while one writes that many rows."""
    with Admin(bootstrap) as admin:
        admin.create_topic("memory", 1, 1)
    with peak_worker_bytes() as peak:
        writer = generated(spark, rows, 1000).coalesce(1).write.format("strandline").option("servers", bootstrap)
        writer.option("topic", "memory").mode("append").save()
    print(f"a task that writes {rows} rows of 1 KB: {peak[0] / 1e6:.0f} MB", flush=True)
    with peak_worker_bytes() as peak:
        reader = (
            spark.read.format("strandline").option("servers", bootstrap).option("maxRecordsPerPartition", str(rows))
        )
        reader.load("memory").write.format("noop").mode("overwrite").save()
    print(f"a task that reads {rows} rows of 1 KB: {peak[0] / 1e6:.0f} MB", flush=True)


@contextmanager
def peak_worker_bytes() -> Iterator[list[int]]:
    """The most that one Python worker of Spark's held resident meanwhile, looked at twenty times a second."""
    peak, stop = [0], Event()

    def watch() -> None:
        while not stop.wait(0.05):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if b"pyspark.daemon" in (process / "cmdline").read_bytes() and os.getpid() in ancestors(
                        process.name
                    ):
                        resident = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                        peak[0] = max(peak[0], resident)

    thread = Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def ancestors(pid: str) -> Iterator[int]:
    """Of a process; OSError where one has ended."""
    while int(pid) > 1:
        pid = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        yield int(pid)


if __name__ == "__main__":
    main()
