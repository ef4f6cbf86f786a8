"""The range of offsets that one task reads, as Spark carries it from the driver to an executor."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from strandline.spark_connector.reading.planning import OffsetRange


class RangePartition(InputPartition):  # type: ignore[misc]  # pyspark has no types
    """The range of offsets that one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(tuple(wanted))

    @property
    def wanted(self) -> OffsetRange:
        return OffsetRange(*self.value)
