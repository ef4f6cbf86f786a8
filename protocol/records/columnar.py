"""Records of many batches as columns of positions: what Spark's reader makes Arrow columns of, and the cleaner's tools.

A batch's records are told apart by a walk over their length varints: of many batches in step (`_starts_in_step`), of
few one by one (`record_starts`). Every other field is read by numpy for all records at once (`varints`). Keys and
values are not copied: the columns say where in one buffer they stand. That is the fetched chunk itself or, of
compressed batches, what they decode to.

Rules: nothing is believed. CRCs are checked, records fill their batch exactly, every position and length that is read
stays within its record; else `InvalidBatch`. What lies deeper in the records than is wanted (`Depth`) is not looked at,
and headers are looked into only by `header_columns`. Format: `batch`.

Not imported by `protocol.records`: brokers do without numpy.
"""

from __future__ import annotations

import enum
from functools import cache
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    InvalidBatch,
)
from strandline.protocol.records.compression import MAX_DECOMPRESSED_BYTES, DecompressionFailed, decompress

I64 = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
Bytes = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
Pairs = np.ndarray[tuple[int, ...], np.dtype[np.uint16]]

VARINT_MAX_BYTES = 10
RECORD_MIN_BYTES = 6
"""Attributes, two deltas, two lengths, the count of headers."""
_NOWHERE = 2**62
"""Behind a varint that does not end: beyond every bound, far from an overflow."""
_EQUAL_BEFORE_RUN = 3
_LONGEST_RUN = 512
_FEW_ROWS = 16


class Depth(enum.IntEnum):
    """How far into each record is read: a field is reached through those in front of it."""

    OFFSETS = 0
    KEYS = 1
    VALUES = 2
    HEADERS = 3


class Spans(NamedTuple):
    """Where byte strings stand in a buffer. Positions never fall; null ones are empty. No rows at all where the field
    was not read."""

    starts: I64
    ends: I64
    is_null: Flags

    def rows(self, chosen: Flags) -> Spans:
        """Only those."""
        if not len(self.starts):
            return self
        return Spans(self.starts[chosen], self.ends[chosen], self.is_null[chosen])


_NOTHING: I64 = np.zeros(0, np.int64)
_NOT_READ = Spans(_NOTHING, _NOTHING, np.zeros(0, np.bool_))


class RecordColumns(NamedTuple):
    """One row per record, in order. `header_starts` to `ends`: the bytes of its headers, behind their count. Columns of
    fields that were not read (`Depth`) are empty."""

    buffer: Buffer
    offsets: I64
    timestamps_ms: I64
    timestamp_types: I64
    keys: Spans
    values: Spans
    header_counts: I64
    header_starts: I64
    ends: I64

    def rows(self, chosen: Flags) -> RecordColumns:
        """Only those."""
        return RecordColumns(
            self.buffer,
            self.offsets[chosen],
            self.timestamps_ms[chosen],
            self.timestamp_types[chosen],
            self.keys.rows(chosen),
            self.values.rows(chosen),
            self.header_counts[chosen] if len(self.header_counts) else _NOTHING,
            self.header_starts[chosen] if len(self.header_starts) else _NOTHING,
            self.ends[chosen],
        )


