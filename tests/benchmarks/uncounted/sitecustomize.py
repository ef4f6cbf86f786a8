"""For `metrics_overhead.py`: a broker with this folder in PYTHONPATH counts nothing of what it does for a request from
SIGUSR2 on, and counts again from SIGUSR1 on.

One process does both, for two of one kind differ by more than counting costs: by where their memory lies, above all.
Each module of the hot path is compiled a second time, without the lines that count, and the signals give its functions
the one code or the other. What is left are the looks at the clock that end a burst, which deadlines and idle
connections need, too. A module in which no line counts any more, or which cannot be compiled without it, ends the
process: then this table is to be mended.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple

COUNTING = {
    "strandline.broker.network.request_channel": r"count_burst\(requests\[0\]",
    "strandline.broker.network.connection": r"self\.counts\.\w+_bytes \+= ",
    "strandline.broker.replication.appends": r"counts\.\w+ \+= ",
    "strandline.broker.replication.follower": r"followers\.replicas\.traffic\.\w+ \+= ",
    "strandline.broker.handlers.fetch": r"self\._count\(request\.message, answer\)|.*\.fetch_requests \+= 1$",
    "strandline.broker.handlers.fetch_sessions": r"session\.reads\.fetches \+= 1$",
}
"""Module → what begins a line that counts, behind its indentation."""


class Switched(NamedTuple):
    function: FunctionType
    counting: CodeType
    uncounted: CodeType


SWITCHED: list[Switched] = []


class Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        name = module.__name__
        counts = re.compile(r"^( +)(?:" + COUNTING[name] + r")[^\n]*$", re.MULTILINE)
        text, count = counts.subn(r"\1pass", self.get_data(self.get_filename(name)).decode())
        if not count:
            raise SystemExit(f"{name}: no line counts; mend {__file__}")
        codes = dict(_codes_in(compile(text, self.get_filename(name), "exec", dont_inherit=True)))
        for each in _functions_in(module):
            other = codes[each.__code__.co_qualname]
            if other != each.__code__:
                SWITCHED.append(Switched(each, each.__code__, other))


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


def _switch(number: int, frame: object) -> None:
    for each in SWITCHED:
        each.function.__code__ = each.counting if number == signal.SIGUSR1 else each.uncounted


sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGUSR1, _switch)
signal.signal(signal.SIGUSR2, _switch)
