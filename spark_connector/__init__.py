"""The PySpark data source, built on the client: `spark.read.format("strandline")`.

    df = spark.read.format("strandline").option("servers", "localhost:9092").load("clicks")

Spark finds the source by itself (`pyspark_strandline`); `StrandlineDataSource` is here for an explicit
`spark.dataSource.register(StrandlineDataSource)`. pyspark is imported only when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.spark_connector.source import StrandlineDataSource

__all__ = ["StrandlineDataSource"]


def __getattr__(name: str) -> Any:
    if name == "StrandlineDataSource":
        from strandline.spark_connector.source import StrandlineDataSource

        return StrandlineDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