class BatchDecoder:
    """Collects whole batches of one chunk until they are enough, then makes columns of them."""

    def __init__(
        self, chunk: Buffer, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES, *, check_crc: bool = True
    ) -> None:
        """chunk: must not change as long as columns of it are in use. max_decompressed_bytes: of one batch."""
        self._chunk = memoryview(chunk)
        self._check_crc = check_crc
        self._max_decompressed_bytes = max_decompressed_bytes
        self._clear()

    def _clear(self) -> None:
        self._batches: list[BatchHeader] = []
        self._pieces: list[tuple[Buffer, int, int]] = []
        """(source, start, end) of each batch's records."""
        self._has_decoded = False
        self.records_count = 0
        self.size_bytes = 0
        """Of all records collected, decoded."""

    def add(self, position: int, header: BatchHeader) -> None:
        """The whole batch at `position` of the chunk, as `scan` yields it; a control batch has no rows.

        InvalidBatch: a wrong CRC, damaged, more than allowed when decoded, or no room for that many records.
        """
        start, end = position + HEADER_BYTES, position + header.size_bytes
        if self._check_crc and crc32c(self._chunk[position + CRC_START : end]) != header.crc:
            raise InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE, f"CRC-32C of the batch at offset {header.base_offset} does not match"
            )
        if header.is_control:
            return
        source: Buffer = self._chunk
        if header.attributes & CODEC_MASK:
            try:
                source = decompress(header.codec, self._chunk[start:end], self._max_decompressed_bytes)
            except DecompressionFailed as error:
                raise InvalidBatch(error.code, str(error)) from None
            start, end = 0, len(source)
            self._has_decoded = True
        if not 0 <= header.records_count * (1 + RECORD_MIN_BYTES) <= end - start:
            raise _malformed(header.base_offset, f"{end - start} bytes have no room for {header.records_count}")
        self._batches.append(header)
        self._pieces.append((source, start, end))
        self.records_count += header.records_count
        self.size_bytes += end - start

    def take(self, depth: Depth = Depth.HEADERS) -> RecordColumns:
        """Columns of all batches since the last time. InvalidBatch: records are malformed."""
        buffer: Buffer = self._chunk
        if self._has_decoded:
            buffer = b"".join([memoryview(source)[start:end] for source, start, end in self._pieces])
            ends = np.cumsum(_column([end - start for _, start, end in self._pieces]))
            firsts = np.append(_column([0]), ends)[:-1]
        else:
            firsts = _column([start for _, start, _ in self._pieces])
            ends = _column([end for _, _, end in self._pieces])
        starts = _starts_in_step(buffer, firsts, ends, self._batches)
        counts = _column([header.records_count for header in self._batches])
        record_ends = np.empty_like(starts)
        record_ends[:-1] = starts[1:]
        record_ends[(np.cumsum(counts) - 1)[counts > 0]] = ends[counts > 0]
        columns = self._columns(buffer, starts, record_ends, counts, depth)
        self._clear()
        return columns

    def _columns(self, buffer: Buffer, starts: I64, ends: I64, counts: I64, depth: Depth) -> RecordColumns:
        array = np.frombuffer(buffer, dtype=np.uint8)
        _, bodies = varints(array, starts)
        deltas_ms, position = varints(array, bodies + 1)
        offset_deltas, position = varints(array, position)
        fits = position <= ends
        keys = values = _NOT_READ
        header_counts = header_starts = _NOTHING
        if depth >= Depth.KEYS:
            keys, position, fits = _byte_strings(array, position, ends)
        if depth >= Depth.VALUES:
            values, position, values_fit = _byte_strings(array, position, ends)
            fits &= values_fit
        if depth >= Depth.HEADERS:
            header_counts, header_starts = varints(array, position)
            room = ends - header_starts
            fits &= header_counts >= 0
            # A header has at least two bytes; where there is none, the record ends here.
            fits &= np.where(header_counts == 0, room == 0, header_counts <= room >> 1)
        base_offsets = np.repeat(_column([header.base_offset for header in self._batches]), counts)
        if not fits.all():
            wrong = int(np.flatnonzero(~fits)[0])
            raise _malformed(
                int(base_offsets[wrong]), f"one of its records leaves its {ends[wrong] - starts[wrong]} bytes"
            )
        append_time = _column([header.attributes & TIMESTAMP_TYPE_BIT for header in self._batches]) != 0
        base_ms = np.repeat(_column([header.base_timestamp_ms for header in self._batches]), counts)
        timestamps_ms = base_ms + deltas_ms
        if append_time.any():
            max_ms = np.repeat(_column([header.max_timestamp_ms for header in self._batches]), counts)
            timestamps_ms = np.where(np.repeat(append_time, counts), max_ms, timestamps_ms)
        return RecordColumns(
            buffer,
            base_offsets + offset_deltas,
            timestamps_ms,
            np.repeat(append_time.astype(np.int64), counts),
            keys,
            values,
            header_counts,
            header_starts,
            ends,
        )


