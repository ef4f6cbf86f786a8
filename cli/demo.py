"""`strandline demo`: the whole system at work in seven steps, each checked.

1 start ZooKeeper and three brokers · 2 create a topic · 3 produce Python's standard library · 4 half-way kill a
broker, start it again · 5 consume and compare with the files · 6 the same in Spark · 7 say what was proven, leave
nothing running. Anything missing, doubled or altered fails the demo, naming it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import trio

from strandline.cli.demo_check import DemoFailed, Findings, check
from strandline.cli.demo_source import SourceFile, standard_library
from strandline.cli.options import output_option, show_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from strandline.cli.cluster import EmbeddedCluster
    from strandline.cli.demo_failover import Failover
    from strandline.cli.demo_traffic import Ledger

TOPIC = "stdlib"
PARTITIONS = 6
REPLICATION_FACTOR = 3
MIN_INSYNC_REPLICAS = 2
_SPARK_LIMIT_S = 300
_SHOWN_PACKAGES = 6

MARKER_FILE = "strandline-demo.txt"
_MARKER = "Made by strandline demo: the next demo in this folder removes the cluster in it.\n"


@click.command(epilog="Example: strandline demo --keep --data ./demo-data")
@click.option("--keep", is_flag=True, help="Leave the cluster up for a look round.")
@click.option(
    "--data",
    "data_dir",
    type=click.Path(file_okay=False, path_type=Path),
    default="demo-data",
    show_default=True,
    help="Folder of the demo's cluster; what an earlier demo left there is removed, anything else is refused.",
)
@click.option("--files", "limit", type=click.IntRange(min=6), help="Only so many files.  [default: all]")
@click.option("--no-spark", is_flag=True, help="Leave out the Spark step.")
@output_option
def demo(keep: bool, data_dir: Path, limit: int | None, no_spark: bool, output: str) -> None:
    """Show the whole system at work: replicate, fail over, consume, read in Spark, and check every byte."""
    shown = Demo(data_dir, keep=keep, with_spark=not no_spark, limit=limit, is_quiet=output == "json")
    shown.run()
    if output == "json":
        show_json("demo", **shown.proven())


class Demo:
    """One run; the steps are its methods, in order."""

    def __init__(
        self, data_dir: Path, *, keep: bool, with_spark: bool, limit: int | None, is_quiet: bool = False
    ) -> None:
        """is_quiet: what happens is told on stderr."""
        from rich.console import Console

        from strandline.cli.cluster import EmbeddedCluster
        from strandline.cli.demo_traffic import Ledger

        self.console: Console = Console(highlight=False, stderr=is_quiet)
        self.cluster: EmbeddedCluster = EmbeddedCluster(data_dir)
        self.ledger: Ledger = Ledger()
        self.keep = keep
        self.with_spark = with_spark
        self.files: list[SourceFile] = standard_library(limit)
        self.findings = Findings()
        self.failover: Failover | None = None
        self.figures: list[str] = []

    def run(self) -> None:
        """All steps; whatever happens, nothing is left running unless `keep` and all went well."""
        # Before anything is started: after a refusal there is nothing of ours to stop.
        self.prepare_folder()
        began = time.monotonic()
        try:
            self.start_cluster()
            self.create_topic()
            self.produce_and_fail_over()
            self.consume_and_check()
            if self.with_spark:
                self.read_with_spark()
        except BaseException:
            self.cluster.stop(timeout_s=5)
            raise
        if not self.keep:
            self.cluster.stop()
        self.summary(time.monotonic() - began)

    # --- 1 -----------------------------------------------------------------------------------------------------

    def start_cluster(self) -> None:
        """A fresh cluster in the demo's folder."""
        self._step(1, f"starting ZooKeeper and {len(self.cluster.broker_ids)} brokers in {self.cluster.data_dir}")
        began = time.monotonic()
        self.cluster.start()
        took = time.monotonic() - began
        self._say(f"brokers {self.cluster.bootstrap_servers} · ZooKeeper {self.cluster.zookeeper.address}")
        self._say(f"ready in {took:.1f} s")
        self.figures.append(f"cluster ready in {took:.1f} s")

    # --- 2 -----------------------------------------------------------------------------------------------------

    def create_topic(self) -> None:
        from strandline import Admin

        self._step(
            2, f"creating topic {TOPIC}: {PARTITIONS} partitions, {REPLICATION_FACTOR} replicas, "
            f"min.insync.replicas {MIN_INSYNC_REPLICAS}"
        )  # fmt: skip
        with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            configs = {"min.insync.replicas": str(MIN_INSYNC_REPLICAS)}
            admin.create_topic(TOPIC, PARTITIONS, REPLICATION_FACTOR, configs)
        self._wait_for_leaders()

    # --- 3 and 4 -----------------------------------------------------------------------------------------------

    def produce_and_fail_over(self) -> None:
        lines = sum(file.lines_count for file in self.files)
        size = sum(len(file.content) for file in self.files)
        self._step(3, f"producing {lines:,} lines of {len(self.files):,} files ({size / 1e6:.1f} MB), acks=all")
        began = time.monotonic()
        with self._progress() as progress:
            task = progress.add_task("produced", total=lines)
            trio.run(self._produce_and_fail_over, lines, progress, task)
        took = time.monotonic() - began
        self.figures.append(f"{lines / took:,.0f} records/s produced over {took:.1f} s, the failover included")
        self._say(f"all {self.ledger.records:,} records acknowledged in {took:.1f} s")

    async def _produce_and_fail_over(self, lines: int, progress: Progress, task: Any) -> None:
        from strandline.cli.demo_failover import fail_over
        from strandline.cli.demo_traffic import produce

        finished = trio.Event()

        async def show() -> None:
            while not finished.is_set():
                progress.update(task, completed=self.ledger.records)
                with trio.move_on_after(0.1):
                    await finished.wait()
            progress.update(task, completed=self.ledger.records)

        async def break_half_way() -> None:
            while self.ledger.records < lines // 2:  # noqa: ASYNC110 (a counter makes no event)
                await trio.sleep(0.02)
            self._step(4, "half-way")
            self.failover = await fail_over(self.cluster, TOPIC, self._say)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(show)
            async with trio.open_nursery() as work:
                work.start_soon(break_half_way)
                await produce(self.cluster.bootstrap_servers, TOPIC, self.files, self.ledger)
            finished.set()

    # --- 5 -----------------------------------------------------------------------------------------------------

    def consume_and_check(self) -> None:
        from strandline.cli.demo_traffic import consume

        self._step(5, "consuming everything, comparing each file")
        began = time.monotonic()
        with self._progress() as progress:
            task = progress.add_task("consumed", total=self.ledger.records)

            def show(read: int, total: int) -> None:
                progress.update(task, completed=read, total=total)

            logs = trio.run(consume, self.cluster.bootstrap_servers, TOPIC, show)
        took = time.monotonic() - began
        read = sum(len(log) for log in logs.values())
        self.findings = check(self.files, logs, self.ledger.acknowledged)
        self.figures.append(f"{read / took:,.0f} records/s consumed")
        self._say(f"{read:,} records in {took:.1f} s; {self.findings.files:,} files complete, in order, unaltered")

    # --- 6 -----------------------------------------------------------------------------------------------------

    def read_with_spark(self) -> None:
        self._step(6, 'reading the topic in Spark: spark.read.format("strandline")')
        began = time.monotonic()
        result = self._run_spark()
        self._compare_with_files(result["files"])
        took = time.monotonic() - began
        self.figures.append(f"Spark's job in {took:.1f} s, start included")
        self._show_packages(result["packages"])

    def _run_spark(self) -> dict[str, Any]:
        from strandline.cli.java import spark_environment

        log_path, result = self.cluster.data_dir / "spark.log", self.cluster.data_dir / "spark.json"
        command = [
            sys.executable,
            "-P",
            "-m",
            "strandline.cli.demo_spark",
            self.cluster.bootstrap_servers,
            TOPIC,
            str(result),
        ]
        with log_path.open("wb") as log:
            try:
                done = subprocess.run(
                    command,
                    # In a folder with other letters than ASCII, Java starts only with a locale that has them.
                    env={**os.environ, **spark_environment(), "SPARK_LOCAL_IP": "127.0.0.1", "LC_ALL": "C.UTF-8"},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=_SPARK_LIMIT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise DemoFailed(f"Spark did not finish within {_SPARK_LIMIT_S} s (log: {log_path})") from None
        if done.returncode != 0:
            last = [line for line in log_path.read_text(errors="replace").splitlines() if line.strip()][-1:]
            raise DemoFailed(f"Spark's job failed: {' '.join(last)[:300]} (log: {log_path})")
        return dict(json.loads(result.read_text()))

    def _compare_with_files(self, computed: dict[str, list[int]]) -> None:
        for file in self.files:
            wanted = [file.lines_count, len(file.content)]
            found = computed.pop(file.name, None)
            if found != wanted:
                raise DemoFailed(f"Spark: {file.name} has [lines, bytes] {found} instead of {wanted}")
        if computed:
            raise DemoFailed(f"Spark: {next(iter(computed))} was never produced")

    # --- 7 -----------------------------------------------------------------------------------------------------

    def summary(self, took_s: float) -> None:
        self._step(7, f"done in {took_s:.0f} s")
        counts = f"{self.findings.records:,} records of {self.findings.files:,} files"
        proven = [f"{counts} came back complete, in order, unaltered"]
        if self.failover is not None:
            role = "the controller and a leader" if self.failover.was_controller else "a leader"
            lost = f"the loss of {role} (broker {self.failover.victim})"
            proven.append(f"{lost} cost {self.failover.longest_s:.1f} s without a leader and no record")
            proven.append(f"it was back in every ISR {self.failover.back_in_isr_s:.1f} s after its start")
        if self.with_spark:
            proven.append("Spark computed the same lines and bytes for every file")
        for line in proven:
            self.console.print(f"  [green]✓[/] {line}", soft_wrap=True)
        self.console.print(f"  {' · '.join(self.figures)}", soft_wrap=True)
        folder = os.path.relpath(self.cluster.data_dir)
        data = shlex.quote(folder)
        if self.keep:
            self.console.print(f"  the cluster is up at {self.cluster.bootstrap_servers}; next:")
            commands = [f"status --data {data}", f"consume -b {self.cluster.bootstrap_servers} -t {TOPIC} -o -5:end",
                        f"down --data {data}"]  # fmt: skip
        else:
            self.console.print("  nothing is left running; next:")
            commands = [
                f"up --data {data}",
                f"dump-log {shlex.quote(f'{folder}/broker-1/data/{TOPIC}-0')}",
                f"down --data {data}",
            ]
        for command in commands:
            self.console.print(f"    strandline {command}", markup=False, soft_wrap=True)

    def proven(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "data_dir": str(self.cluster.data_dir),
            "bootstrap_servers": self.cluster.bootstrap_servers if self.keep else None,
            "files": self.findings.files,
            "records": self.findings.records,
            "failover": None if self.failover is None else asdict(self.failover),
            "with_spark": self.with_spark,
            "figures": self.figures,
        }

    # --- helpers -----------------------------------------------------------------------------------------------

    def _step(self, number: int, text: str) -> None:
        from rich.markup import escape

        self.console.print(f"[bold cyan]{number}/7[/] {escape(text)}", soft_wrap=True)

    def _say(self, text: str) -> None:
        self.console.print(f"    {text}", soft_wrap=True)

    def _progress(self) -> Progress:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        return Progress(
            TextColumn("    {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=self.console,
        )  # fmt: skip

    def prepare_folder(self) -> None:
        """Make the folder, or remove an earlier demo's cluster from it: only what a cluster makes, and only in a
        folder that carries the demo's marker. UsageError for anybody else's, ClusterAlreadyUp, ClusterBusy."""
        from strandline.cli.cluster import ClusterAlreadyUp
        from strandline.cli.cluster_state import LOCK_FILE, FolderRefused, check_folder, locked, read_state

        data_dir = self.cluster.data_dir
        try:
            check_folder(data_dir)
        except FolderRefused as error:
            raise click.UsageError(str(error)) from None
        present = {entry.name for entry in data_dir.iterdir()} if data_dir.exists() else set()
        if present - {LOCK_FILE} and MARKER_FILE not in present:
            raise click.UsageError(
                f"{data_dir} holds something that no demo made, and a demo would remove it; "
                "name another folder with --data, or empty this one yourself"
            )
        data_dir.mkdir(parents=True, exist_ok=True)
        with locked(data_dir):
            members = read_state(data_dir)
            if members is not None and any(member.process.is_alive for member in members.values()):
                raise ClusterAlreadyUp(
                    f"a cluster is up in {data_dir}; stop it first: strandline down --data {data_dir}"
                )
            (data_dir / MARKER_FILE).write_text(_MARKER)
            for folder in (self.cluster.zookeeper.folder, *map(self.cluster.broker_folder, self.cluster.broker_ids)):
                shutil.rmtree(folder, ignore_errors=True)

    def _wait_for_leaders(self, limit_s: float = 30.0) -> None:
        from strandline.cli.demo_failover import leaders_of, whole_isr

        deadline = time.monotonic() + limit_s
        while True:
            answer = self.cluster.metadata([TOPIC])
            if answer is not None and whole_isr(answer, TOPIC):
                leaders = leaders_of(answer, TOPIC)
                if len(leaders) == PARTITIONS and -1 not in leaders.values():
                    shown = ", ".join(f"{partition}→{leader}" for partition, leader in sorted(leaders.items()))
                    self._say(f"leaders (partition→broker): {shown}")
                    return
            if time.monotonic() > deadline:
                raise DemoFailed(f"topic {TOPIC} has no leaders after {limit_s:.0f} s")
            time.sleep(0.05)

    def _show_packages(self, packages: Sequence[Sequence[Any]]) -> None:
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("package (as Spark computed it)")
        for heading in ("files", "lines", "bytes"):
            table.add_column(heading, justify="right")
        for name, files, lines, size in packages[:_SHOWN_PACKAGES]:
            table.add_row(name, f"{files:,}", f"{lines:,}", f"{size:,}")
        if rest := packages[_SHOWN_PACKAGES:]:
            sums = [sum(row[column] for row in rest) for column in (1, 2, 3)]
            table.add_row(f"{len(rest)} others", *(f"{value:,}" for value in sums))
        self.console.print(table)
