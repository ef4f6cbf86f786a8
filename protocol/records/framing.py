"""What stands around keys, values and headers in a batch, made for many records at once: the counterpart of `columnar`.

Who has keys and values side by side (Arrow's arrays) gets for each record the bytes in front of its key and those
between key and value, and joins all of them with a compiled function: no step is taken record by record. Format:
`batch`.

  1 `frames` measures records, divides them into batches, and makes these bytes; the first of a batch have room in front
    for the batch's header,
  2 the caller joins them with the rest,
  3 `put_header` fills that room.

Not imported by `protocol.records`: brokers do without numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from strandline.protocol.records.batch import HEADER, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC
from strandline.protocol.records.columnar import I64, Bytes
from strandline.protocol.types import NO_EPOCH, NO_PRODUCER_ID

U64 = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]

ATTRIBUTES_BYTES = 1
"""Of a record; none has any."""

NO_BYTES = -1
"""The length of a key or value that is null."""


class ByteStrings(NamedTuple):
    """One behind the other; that of row n ends at `ends[n]`."""

    data: Bytes
    ends: I64


class Frames(NamedTuple):
    """`heads` stand in front of the keys, `middles` between keys and values. `batch_ends`: the rows behind each batch's
    last one."""

    heads: ByteStrings
    middles: ByteStrings
    batch_ends: list[int]


def frames(
    key_bytes: I64, value_bytes: I64, header_bytes: I64 | int, timestamps_ms: I64 | int, limit_bytes: int
) -> Frames:
    """Of one or more records. The first three are lengths: NO_BYTES for null; headers with their count in front.
    timestamps_ms: one where all have the same. limit_bytes: a batch of several records stays below it, header included.
    """
    count = len(key_bytes)
    keys, values = Varints.of(key_bytes), Varints.of(value_bytes)
    size = keys.sizes + np.maximum(key_bytes, 0) + values.sizes + np.maximum(value_bytes, 0) + header_bytes
    size += ATTRIBUTES_BYTES
    # 1. Where batches end: deltas are known only then, so until then they count as the largest that there may be.
    span_ms = 0 if isinstance(timestamps_ms, int) else int(timestamps_ms.max() - timestamps_ms.min())
    most = size + int(Varints.of(np.array([span_ms, -span_ms])).sizes.max() + Varints.of(np.array([count])).sizes[0])
    starts, batch_ends = _divided(most + Varints.of(most).sizes, limit_bytes - HEADER_BYTES)
    # 2. What stands in front of each key.
    firsts = np.repeat(starts, np.diff(np.append(starts, count)))
    deltas_ms = np.zeros(count, np.int64) if isinstance(timestamps_ms, int) else timestamps_ms - timestamps_ms[firsts]
    times, offsets = Varints.of(deltas_ms), Varints.of(np.arange(count) - firsts)
    size += times.sizes + offsets.sizes
    room = np.zeros(count, np.int64)
    room[starts] = HEADER_BYTES
    heads = in_rows([room, Varints.of(size), ATTRIBUTES_BYTES, times, offsets, keys])
    return Frames(heads, in_rows([values]), batch_ends)


def _divided(size_bytes: I64, limit_bytes: int) -> tuple[I64, list[int]]:
    """(starts, ends) of runs of rows that are below the limit in all; one alone may be above it."""
    until = np.cumsum(size_bytes)
    starts, ends, start, before = [], [], 0, 0
    while start < len(size_bytes):
        end = max(start + 1, int(np.searchsorted(until, before + limit_bytes, "right")))
        starts.append(start)
        ends.append(end)
        start, before = end, int(until[end - 1])
    return np.array(starts, np.int64), ends


def put_header(batch: bytearray | memoryview, count: int, timestamps_ms: I64 | int, codec: int) -> None:
    """Of a batch of `count` records, which has room for it in front of them. The CRC is left out."""
    base_ms, max_ms = (
        (timestamps_ms, timestamps_ms)
        if isinstance(timestamps_ms, int)
        else (int(timestamps_ms[0]), int(timestamps_ms.max()))
    )
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LENGTH_PREFIX_BYTES,
        NO_EPOCH,
        MAGIC,
        0,
        codec,
        count - 1,
        base_ms,
        max_ms,
        NO_PRODUCER_ID,
        NO_EPOCH,
        -1,
        count,
    )


class Varints(NamedTuple):
    """Numbers as zigzag varints: `sizes` in bytes."""

    raw: U64
    sizes: I64

    @classmethod
    def of(cls, numbers: I64) -> Varints:
        raw = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        sizes = np.ones(len(raw), np.int64)
        largest = int(raw.max(initial=0))
        for shift in range(7, largest.bit_length(), 7):
            sizes += raw >> np.uint64(shift) > 0
        return cls(raw, sizes)


def in_rows(columns: Sequence[Varints | I64 | int]) -> ByteStrings:
    """Row by row, one column behind the other. Numbers, one or one for each row, are so many bytes of 0."""
    sizes = [column.sizes if isinstance(column, Varints) else column for column in columns]
    total: I64 = np.asarray(sum(sizes), np.int64)
    ends = np.cumsum(total)
    data = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    positions = ends - total
    for column, size in zip(columns, sizes, strict=True):
        if isinstance(column, Varints):
            _put(data, positions, column)
        positions = positions + size
    return ByteStrings(data, ends)


def _put(data: Bytes, positions: I64, varints: Varints) -> None:
    raw, sizes = varints
    data[positions] = raw & np.uint64(127)
    following, place = np.flatnonzero(sizes > 1), 1
    while len(following):
        behind = positions[following] + place
        data[behind - 1] |= 128
        data[behind] = raw[following] >> np.uint64(7 * place) & np.uint64(127)
        place += 1
        following = following[sizes[following] > place]
