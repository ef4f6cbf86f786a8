"""`make bench-control`: how long the control plane takes, and what a producer notices, by the number of partitions.

    python tests/benchmarks/control_plane.py [--case reload --case create --case stop --case roll] [--runs 3]
                                             [--partitions 10000] [--beside 2000] [--output json] [--keep DIR]

* *reload*: a controller is elected over so many partitions (`--partitions`), which were all led by a broker that is
  gone: until all states are read, new leaders are written, and the orders to the brokers queued; then until all have
  answered. *failure*: the same when such a broker goes while the controller is in office. The controller is real and in
  a process of its own, so is ZooKeeper; the brokers are stand-ins in one other process, which read and answer orders.
* *create*: one topic of `--beside` partitions with three replicas on three real brokers, from the request until the
  answer; then the answer is held against what every broker says: each partition is led, by a leader that serves. An
  ext4 without a journal searches past every inode that was deleted in the last five minutes, also by the last run of
  this, for three times the time of all the rest: `TMPDIR=/dev/shm` is a file system that does not.
* *stop*: a broker is stopped by SIGTERM with these partitions beside 12 that are produced to with acks=all, one record
  each every 20 ms: the longest time without an acknowledgement of one of the 12.
* *roll*: all three brokers in turn are stopped, started, and waited for until all are in sync; the longest such time of
  each, and the errors that the producer saw; with 12 partitions alone, and with the others beside.

Stages are told from the brokers' logs. CPU time is that of the broker processes together. Nothing is asserted; on a
machine that is busy with other things only CPU time and ratios tell something: see the load average.
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
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import trio
from rich.console import Console
from rich.table import Table

from benchmarks.control_reload import measure_reload
from benchmarks.watched_load import WatchedLoad
from strandline.cli.cluster import EmbeddedCluster
from strandline.client import TrioAdmin, TrioProducer
from strandline.client.connection import Connection
from strandline.protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataResponse,
)
from strandline.protocol.types import NO_BROKER
from strandline.runtime.network_socket import SocketNetwork

BROKERS = 3
WATCHED = 12
TOPIC, BESIDE = "watched", "beside"
CASES = ("reload", "create", "stop", "roll")
CPUCLOCK_SCHED = 2
"""Linux: the clock of another process has its inverted id, and this kind of time in the last three bits."""
PATIENCE_S = 300
SETTLE_S = 5.0
"""Between all in sync and the next blow: what a start leaves to be done is done."""
CATCH_UP_S = 1.0
"""So long after a stop or a start the producer is still watched."""
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d)")

Row = dict[str, Any]
"""`case`, `seconds` and what they are made of."""


class Cluster:
    """Three real brokers on a folder of their own."""

    def __init__(self, root: Path) -> None:
        self.embedded = EmbeddedCluster(root, BROKERS)
        self.network = SocketNetwork()

    def cpu_s(self, without: int = NO_BROKER) -> float:
        """Of all brokers (but for one) since their starts, with all their threads."""
        daemons = [daemon for broker_id, daemon in self.embedded.brokers.items() if broker_id != without]
        pids = [daemon.id.pid for daemon in daemons if daemon.id is not None]
        return sum(time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED) for pid in pids)

    def moments(self, text: str, since: float) -> list[float]:
        """When lines of any broker's logs that hold this text were written, in seconds after `since`."""
        found = []
        for broker_id in self.embedded.broker_ids:
            for path in self.embedded.broker_folder(broker_id).glob("*.log"):
                for line in path.read_text().splitlines():
                    if text in line and (stamp := TIMESTAMP.search(line)) is not None:
                        found.append(datetime.fromisoformat(stamp.group()).timestamp() - since)
        return sorted(each for each in found if each >= 0)

    def first(self, text: str, since: float) -> float | None:
        return next(iter(self.moments(text, since)), None)

    def last(self, text: str, since: float) -> float | None:
        return next(reversed(self.moments(text, since)), None)

    async def until_whole(self, *topics: str) -> None:
        """Every partition has all replicas in sync."""
        with trio.fail_after(PATIENCE_S):
            while True:
                answer = await trio.to_thread.run_sync(self.embedded.metadata, topics)
                states = [state for topic in answer.topics for state in topic.partitions] if answer else []
                if states and all(len(state.isr_nodes) == BROKERS for state in states):
                    return
                await trio.sleep(0.5)

    async def unserved(self, topic: str) -> int:
        """Partitions that some broker knows no leader of, or whose leader does not serve them."""
        led_by: dict[int, list[int]] = {}
        unserved: set[int] = set()
        for broker_id in self.embedded.broker_ids:
            connection = await self._connect(broker_id)
            answer = await connection.call(MetadataRequest(topics=[topic]), MetadataResponse)
            connection.close()
            states = answer.topics[0].partitions if answer.topics else []
            unserved |= {state.partition_index for state in states if state.leader_id == NO_BROKER}
            led_by = {}
            for state in states:
                led_by.setdefault(state.leader_id, []).append(state.partition_index)
        for leader, partitions in led_by.items():
            connection = await self._connect(leader)
            asked = [ListOffsetsTopic(topic, [ListOffsetsPartition(each, -1) for each in partitions])]
            offsets = await connection.call(ListOffsetsRequest(topics=asked), ListOffsetsResponse)
            connection.close()
            unserved |= {each.partition_index for part in offsets.topics for each in part.partitions if each.error_code}
        return len(unserved)

    async def _connect(self, broker_id: int) -> Connection:
        return await Connection.open(self.network, self.embedded.address(broker_id))


