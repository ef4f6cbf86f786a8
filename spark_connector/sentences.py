"""How users of Spark see our errors: as their sentence, without the traceback of a process that is not theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from strandline.runtime.processes.spark_process import fail_without_traceback
from strandline.spark_connector.errors import SourceError


@contextmanager
def in_one_sentence() -> Iterator[None]:
    """Round each method that Spark calls; a generator has it in its body. Of errors of this package: a mistake of ours
    keeps its traceback."""
    try:
        yield
    except SourceError:
        fail_without_traceback()
        raise
