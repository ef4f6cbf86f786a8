"""Simulated runs as lines and tables for people. Pure, but for the tables, which are printed."""

from __future__ import annotations

import hashlib
import os
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click

import strandline
from strandline import __version__
from strandline.cli.simulate_run import Result
from strandline.cli.tables import show_table
from strandline.cli.wording import counted, printable
from strandline.testkit.simulation.findings import line_of, name_of

if TYPE_CHECKING:
    from strandline.testkit.simulation.minimise import Case
    from strandline.testkit.simulation.options import Options


NAMED_MAX = 5
"""Of what was never reached."""
MANY_SEEDS = 20
"""So many should reach most of what there is."""


def versions_line() -> str:
    """What a digest depends on, besides the seed and the options."""
    versions = f"Python {platform.python_version()}, trio {version('trio')}"
    return f"strandline {__version__} (sources {sources_digest()}), {versions}"


def sources_digest() -> str:
    """Of all that is run, whether it was installed or stands in a working tree."""
    told, root = hashlib.sha256(), Path(strandline.__file__).parent
    for folder, folders, names in os.walk(root, followlinks=True):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(folder, name)
                told.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return told.hexdigest()[:12]


def head_lines(options: Options, case: Case) -> list[str]:
    """What a run is, before what comes of it."""
    return [*options.lines(), "the faults:" if case.script else "no faults", *map(str, case.script)]


def show_outcome(result: Result) -> None:
    click.echo(f"digest {result.digest}")
    show_sometimes([result])
    for finding in result.findings:
        click.echo(f"finding: {finding_line(finding)}")
    click.echo(f"{_findings(len(result.findings))}; {speed_text([result], result.real_s)}")


def finding_line(finding: str) -> str:
    """Of an exception the traceback follows in lines of its own."""
    return printable(line_of(finding))


def seed_line(result: Result) -> str:
    """Of one run among several."""
    faults = counted(sum(result.faults.values()), "fault")
    told = f"seed {result.seed}: {result.digest}, {faults}, {speed_text([result], result.real_s)}: "
    if not result.findings:
        return told + "no finding"
    if len(result.findings) == 1:
        return f"{told}FINDING {finding_line(result.findings[0])}"
    names = Counter(map(name_of, result.findings))
    return f"{told}{len(result.findings)} FINDINGS: " + ", ".join(f"{name} ×{count}" for name, count in names.items())


def show_batch(results: Sequence[Result], kinds: Iterable[str], real_s: float) -> None:
    """kinds: of faults that there may have been."""
    columns = ("fault", "struck", "runs", "without findings", "with findings")
    rows = fault_rows(results, kinds)
    show_table(columns, [tuple(map(str, row)) for row in rows], columns[1:])
    show_sometimes(results)
    show_findings(results)
    missed = never_reached(results)
    if missed and len(results) >= MANY_SEEDS:
        named = ", ".join(missed[:NAMED_MAX]) + (f" and {len(missed) - NAMED_MAX} more" * (len(missed) > NAMED_MAX))
        click.echo(f"never reached: {named}")
    failed = [result for result in results if result.findings]
    for result in failed:
        click.echo(f"again: {result.replay}")
    click.echo(
        f"{counted(len(results), 'seed')}, {len(failed)} with findings; "
        f"{speed_text(results, real_s)}, {_speed(results, sum(each.real_s for each in results))} in one process"
    )


def fault_rows(results: Sequence[Result], kinds: Iterable[str]) -> list[tuple[str, int, int, int, int]]:
    """(kind, how often struck, in how many runs, of which without and with findings)."""
    rows = []
    for kind in kinds:
        struck = [result for result in results if result.faults.get(kind)]
        bad = sum(bool(result.findings) for result in struck)
        count = sum(result.faults[kind] for result in struck)
        rows.append((kind, count, len(struck), len(struck) - bad, bad))
    return rows


def sum_of_sometimes(results: Iterable[Result]) -> Counter[str]:
    total: Counter[str] = Counter()
    for result in results:
        total.update(result.sometimes)
    return total


def never_reached(results: Iterable[Result]) -> list[str]:
    """What many seeds should reach, and these did not: of that they prove nothing."""
    from strandline.testkit.simulation.counters import ALWAYS_REACHED

    total = sum_of_sometimes(results)
    return [name for name in ALWAYS_REACHED if not total[name]]


def show_sometimes(results: Sequence[Result]) -> None:
    """What is rare, and how often it was reached."""
    columns = ("sometimes", "times", "runs")
    rows = [
        (name, f"{count:,}", str(sum(result.sometimes.get(name, 0) > 0 for result in results)))
        for name, count in sorted(sum_of_sometimes(results).items())
    ]
    if rows:
        show_table(columns, rows, columns[1:])


def show_findings(results: Sequence[Result]) -> None:
    """By their names, and where to begin."""
    columns = ("finding", "times", "runs", "first seed")
    seeds: dict[str, list[int]] = {}
    for result in results:
        for finding in result.findings:
            seeds.setdefault(name_of(finding), []).append(result.seed)
    if seeds:
        rows = [(name, str(len(each)), str(len(set(each))), str(each[0])) for name, each in sorted(seeds.items())]
        show_table(columns, rows, columns[1:])


def _findings(count: int) -> str:
    return counted(count, "finding") if count else "no finding"


def speed_text(results: Sequence[Result], real_s: float) -> str:
    """real_s: of all together."""
    simulated_s = sum(result.virtual_s for result in results)
    return f"{simulated_s:,.1f} simulated seconds in {real_s:.1f} s, {_speed(results, real_s)}"


def _speed(results: Sequence[Result], real_s: float) -> str:
    return f"×{sum(result.virtual_s for result in results) / max(real_s, 1e-9):.0f}"
