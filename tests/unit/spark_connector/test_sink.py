"""What the sink takes and refuses, without Spark and without a cluster."""

from __future__ import annotations

import datetime
import pickle
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
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

from strandline.spark_connector.errors import (
    InvalidOption,
    InvalidSinkColumn,
    NullTopic,
    SourceError,
    UnsupportedMode,
    UnsupportedTrigger,
    WriteFailed,
)
from strandline.spark_connector.options.sink_options import parse_sink_options
from strandline.spark_connector.source import StrandlineDataSource
from strandline.spark_connector.writing.columns import rows_of
from strandline.spark_connector.writing.sink import StrandlineWriter

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
        ({"servers": "b:1", "writeVersion": "1"}, "writeVersion counts the writes of one writeId"),
        ({"servers": "b:1", "writeId": "w", "writeVersion": "-1"}, "writeVersion must be a whole number"),
        ({"servers": "b:1", "writeId": "w", "exactlyOnce": "false"}, "drop one"),
        ({"servers": "b:1", "writeId": "ä b"}, "must be 1 to 150 letters"),
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
        ("value string, headers string", {"topic": "t"}, "headers attribute unsupported"),
        ("value string, headers string", {"topic": "t", "includeHeaders": "false"}, None),
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
        parse_sink_options({"servers": "b:1", "topic": "t", "exactlyOnce": "false"}),
        now_ms=7,
    )
    assert rows.topics == "t"
    assert rows.partitions.to_pylist() == [1, None]
    assert rows.records.records() == [(None, "ä".encode(), [("a", None)], 1_767_225_600_001), (b"k", None, [], 7)]


def test_rows_without_headers_and_times_are_pairs() -> None:
    options = parse_sink_options({"servers": "b:1"})
    rows = rows_of(batch(value=["x", "y"], topic=["t", "u"], other=[1, 2]), options, now_ms=7)
    assert rows.topics == pa.array(["t", "u"]) and rows.partitions is None
    assert rows.records.records() == [(None, b"x"), (None, b"y")]


def test_times_before_1970_are_rounded_down_and_a_missing_one_is_refused_with_exactly_once() -> None:
    times = pa.array([datetime.datetime(1969, 12, 31, 23, 59, 59, 998_500), None], pa.timestamp("us"))
    options = {"servers": "b:1", "topic": "t"}
    rows = rows_of(batch(value=["x"], timestamp=times[:1]), parse_sink_options(options), now_ms=7)
    assert rows.records.records() == [(None, b"x", (), -2)]
    with pytest.raises(InvalidSinkColumn, match=r"null timestamp present in the data.*exactlyOnce to false"):
        rows_of(batch(value=["x", "y"], timestamp=times), parse_sink_options(options), now_ms=7)


def test_a_row_without_a_topic_and_a_header_without_a_key_are_refused() -> None:
    with pytest.raises(NullTopic, match="null topic present in the data"):
        rows_of(batch(value=["x", "y"], topic=["t", None]), parse_sink_options({"servers": "b:1"}), now_ms=7)
    refused = {"a header has no key": {"key": None, "value": b""}, "a header is null": None}
    for text, header in refused.items():
        headers = pa.array([[{"key": "k", "value": b""}, header]], HEADERS)
        with pytest.raises(InvalidSinkColumn, match=text):
            rows_of(batch(value=["x"], headers=headers), parse_sink_options({"servers": "b:1", "topic": "t"}), now_ms=7)


def test_a_headers_key_that_is_not_utf_8_is_refused() -> None:
    keys = pa.array([b"\xff"]).view(pa.string())
    pairs = pa.StructArray.from_arrays([keys, pa.array([b"v"])], fields=list(HEADERS.value_type))
    rows = pa.RecordBatch.from_pydict({"value": ["x"], "headers": pa.ListArray.from_arrays([0, 1], pairs)})
    with pytest.raises(InvalidSinkColumn, match="a header's key is not UTF-8"):
        rows_of(rows, parse_sink_options({"servers": "b:1", "topic": "t"}), now_ms=7)


def test_headers_can_be_left_out() -> None:
    headers = pa.array([[{"key": "a", "value": b""}]], HEADERS)
    for value, found in (("true", (None, b"x", [("a", b"")], 7)), ("false", (None, b"x"))):
        options = parse_sink_options({"servers": "b:1", "topic": "t", "includeHeaders": value})
        assert rows_of(batch(value=["x"], headers=headers), options, now_ms=7).records.records() == [found]


def test_more_tasks_than_producer_ids_tell_apart_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    task = SimpleNamespace(partitionId=lambda: 2**20)
    monkeypatch.setattr(TaskContext, "_taskContext", task)
    writer = StrandlineWriter(parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t"}))
    with pytest.raises(WriteFailed, match="a write has at most 1048576 tasks, and this is number 1048576"):
        writer.write(iter(()))


def test_a_sink_that_is_handed_no_rows_says_so_when_it_is_to_confirm_them() -> None:
    """As Spark does with trigger(continuous=…): the tasks that it speaks of have written nothing."""
    options = {"servers": "b:1", "topic": "t"}
    writer = StrandlineDataSource(CaseInsensitiveDict(options)).streamWriter(parsed("value string"), overwrite=False)
    with pytest.raises(UnsupportedTrigger, match=r"hands no rows to a sink in Python.*trigger\(processingTime=…\)"):
        writer.commit([None, None], 0)
