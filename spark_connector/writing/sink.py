"""What Spark sees of the sink: a writer for batches and one for streams, which write the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from strandline.spark_connector.options.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # before Spark 4.1
    DataSourceStreamArrowWriter = object

CAN_WRITE_STREAMS = DataSourceStreamArrowWriter is not object


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark has no types
    """What one task says when everything is acknowledged."""

    rows: int


class StrandlineWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark has no types
    """One batch. There is nothing to commit: rows are in the topic as soon as their task has written them."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        return _written(iterator, self.options)


class StrandlineStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark has no types
    """One micro-batch of a stream."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        return _written(iterator, self.options)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Nothing is left to do."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """What was written stays: a log takes nothing back."""


def _written(iterator: Iterator[pyarrow.RecordBatch], options: SinkOptions) -> Written:
    from strandline.spark_connector.writing.task import write_rows

    return Written(write_rows(iterator, options))
