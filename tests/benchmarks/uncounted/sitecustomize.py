"""For `metrics_overhead.py`: a broker with this folder in PYTHONPATH counts nothing of what it does for a request.

The modules of the hot path are read without the lines that count. What is left are the looks at the clock that end a
burst, which deadlines and idle connections need, too. A module in which no line counts any more, or which cannot be
read without it, ends the process: then this table is to be mended.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

COUNTING = {
    "strandline.broker.network.request_channel": r"count_burst\(requests\[0\]",
    "strandline.broker.network.connection": r"self\.counts\.\w+_bytes \+= ",
    "strandline.broker.network.request": r"[\w.()]*\bcounts\b.*\.note_\w+\(.*\)$",
    "strandline.broker.replication.appends": r"counts\.\w+ \+= ",
    "strandline.broker.replication.follower": r"followers\.replicas\.traffic\.\w+ \+= ",
    "strandline.broker.handlers.fetch": r"self\._count\(request\.message, answer\)|.*\.fetch_requests \+= 1$",
    "strandline.broker.handlers.fetch_sessions": r"session\.reads\.fetches \+= 1$",
}
"""Module → what begins a line that counts, behind its indentation."""


class Uncounted(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """From the source, never from what is compiled already, and nothing is kept."""
        path = self.get_filename(fullname)
        counts = re.compile(r"^( +)(?:" + COUNTING[fullname] + r")[^\n]*$", re.MULTILINE)
        text, count = counts.subn(r"\1pass", self.get_data(path).decode())
        if not count:
            raise SystemExit(f"{path}: no line counts; mend {__file__}")
        return compile(text, path, "exec", dont_inherit=True)


class Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in COUNTING:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None and spec.origin is not None, fullname
        spec.loader = Uncounted(fullname, spec.origin)
        return spec


sys.meta_path.insert(0, Finder())