def header_columns(columns: RecordColumns) -> tuple[Spans, Spans]:
    """(keys, values) of all headers of all records, one behind the other. InvalidBatch: they do not fill their place.
    That keys are UTF-8 is for the caller to check."""
    array = np.frombuffer(columns.buffer, dtype=np.uint8)
    counts = columns.header_counts
    first = np.cumsum(counts) - counts
    total = int(counts.sum())
    found = [Spans(np.zeros(total, np.int64), np.zeros(total, np.int64), np.zeros(total, np.bool_)) for _ in range(2)]
    rows = np.flatnonzero(counts)
    position = columns.header_starts[rows]
    turn = 0
    fits = True
    while len(rows) >= _FEW_ROWS and fits:  # the first header of every record that has one, then the second …
        places, ends = first[rows] + turn, columns.ends[rows]
        for spans in found:
            strings, position, each_fits = _byte_strings(array, position, ends)
            for column, part in zip(spans, strings, strict=True):
                column[places] = part
            fits = fits and bool(each_fits.all())
        turn += 1
        more = counts[rows] > turn
        fits = fits and bool((position[~more] == ends[~more]).all())
        rows, position = rows[more], position[more]
    keys, values = found
    for row, start in zip(rows.tolist(), position.tolist(), strict=True):
        fits = fits and _walk_headers(
            columns, row, start, found, range(int(first[row]) + turn, int(first[row] + counts[row]))
        )
    if not fits or keys.is_null.any():
        raise _malformed(int(columns.offsets[0]), "headers of its records, or of a following one, are damaged")
    return keys, values


def _walk_headers(columns: RecordColumns, row: int, position: int, found: list[Spans], places: range) -> bool:
    """The headers of one record from `position` on; whether they fit. For records with many more than the others, where
    turns over all of them would not pay."""
    view, end = memoryview(columns.buffer), int(columns.ends[row])
    for place in places:
        for spans in found:
            raw, position = _varint(view, position, end)
            length = raw >> 1 ^ -(raw & 1)
            if not -1 <= length <= end - position:
                return False
            spans.starts[place], spans.is_null[place] = position, length < 0
            position += max(length, 0)
            spans.ends[place] = position
    return position == end


def _starts_in_step(buffer: Buffer, positions: I64, ends: I64, batches: list[BatchHeader]) -> I64:
    """Where the records of all batches begin (their length varints), one batch behind the other. Walked are the first
    record of every batch, then the second …: a turn of the loop serves as many records as there are batches.
    InvalidBatch: records of a batch do not end where it ends."""
    counts = _column([header.records_count for header in batches])
    firsts = np.cumsum(counts) - counts
    starts = np.empty(int(counts.sum()), dtype=np.int64)
    array = np.frombuffer(buffer, dtype=np.uint8)
    pairs: Pairs = np.ndarray((max(len(array) - 1, 0),), dtype="<u2", buffer=array, strides=(1,))
    sizes = _record_sizes()
    rows, turn, next_end = np.arange(len(batches)), 0, 0
    while True:
        if turn == next_end:  # the batches with the fewest records, of those that are left
            at_end = counts[rows] == turn
            wrong = rows[at_end][positions[at_end] != ends[rows[at_end]]]
            if len(wrong):
                raise _not_filled(batches[wrong[0]])
            rows, positions = rows[~at_end], positions[~at_end]
            if len(rows) < _FEW_ROWS:
                break
            next_end, places = int(counts[rows].min()), firsts[rows]
        starts[places + turn] = positions
        try:
            steps = sizes[pairs[positions]]
        except IndexError:
            raise _not_filled(batches[rows[np.argmax(positions)]]) from None
        if not steps.all():
            for place in np.flatnonzero(steps == 0).tolist():
                row, position = int(rows[place]), int(positions[place])
                steps[place] = _long_record(buffer, position, int(ends[row]), batches[row].base_offset) - position
        positions = positions + steps
        turn += 1
    for row, position in zip(rows.tolist(), positions.tolist(), strict=True):
        header, place = batches[row], int(firsts[row])
        rest = record_starts(buffer, position, int(ends[row]), header.base_offset, header.records_count - turn)
        starts[place + turn : place + header.records_count] = rest
    return starts


@cache
def _record_sizes() -> I64:
    """By the first two bytes of a record (little endian): how long it is, with its length in front. 0: that takes a
    longer look, or cannot be."""
    pairs = np.arange(2**16, dtype=np.int64)
    low, high = pairs & 255, pairs >> 8
    sizes = np.where(low < 128, (low >> 1) + 1, ((low & 127 | high << 7) >> 1) + 2)
    is_plain = ((low < 128) | (high < 128)) & (low & 1 == 0) & (sizes > RECORD_MIN_BYTES)
    return np.where(is_plain, sizes, 0)


