"""Rows to Arrow: exactly the schema that Spark asks for."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from strandline.spark_connector.reading import arrow
from strandline.spark_connector.reading.arrow import RowBuffer, arrow_schema, timestamps
from strandline.spark_connector.source import fixed_schema

UTC = datetime.UTC


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_arrow_schema_is_the_one_spark_derives_from_the_source_schema(include_headers: bool) -> None:
    derived = to_arrow_schema(fixed_schema(include_headers=include_headers), timezone="UTC")
    assert derived.equals(arrow_schema(include_headers=include_headers))


def test_rows_keep_their_values_and_nulls() -> None:
    rows = RowBuffer("t", 3, include_headers=True)
    headers = [(), (("a", b"1"), ("a", None))]
    rows.add([7, 9], [0, 1_700_000_000_123], 0, [None, b"k"], [b"\xff", None], headers, 10)
    batch = rows.take()
    assert len(rows) == 0
    assert batch.schema.equals(arrow_schema(include_headers=True))
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
    rows = RowBuffer("t", 0, include_headers=True)
    rows.add([0], [0], 0, [None], [b""], [()], 0)
    assert rows.take().column("headers").to_pylist() == [None]


def test_timestamps_beyond_microseconds_become_the_last_one_and_do_not_fail() -> None:
    column = timestamps([2**62, -(2**62), 5])
    assert column.type == pa.timestamp("us", tz="UTC")
    assert column.cast(pa.int64()).to_pylist() == [(2**63 - 1) // 1000 * 1000, -((2**63 - 1) // 1000) * 1000, 5000]


def test_a_buffer_is_full_by_rows_or_by_bytes() -> None:
    rows = RowBuffer("t", 0, include_headers=False)
    assert not rows.is_full
    rows.add([0], [0], 0, [None], [b""], [()], arrow.BYTES_PER_BATCH)
    assert rows.is_full
    rows.take()
    many = arrow.ROWS_PER_BATCH
    rows.add(range(many), [0] * many, 1, [None] * many, [b""] * many, [()] * many, 0)
    assert rows.is_full
    assert rows.take().num_rows == many
