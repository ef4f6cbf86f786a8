"""Found by Spark itself: it looks for a top-level module `pyspark_<name>` with a class `DefaultSource` when
`spark.read.format("<name>")` is not registered (Spark 4.0 and later). So `format("strandline")` works at once wherever
the package is installed. The source lives in `strandline.spark_connector`.
"""

from __future__ import annotations

from strandline.spark_connector import StrandlineDataSource


class DefaultSource(StrandlineDataSource):
    """The data source under the name that Spark looks for."""


__all__ = ["DefaultSource"]
