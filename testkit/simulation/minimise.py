"""The shortest script that still shows something: fewer faults, a shorter run, shorter faults. Pure.

```
case ──> half as long, again and again ──> delta debugging over the faults ──> half as long ──> each fault shorter
```
Any part of a script is one (`script`), so whatever is left out leaves something that can be tried. Each try is a whole
run: what makes the next ones cheap comes first. The result is minimal in that it stops to show with any one fault less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from strandline.testkit.simulation.script import Fault

SHORTEST_RUN_S = 1.0
SHORTEST_FAULT_S = 0.1


class Case(NamedTuple):
    """length_s: of the time with faults."""

    script: tuple[Fault, ...]
    length_s: float


Shows = Callable[[Case], bool]


def minimised(case: Case, shows: Shows) -> Case:
    """case: one that shows it. shows: whether another one does; deterministic, and expensive."""
    for shorten in (_shorter_run, _fewer_faults, _shorter_run, _shorter_faults):
        case = shorten(case, shows)
    return case


def _shorter_run(case: Case, shows: Shows) -> Case:
    while (half_s := round(case.length_s / 2, 3)) >= SHORTEST_RUN_S:
        half = Case(tuple(fault for fault in case.script if fault.at_s < half_s), half_s)
        if not shows(half):
            break
        case = half
    return case


def _fewer_faults(case: Case, shows: Shows) -> Case:
    """Delta debugging (Zeller's ddmin): leave out one part of `parts`, and where all are needed cut finer."""
    parts = 1
    while case.script:
        found = next((less for less in _without_one_part(case, parts) if shows(less)), None)
        if found is not None:
            case, parts = found, max(1, parts - 1)
        elif parts >= len(case.script):
            break
        else:
            parts = min(2 * parts, len(case.script))
    return case


def _without_one_part(case: Case, parts: int) -> Iterator[Case]:
    """The last one first: what happens late is the consequence more often than the cause."""
    count = len(case.script)
    bounds = [count * part // parts for part in range(parts + 1)]
    for part in reversed(range(parts)):
        yield case._replace(script=case.script[: bounds[part]] + case.script[bounds[part + 1] :])


def _shorter_faults(case: Case, shows: Shows) -> Case:
    for place in range(len(case.script)):
        while (half_s := round(case.script[place].seconds / 2, 2)) >= SHORTEST_FAULT_S:
            script = list(case.script)
            script[place] = script[place]._replace(seconds=half_s)
            shorter = case._replace(script=tuple(script))
            if not shows(shorter):
                break
            case = shorter
    return case
