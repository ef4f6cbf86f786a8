"""The processes that Spark starts to run Python: how one of them is told from a program, and what it says of a failure.

Such a process ends by its failure, and Spark shows users its last words: a traceback, unless its environment says that
there shall be none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""What these processes look at when they fail (Spark 4.0 and later)."""

DEBUG = "STRANDLINE_DEBUG"


def fail_without_traceback() -> None:
    """In a process of Spark, which is about to fail; elsewhere nothing. `STRANDLINE_DEBUG` keeps the traceback."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    hide_traceback("" if spec is None else spec.name, os.environ)


def hide_traceback(main_module: str, environment: MutableMapping[str, str]) -> None:
    """A program of the user's has a main module of its own."""
    if main_module.startswith("pyspark.") and not environment.get(DEBUG):
        environment[HIDE_TRACEBACK] = "1"