@contextmanager
def running(arguments: argparse.Namespace, name: str) -> Iterator[Cluster]:
    root = Path(arguments.keep or tempfile.mkdtemp(prefix="strandline-control-")) / name
    cluster = Cluster(root)
    try:
        cluster.embedded.start()
        yield cluster
    finally:
        cluster.embedded.stop(timeout_s=20)
        if not arguments.keep:
            shutil.rmtree(root.parent, ignore_errors=True)


# --- create ------------------------------------------------------------------------------------------------------


async def measure_create(cluster: Cluster, arguments: argparse.Namespace) -> list[Row]:
    rows = []
    async with TrioAdmin(cluster.embedded.bootstrap_servers, request_timeout_ms=PATIENCE_S * 1000) as admin:
        await admin.create_topic("first", num_partitions=WATCHED, replication_factor=BROKERS)  # everything is imported
        for number in range(arguments.runs):
            await trio.sleep(SETTLE_S)
            topic = f"{BESIDE}-{number}"
            cpu_s, at, began = cluster.cpu_s(), time.time(), time.monotonic()
            await admin.create_topic(topic, num_partitions=arguments.beside, replication_factor=BROKERS)
            seconds = time.monotonic() - began
            rows.append(
                {
                    "case": f"create {arguments.beside}",
                    "seconds": seconds,
                    "cpu": cluster.cpu_s() - cpu_s,
                    "found": cluster.first("topics found", at),
                    "written": cluster.first("partition states changed", at),
                    "first roles": cluster.first("roles changed", at),
                    "last roles": cluster.last("roles changed", at),
                    "unserved": await cluster.unserved(topic),
                    "load": os.getloadavg()[0],
                }
            )
    return rows


# --- stop, roll --------------------------------------------------------------------------------------------------


async def prepare(cluster: Cluster, beside: int) -> list[str]:
    async with TrioAdmin(cluster.embedded.bootstrap_servers, request_timeout_ms=PATIENCE_S * 1000) as admin:
        topics = {TOPIC: WATCHED} | ({BESIDE: beside} if beside else {})
        for topic, partitions in topics.items():
            await admin.create_topic(topic, num_partitions=partitions, replication_factor=BROKERS)
    return list(topics)


