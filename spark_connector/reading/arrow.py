"""Record batches to Arrow: columns of the source's schema, in batches of about ten thousand rows.

Spark compares the first batch's schema with its own exactly, nullability and time zone included, and hands the others
on unchecked: `arrow_schema` is the one place that fixes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import InvalidBatch
from strandline.protocol.records.columnar import I64, Depth, RecordColumns, Spans, header_columns

ROWS_PER_BATCH = 10_000
"""100 rows per batch are 3 to 4 times slower, more than 10,000 no faster (measured with 140-byte rows)."""

BYTES_PER_BATCH = 8 << 20
"""A batch is closed early when its records reach this, which keeps a worker's memory small."""

WORTH_ROWS = 2_500
WORTH_BYTES = 1 << 20
"""With one of these, what a fetch brought is a batch of its own: to put it together with more is a copy of everything,
which costs more than Spark's work for one more batch."""

_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_MAX_MS = (2**63 - 1) // 1000

_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": _HEADERS,
}

_DEPTHS = {"key": Depth.KEYS, "value": Depth.VALUES, "headers": Depth.HEADERS}
"""How far records must be read for a column; the others stand in front of these or are the same for all rows."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The Arrow form of `schema_of`."""
    return pa.schema([(name, _TYPES[name]) for name in columns])


def depth_of(columns: Sequence[str]) -> Depth:
    """How far records must be read for these columns."""
    return max(_DEPTHS.get(name, Depth.OFFSETS) for name in columns)


class RowBuffer:
    """Collects records of one partition until they are worth an Arrow batch."""

    def __init__(self, topic: str, partition: int, columns: Sequence[str]) -> None:
        self._topic = topic
        self._partition = partition
        self._columns = columns
        self._schema = arrow_schema(columns)
        self.depth = depth_of(columns)
        """How far records must be read."""
        self._pieces: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def is_worth_a_batch(self) -> bool:
        return self._rows >= WORTH_ROWS or self._bytes >= WORTH_BYTES

    def add(self, records: RecordColumns, size_bytes: int) -> None:
        """Copies what is wanted of the records out of their buffer. `size_bytes`: how large they are, roughly.
        InvalidBatch: headers are damaged."""
        arrays = [self._array(name, records) for name in self._columns]
        self._pieces.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._rows += len(records.offsets)
        self._bytes += size_bytes

    def _array(self, name: str, records: RecordColumns) -> Any:
        match name:
            case "key":
                return binary_column(records.buffer, records.keys)
            case "value":
                return binary_column(records.buffer, records.values)
            case "topic":
                return pa.repeat(pa.scalar(self._topic, pa.string()), len(records.offsets))
            case "partition":
                return pa.repeat(pa.scalar(self._partition, pa.int32()), len(records.offsets))
            case "offset":
                return pa.array(records.offsets)
            case "timestamp":
                return timestamps(records.timestamps_ms)
            case "timestampType":
                return pa.array(records.timestamp_types.astype(np.int32))
            case _:
                return header_column(records)

    def take(self) -> pa.RecordBatch:
        """Everything collected, as one batch; the buffer is empty afterwards."""
        pieces, self._pieces, self._rows, self._bytes = self._pieces, [], 0, 0
        if len(pieces) == 1:
            return pieces[0]
        columns = [pa.concat_arrays([piece.column(number) for piece in pieces]) for number in range(len(self._schema))]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def binary_column(buffer: Any, spans: Spans) -> pa.Array:
    """The byte strings, copied by Arrow's compiled code: the buffer becomes an array of binaries in which what lies
    between two strings is an element, too, and every second element is taken."""
    rows = len(spans.starts)
    bounds = np.empty(2 * rows, dtype=np.int32)
    bounds[0::2] = spans.starts
    bounds[1::2] = spans.ends
    interleaved = pa.Array.from_buffers(
        pa.binary(), max(2 * rows - 1, 0), [None, pa.py_buffer(bounds), pa.py_buffer(buffer)]
    )
    chosen = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return interleaved.take(pa.array(chosen, mask=spans.is_null if spans.is_null.any() else None))


def timestamps(milliseconds: I64) -> pa.Array:
    """Milliseconds as microseconds in UTC; a time beyond what 64 bits of microseconds hold becomes the last one."""
    microseconds = np.clip(milliseconds, -_MAX_MS, _MAX_MS) * 1000
    return pa.array(microseconds).view(_TIMESTAMP)


def header_column(columns: RecordColumns) -> pa.Array:
    """Lists of (key, value); null for records without headers, as Spark's Kafka source has it."""
    counts = columns.header_counts
    if not counts.any():
        return pa.nulls(len(counts), _HEADERS)
    keys, values = header_columns(columns)
    try:
        names = binary_column(columns.buffer, keys).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"a header's key is not UTF-8: {error}") from None
    pairs = pa.StructArray.from_arrays([names, binary_column(columns.buffer, values)], fields=list(_HEADERS.value_type))
    bounds = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=bounds[1:])
    absent = np.append(counts == 0, False)  # a null bound makes its list null
    return pa.ListArray.from_arrays(pa.array(bounds, mask=absent), pairs).cast(_HEADERS)
