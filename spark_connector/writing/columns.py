"""Which columns a sink takes, and an Arrow batch of them as records. Pure.

| column | type | |
|---|---|---|
| value | string or binary | needed; null is a tombstone |
| key | string or binary | records of one key go to one partition |
| topic | string | needed unless the option `topic` is given, which wins |
| headers | array of structs (key string, value binary) | written with includeHeaders only |
| partition | int | null: by the key |
| timestamp | timestamp | milliseconds are kept; null: the time of writing |

Other columns are not written, as in Spark's Kafka sink; so what a source gave can be written as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from strandline.spark_connector.errors import InvalidSinkColumn, NullTopic
from strandline.spark_connector.options.sink_options import SinkOptions

Headers = Sequence[tuple[str, bytes | None]]

_TEXT = (StringType, BinaryType)
_ACCEPTED: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "value": (_TEXT, "a STRING or BINARY"),
    "key": (_TEXT, "a STRING or BINARY"),
    "topic": ((StringType,), "a STRING"),
    "partition": ((IntegerType,), "an INT"),
    "timestamp": ((TimestampType, TimestampNTZType), "a TIMESTAMP"),
}


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raises InvalidSinkColumn."""
    found = {field.name: field.dataType for field in schema.fields}
    if len(found) != len(schema.fields):
        raise InvalidSinkColumn("a column stands twice; give each of them a name of its own")
    if "value" not in found:
        raise InvalidSinkColumn("Required attribute 'value' not found; name the column that is to be written 'value'")
    if options.topic is None and "topic" not in found:
        raise InvalidSinkColumn(
            "topic option required when no 'topic' attribute is present. Use the option topic to set one"
        )
    for name, (kinds, expected) in _ACCEPTED.items():
        if name in found and not isinstance(found[name], kinds):
            raise InvalidSinkColumn(
                f"{name} attribute unsupported type {found[name].simpleString()}: it must be {expected}; cast it"
            )
    if options.include_headers and "headers" in found and not _are_headers(found["headers"]):
        raise InvalidSinkColumn(
            f"headers attribute unsupported type {found['headers'].simpleString()}: it must be an "
            "array<struct<key:string,value:binary>>; cast it"
        )


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    return [(each.name, type(each.dataType)) for each in kind.elementType.fields] == [
        ("key", StringType),
        ("value", BinaryType),
    ]


class Rows(NamedTuple):
    """One Arrow batch as columns of Python values, each as long as there are rows; None: the column is not there."""

    topics: list[str]
    keys: list[bytes | None]
    values: list[bytes | None]
    partitions: list[int | None] | None
    timestamps_ms: list[int | None] | None
    headers: list[Headers] | None


def rows_of(batch: pa.RecordBatch, options: SinkOptions) -> Rows:
    """Raises NullTopic, InvalidSinkColumn for a header without a key."""
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    size = batch.num_rows
    if options.topic is not None:
        topics = [options.topic] * size
    elif columns["topic"].null_count:
        raise NullTopic("null topic present in the data. Use the topic option for setting a default topic.")
    else:
        topics = columns["topic"].to_pylist()
    timestamps: list[int | None] | None = None
    if "timestamp" in columns:
        timestamps = columns["timestamp"].cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_pylist()
        timestamps = [None if each is None else each // 1000 for each in timestamps]
    return Rows(
        topics,
        columns["key"].cast(pa.binary()).to_pylist() if "key" in columns else [None] * size,
        columns["value"].cast(pa.binary()).to_pylist(),
        columns["partition"].to_pylist() if "partition" in columns else None,
        timestamps,
        _headers(columns["headers"]) if options.include_headers and "headers" in columns else None,
    )


def _headers(column: pa.Array) -> list[Headers]:
    found: list[Headers] = []
    for each in column.to_pylist():
        pairs = [(header and header["key"], header and header["value"]) for header in each or ()]
        if any(key is None for key, _ in pairs):
            raise InvalidSinkColumn("a header has no key; filter such headers out, or give each of them one")
        found.append(pairs)
    return found
