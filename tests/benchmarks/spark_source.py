"""Rows per second that Spark reads from a topic: our source, and Spark's own Kafka source on the same topic beside it.

    python tests/benchmarks/spark_source.py [--records 1200000] [--runs 5] [--query count]
                                            [--option name=value] [--parts] [--tcp]

Three brokers and ZooKeeper on loopback, a topic of six partitions for each size of value, Spark with `local[2]`, all on
this machine. Each figure is the median of some runs, after one that is not counted; the sources take turns. The peer
runs where its jars are (`make compat` fetches them). Spark and its Python workers talk over Unix sockets, as the README
has it, or with `--tcp` as they do by default. `--parts` reads one partition without Spark, by stages: what of a
task is fetching, decoding, Arrow; the rest is Spark's own. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from compat.jars import KAFKA_OF_SPARK
from strandline import Admin, Producer
from strandline.cli.cluster import EmbeddedCluster
from strandline.protocol.records import scan
from strandline.protocol.records.columnar import BatchDecoder
from strandline.protocol.types import TopicPartition
from strandline.spark_connector.options.request import SourceOptions
from strandline.spark_connector.options.source_options import parse_options
from strandline.spark_connector.reading.arrow import depth_of
from strandline.spark_connector.reading.cluster import ClusterClient
from strandline.spark_connector.reading.planning import OffsetRange
from strandline.spark_connector.reading.reader import plan_ranges, read_range
from support.spark import spark_session

PARTITIONS = 6
KEYS = 1000

QUERIES: dict[str, Callable[[Any], Any]] = {
    "count": lambda frame: frame.count(),
    "noop": lambda frame: frame.write.format("noop").mode("overwrite").save(),
    "groupBy": lambda frame: frame.groupBy("key").count().count(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_200_000, help="of 100 bytes; a quarter of them of 1 KB")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--query", choices=QUERIES, action="append", help="only this one; may be repeated")
    parser.add_argument("--option", action="append", default=[], help="of our source, as name=value")
    parser.add_argument("--parts", action="store_true", help="also read one partition without Spark, by stages")
    add_tcp(parser)
    given = parser.parse_args()
    options = dict(each.split("=", 1) for each in given.option)
    topics = {"100 B": (100, given.records), "1 KB": (1000, given.records // 4)}
    with tempfile.TemporaryDirectory() as folder, EmbeddedCluster(Path(folder) / "cluster", 3) as cluster:
        for size_bytes, records in topics.values():
            fill(cluster.bootstrap_servers, f"of-{size_bytes}", size_bytes, records)
        if given.parts:
            for name, (size_bytes, _) in topics.items():
                print_parts(name, {"servers": cluster.bootstrap_servers, "subscribe": f"of-{size_bytes}"} | options)
        with session(Path(folder), tcp=given.tcp) as (spark, sources):
            for name, (size_bytes, records) in topics.items():
                for query in given.query or QUERIES:
                    seconds = in_turns(
                        {
                            source: frame(spark, source, cluster.bootstrap_servers, f"of-{size_bytes}", options)
                            for source in sources
                        },
                        QUERIES[query],
                        given.runs,
                    )
                    rates = {source: records / each for source, each in seconds.items()}
                    ratio = f"  x{rates['strandline'] / rates['kafka']:.2f}" if "kafka" in rates else ""
                    print(
                        f"{query:8} {name:>6}: "
                        + "  ".join(f"{source} {rate / 1000:6.0f} K rows/s" for source, rate in rates.items())
                        + ratio,
                        flush=True,
                    )


def add_tcp(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tcp", action="store_true", help="between Spark and its Python workers: Spark's default")


def fill(bootstrap: str, topic: str, size_bytes: int, records: int) -> None:
    value = bytes(range(256)) * (size_bytes // 256 + 1)
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS, 1)
    with Producer(bootstrap, linger_ms=50) as producer:
        for number in range(records):
            start = number % 100
            # Lengths vary by a tenth: records of one length are decoded faster than those of real topics.
            content = value[start : start + size_bytes - number * 7919 % (size_bytes // 10)]
            producer.send(topic, content, key=b"key %d" % (number % KEYS), partition=number % PARTITIONS)


@contextmanager
def session(folder: Path, *, tcp: bool) -> Iterator[tuple[Any, list[str]]]:
    """(Spark, names of the sources that can be read with)."""
    settings, sources = {"spark__ui__showConsoleProgress": "false"}, ["strandline"]
    if not tcp:
        settings["spark__python__unix__domain__socket__enabled"] = "true"
    if (KAFKA_OF_SPARK.folder / ".complete").exists():
        settings["spark__jars"] = ",".join(map(str, sorted(KAFKA_OF_SPARK.folder.glob("*.jar"))))
        sources.append("kafka")
    with spark_session(folder, **settings) as spark:
        yield spark, sources


def frame(spark: Any, source: str, bootstrap: str, topic: str, options: dict[str, str]) -> Any:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**(options if source == "strandline" else {})).load()


def in_turns(frames: dict[str, Any], query: Callable[[Any], Any], runs: int) -> dict[str, float]:
    """Median seconds of the query by source."""
    seconds: dict[str, list[float]] = {source: [] for source in frames}
    for run in range(runs + 1):
        for source, each in frames.items():
            began = time.perf_counter()
            query(each)
            if run:
                seconds[source].append(time.perf_counter() - began)
    return {source: statistics.median(each) for source, each in seconds.items()}


# --- one partition without Spark ---------------------------------------------------------------------------------


def print_parts(name: str, given: dict[str, str]) -> None:
    """Microseconds per row of one process, with each stage added to those before."""
    options = parse_options(given)
    (wanted, *_) = plan_ranges(options, print)
    rows = wanted.end - wanted.start
    stages = {"fetch": fetch_only, "fetch, decode": fetch_and_decode, "fetch, decode, Arrow": read_all}
    for stage, run in stages.items():
        taken, cpu = [], []
        for _ in range(4):
            began, began_cpu = time.perf_counter(), time.process_time()
            run(options, wanted)
            taken.append((time.perf_counter() - began) / rows * 1e6)
            cpu.append((time.process_time() - began_cpu) / rows * 1e6)
        print(f"{name:>6}, {stage:22} {min(taken):6.2f} us/row, CPU of this process {min(cpu):6.2f}", flush=True)


def chunks(options: SourceOptions, wanted: OffsetRange) -> Iterator[memoryview]:
    position = wanted.start
    with ClusterClient(options) as cluster:
        while position < wanted.end:
            chunk = cluster.fetch(TopicPartition(wanted.topic, wanted.partition), position, 10_000)
            *_, (_, last) = scan(chunk)
            position = last.next_offset
            yield chunk


def fetch_only(options: SourceOptions, wanted: OffsetRange) -> None:
    for _ in chunks(options, wanted):
        pass


def fetch_and_decode(options: SourceOptions, wanted: OffsetRange) -> None:
    for chunk in chunks(options, wanted):
        decoder = BatchDecoder(chunk)
        for place, header in scan(chunk):
            decoder.add(place, header)
        decoder.take(depth_of(options.columns))


def read_all(options: SourceOptions, wanted: OffsetRange) -> None:
    for _ in read_range(options, wanted, print):
        pass


if __name__ == "__main__":
    main()
