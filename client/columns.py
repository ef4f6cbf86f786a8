"""Consumed records as columns: what `poll_columns` hands out. Nothing is done record by record but what a program asks
for: offsets and timestamps are numpy arrays, keys and values stay where they were received until somebody takes them.

Imported at the first use: numpy takes a tenth of a second, which a program that only polls records need not wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast, overload

import numpy as np

from strandline.client.errors import CorruptRecords
from strandline.protocol.records import BatchHeader, InvalidBatch
from strandline.protocol.records.batch import Buffer
from strandline.protocol.records.columnar import I64, BatchDecoder, Flags, RecordColumns, Spans, header_columns
from strandline.protocol.types import TopicPartition

Headers = list[tuple[str, bytes | None]]


class ByteStrings(Sequence[bytes | None]):
    """Keys, or values, of some records: a sequence of bytes or None, each of which is made when it is asked for.
    `list(…)` makes all of them. For who makes something else of them, an Arrow array say: that of row n is
    `buffer[starts[n]:ends[n]]`, and null where `is_null[n]`."""

    __slots__ = ("buffer", "ends", "is_null", "starts")

    def __init__(self, buffer: bytes, starts: I64, ends: I64, is_null: Flags) -> None:
        self.buffer = buffer
        self.starts = starts
        self.ends = ends
        self.is_null = is_null

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...

    @overload
    def __getitem__(self, index: slice) -> ByteStrings: ...

    def __getitem__(self, index: int | slice) -> bytes | ByteStrings | None:
        if isinstance(index, slice):
            return ByteStrings(self.buffer, self.starts[index], self.ends[index], self.is_null[index])
        return None if self.is_null[index] else self.buffer[self.starts[index] : self.ends[index]]

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self._all())

    def __repr__(self) -> str:
        return f"<{len(self)} byte strings>"

    def _all(self) -> list[bytes | None]:
        if self.is_null.all():
            return [None] * len(self)
        buffer = self.buffer
        places = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        strings: list[bytes | None] = [buffer[start:end] for start, end in places]
        for row in np.flatnonzero(self.is_null).tolist():
            strings[row] = None
        return strings


class FetchedColumns(NamedTuple):
    """Consumed records of one partition, in order, one row each. `offsets`, `timestamps_ms` (since 1970, −1: none) and
    `timestamp_types` (0: CreateTime, 1: LogAppendTime) are arrays of int64; offsets may have gaps. `position`: where
    the consumer stood before."""

    topic: str
    partition: int
    position: int
    offsets: I64
    timestamps_ms: I64
    timestamp_types: I64
    keys: ByteStrings
    values: ByteStrings
    high_watermark: int
    records: RecordColumns
    """As they were decoded, for `headers`."""

    @property
    def records_count(self) -> int:
        return len(self.offsets)

    def headers(self) -> list[Headers]:
        """Those of each record. CorruptRecords."""
        count = len(self.offsets)
        if not self.records.header_counts.any():
            return [[] for _ in range(count)]
        try:
            names, contents = (self._strings(spans) for spans in header_columns(self.records))
            pairs = [(cast(bytes, name).decode(), content) for name, content in zip(names, contents, strict=True)]
        except (InvalidBatch, UnicodeDecodeError) as error:
            where = TopicPartition(self.topic, self.partition)
            raise CorruptRecords(f"headers of records of {where} are damaged: {error}") from error
        ends = np.cumsum(self.records.header_counts).tolist()
        return [pairs[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _strings(self, spans: Spans) -> ByteStrings:
        return ByteStrings(self.values.buffer, *spans)


class Decoded(NamedTuple):
    """What could be decoded of some batches: the rows of the first `batches_count` of them, and what is wrong with the
    next one, if it was not the last."""

    records: RecordColumns
    batches_count: int
    error: InvalidBatch | None


def decode(data: memoryview, batches: Sequence[tuple[int, BatchHeader]], check_crcs: bool) -> Decoded:
    """`batches`: position and header of each. All at once; where that fails up to the one that is damaged."""
    decoder = BatchDecoder(data, check_crc=check_crcs)
    error: InvalidBatch | None = None
    count = 0
    for position, header in batches:
        try:
            decoder.add(position, header)
        except InvalidBatch as refused:
            error = refused
            break
        count += 1
    try:
        return Decoded(decoder.take(), count, error)
    except InvalidBatch as refused:
        if count <= 1:
            return Decoded(BatchDecoder(data).take(), 0, refused)
    good = _good(data, batches[:count], check_crcs)
    return decode(data, batches[:good], check_crcs)._replace(error=decode(data, batches[good : good + 1], False).error)


def _good(data: memoryview, batches: Sequence[tuple[int, BatchHeader]], check_crcs: bool) -> int:
    """How many of them can be decoded before one that cannot."""
    for number in range(len(batches)):
        if decode(data, batches[number : number + 1], check_crcs).error is not None:
            return number
    return len(batches)


def columns_of(
    topic_partition: TopicPartition, records: RecordColumns, position: int, high_watermark: int
) -> FetchedColumns:
    """Those from `position` on."""
    if len(records.offsets) and records.offsets[0] < position:
        records = records.rows(records.offsets >= position)
    buffer = _bytes_of(records.buffer)
    return FetchedColumns(
        *topic_partition,
        position,
        records.offsets,
        records.timestamps_ms,
        records.timestamp_types,
        ByteStrings(buffer, *records.keys),
        ByteStrings(buffer, *records.values),
        high_watermark,
        records,
    )


def _bytes_of(buffer: Buffer) -> bytes:
    """Without a copy where it is a view of all of them: slices of bytes are bytes."""
    whole: Any = buffer.obj if isinstance(buffer, memoryview) else buffer
    return whole if isinstance(whole, bytes) and len(whole) == len(buffer) else bytes(buffer)