def record_starts(source: Buffer, position: int, end: int, base_offset: int, count: int) -> list[int]:
    """Where the `count` records begin that one batch has from `position` on, found by walking from length to length.
    Hot: one turn per record. InvalidBatch: they do not end at `end`, or are not as many.

    Where several records are of the same length, those that follow are looked at together: as long as the bytes at
    their beginnings are the same, so are their lengths.
    """
    starts: list[int] = []
    limit = end - RECORD_MIN_BYTES
    append, before, equal = starts.append, 0, 0
    while position < limit:
        append(position)
        byte = source[position]
        if byte < 128:
            size = (byte >> 1) + 1
        else:
            following = source[position + 1]
            if following < 128:
                size = ((byte & 127 | following << 7) >> 1) + 2
            else:
                size = _long_record(source, position, end, base_offset) - position
        if byte & 1 or size <= RECORD_MIN_BYTES:
            raise _malformed(base_offset, "one of its records has no room for its fields")
        position += size
        if size != before:
            before, equal = size, 0
            continue
        equal += 1
        if equal == _EQUAL_BEFORE_RUN:
            equal = 0
            run = _equal_run(source, position, min(limit, position + size * _LONGEST_RUN), size, starts[-1])
            if run:
                starts += range(position, position + run * size, size)
                position += run * size
    if position != end or len(starts) != count:
        raise _malformed(base_offset, f"{count} records end at byte {position}, its bytes at {end} after {len(starts)}")
    return starts


def _long_record(source: Buffer, position: int, end: int, base_offset: int) -> int:
    """Where the record at `position` ends, whatever its length varint."""
    raw, body = _varint(source, position, end)
    size = (raw >> 1) + body - position
    if raw & 1 or not RECORD_MIN_BYTES < size <= end - position:
        raise _malformed(base_offset, "one of its records has no room for its fields")
    return position + size


def _not_filled(header: BatchHeader) -> InvalidBatch:
    return _malformed(header.base_offset, f"its {header.records_count} records do not end where it ends")


def _equal_run(source: Buffer, position: int, limit: int, size: int, model: int) -> int:
    """How many records from `position` on, with all beginnings below `limit`, begin with the bytes of the one at
    `model`, and so are as long."""
    run = _LONGEST_RUN
    while True:
        byte = source[model]
        beginnings = bytes(source[position:limit:size])
        run = min(run, len(beginnings) - len(beginnings.lstrip(bytes((byte,)))))
        if byte < 128 or not run:
            return run
        position, limit, model = position + 1, limit + 1, model + 1


def varints(array: Bytes, positions: I64) -> tuple[I64, I64]:
    """(values, positions behind them) of the zigzag varints at `positions`, which may lie anywhere: what is outside of
    the array reads as some byte of it. One that has no end within ten bytes ends beyond every bound."""
    byte = array.take(positions, mode="clip")
    values = (byte & 127).astype(np.uint64)
    behind = positions + 1
    waiting = np.flatnonzero(byte > 127)
    shift = 7
    while len(waiting) and shift < 7 * VARINT_MAX_BYTES:
        byte = array.take(behind[waiting], mode="clip")
        values[waiting] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        behind[waiting] += 1
        waiting = waiting[byte > 127]
        shift += 7
    behind[waiting] = _NOWHERE
    return ((values >> np.uint64(1)) ^ (np.uint64(0) - (values & np.uint64(1)))).astype(np.int64), behind


def _byte_strings(array: Bytes, positions: I64, limits: I64) -> tuple[Spans, I64, Flags]:
    """(spans, positions behind them, whether it fits) of byte strings with their length in front, −1 for null. One that
    does not fit is made empty, at its limit."""
    lengths, starts = varints(array, positions)
    fits = (lengths >= -1) & (lengths <= limits - starts) & (starts <= limits)
    if not fits.all():
        lengths, starts = np.where(fits, lengths, 0), np.where(fits, starts, limits)
    ends = starts + np.maximum(lengths, 0)
    return Spans(starts, ends, lengths < 0), ends, fits


def _varint(source: Buffer, position: int, end: int) -> tuple[int, int]:
    """(raw value, position behind it); one that has no end within ten bytes and below `end` ends beyond every bound."""
    value = shift = 0
    for place in range(position, min(end, position + VARINT_MAX_BYTES)):
        byte = source[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place + 1
        shift += 7
    return 0, _NOWHERE


def _column(numbers: list[int]) -> I64:
    return np.array(numbers, dtype=np.int64)


def _malformed(offset: int, what: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"records of the batch at offset {offset} are malformed: {what}")
