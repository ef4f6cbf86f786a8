"""The PySpark data source, built on the client: `spark.read.format("strandline")`.

    df = spark.read.format("strandline").option("servers", "localhost:9092").load("clicks")

Spark finds the source by itself (`pyspark_strandline`); `StrandlineDataSource` is here for an explicit
`spark.dataSource.register(StrandlineDataSource)`, which UnsupportedSpark refuses before Spark 4. pyspark is imported
only when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.spark_connector.source import StrandlineDataSource

__all__ = ["StrandlineDataSource"]


def __getattr__(name: str) -> Any:
    if name == "StrandlineDataSource":
        try:
            from strandline.spark_connector.source import StrandlineDataSource
        except ImportError as error:
            if error.name == "pyspark.sql.datasource":
                import pyspark

                from strandline.spark_connector.errors import UnsupportedSpark

                raise UnsupportedSpark(
                    f"sources in Python need Spark 4.0 or later, and pyspark {pyspark.__version__} is installed; in "
                    "the checkout: pip install '.[spark]'"
                ) from None
            raise
        return StrandlineDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
