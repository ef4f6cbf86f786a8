"""Rows to Arrow: exactly the schema that Spark asks for."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from strandline.protocol.records import InvalidBatch, Record, assign_offset, build_batch, scan
from strandline.protocol.records.columnar import BatchDecoder, RecordColumns
from strandline.spark_connector.options.request import COLUMNS, HEADERS
from strandline.spark_connector.reading.arrow import (
    WORTH_BYTES,
    WORTH_ROWS,
    RowBuffer,
    arrow_schema,
    header_column,
    timestamps,
)
from strandline.spark_connector.source import schema_of

UTC = datetime.UTC
WITH_HEADERS = (*COLUMNS, HEADERS)


def columns_of(base_offset: int, *records: Record) -> RecordColumns:
    batch = bytearray(build_batch(records))
    assign_offset(batch, base_offset, 0)
    decoder = BatchDecoder(batch)
    for position, header in scan(batch):
        decoder.add(position, header)
    return decoder.take()


def record(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None], timestamp_ms: int = 0) -> Record:
    return Record(0, timestamp_ms, 0, key, value, list(headers))


@pytest.mark.parametrize("columns", [COLUMNS, WITH_HEADERS, ("offset",), ("headers", "key", "timestamp")])
def test_the_arrow_schema_is_the_one_spark_derives_from_the_source_schema(columns: tuple[str, ...]) -> None:
    derived = to_arrow_schema(schema_of(columns), timezone="UTC")
    assert derived.equals(arrow_schema(columns))


def test_rows_keep_their_values_and_nulls() -> None:
    rows = RowBuffer("t", 3, WITH_HEADERS)
    rows.add(columns_of(7, record(None, b"\xff")), 10)
    rows.add(columns_of(9, record(b"k", None, ("a", b"1"), ("a", None), timestamp_ms=1_700_000_000_123)), 10)
    assert len(rows) == 2
    batch = rows.take()
    assert len(rows) == 0
    assert batch.schema.equals(arrow_schema(WITH_HEADERS))
    assert batch.to_pylist() == [
        {
            "key": None,
            "value": b"\xff",
            "topic": "t",
            "partition": 3,
            "offset": 7,
            "timestamp": datetime.datetime(1970, 1, 1, tzinfo=UTC),
            "timestampType": 0,
            "headers": None,
        },
        {
            "key": b"k",
            "value": None,
            "topic": "t",
            "partition": 3,
            "offset": 9,
            "timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
            "timestampType": 0,
            "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        },
    ]


def test_a_batch_without_any_header_has_a_column_of_nulls() -> None:
    rows = RowBuffer("t", 0, WITH_HEADERS)
    rows.add(columns_of(0, record(None, b"")), 0)
    assert rows.take().column("headers").to_pylist() == [None]


def test_timestamps_beyond_microseconds_become_the_last_one_and_do_not_fail() -> None:
    column = timestamps(np.array([2**62, -(2**62), 5]))
    assert column.type == pa.timestamp("us", tz="UTC")
    assert column.cast(pa.int64()).to_pylist() == [(2**63 - 1) // 1000 * 1000, -((2**63 - 1) // 1000) * 1000, 5000]


def test_a_buffer_is_worth_a_batch_by_rows_or_by_bytes() -> None:
    rows = RowBuffer("t", 0, COLUMNS)
    rows.add(columns_of(0, record(None, b"")), WORTH_BYTES - 1)
    assert not rows.is_worth_a_batch
    rows.add(columns_of(1, record(None, b"")), 1)
    assert rows.is_worth_a_batch
    rows.take()
    rows.add(columns_of(0, *[record(None, b"")] * WORTH_ROWS), 0)
    assert rows.is_worth_a_batch


def test_headers_stand_with_their_records() -> None:
    columns = columns_of(
        0, record(None, b"", ("ä", b"1"), ("b", None)), record(None, b""), record(None, b"", ("c", b""))
    )
    column = header_column(columns)
    column.validate(full=True)
    assert column.to_pylist() == [
        [{"key": "ä", "value": b"1"}, {"key": "b", "value": None}],
        None,
        [{"key": "c", "value": b""}],
    ]


def test_a_header_key_that_is_not_text_is_an_error_of_its_own_kind() -> None:
    columns = columns_of(0, record(None, b"", ("key", b"1")))
    buffer = bytes(columns.buffer).replace(b"key", b"k\xffy")
    with pytest.raises(InvalidBatch, match="UTF-8"):
        header_column(columns._replace(buffer=buffer))


def test_columns_from_several_buffers_are_valid_arrow() -> None:
    rows = RowBuffer("t", 0, WITH_HEADERS)
    for base in range(0, 40, 2):
        rows.add(columns_of(base, record(b"k%d" % base, None), record(None, b"v" * base, ("h", b"x"))), 0)
    batch = rows.take()
    batch.validate(full=True)
    assert batch.column("offset").to_pylist() == list(range(40))
    assert batch.column("key").to_pylist()[::2] == [b"k%d" % base for base in range(0, 40, 2)]
    assert batch.column("value").to_pylist()[1::2] == [b"v" * base for base in range(0, 40, 2)]
