"""What Spark sees of the source, without Spark."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, StructField, StructType

from strandline.spark_connector.errors import CustomSchema, InvalidOption, SourceWarning, UnsupportedTable
from strandline.spark_connector.reading.planning import OffsetRange
from strandline.spark_connector.reading.ranges import RangePartition
from strandline.spark_connector.source import (
    StrandlineDataSource,
    StrandlineReader,
    fixed_schema,
)


def source(**options: str) -> StrandlineDataSource:
    return StrandlineDataSource(CaseInsensitiveDict({"servers": "b:1", "subscribe": "t"} | options))


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    plain = (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
    )
    assert source().schema().simpleString() == plain + ">"
    assert source(includeHeaders="TRUE").schema().simpleString() == (
        plain + ",headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in source().schema())


def test_the_schema_has_only_the_columns_that_are_wanted() -> None:
    some = source(columns="offset,key")
    assert some.schema().simpleString() == "struct<offset:bigint,key:binary>"
    assert isinstance(some.reader(some.schema()), StrandlineReader)
    some.streamReader(some.schema())
    with pytest.raises(CustomSchema):
        some.reader(fixed_schema(include_headers=False))


def test_a_table_of_the_catalog_is_refused_since_spark_keeps_its_options() -> None:
    with pytest.raises(UnsupportedTable, match="CREATE TEMPORARY VIEW"):
        source(provider="strandline", owner="root").schema()
    unnamed = StrandlineDataSource(CaseInsensitiveDict({}))
    with pytest.raises(InvalidOption, match="a table of Spark's catalog hands on no options"):
        unnamed.writer(fixed_schema(include_headers=False), overwrite=False)


def test_several_topics_in_load_are_told_where_to_go() -> None:
    both = StrandlineDataSource(CaseInsensitiveDict({"servers": "b:1", "paths": '["a","b"]'}))
    with pytest.raises(InvalidOption, match="several are named in subscribe"):
        both.schema()


def test_a_wrong_option_fails_at_load_and_a_custom_schema_at_the_read() -> None:
    with pytest.raises(InvalidOption):
        source(failOnDataLoss="maybe").schema()
    with pytest.raises(InvalidOption, match=r"kafka\.fetch\.max\.bytes='lots'"):
        source(**{"kafka.fetch.max.bytes": "lots"}).schema()
    with pytest.raises(CustomSchema, match="fixed schema and cannot be set with a custom one"):
        source().reader(StructType([StructField("a", IntegerType())]))
    with pytest.raises(CustomSchema):
        source().reader(fixed_schema(include_headers=True))
    assert isinstance(source().reader(fixed_schema(include_headers=False)), StrandlineReader)


def test_a_stream_that_cannot_be_read_is_refused_by_its_reader_since_spark_stops_one_in_any_case() -> None:
    wrong = source(endingOffsets="latest")
    reader: Any = wrong.streamReader(wrong.schema())
    for asked in (reader.prepareForTriggerAvailableNow, reader.initialOffset, lambda: reader.latestOffset({}, None)):
        with pytest.raises(InvalidOption, match="not valid in streaming queries"):
            asked()
    reader.stop()
    custom: Any = source().streamReader(StructType([StructField("a", IntegerType())]))
    with pytest.raises(CustomSchema):
        custom.initialOffset()


def test_options_without_effect_warn() -> None:
    with pytest.warns(SourceWarning, match="did you mean startingOffsets"):
        source(startingOffset="earliest").reader(fixed_schema(include_headers=False))


def test_everything_that_travels_to_executors_can_be_pickled() -> None:
    reader = source(subscribe="a,b", startingOffsets='{"t":{"0":1}}').reader(fixed_schema(include_headers=False))
    assert pickle.loads(pickle.dumps(reader)).options == reader.options
    wanted = OffsetRange("t", 1, 2, 3)
    assert pickle.loads(pickle.dumps(RangePartition(wanted))).wanted == wanted
    copy = pickle.loads(pickle.dumps(source()))
    assert copy.options == source().options


def test_a_query_with_nothing_to_read_reads_nothing() -> None:
    """Spark then calls read once with a partition of its own."""
    rows: Any = source().reader(fixed_schema(include_headers=False)).read(InputPartition(None))
    assert isinstance(rows, Iterator)
    assert list(rows) == []


def test_filter_pushdown_is_not_overridden_since_spark_refuses_that_by_default() -> None:
    assert StrandlineReader.pushFilters is DataSourceReader.pushFilters


def test_importing_the_package_does_not_import_pyspark() -> None:
    program = "import sys, strandline.spark_connector; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
