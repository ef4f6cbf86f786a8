"""Which columns a sink takes, and an Arrow batch of them as records. Pure.

| column | type | |
|---|---|---|
| value | string or binary | needed; null is a tombstone |
| key | string or binary | records of one key go to one partition |
| topic | string | needed unless the option `topic` is given, which wins |
| headers | array of structs (key string, value binary) | unless includeHeaders is false |
| partition | int | null: by the key |
| timestamp | timestamp | milliseconds are kept; null: the time of writing, which exactlyOnce refuses |

Other columns are not written, as in Spark's Kafka sink; so what a source gave can be written as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
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

from strandline.client.accumulator import Header, ToSend
from strandline.spark_connector.errors import InvalidSinkColumn, NullTopic
from strandline.spark_connector.options.sink_options import SinkOptions

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
    """One Arrow batch, each list as long as there are rows. `topics`: one name where the option says so; `partitions`
    None: the column is not there. Records are (key, value), or with headers and timestamps where the batch has one of
    those columns."""

    topics: list[str] | str
    partitions: list[int | None] | None
    records: list[ToSend]


def rows_of(batch: pa.RecordBatch, options: SinkOptions, now_ms: int) -> Rows:
    """`now_ms`: of rows without a timestamp. Raises NullTopic; InvalidSinkColumn for a header without a key, a negative
    partition, and with exactlyOnce for a timestamp that is null where others are not."""
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    keys = _byte_strings(columns["key"]) if "key" in columns else [None] * batch.num_rows
    values = _byte_strings(columns["value"])
    has_headers = options.include_headers and "headers" in columns
    records: list[ToSend]
    if has_headers or "timestamp" in columns:
        headers = _headers(columns["headers"]) if has_headers else repeat(())
        timestamps = _timestamps(columns["timestamp"], options, now_ms) if "timestamp" in columns else repeat(now_ms)
        records = list(zip(keys, values, headers, timestamps, strict=False))
    else:
        records = list(zip(keys, values, strict=True))
    return Rows(
        _topics(columns, options), _partitions(columns["partition"]) if "partition" in columns else None, records
    )


def _byte_strings(column: pa.Array) -> list[bytes | None]:
    """By way of numpy, which takes a quarter of the time of `to_pylist`."""
    found: list[bytes | None] = column.cast(pa.binary()).to_numpy(zero_copy_only=False).tolist()
    return found


def _topics(columns: Mapping[str, pa.Array], options: SinkOptions) -> list[str] | str:
    if options.topic is not None:
        return options.topic
    if columns["topic"].null_count:
        raise NullTopic("null topic present in the data. Use the topic option for setting a default topic.")
    topics: list[str] = columns["topic"].to_pylist()
    return topics


def _partitions(column: pa.Array) -> list[int | None]:
    partitions: list[int | None] = column.to_pylist()
    lowest = pc.min(column).as_py()
    if lowest is not None and lowest < 0:
        raise InvalidSinkColumn(f"partition {lowest} is negative; null leaves the choice to the key")
    return partitions


def _timestamps(column: pa.Array, options: SinkOptions, now_ms: int) -> list[int]:
    if column.null_count and options.is_exactly_once:
        raise InvalidSinkColumn(
            "null timestamp present in the data: a row that is written at another time the second time cannot be told "
            "from a new one. Fill it (coalesce(timestamp, …)), leave the column out, or set exactlyOnce to false"
        )
    microseconds = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).fill_null(now_ms * 1000)
    found: list[int] = (microseconds.to_numpy() // 1000).tolist()
    return found


def _headers(column: pa.Array) -> list[Sequence[Header]]:
    found: list[Sequence[Header]] = []
    for each in column.to_pylist():
        pairs = [(header and header["key"], header and header["value"]) for header in each or ()]
        if any(key is None for key, _ in pairs):
            raise InvalidSinkColumn("a header has no key; filter such headers out, or give each of them one")
        found.append(pairs)
    return found
