"""`make bench-failover`: how long a topic acknowledges nothing after a SIGKILL.

    python tests/benchmarks/failover.py [--runs 20] [--partitions 12] [--beside 0 2000] [--session-ms 6000]
                                        [--refused-ms 300] [--load-mb 5] [--vanish] [--output json] [--keep DIR]
    python tests/benchmarks/failover.py --table …       `failure_table`: other faults, ours beside Kafka's

Three brokers, a topic with acks=all and min.insync.replicas=2, one record to each of its partitions every 20 ms, and
another topic with many partitions beside, which all have to be led by somebody else, too; a cluster for each number of
these. Another producer writes 5 MB/s to a third topic meanwhile (`--load-mb`; 0: nobody does). Each run kills a broker,
in turns the controller and another one, waits until all flows again and the session of the dead one has ended, starts
it, and waits until all are in sync.

The gap of a partition is the longest time without an acknowledgement; of a run, that of its worst partition, also of
one whose leader lives, since it waits for the dead follower. The goals: 0.7 s where a broker is killed, 1.0 s where it
is the controller, 1.5 s with 2000 partitions beside. With `--refused-ms 0` sessions alone tell, and nothing can shorten
the gap below what is left of one at the kill. With `--vanish` the process is stopped and not killed (SIGSTOP): as of a
machine that is off nothing answers and nothing refuses, and the goal is a session and half a second. Two stages are
told from the brokers' logs, counted from the kill: when a controller noticed (or a new one was elected), and when the
last partition had a leader that knew of it. Nothing is asserted. On a machine that is busy with other things the gap is
mostly what those leave: see the load average.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import trio
from rich.console import Console

from benchmarks import failure_table
from benchmarks.watched_load import LOAD_PROPERTIES, LOAD_TOPIC, LoadBeside, WatchedLoad
from strandline.cli.cluster import EmbeddedCluster
from strandline.client import TrioAdmin, TrioProducer

TOPIC, BESIDE = "watched", "beside"
BROKERS = 3
SETTLE_S = 5.0
"""Between all in sync and the kill: what a start leaves to be done is done."""
PATIENCE_S = 300
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d)")
NOTICED = re.compile("broker failed|broker suspected|elected controller")
LEADING = re.compile("became leader|roles changed")


@dataclass(frozen=True, slots=True)
class Run:
    """One kill; seconds. `noticed_s` and `led_s` count from the kill; −1 where no log tells. `load_mb_per_s`: what the
    other producer had acknowledged until all flowed again."""

    beside: int
    victim: int
    was_controller: bool
    gap_s: float
    noticed_s: float
    led_s: float
    load_mb_per_s: float
    load_average: float


async def measure(cluster: EmbeddedCluster, beside: int, arguments: argparse.Namespace, console: Console) -> list[Run]:
    load = LoadBeside(cluster.bootstrap_servers, arguments.load_mb)
    topics = {TOPIC: arguments.partitions} | ({BESIDE: beside} if beside else {})
    async with TrioAdmin(cluster.bootstrap_servers, request_timeout_ms=PATIENCE_S * 1000) as admin:
        for topic, partitions in topics.items():
            await admin.create_topic(
                topic, num_partitions=partitions, replication_factor=BROKERS, configs={"min.insync.replicas": "2"}
            )
        await load.create_topic(admin, BROKERS)
    watched = WatchedLoad(TOPIC, arguments.partitions)
    runs: list[Run] = []
    async with (
        TrioProducer(cluster.bootstrap_servers, acks="all", linger_ms=0) as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(watched.produce, producer)
        if arguments.load_mb:
            nursery.start_soon(load.run)
        for number in range(arguments.runs):
            await until_whole(cluster, [*topics, LOAD_TOPIC])
            await trio.sleep(SETTLE_S)
            controller = await controller_of(cluster)
            others = [broker_id for broker_id in cluster.broker_ids if broker_id != controller]
            victim = others[number // 2 % len(others)] if number % 2 else controller
            is_controller, vanishes = victim == controller, arguments.vanish
            runs.append(await strike_one(cluster, watched, load, beside, victim, is_controller, vanishes))
            console.print(line_of(runs[-1], number + 1))
        nursery.cancel_scope.cancel()
    return runs


async def strike_one(
    cluster: EmbeddedCluster,
    watched: WatchedLoad,
    load: LoadBeside,
    beside: int,
    victim: int,
    is_controller: bool,
    vanishes: bool,
) -> Run:
    session_s = cluster.session_timeout_ms / 1000
    watched.begin()
    at, acked_bytes = time.time(), load.acked_bytes
    await trio.to_thread.run_sync(cluster.pause_broker if vanishes else cluster.kill_broker, victim)
    with trio.fail_after(PATIENCE_S):
        await trio.sleep(session_s)
        while not watched.pauses.flow_since(at + (session_s if vanishes else 1.0)):
            await trio.sleep(0.1)
    gap_s = watched.pauses.longest().seconds
    load_mb_per_s = (load.acked_bytes - acked_bytes) / 1e6 / (time.time() - at)
    others = [broker_id for broker_id in cluster.broker_ids if broker_id != victim]
    noticed = [moment - at for each in others for moment in moments(cluster, each, NOTICED) if moment > at]
    led = [moment - at for each in others for moment in moments(cluster, each, LEADING) if moment > at]
    if vanishes:
        await trio.to_thread.run_sync(cluster.kill_broker, victim)
    await trio.to_thread.run_sync(partial(cluster.start_broker, victim, timeout_s=PATIENCE_S))
    return Run(
        beside,
        victim,
        is_controller,
        gap_s,
        min(noticed, default=-1.0),
        max(led, default=-1.0),
        load_mb_per_s,
        os.getloadavg()[0],
    )


def moments(cluster: EmbeddedCluster, broker_id: int, event: re.Pattern[str]) -> list[float]:
    """When a broker's logs tell of it, seconds since 1970."""
    found = []
    for path in sorted(cluster.broker_folder(broker_id).glob("*.log")):
        for line in path.read_text().splitlines():
            if event.search(line) and (stamp := TIMESTAMP.search(line)) is not None:
                found.append(datetime.fromisoformat(stamp.group()).timestamp())
    return found


