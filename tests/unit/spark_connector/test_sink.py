"""What the sink takes and refuses, without Spark and without a cluster."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from strandline.spark_connector.errors import InvalidOption, InvalidSinkColumn, NullTopic, SourceError, UnsupportedMode
from strandline.spark_connector.options.sink_options import parse_sink_options
from strandline.spark_connector.source import StrandlineDataSource
from strandline.spark_connector.writing.columns import rows_of

TYPES = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def parsed(columns: str) -> StructType:
    """`name type, …`: Spark's own parser needs a session."""
    pairs = [each.split() for each in columns.split(",")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def test_settings_of_the_producer_are_passed_on_and_others_are_told() -> None:
    options = parse_sink_options(
        {
            "kafka.bootstrap.servers": "b:1",
            "Topic": "t",
            "kafka.compression.type": "lz4",
            "kafka.no.such": "1",
            "topics": "t",
            "checkpointLocation": "/tmp/x",
            "kafka.security.protocol": "PLAINTEXT",
        }
    )
    assert (options.topic, options.producer_settings) == ("t", {"compression_type": "lz4"})
    assert len(options.warnings) == 2
    assert "did you mean topic?" in options.warnings[1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "must be specified"),
        ({"servers": "b:1", "topic": "a", "path": "b"}, "differ"),
        ({"servers": "b:1", "topic": " "}, "is empty"),
        ({"servers": "b:1", "kafka.acks": "1"}, "kafka.acks is not supported"),
        ({"servers": "b:1", "kafka.key.serializer": "x"}, "is not supported"),
        ({"servers": "b:1", "kafka.security.protocol": "SSL"}, "only PLAINTEXT is"),
        ({"servers": "b:1", "includeHeaders": "2"}, "must be true or false"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        parse_sink_options(options)


@pytest.mark.parametrize(
    ("schema", "options", "error"),
    [
        ("value string", {"topic": "t"}, None),
        ("value binary, key binary, topic string, partition int, timestamp timestamp, offset bigint", {}, None),
        ("key string", {"topic": "t"}, "Required attribute 'value' not found"),
        ("value string", {}, "topic option required"),
        ("value int", {"topic": "t"}, "value attribute unsupported type int"),
        ("value string, partition bigint", {"topic": "t"}, "partition attribute unsupported type"),
        ("value string, timestamp bigint", {"topic": "t"}, "timestamp attribute unsupported type"),
        ("value string, headers string", {"topic": "t", "includeHeaders": "true"}, "headers attribute unsupported"),
        ("value string, headers string", {"topic": "t"}, None),
    ],
)
def test_columns_are_checked_before_anything_is_written(
    schema: str, options: dict[str, str], error: str | None
) -> None:
    source = StrandlineDataSource(CaseInsensitiveDict({"servers": "b:1"} | options))
    for make in (source.writer, source.streamWriter):
        if error is None:
            assert pickle.loads(pickle.dumps(make(parsed(schema), overwrite=False))).options.bootstrap_servers == "b:1"
        else:
            with pytest.raises(SourceError, match=error):
                make(parsed(schema), overwrite=False)


def test_a_topic_is_not_overwritten_but_a_complete_stream_is_appended() -> None:
    source = StrandlineDataSource(CaseInsensitiveDict({"servers": "b:1", "topic": "t"}))
    with pytest.raises(UnsupportedMode, match="append"):
        source.writer(parsed("value string"), overwrite=True)
    assert source.streamWriter(parsed("value string"), overwrite=True)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_rows_are_bytes_and_milliseconds() -> None:
    moment = datetime.datetime(2026, 1, 1, microsecond=1_999, tzinfo=datetime.UTC)
    rows = rows_of(
        batch(
            value=pa.array(["ä", None]),
            key=pa.array([None, b"k"], pa.large_binary()),
            timestamp=pa.array([moment, None], pa.timestamp("us", "UTC")),
            partition=pa.array([1, None], pa.int32()),
            headers=pa.array([[{"key": "a", "value": None}], None], HEADERS),
        ),
        parse_sink_options({"servers": "b:1", "topic": "t", "includeHeaders": "true"}),
    )
    assert rows.topics == ["t", "t"]
    assert rows.values == ["ä".encode(), None]
    assert rows.keys == [None, b"k"]
    assert rows.timestamps_ms == [1_767_225_600_001, None]
    assert rows.partitions == [1, None]
    assert rows.headers == [[("a", None)], []]


def test_a_row_without_a_topic_and_a_header_without_a_key_are_refused() -> None:
    with pytest.raises(NullTopic, match="null topic present in the data"):
        rows_of(batch(value=["x", "y"], topic=["t", None]), parse_sink_options({"servers": "b:1"}))
    headers = pa.array([[{"key": None, "value": b""}]], HEADERS)
    with pytest.raises(InvalidSinkColumn, match="header has no key"):
        rows_of(
            batch(value=["x"], headers=headers),
            parse_sink_options({"servers": "b:1", "topic": "t", "includeHeaders": "true"}),
        )
