"""`make bench-commands`: how long people wait for commands: a million lines in and out, and `up` after a kill.

A cluster of three brokers of its own; each command is a process, as a person starts it: interpreter, imports and
connections count. After the lines are in, every process is killed (SIGKILL, ZooKeeper too) and `up` is run again, and
the lines are counted once more: what was acknowledged is there.

    python tests/benchmarks/commands.py [--lines 1000000] [--size 8 --size 100] [--runs 3] [--output json]

`--size`: bytes of a line. Beside each stands what the same amount takes through `cat`, to tell how fast the machine is
at that moment. Nothing is asserted but the number of lines.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from strandline.cli.cluster_state import read_state

COMMAND = (sys.executable, "-m", "strandline.cli")
TIMEOUT_S = 300.0
GOALS_S = {"produce": 5.0, "consume": 2.0, "up after kill": 8.0}


def main() -> None:
    asked = argparse.ArgumentParser(description="How long commands take.")
    asked.add_argument("--lines", type=int, default=1_000_000)
    asked.add_argument("--size", type=int, action="append", help="bytes of a line, may be repeated")
    asked.add_argument("--runs", type=int, default=3)
    asked.add_argument("--output", choices=("text", "json"), default="text")
    args = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-commands-") as folder:
        figures = measure(Path(folder), args.lines, args.size or [8, 100], args.runs)
    if args.output == "json":
        print(json.dumps(figures))
        return
    for what, seconds in figures.items():
        goal = GOALS_S.get(what.partition(",")[0])
        shown = ", ".join(f"{each:.2f}" for each in seconds)
        print(f"{what:32} {shown} s" + (f"   (goal {goal:g} s)" if goal else ""))


def measure(folder: Path, lines: int, sizes: Sequence[int], runs: int) -> dict[str, list[float]]:
    """What was timed → seconds of each run."""
    environment = {**os.environ, "STRANDLINE_DATA": str(folder / "cluster")}
    environment.pop("STRANDLINE_BOOTSTRAP", None)
    figures: dict[str, list[float]] = {}
    run(environment, "up")
    try:
        for size in sizes:
            source = folder / f"lines-{size}"
            source.write_bytes(b"".join(b"%0*d\n" % (size, number) for number in range(lines)))
            for attempt in range(runs):
                topic = f"lines-{size}-{attempt}"
                run(environment, "topics", "create", topic, "--partitions", "6", "--replication-factor", "3")
                case = f", {size} B"
                note(figures, "produce" + case, run(environment, "produce", "-t", topic, source=source))
                note(figures, "consume" + case, count(environment, topic, folder / "read", lines))
                note(figures, "cat" + case, copied(source, folder / "copied"))
        for _ in range(runs):
            kill_everything(folder / "cluster")
            note(figures, "up after kill", run(environment, "up"))
            count(environment, topic, folder / "read", lines)
    finally:
        run(environment, "down")
    return figures


def note(figures: dict[str, list[float]], what: str, seconds: float) -> None:
    figures.setdefault(what, []).append(seconds)


def run(
    environment: Mapping[str, str], *words: str, source: Path | None = None, destination: Path | None = None
) -> float:
    """Seconds that the command takes. CalledProcessError where it fails."""
    with (
        open(source or os.devnull, "rb") as given,
        open(destination or os.devnull, "wb") as taken,
    ):
        began = time.monotonic()
        subprocess.run(
            [*COMMAND, *words],
            env=dict(environment),
            stdin=given,
            stdout=taken,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=True,
        )
        return time.monotonic() - began


def count(environment: Mapping[str, str], topic: str, destination: Path, lines: int) -> float:
    """Seconds that reading the topic takes; every line must be there, once."""
    seconds = run(environment, "consume", "-t", topic, "-o", ":end", destination=destination)
    found = len(set(destination.read_bytes().splitlines()))
    assert found == lines, f"{found} different lines of {lines} came out of {topic}"
    return seconds


def copied(source: Path, destination: Path) -> float:
    """Seconds that `cat` takes for the same bytes."""
    began = time.monotonic()
    with source.open("rb") as given, destination.open("wb") as taken:
        subprocess.run(["cat"], stdin=given, stdout=taken, check=True, timeout=TIMEOUT_S)
    return time.monotonic() - began


def kill_everything(data_dir: Path) -> None:
    """As a machine's out-of-memory killer might: no process of the cluster is told."""
    for member in (read_state(data_dir) or {}).values():
        member.process.send(signal.SIGKILL)
        member.process.wait_gone(TIMEOUT_S)


if __name__ == "__main__":
    main()
