"""For `metrics_overhead.py`: from SIGUSR1 on, a broker with this folder in PYTHONPATH counts what it does for requests
in every other of short turns, and nothing of it in those between. SIGUSR2 ends that: it counts again, and what both
have cost is a line of the file that `FIGURES_AT` names.

One process does both, for two of one kind differ by more than counting costs: by where their memory lies, above all.
What the machine does beside it lasts for longer than a turn, and so strikes both alike.

Each module of the hot path is compiled a second time, without the lines that count, and a timer gives its functions
the one code or the other. What is left are the looks at the clock that end a burst, which deadlines and idle
connections need, too, and what connections note of the order in which answers leave. A module in which no line counts
any more, or which cannot be compiled without it, ends the process: then this table is to be mended.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple

COUNTING = {
    "strandline.broker.network.request_channel": (
        r"first = requests\[0\]\n(?s:.*?) count_burst\(connection, row, requests,"
    ),
    "strandline.broker.network.connection": r"self\.counts\.\w+_bytes \+= ",
    "strandline.broker.replication.appends": r"counts\.\w+ \+= |size_bytes \+= batch\.",
    "strandline.broker.replication.follower": r"followers\.replicas\.traffic\.\w+ \+= ",
    "strandline.broker.handlers.fetch": (
        r"if \(len\(reads\) == 1 (?s:.*?) self\._count_when_sent\(|self\._count_when_sent\("
    ),
    "strandline.broker.handlers.fetch_sessions": r"session\.reads\.fetches \+= 1$",
}
"""Module → what begins a line that counts, or the last one of several that do, behind the indentation."""

HANDLED = re.compile(r"^( +)(?=first = requests\[0\]\n)", re.MULTILINE)
"""Where requests are done: there both codes note how many they are."""

FIGURES_AT = "STRANDLINE_UNCOUNTED_FIGURES"
TURN_S = 0.008
"""On average: a turn is up to half as much longer or shorter, so that it meets nothing that comes by the clock."""


class Switched(NamedTuple):
    function: FunctionType
    counting: CodeType
    uncounted: CodeType


SWITCHED: list[Switched] = []


class Turns:
    """What the requests cost that were handled while it counted, and those while it did not."""

    def __init__(self) -> None:
        self.is_counting = True
        self.handled = 0
        self.sums = {is_counting: {"requests": 0, "cpu_ns": 0} for is_counting in (True, False)}
        self.began_at_ns = 0

    def note_handled(self, count: int) -> None:
        self.handled += count

    def begin(self, number: int, frame: object) -> None:
        for each in self.sums.values():
            each.update(requests=0, cpu_ns=0)
        self._turn(is_counting=random.random() < 0.5)

    def next(self, number: int, frame: object) -> None:
        self._add()
        self._turn(is_counting=not self.is_counting)

    def end(self, number: int, frame: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._add()
        _switch(is_counting=True)
        with open(os.environ[FIGURES_AT], "a") as file:
            file.write(json.dumps([self.sums[True], self.sums[False]]) + "\n")

    def _turn(self, *, is_counting: bool) -> None:
        self.is_counting = is_counting
        _switch(is_counting=is_counting)
        signal.setitimer(signal.ITIMER_REAL, TURN_S * random.uniform(0.5, 1.5))
        self.handled, self.began_at_ns = 0, time.process_time_ns()

    def _add(self) -> None:
        sums = self.sums[self.is_counting]
        sums["cpu_ns"] += time.process_time_ns() - self.began_at_ns
        sums["requests"] += self.handled


TURNS = Turns()


def _switch(*, is_counting: bool) -> None:
    for each in SWITCHED:
        each.function.__code__ = each.counting if is_counting else each.uncounted


class Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        name = module.__name__
        path = self.get_filename(name)
        counting = HANDLED.sub(r"\1note_handled(len(requests)); ", self.get_data(path).decode())
        uncounted, count = re.compile(r"(^ +|; )(?:" + COUNTING[name] + r")[^\n]*$", re.MULTILINE).subn(
            r"\1pass", counting
        )
        if not count:
            raise SystemExit(f"{name}: no line counts; mend {__file__}")
        vars(module)["note_handled"] = TURNS.note_handled
        codes, others = (
            dict(_codes_in(compile(text, path, "exec", dont_inherit=True))) for text in (counting, uncounted)
        )
        for each in _functions_in(module):
            code, other = codes[each.__code__.co_qualname], others[each.__code__.co_qualname]
            if code != other:
                SWITCHED.append(Switched(each, code, other))


def _codes_in(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Names as those of functions → code."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each.co_qualname, each
            yield from _codes_in(each)


def _functions_in(module: ModuleType) -> Iterator[FunctionType]:
    """Those that it defines, in classes, too."""
    for each in list(vars(module).values()):
        for found in [each, *(vars(each).values() if isinstance(each, type) else ())]:
            if isinstance(found, FunctionType) and found.__code__.co_filename == module.__file__:
                yield found


class Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in COUNTING:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None and spec.origin is not None, fullname
        spec.loader = Loader(fullname, spec.origin)
        return spec


sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGUSR1, TURNS.begin)
signal.signal(signal.SIGUSR2, TURNS.end)
signal.signal(signal.SIGALRM, TURNS.next)
