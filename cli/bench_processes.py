"""Several producers side by side, each in a process of its own: one interpreter computes on one core.

Each is this command with a share of the records and of the rate; what they print as JSON is added up. Ctrl-C in a
terminal reaches all of them, and each tells what it has.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from typing import Any

import click

from strandline.cli.bench_measure import Result, result_of_fields, side_by_side
from strandline.cli.bench_run import RunOptions
from strandline.cli.bench_text import producer_interval
from strandline.cli.session import EXIT_INTERRUPTED
from strandline.cli.wording import printable


def of_processes(options: RunOptions, topic: str, bootstrap_servers: str, given: dict[str, Any]) -> tuple[Result, bool]:
    """The sum of all, and whether they were interrupted. ClickException: what one said instead of a result."""
    count = given["processes"]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "strandline.cli", *arguments(options, topic, bootstrap_servers, given, place)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for place in range(count)
    ]
    try:
        outputs = []
        for process in started:
            try:
                outputs.append(process.communicate())
            except KeyboardInterrupt:
                outputs.append(process.communicate())
        interrupted = any(process.returncode == EXIT_INTERRUPTED for process in started)
        results = [_result(*output) for output in outputs]
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                process.kill()
    result = side_by_side(results)
    if options.output == "text":
        for interval in result.intervals:
            click.echo(producer_interval(interval))
    return result, interrupted


def _result(output: bytes, errors: bytes) -> Result:
    try:
        return result_of_fields(json.loads(output))
    except (ValueError, KeyError):
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
        found += ["--records", str(max(share, 1))]
    if options.seconds is not None:
        found += ["--seconds", str(options.seconds)]
    if given["rate"] and given["rate"] > 0:
        found += ["--rate", str(given["rate"] / count)]
    for setting in options.settings:
        found += ["-X", setting]
    return found