async def controller_of(cluster: EmbeddedCluster) -> int:
    answer = await trio.to_thread.run_sync(cluster.metadata, [TOPIC])
    return answer.controller_id if answer is not None else -1


async def until_whole(cluster: EmbeddedCluster, topics: list[str]) -> None:
    """Every partition has all replicas in sync."""
    with trio.fail_after(PATIENCE_S):
        while True:
            answer = await trio.to_thread.run_sync(cluster.metadata, topics)
            states = [state for topic in answer.topics for state in topic.partitions] if answer is not None else []
            if states and all(len(state.isr_nodes) == BROKERS for state in states):
                return
            await trio.sleep(0.5)


def line_of(run: Run, number: int) -> str:
    who = f"broker {run.victim}" + (", the controller" if run.was_controller else "")
    return (
        f"{run.beside:5} beside {number:3} gap {run.gap_s:5.2f} s  ({who}; noticed after {run.noticed_s:.2f} s, last "
        f"leader {run.led_s:.2f} s; {run.load_mb_per_s:.1f} MB/s beside; load average {run.load_average:.1f})"
    )


def goal_s(run: Run, vanish_goal_s: float | None) -> float:
    if vanish_goal_s is not None:
        return vanish_goal_s
    if run.beside:
        return 1.5
    return 1.0 if run.was_controller else 0.7


def summary(runs: list[Run], vanish_goal_s: float | None) -> list[str]:
    """A line for each kind of run. vanish_goal_s: None where brokers are killed."""
    kinds: dict[tuple[int, bool], list[Run]] = {}
    for run in runs:
        kinds.setdefault((run.beside, run.was_controller), []).append(run)
    lines = []
    for (beside, was_controller), its in sorted(kinds.items()):
        gaps = sorted(run.gap_s for run in its)
        goal = goal_s(its[0], vanish_goal_s)
        within = sum(run.gap_s <= goal for run in its)
        who, blow = "controller" if was_controller else "broker", "killed" if vanish_goal_s is None else "vanished"
        lines.append(
            f"{beside} beside, {who} {blow}: longest gap {gaps[-1]:.2f} s, median {gaps[len(gaps) // 2]:.2f} s; at "
            f"most {goal:.1f} s in {within} of {len(its)} runs"
        )
    return lines


def main() -> None:
    if "--table" in sys.argv[1:]:
        failure_table.main([each for each in sys.argv[1:] if each != "--table"])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=12, help="of the topic that is produced to")
    parser.add_argument("--beside", type=int, nargs="+", default=[0, 2000], help="partitions of another topic")
    parser.add_argument("--session-ms", type=int, default=6000)
    parser.add_argument("--refused-ms", type=int, default=300, help="failure.detection.refused.ms; 0: sessions alone")
    parser.add_argument("--load-mb", type=float, default=5.0, help="MB/s that another producer writes; 0: nobody")
    parser.add_argument("--vanish", action="store_true", help="stop the process: nothing answers, nothing refuses")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.add_argument("--keep", metavar="DIR", help="put the data there and leave it")
    arguments = parser.parse_args()
    root = Path(arguments.keep or tempfile.mkdtemp(prefix="strandline-failover-"))
    console = Console(stderr=arguments.output == "json", width=None if sys.stdout.isatty() else 170)
    runs: list[Run] = []
    try:
        for beside in arguments.beside:
            cluster = EmbeddedCluster(root / str(beside), BROKERS, session_timeout_ms=arguments.session_ms)
            cluster.properties["failure.detection.refused.ms"] = str(arguments.refused_ms)
            cluster.properties.update(LOAD_PROPERTIES)
            try:
                cluster.start()
                runs += trio.run(measure, cluster, beside, arguments, console)
            finally:
                cluster.stop(timeout_s=10)
    finally:
        if not arguments.keep:
            shutil.rmtree(root, ignore_errors=True)
    if arguments.output == "json":
        settings = {
            "session_s": arguments.session_ms / 1000,
            "refused_ms": arguments.refused_ms,
            "load_mb": arguments.load_mb,
        }
        json.dump({**settings, "runs": [asdict(run) for run in runs]}, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        for line in summary(runs, arguments.session_ms / 1000 + 0.5 if arguments.vanish else None):
            console.print(line)


if __name__ == "__main__":
    main()
