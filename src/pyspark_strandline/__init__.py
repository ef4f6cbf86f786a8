"""Found by Spark itself: it looks for a top-level module `pyspark_<name>` with a class `DefaultSource` when
`spark.read.format("<name>")` is not registered (Spark 4.0 and later). So `format("strandline")` works at once wherever
the package is installed. The source lives in `strandline.spark_connector`.

Spark passes over a module that it cannot import, and says that there is no such source. So where a package that the
source needs is missing, its place is taken by one that says so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from pyspark.sql.datasource import DataSource

from strandline.runtime.processes.spark_process import fail_without_traceback

MISSING: ImportError | None = None
"""Why the source cannot be loaded here."""

try:
    from strandline.spark_connector import StrandlineDataSource as _Source
except ImportError as error:
    MISSING = error
    _Source = DataSource


class NotInstalled(Exception):
    """A package that the source needs is missing in the interpreter of Spark's workers."""


class DefaultSource(_Source):  # type: ignore[misc,valid-type]  # pyspark has no types
    """The data source under the name that Spark looks for."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises NotInstalled."""
        if MISSING is not None:
            fail_without_traceback()
            raise NotInstalled(
                f"[STRANDLINE_NOT_INSTALLED] the source cannot be loaded by {sys.executable}, with which Spark starts "
                f"its workers: {MISSING}; in the checkout: pip install '.[spark]', or set PYSPARK_PYTHON to an "
                f"interpreter that has it; 'strandline doctor' tells more"
            )
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "strandline"


__all__ = ["DefaultSource"]
