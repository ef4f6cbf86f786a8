"""The Python process that runs tasks: Spark starts it, and uses it again for one task after the other."""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_modules(of: str) -> None:
    """Once per process and kind of work, when all that it needs is imported: that lives as long as the process, so
    collections leave it out. Spark makes one after every task, which took 60 ms."""
    gc.collect()
    gc.freeze()
