"""Rows of one task, by columns, and the batches that are made of them: nothing is done row by row that has not to be.

Keys and values stay in Arrow's arrays as Spark sent them; compiled functions gather them and join them with what stands
between them in a batch (`protocol.records.framing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline import Producer
from strandline.client.accumulator import EncodedBatch, Header, ToSend
from strandline.client.send_futures import SendManyFuture
from strandline.protocol.records.batch import HEADER_BYTES
from strandline.protocol.records.columnar import I64
from strandline.protocol.records.compression import Codec, compress
from strandline.protocol.records.framing import NO_BYTES, ByteStrings, Varints, frames, in_rows, put_header
from strandline.protocol.types import NO_PARTITION, TopicPartition

MANY = 200
"""Fewer rows for one partition are left to the producer, which puts them together with those that follow: columns of
them are measured and joined in 0.2 ms however few they are, and a task may write to thousands of partitions."""

NO_HEADERS = b"\0"
"""Their count."""


@dataclass(frozen=True)
class RecordRows:
    """Keys and values are binary arrays, headers an array of lists of (key string, value binary); all of one length.
    `headers` None: there are none. `timestamps_ms` one number: the rows have none of their own."""

    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None
    timestamps_ms: I64 | int

    def __len__(self) -> int:
        return len(self.values)

    def at(self, indexes: I64) -> RecordRows:
        """These rows, in that order."""
        chosen = pa.array(indexes)
        return RecordRows(
            self.keys.take(chosen),
            self.values.take(chosen),
            None if self.headers is None else self.headers.take(chosen),
            self.timestamps_ms if isinstance(self.timestamps_ms, int) else self.timestamps_ms[indexes],
        )

    def part(self, start: int, end: int) -> RecordRows:
        """Rows [start, end), not copied."""
        size = end - start
        return RecordRows(
            self.keys.slice(start, size),
            self.values.slice(start, size),
            None if self.headers is None else self.headers.slice(start, size),
            self.timestamps_ms if isinstance(self.timestamps_ms, int) else self.timestamps_ms[start:end],
        )

    def records(self) -> list[ToSend]:
        """One by one: pairs, or with headers and timestamps where the rows have one of these."""
        keys, values = self.keys.to_pylist(), self.values.to_pylist()
        if self.headers is None and isinstance(self.timestamps_ms, int):
            return list(zip(keys, values, strict=True))
        headers = repeat(()) if self.headers is None else map(_pairs, self.headers.to_pylist())
        stamps = repeat(self.timestamps_ms) if isinstance(self.timestamps_ms, int) else self.timestamps_ms.tolist()
        return list(zip(keys, values, headers, stamps, strict=False))

    def batches(self, compression_type: str, limit_bytes: int) -> Iterator[EncodedBatch]:
        """All rows, encoded. limit_bytes: of a batch that has more than one, before compression."""
        if not len(self):
            return
        headers = NO_HEADERS if self.headers is None else _encoded_headers(self.headers)
        header_bytes = len(headers) if isinstance(headers, bytes) else _lengths(headers)
        stamps = self.timestamps_ms
        heads, middles, ends = frames(_lengths(self.keys), _lengths(self.values), header_bytes, stamps, limit_bytes)
        before, between = _array(heads), _array(middles)
        codec, start = Codec[compression_type.upper()], 0
        for end in ends:
            size = end - start
            joined = pc.binary_join_element_wise(
                before.slice(start, size),
                self.keys.slice(start, size),
                between.slice(start, size),
                self.values.slice(start, size),
                headers if isinstance(headers, bytes) else headers.slice(start, size),
                b"",
                null_handling="replace",
                null_replacement=b"",
            )
            batch = _bytes_of(joined)
            used = Codec.NONE
            if codec != Codec.NONE:
                compressed = compress(codec, batch[HEADER_BYTES:])
                if len(compressed) < len(batch) - HEADER_BYTES:
                    batch, used = memoryview(bytearray(HEADER_BYTES) + compressed), codec
            put_header(batch, size, stamps if isinstance(stamps, int) else stamps[start:end], used)
            yield EncodedBatch(batch, size)
            start = end


def send(
    producer: Producer, partition: TopicPartition, rows: RecordRows, topic_limit_bytes: int | None
) -> SendManyFuture:
    """partition NO_PARTITION: the producer chooses. topic_limit_bytes: of the largest batch that the topic takes; None:
    that is not known."""
    topic, number = partition.topic, None if partition.partition == NO_PARTITION else partition.partition
    settings = producer.settings
    own_limit_bytes = settings.batch_limit_bytes
    limit_bytes = own_limit_bytes if topic_limit_bytes is None else min(own_limit_bytes, topic_limit_bytes)
    sent: SendManyFuture
    if len(rows) < MANY and limit_bytes == own_limit_bytes:  # up to which the producer would fill batches
        stamp = rows.timestamps_ms if isinstance(rows.timestamps_ms, int) else None  # None: each has its own
        sent = producer.send_many(topic, rows.records(), number, stamp)
    else:
        sent = producer.send_encoded(topic, list(rows.batches(settings.compression_type, limit_bytes)), number)
    return sent


class Rows(NamedTuple):
    """One Arrow batch of Spark's. `topics`: one name where the option says so; `partitions` None: the column is not
    there."""

    topics: pa.Array | str
    partitions: pa.Array | None
    records: RecordRows


def _lengths(strings: pa.Array) -> I64:
    lengths: I64 = pc.fill_null(pc.binary_length(strings), NO_BYTES).to_numpy().astype(np.int64)
    return lengths


def _array(strings: ByteStrings) -> pa.Array:
    assert not len(strings.ends) or strings.ends[-1] < 2**31, "a batch of Spark's is smaller"
    offsets = np.zeros(len(strings.ends) + 1, np.int32)
    offsets[1:] = strings.ends
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(strings.ends), [None, pa.py_buffer(offsets), pa.py_buffer(strings.data)]
    )


def _bytes_of(joined: pa.Array) -> memoryview:
    """All of its rows, one behind the other. The array was just made, and nobody else has it: they may be changed."""
    _, offsets, data = joined.buffers()
    return memoryview(data)[: np.frombuffer(offsets, np.int32)[len(joined)]]


def _encoded_headers(headers: pa.Array) -> pa.Array:
    """The headers of each row as they stand in its record, their count in front."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
    each = headers.flatten()
    keys, values = (each.field(place).cast(pa.binary()) for place in (0, 1))
    encoded = pc.binary_join_element_wise(
        _array(in_rows([Varints.of(_lengths(keys))])),
        keys,
        _array(in_rows([Varints.of(_lengths(values))])),
        values,
        b"",
        null_handling="replace",
        null_replacement=b"",
    )
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    together = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), encoded), b"")
    return pc.binary_join_element_wise(_array(in_rows([Varints.of(counts)])), together, b"")


def _pairs(headers: Sequence[dict[str, str | bytes]] | None) -> list[Header]:
    return [(each["key"], each["value"]) for each in headers or ()]  # type: ignore[misc]  # checked by `columns`
