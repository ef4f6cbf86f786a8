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


def frames(key_bytes: I64, value_bytes: I64, header_bytes: I64 | int, timestamps_ms: I64, limit_bytes: int) -> Frames:
    """Of one or more records. The first three are lengths: NO_BYTES for null; headers with their count in front.
    limit_bytes: a batch of several records stays below it, header included."""
    count = len(key_bytes)
    size = 1 + varint_bytes(key_bytes) + np.maximum(key_bytes, 0)
    size += varint_bytes(value_bytes) + np.maximum(value_bytes, 0) + header_bytes
    # 1. Where batches end: deltas are known only then, so until then they count as the largest that there may be.
    span_ms = int(timestamps_ms.max() - timestamps_ms.min())
    most = size + int(varint_bytes(np.array([span_ms, -span_ms])).max() + varint_bytes(np.array([count]))[0])
    starts, batch_ends = _divided(most + varint_bytes(most), limit_bytes - HEADER_BYTES)
    # 2. What stands in front of each key.
    firsts = np.repeat(starts, np.diff(np.append(starts, count)))
    deltas_ms = timestamps_ms - timestamps_ms[firsts]
    offset_deltas = np.arange(count) - firsts
    size += varint_bytes(deltas_ms) + varint_bytes(offset_deltas)
    room = np.zeros(count, np.int64)
    room[starts] = HEADER_BYTES
    attributes = np.zeros(count, np.int64)  # as a varint it is the byte 0, too
    heads = varint_rows([size, attributes, deltas_ms, offset_deltas, key_bytes], room)
    return Frames(heads, varint_rows([value_bytes]), batch_ends)


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


def put_header(batch: bytearray | memoryview, timestamps_ms: I64, codec: int) -> None:
    """Of the batch, which has room for it in front of its records. `timestamps_ms`: theirs. The CRC is left out."""
    count = len(timestamps_ms)
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
        int(timestamps_ms[0]),
        int(timestamps_ms.max()),
        NO_PRODUCER_ID,
        NO_EPOCH,
        -1,
        count,
    )


def varint_bytes(numbers: I64) -> I64:
    """How long each is as a zigzag varint."""
    raw = _zigzag(numbers)
    sizes = np.ones(len(raw), np.int64)
    largest = int(raw.max(initial=0))
    for shift in range(7, largest.bit_length(), 7):
        sizes += raw >> np.uint64(shift) > 0
    return sizes


def varint_rows(columns: Sequence[I64], room: I64 | None = None) -> ByteStrings:
    """Each row's numbers as zigzag varints, one behind the other; `room`: so many zeros in front of them."""
    sizes = [varint_bytes(numbers) for numbers in columns]
    total = sum(sizes[1:], sizes[0]) + (0 if room is None else room)
    ends = np.cumsum(total)
    data = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    positions = ends - total + (0 if room is None else room)
    for numbers, size in zip(columns, sizes, strict=True):
        raw = _zigzag(numbers)
        data[positions] = raw & np.uint64(127)
        following = np.flatnonzero(size > 1)
        place = 1
        while len(following):
            data[positions[following] + place - 1] |= 128
            data[positions[following] + place] = raw[following] >> np.uint64(7 * place) & np.uint64(127)
            place += 1
            following = following[size[following] > place]
        positions = positions + size
    return ByteStrings(data, ends)


def _zigzag(numbers: I64) -> U64:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
