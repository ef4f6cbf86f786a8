"""What is done to the cluster, as data: a list of faults with their times, which can be printed, read, cut shorter.

```
  3.250 kill at disk 2 for 4.1: roll
  7.000 cut 1>3 for 12
  9.400 pause controller for 8
```
Each line: when (seconds since the run began), what, to whom (a broker's id, `controller`, `all`, a link `1>3` or
`1-3`), for how long until it is undone, and how, where its kind leaves a choice. A fault whose target is struck
already, or does not run, is passed over: so any part of a script is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

LINE = re.compile(
    r"""\s*(?P<at_s>\d+(\.\d+)?)
    \s+(?P<kind>[a-z][a-z -]*?)
    (\s+(?P<target>\d+([>-]\d+)?|controller|all))?
    (\s+for\s+(?P<seconds>\d+(\.\d+)?))?
    (:\s*(?P<how>.*\S))?\s*""",
    re.VERBOSE,
)


class NotAFault(ValueError):
    """A line of a script cannot be read, or be done to this cluster; the text says which."""


class Fault(NamedTuple):
    at_s: float
    kind: str
    target: str = ""
    seconds: float = 0.0
    """Until it is undone: a broker returns, a link heals."""
    how: str = ""
    """One of the choices that its kind leaves; empty: chance takes one."""

    def __str__(self) -> str:
        target = f" {self.target}" if self.target else ""
        seconds = f" for {self.seconds:g}" if self.seconds else ""
        how = f": {self.how}" if self.how else ""
        return f"{self.at_s:9.3f} {self.kind}{target}{seconds}{how}"


@dataclass(slots=True)
class Struck:
    """A fault that was really done: from when, in common time, until when it was undone (inf: it never was)."""

    fault: Fault
    from_s: float
    to_s: float = float("inf")


def text_of(script: Iterable[Fault]) -> str:
    return "".join(f"{fault}\n" for fault in script)


def read_script(text: str) -> tuple[Fault, ...]:
    """In the order of their times. Empty lines and what follows `#` say nothing. NotAFault."""
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0]
        if not line.strip():
            continue
        found = LINE.fullmatch(line)
        if found is None:
            raise NotAFault(f"line {number} of the script is no fault: {line.strip()!r}; `3.25 kill 2 for 4` is one")
        faults.append(
            Fault(
                float(found["at_s"]),
                found["kind"],
                found["target"] or "",
                float(found["seconds"] or 0.0),
                found["how"] or "",
            )
        )
    return tuple(sorted(faults))
