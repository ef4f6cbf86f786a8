"""Which columns a sink takes, and an Arrow batch of them as rows. Pure.

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

from collections.abc import Mapping

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

from strandline.protocol.records.columnar import I64
from strandline.spark_connector.errors import InvalidSinkColumn, NullTopic
from strandline.spark_connector.options.sink_options import SinkOptions
from strandline.spark_connector.writing.rows import RecordRows, Rows

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


def rows_of(batch: pa.RecordBatch, options: SinkOptions, now_ms: int) -> Rows:
    """`now_ms`: of rows without a timestamp. Raises NullTopic; InvalidSinkColumn for a header without a key, a negative
    partition, and with exactlyOnce for a timestamp that is null where others are not."""
    columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
    nothing = pa.nulls(batch.num_rows, pa.binary())
    records = RecordRows(
        columns["key"].cast(pa.binary()) if "key" in columns else nothing,
        columns["value"].cast(pa.binary()),
        _headers(columns["headers"]) if options.include_headers and "headers" in columns else None,
        _timestamps(columns["timestamp"], options, now_ms) if "timestamp" in columns else now_ms,
    )
    partitions = _partitions(columns["partition"]) if "partition" in columns else None
    return Rows(_topics(columns, options), partitions, records)


def _topics(columns: Mapping[str, pa.Array], options: SinkOptions) -> pa.Array | str:
    if options.topic is not None:
        return options.topic
    if columns["topic"].null_count:
        raise NullTopic("null topic present in the data. Use the topic option for setting a default topic.")
    return columns["topic"]


def _partitions(column: pa.Array) -> pa.Array:
    lowest = pc.min(column).as_py()
    if lowest is not None and lowest < 0:
        raise InvalidSinkColumn(f"partition {lowest} is negative; null leaves the choice to the key")
    return column


def _timestamps(column: pa.Array, options: SinkOptions, now_ms: int) -> I64:
    if column.null_count and options.is_exactly_once:
        raise InvalidSinkColumn(
            "null timestamp present in the data: a row that is written at another time the second time cannot be told "
            "from a new one. Fill it (coalesce(timestamp, …)), leave the column out, or set exactlyOnce to false"
        )
    microseconds = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).fill_null(now_ms * 1000)
    milliseconds: I64 = microseconds.to_numpy() // 1000
    return milliseconds


def _headers(column: pa.Array) -> pa.Array:
    each = column.flatten()
    if each.null_count:
        raise InvalidSinkColumn("a header is null; filter such headers out: filter(headers, each -> each is not null)")
    if each.field(0).null_count:
        raise InvalidSinkColumn("a header has no key; filter such headers out, or give each of them one")
    try:
        each.field(0).validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidSinkColumn(
            f"a header's key is not UTF-8 ({error}); decode it, or filter such headers out"
        ) from None
    return column
