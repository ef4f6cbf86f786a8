"""Lets Spark find the data source `strandline` in a program that runs on an environment which was not activated.

Spark looks for sources in Python with an interpreter of its own: `PYSPARK_DRIVER_PYTHON`, else `PYSPARK_PYTHON`, else
the first `python3` of the path. For `/some/.venv/bin/python job.py` that is another one, which lacks strandline, and
Spark says `DATA_SOURCE_NOT_FOUND`. Where neither variable is set, the first one is set here, to what is true of such a
program: its driver is this interpreter. `PYSPARK_PYTHON`, which starts the workers of Python functions, is left as it
is, since on the machines of a cluster that may be another place. `PYSPARK_PYTHON=python3` in the environment is Spark's
default said aloud, and switches this off.

The line in `strandline_driver_python.pth` is run whenever an interpreter of the environment starts. It imports nothing,
which keeps it at a tenth of a millisecond (to import this module took ten times that), and leaves a finder on
`sys.meta_path` that finds nothing: it has this module do its work when pyspark is imported. It is never taken from that
list again: whoever changes the list while it is gone through has another finder passed over.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import MutableMapping

DRIVER, WORKERS = "PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"
FINDER = "StrandlineDriverPython"
"""The name of that finder."""


def name_interpreter(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set DRIVER in the environment of a program that is about to start Spark, if Spark would take another one."""
    if environment.get(DRIVER) or environment.get(WORKERS) or not sys.executable:
        return
    found = shutil.which("python3", path=environment.get("PATH", os.defpath))
    if found is None or not is_same(found, sys.executable):
        environment[DRIVER] = sys.executable


def is_at_work() -> bool:
    """This interpreter has the finder: where packages are installed otherwise than by pip, nobody runs the line."""
    return any(getattr(each, "__name__", "") == FINDER for each in sys.meta_path)


def is_same(one: str, other: str) -> bool:
    """The same interpreter in the same environment: a folder has several names for one, and may have several."""
    return _place(one) == _place(other)


def _place(interpreter: str) -> tuple[str, str]:
    return os.path.realpath(os.path.dirname(interpreter)), os.path.realpath(interpreter)