async def measure_restarts(cluster: Cluster, case: str, beside: int, rounds: int) -> list[Row]:
    """Each broker in turn, so many rounds."""
    topics = await prepare(cluster, beside)
    watched = WatchedLoad(TOPIC, WATCHED)
    rows: list[Row] = []
    async with (
        TrioProducer(cluster.embedded.bootstrap_servers, acks="all", linger_ms=0) as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(watched.produce, producer)
        for number in range(rounds * BROKERS):
            await cluster.until_whole(*topics)
            await trio.sleep(SETTLE_S)
            rows += await restart(cluster, watched, 1 + number % BROKERS, topics, f"{case} {beside} beside")
        nursery.cancel_scope.cancel()
    return rows


async def restart(cluster: Cluster, watched: WatchedLoad, victim: int, topics: Sequence[str], case: str) -> list[Row]:
    """One row for its stop, one for its start."""
    embedded = cluster.embedded
    watched.begin()
    at, cpu_s = time.time(), cluster.cpu_s(victim)
    await trio.to_thread.run_sync(partial(embedded.stop_broker, victim))
    gone = time.time() - at
    cpu_s = cluster.cpu_s(victim) - cpu_s
    await watched_for(watched, CATCH_UP_S)
    stop = row_of(watched, f"{case}, stop", victim, at)
    stop |= {
        "asked": cluster.first("controlled shutdown ", at),
        "written": cluster.last("partition states changed" if len(topics) > 1 else "partition state changed", at),
        "led": cluster.last("roles changed" if len(topics) > 1 else "became leader", at),
        "answered": cluster.first("controlled shutdown done", at),
        "stopped": cluster.first("broker stopped", at),
        "gone": gone,
        "cpu of others": cpu_s,
    }
    watched.begin()
    at = time.time()
    await trio.to_thread.run_sync(partial(embedded.start_broker, victim, timeout_s=PATIENCE_S))
    serves = time.time() - at
    await cluster.until_whole(*topics)
    whole = time.time() - at
    await watched_for(watched, CATCH_UP_S)
    start = row_of(watched, f"{case}, start", victim, at)
    start |= {
        "registered": cluster.first("broker registered", at),
        "serves": serves,
        "in sync": whole,
    }
    return [stop, start]


async def watched_for(watched: WatchedLoad, seconds: float) -> None:
    moment = time.time()
    with trio.move_on_after(PATIENCE_S):
        await trio.sleep(seconds)
        while not watched.pauses.flow_since(moment):
            await trio.sleep(0.05)


def row_of(watched: WatchedLoad, case: str, victim: int, at: float) -> Row:
    pause = watched.pauses.longest()
    return {
        "case": case,
        "seconds": pause.seconds,
        "broker": victim,
        "partition": pause.partition,
        "from": pause.began_s - at,
        "to": pause.ended_s - at,
        "errors": len(watched.errors),
        "load": os.getloadavg()[0],
    }


# --- all of it ---------------------------------------------------------------------------------------------------


def measure(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    chosen = arguments.case or CASES
    if "reload" in chosen:
        yield measure_reload(arguments.partitions, arguments.runs)
    if "create" in chosen:
        with running(arguments, "create") as cluster:
            yield trio.run(measure_create, cluster, arguments)
    if "stop" in chosen or "roll" in chosen:
        for beside in (0, arguments.beside):
            with running(arguments, f"restarts-{beside}") as cluster:
                yield trio.run(measure_restarts, cluster, "restart", beside, arguments.runs)


def shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "" if value is None else str(value)


def tables(console: Console, rows: Sequence[Row]) -> None:
    by_columns: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        by_columns.setdefault(tuple(row), []).append(row)
    for columns, some in by_columns.items():
        table = Table(*columns)
        for row in some:
            table.add_row(*map(shown, row.values()))
        console.print(table)
        for case in dict.fromkeys(row["case"] for row in some):
            seconds = [row["seconds"] for row in some if row["case"] == case]
            console.print(f"{case}: median {statistics.median(seconds):.3f} s, longest {max(seconds):.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=CASES, help="only these")
    parser.add_argument("--runs", type=int, default=3, help="of each case; of restarts, rounds of all brokers")
    parser.add_argument("--partitions", type=int, default=10_000, help="of reload")
    parser.add_argument("--beside", type=int, default=2000, help="that are created, and lie beside those produced to")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.add_argument("--keep", metavar="DIR", help="put the data there and leave it")
    arguments = parser.parse_args()
    console = Console(stderr=arguments.output == "json", width=None if sys.stdout.isatty() else 200)
    rows: list[Row] = []
    for some in measure(arguments):
        tables(console, some)
        rows += some
    if arguments.output == "json":
        json.dump(rows, sys.stdout, indent=1)
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
