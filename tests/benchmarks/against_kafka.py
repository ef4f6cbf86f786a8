"""`make bench-kafka`: Kafka 3.9 and Strandline on this machine, with the same client (librdkafka) and the same load.

Three brokers each, RF=3, 6 partitions. The systems run in turn, never at once: Kafka is started, warmed (a JVM gets
some three times faster in its first minute of load), measured case by case and stopped; then ours. What has to be
reached stands in `kafka_cases.py`. Figures are medians of the runs. The ceiling (`ceiling.py`), before and after each,
tells whether the machine stayed the same.

    python tests/benchmarks/against_kafka.py [--runs 3] [--seconds 5] [--case PART …] [--system strandline]

Prints a table for people; writes JSON for programs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table

from benchmarks import bench, members
from benchmarks.kafka_cases import CASES, SMALL_BATCHES, WHOLE, Case, ConsumeCase, GroupCase, ProduceCase
from benchmarks.systems import CLUSTERS, System

PARTITIONS = 6
RUN_TIMEOUT_S = 120.0
MOST_MB = 1_500
"""Of one run: three replicas of it have to stay in the page cache."""
FEWEST_RECORDS = 5_000
CEILING = bench.Case("16k-2x8", 16384, 2, 8)
RDKPERF = Path(".cache/rdkperf")
ORDER = tuple(CLUSTERS)
Figures = dict[str, float]


class Examiner:
    """Asks one system, case by case."""

    def __init__(self, system: System, program: Path, seconds: float) -> None:
        self._system = system
        self._program = program
        self._seconds = seconds
        self._topics = 0

    def runs(self, case: Case, count: int) -> list[Figures]:
        """Figures of each run, on a fresh topic, after at least one that is not counted."""
        self._topics += 1
        topic = f"race-{self._topics}"
        self._system.create_topic(topic, PARTITIONS)
        try:
            if isinstance(case, ProduceCase):
                return self._produce_runs(case, topic, count)
            if isinstance(case, ConsumeCase):
                return self._consume_runs(case, topic, count)
            assert isinstance(case, GroupCase)
            return [self._group_run(case, topic, count)]
        finally:
            self._system.delete_topic(topic)

    def warm(self, seconds: float) -> None:
        self._system.create_topic("warm", PARTITIONS)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._load("produce", "warm", 1000, 100_000, 0, "acks=all", *SMALL_BATCHES)
        self._system.delete_topic("warm")

    def first_record(self) -> None:
        """Returns when it is acknowledged."""
        self._system.create_topic("first", PARTITIONS)
        self._load("produce", "first", 100, 1, 0, "acks=all", "linger.ms=0")
        self._system.delete_topic("first")

    def _produce_runs(self, case: ProduceCase, topic: str, count: int) -> list[Figures]:
        most = int(MOST_MB * 1e6 / case.record_bytes)
        offered = case.records_per_second

        def run(records_per_second: float) -> Figures:
            records = max(FEWEST_RECORDS if not offered else 1, int(records_per_second * self._seconds))
            properties = case.properties
            return self._load("produce", topic, case.record_bytes, min(records, most), offered, *properties)

        rate: float = offered
        for _ in range(1 if offered else 3):  # how many records a run needs shows once it is warm
            found = run(rate)
            rate = offered or found["rps"]
        return [run(rate) for _ in range(count)]

    def _consume_runs(self, case: ConsumeCase, topic: str, count: int) -> list[Figures]:
        records = int(MOST_MB * 1e6 / case.record_bytes)
        self._load("produce", topic, case.record_bytes, records, 0, "acks=all", "linger.ms=5")
        return [self._load("consume", topic, records) for _ in range(count + 1)][1:]

    def _group_run(self, case: GroupCase, topic: str, count: int) -> Figures:
        """One run of `count` times the seconds: members join once."""
        seconds = self._seconds * count
        everybody = members.joined(self._system, topic, case.members)
        marks: list[float] = []
        try:
            outcome = members.serve(
                everybody, seconds, lambda: marks.append(self._system.cpu_seconds()), warm_up_s=self._seconds
            )
        finally:
            for member in everybody:
                member.connection.close()
        latencies = sorted(outcome.latencies_s)
        return {
            "cpu_percent": (marks[1] - marks[0]) / seconds * 100,
            "lost": sum(outcome.refused.values()),
            "rps": outcome.answered / seconds,
            "p50": latencies[len(latencies) // 2] * 1e3,
            "p99": latencies[len(latencies) * 99 // 100] * 1e3,
        }

    def _load(self, mode: str, topic: str, *rest: object) -> Figures:
        command = [str(self._program), mode, self._system.bootstrap, topic, *map(str, rest)]
        before = self._system.cpu_seconds()
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
        time.sleep(0.3)  # what followers still do for it is its cost, too
        cpu_s = self._system.cpu_seconds() - before
        if done.returncode:
            raise RuntimeError(f"{self._system.name}: {' '.join(command)} failed: {done.stdout}{done.stderr}")
        figures: Figures = json.loads(done.stdout)
        figures["us_rec"] = cpu_s / figures["records"] * 1e6
        figures["ms_mb"] = cpu_s / (figures["mb_s"] * figures["secs"]) * 1e3
        return figures


def examined(
    system: System, cases: Sequence[Case], arguments: argparse.Namespace, say: Callable[[str], None]
) -> dict[str, list[Figures]]:
    """Case → runs, of one system from its start to its end."""
    found: dict[str, list[Figures]] = {}
    say(f"{system.name}: ceiling, start")
    ceilings = [bench.run_ceiling(CEILING, arguments.seconds).megabytes_per_second]
    began = time.monotonic()
    with system:
        examiner = Examiner(system, arguments.rdkperf, arguments.seconds)
        examiner.first_record()
        start_s = time.monotonic() - began
        say(f"{system.name}: warming")
        examiner.warm(arguments.warm_seconds)
        for case in cases:
            say(f"{system.name}: {case.name}")
            found[case.name] = examiner.runs(case, arguments.runs)
        found[WHOLE.name] = [{"start_s": start_s, "rss_mb": system.rss_mb()}]
    ceilings.append(bench.run_ceiling(CEILING, arguments.seconds).megabytes_per_second)
    found["ceiling"] = [{"mb_s": value} for value in ceilings]
    return found


def result_table(cases: Sequence[Case], results: dict[str, dict[str, list[Figures]]]) -> Table:
    table = Table(title="3 brokers each, RF=3, 6 partitions; medians (min..max)")
    for column in ("case", "figure", "kafka", "strandline", "ratio", "goal", ""):
        table.add_column(column, justify="right" if column in ("kafka", "strandline", "ratio") else "left")
    for case in (*cases, WHOLE):
        runs = {name: found[case.name] for name, found in results.items()}
        goals = {goal.figure: goal for goal in case.goals}
        shown = [*goals, *(name for name in ("mb_s", "rps", "p50", "p99", "ms_mb") if name not in goals)]
        for place, figure in enumerate(name for name in shown if any(name in each[0] for each in runs.values())):
            values = {name: [run[figure] for run in each] for name, each in runs.items()}
            ours, kafkas = (statistics.median(values[name]) if name in values else None for name in ORDER[::-1])
            ratio = ours / kafkas if ours is not None and kafkas else None
            goal = goals.get(figure)
            verdict = ""
            if goal is not None and ours is not None and (value := goal.value(ours, kafkas)) is not None:
                verdict = "[green]holds[/]" if goal.holds(value) else "[red]short[/]"
            table.add_row(
                "" if place else case.name,
                figure,
                *(_with_range(values.get(name)) for name in ORDER),
                f"{ratio:.2f}" if ratio is not None else "",
                str(goal or ""),
                verdict,
            )
    return table


def _with_range(values: list[float] | None) -> str:
    if not values:
        return ""
    if len(values) == 1:
        return _short(values[0])
    return f"{_short(statistics.median(values))} ({_short(min(values))}..{_short(max(values))})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="measured runs of each case")
    parser.add_argument("--seconds", type=float, default=5.0, help="of one run, about")
    parser.add_argument("--warm-seconds", type=float, default=30.0, help="load before the first case")
    parser.add_argument("--case", action="append", help="only those whose name has this in it")
    parser.add_argument("--system", action="append", choices=ORDER, help="only this one")
    parser.add_argument("--rdkperf", type=Path, default=RDKPERF, help="the load generator")
    parser.add_argument("--touch-gb", type=float, default=8.0, help="memory to touch first")
    parser.add_argument("--output", type=Path, default=Path(".cache/bench-kafka.json"))
    arguments = parser.parse_args()
    cases = [case for case in CASES if not arguments.case or any(part in case.name for part in arguments.case)]
    console = Console() if sys.stdout.isatty() else Console(width=150)  # a file or a pipe has no width
    results: dict[str, dict[str, list[Figures]]] = {}
    with tempfile.TemporaryDirectory(prefix="strandline-race-") as folder, console.status("touching memory") as status:
        bench.touch_memory(Path(folder), arguments.touch_gb)
        for name in arguments.system or ORDER:
            results[name] = examined(System(name, Path(folder, name)), cases, arguments, status.update)
    console.print(result_table(cases, results))
    ceilings = {name: [run["mb_s"] for run in found["ceiling"]] for name, found in results.items()}
    for name, (before, after) in ceilings.items():
        console.print(f"the ceiling before and after {name}: {before:.0f}, {after:.0f} MB/s")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"results": results, "runs": arguments.runs, "seconds": arguments.seconds}
    arguments.output.write_text(json.dumps(document, indent=2))
    console.print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
