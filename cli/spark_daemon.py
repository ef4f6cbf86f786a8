"""What forks Spark's Python workers inside a command: pyspark's own, but for one text. Spark runs this module.

Java closes its connection to a worker that it does not need any more: a task was enough before it had read all, a copy
of it was first, or the session ends. pyspark prints the traceback of that on stderr, where it looks as if the command
had failed. What goes wrong in a task is told by Spark in any case.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any, TextIO

_NOBODY_LISTENS = (BrokenPipeError, ConnectionResetError)


class _Traceback:
    """Stands for the module, as far as pyspark uses it."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exc_info()[1], _NOBODY_LISTENS):
            traceback.print_exc()


def _print(text: str, file: TextIO) -> None:
    if not isinstance(sys.exc_info()[1], _NOBODY_LISTENS):
        file.write(f"{text}\n")


def quieten(daemon: Any) -> None:
    """`daemon` is the module `pyspark.daemon`."""
    daemon.traceback = _Traceback
    daemon.print = _print  # shadows the builtin there


if __name__ == "__main__":
    from pyspark import daemon

    quieten(daemon)
    daemon.manager()
