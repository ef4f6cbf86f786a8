"""The range of offsets that one task reads, as Spark carries it to an executor, and how users are warned."""

from __future__ import annotations

import warnings

from pyspark.sql.datasource import InputPartition

from strandline.spark_connector.reading.planning import OffsetRange


class SourceWarning(UserWarning):
    """An option has no effect, or data is missing that the user said may be missing."""


class RangePartition(InputPartition):  # type: ignore[misc]  # pyspark has no types
    """The range of offsets that one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(tuple(wanted))

    @property
    def wanted(self) -> OffsetRange:
        return OffsetRange(*self.value)


def warn(text: str) -> None:
    """Tell the user through the worker's stderr, which Spark shows on the console."""
    warnings.warn(text, SourceWarning, stacklevel=2)
