"""What came of the cases: a table for a terminal, and the page of the documentation. Pure.

The page says what the table of known differences says; that this is so is what the suite proves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.table import Table

from compat.spark_conformance.cases import Case, Outcome, differences, misunderstood, verdict
from compat.spark_conformance.known import KNOWN
from compat.spark_conformance.reads import CASES as READS
from compat.spark_conformance.streams import CASES as STREAMS
from compat.spark_conformance.writes import CASES as WRITES

SECTIONS = {"batch reads": READS, "streams": STREAMS, "sinks": WRITES}
CASES: tuple[Case, ...] = tuple(case for cases in SECTIONS.values() for case in cases)
SAME = "same"


class Line(NamedTuple):
    """One case. `wrong`: why the suite fails; empty where it does not."""

    case: str
    result: str
    why: str
    wrong: str


def line(case: Case, kafka: Outcome, ours: Outcome) -> Line:
    """What the table says of a case."""
    found = differences(case, kafka, ours)
    mistakes, reasons = verdict(case, found, KNOWN)
    if misled := misunderstood(case, kafka):
        mistakes.append(f"Spark's Kafka connector: {misled}")
    result = f"differs: {', '.join(found)}" if found else SAME
    return Line(case.name, result, "; ".join(dict.fromkeys(reasons.values())), "; ".join(mistakes))


def table(lines: Iterable[Line]) -> Table:
    lines = list(lines)
    same = sum(each.result == SAME for each in lines)
    shown = Table(title=f"Spark's Kafka connector and ours: {same} of {len(lines)} cases are the same")
    for heading in ("case", "result", "why"):
        shown.add_column(heading, overflow="fold")
    for each in lines:
        style = "red" if each.wrong else None if each.result == SAME else "yellow"
        shown.add_row(each.case, each.result, f"NOT KNOWN: {each.wrong}" if each.wrong else each.why, style=style)
    return shown


# --- The page ----------------------------------------------------------------------------------------------------

_HEAD = """\
# Spark's Kafka connector and ours

`format("kafka")` of Spark and `format("strandline")` are given the same queries over the same cluster
(`make spark-conformance`; `make compat` runs most of them). Compared are rows, schemas, numbers of tasks, batches and
offsets of streams, and of errors the condition, where Spark's connector has one, and the decisive words. What a sink
writes is read back by the other source. This page is written by `make docs` and checked by the suite.
"""


def page() -> str:
    """docs/spark-conformance.md."""
    return "\n".join(
        [_HEAD, *_differing(), *(part for title, cases in SECTIONS.items() for part in _same(title, cases))]
    )


def _differing() -> Iterator[str]:
    yield "## What differs\n\n| query | in its | why |\n|---|---|---|"
    for known in KNOWN:
        yield f"| {_cell('; '.join(known.cases))} | {known.aspects.replace(' ', ', ')} | {_cell(known.why)} |"


def _same(title: str, cases: Iterable[Case]) -> Iterator[str]:
    differing = {name for known in KNOWN for name in known.cases}
    yield f"\n## The same: {title}\n"
    yield from (f"* {case.name}" for case in cases if case.name not in differing)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
