"""What Spark sees: the data source `strandline`, its fixed schema, and who reads and writes for it.

Spark creates these objects in Python worker processes and pickles them by reference between driver and executors, so
this module must be importable on both, and the objects hold nothing but options and offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from strandline.runtime.processes.stopwatch import now_s
from strandline.spark_connector.driver_log import planned_batch, tell
from strandline.spark_connector.errors import (
    CustomSchema,
    InvalidOption,
    SourceError,
    UnsupportedMode,
    UnsupportedSpark,
    UnsupportedTable,
    warn,
)
from strandline.spark_connector.options.request import COLUMNS, HEADERS, SourceOptions
from strandline.spark_connector.options.sink_options import SinkOptions, parse_sink_options
from strandline.spark_connector.options.source_options import parse_options
from strandline.spark_connector.options.stream_options import parse_stream_options
from strandline.spark_connector.reading.ranges import RangePartition
from strandline.spark_connector.sentences import in_one_sentence
from strandline.spark_connector.streaming.stream_reader import RefusedStreamReader, StrandlineStreamReader
from strandline.spark_connector.writing.columns import check_columns
from strandline.spark_connector.writing.sink import CAN_WRITE_STREAMS, StrandlineStreamWriter, StrandlineWriter

if TYPE_CHECKING:
    import pyarrow

TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
"""Spark's Kafka source has the same, all nullable."""


def schema_of(columns: Iterable[str]) -> StructType:
    """The schema of a read that has these columns."""
    return StructType([StructField(name, TYPES[name]) for name in columns])


def fixed_schema(*, include_headers: bool) -> StructType:
    """The schema of a read that does not choose its columns."""
    return schema_of((*COLUMNS, HEADERS) if include_headers else COLUMNS)


class StrandlineDataSource(DataSource):  # type: ignore[misc]  # pyspark has no types
    """`spark.read.format("strandline")`; options as in Spark's Kafka source (options/)."""

    @classmethod
    def name(cls) -> str:
        return "strandline"

    @in_one_sentence()
    def schema(self) -> StructType:
        """Raises InvalidOption, so that a wrong option fails at load(). Of a batch or a stream: Spark does not say
        which; what only one of them refuses is refused by its reader. Raises UnsupportedTable."""
        if self.options.get("provider", "").lower() == self.name():  # Spark's word in the properties of a table
            raise UnsupportedTable
        return schema_of(wanted_columns(self.options))

    @in_one_sentence()
    def reader(self, schema: StructType) -> StrandlineReader:
        """Raises InvalidOption; CustomSchema where the user gave a schema."""
        options = parse_options(self.options)
        _check(schema, options)
        return StrandlineReader(options)

    def streamReader(self, schema: StructType) -> StrandlineStreamReader | RefusedStreamReader:
        """InvalidOption, and CustomSchema where the user gave a schema, are raised by the reader."""
        try:
            options = parse_stream_options(self.options)
            _check(schema, options.source)
        except SourceError as error:
            return RefusedStreamReader(error)
        return StrandlineStreamReader(options)

    @in_one_sentence()
    def writer(self, schema: StructType, overwrite: bool) -> StrandlineWriter:
        """Raises InvalidOption, InvalidSinkColumn, UnsupportedMode."""
        if overwrite:
            raise UnsupportedMode(
                "save mode overwrite is not allowed: a topic cannot be overwritten; write with mode('append'), and "
                "delete its records before with 'strandline delete-records' where they are to go"
            )
        return StrandlineWriter(self._sink_options(schema))

    @in_one_sentence()
    def streamWriter(self, schema: StructType, overwrite: bool) -> StrandlineStreamWriter:
        """Output mode complete (`overwrite`) appends each result anew, as Spark's Kafka sink does it. Raises
        InvalidOption, InvalidSinkColumn, UnsupportedSpark."""
        if not CAN_WRITE_STREAMS:
            raise UnsupportedSpark("writing streams to a topic needs Spark 4.1 or later; use foreachBatch and df.write")
        return StrandlineStreamWriter(self._sink_options(schema))

    def _sink_options(self, schema: StructType) -> SinkOptions:
        options = parse_sink_options(self.options)
        check_columns(schema, options)
        for text in options.warnings:
            warn(text)
        return options


def wanted_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """Raises InvalidOption where neither a batch nor a stream can have these options."""
    try:
        return parse_options(options).columns
    except InvalidOption:
        with suppress(InvalidOption):
            return parse_stream_options(options).source.columns
        raise


def _check(schema: StructType, options: SourceOptions) -> None:
    if schema.simpleString() != schema_of(options.columns).simpleString():
        raise CustomSchema
    for text in options.warnings:
        warn(text)


class StrandlineReader(DataSourceReader):  # type: ignore[misc]  # pyspark has no types
    """One batch query: the driver asks once what there is, tasks read ranges."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    @in_one_sentence()
    def partitions(self) -> list[InputPartition]:
        """On the driver: resolve all offsets to one snapshot below the high watermarks, and split it."""
        from strandline.spark_connector.reading.reader import plan_ranges

        began_s = now_s()
        planned = plan_ranges(self.options, warn)
        if self.options.log_reads:
            tell(planned_batch(planned).line((now_s() - began_s) * 1000))
        return [RangePartition(each) for each in planned]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """On an executor. Where there is nothing to read, Spark calls this once with a partition that is not ours."""
        if not isinstance(partition, RangePartition):
            return
        from strandline.spark_connector.reading.reader import read_range

        with in_one_sentence():
            yield from read_range(self.options, partition.wanted, warn)
