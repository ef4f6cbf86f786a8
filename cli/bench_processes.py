"""Several producers side by side, each in a process of its own: one interpreter computes on one core.

Each is this command with a share of the records and of the rate; what they print as JSON is added up. Ctrl-C, from a
terminal or not, reaches this process alone, which hands it on once to each, and each tells what it has. A second one
ends them all at once. One that was killed (SIGKILL) can hand on nothing: its end of a pipe closes, and the others end
with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import click

from strandline.cli.bench_measure import Result, result_of_fields, side_by_side
from strandline.cli.bench_run import RunOptions
from strandline.cli.bench_text import producer_interval
from strandline.cli.session import EXIT_INTERRUPTED
from strandline.cli.wording import printable
from strandline.runtime.processes.interrupts import held_back


def of_processes(options: RunOptions, topic: str, bootstrap_servers: str, given: dict[str, Any]) -> tuple[Result, bool]:
    """The sum of all, and whether they were interrupted. ClickException: what one said instead of a result."""
    started: list[subprocess.Popen[bytes]] = []
    interrupted = False
    theirs, kept_open = os.pipe()
    try:
        try:
            with held_back():  # a process that was started is known when it is interrupted
                for place in range(given["processes"]):
                    started.append(_start(arguments(options, topic, bootstrap_servers, given, place), theirs))
            outputs = [process.communicate() for process in started]
        except KeyboardInterrupt:
            interrupted = True
            for process in started:
                process.send_signal(signal.SIGINT)
            outputs = [process.communicate() for process in started]
    finally:
        for process in started:
            process.kill()  # nothing, where it has ended
            process.wait()
        os.close(theirs)
        os.close(kept_open)
    interrupted = interrupted or any(process.returncode == EXIT_INTERRUPTED for process in started)
    results = [found for output in outputs if (found := _result(*output, may_lack=interrupted)) is not None]
    if not results:
        raise KeyboardInterrupt
    result = side_by_side(results)
    if options.output == "text":
        for interval in result.intervals:
            click.echo(producer_interval(interval))
    return result, interrupted


ENDS_WITH_STDIN = "--ends-with-stdin"
"""The option of each of them that has it end with the process that started it."""


def _start(command_line: list[str], stdin: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "strandline.cli", *command_line],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )


def _result(output: bytes, errors: bytes, *, may_lack: bool) -> Result | None:
    """may_lack: one that was interrupted before it sent anything has none."""
    try:
        return result_of_fields(json.loads(output))
    except (ValueError, KeyError):
        if may_lack:
            return None
        said = errors.decode(errors="replace").strip().removeprefix("strandline: ")
        raise click.ClickException(
            f"a producer's process has no result: {printable(said) or 'it said nothing'}"
        ) from None


def arguments(options: RunOptions, topic: str, bootstrap_servers: str, given: dict[str, Any], place: int) -> list[str]:
    """The command line of one of them; `place` decides who gets what cannot be divided."""
    count = given["processes"]
    found = ["bench", "produce", "-t", topic, "-b", bootstrap_servers, "--output", "json"]
    found += ["--size", str(options.size), "--interval", str(options.interval)]
    found += ["--acks", given["acks"], "-z", given["compression"]]
    found += ["--keys", str(given["keys"]), "--per-call", str(given["per_call"])]
    if options.records is not None:
        share = options.records // count + (place < options.records % count)
        found += ["--records", str(share)]
    if options.seconds is not None:
        found += ["--seconds", str(options.seconds)]
    if given["rate"] and given["rate"] > 0:
        found += ["--rate", str(given["rate"] / count)]
    for setting in options.settings:
        found += ["-X", setting]
    return [*found, ENDS_WITH_STDIN]
