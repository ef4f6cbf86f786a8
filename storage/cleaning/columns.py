"""The records of many batches as columns: where each stands, its offset, its key, whether it is a tombstone.

A chunk is some whole batches of a .log file. Records of compressed batches are decoded (with a cap) and put behind the
chunk, so that all of them stand in one buffer. Only the walk from record to record is a Python loop, over the length
varints; everything else is read by numpy for all records at once (format: `protocol/records/batch`).

Rules: nothing is believed. A wrong CRC, a record that leaves its batch, offsets that do not rise or leave the batch's
range, a count that is not the header's, data that does not decode or decodes to too much: `Unreadable`, with the offset
of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import crc32c
import numpy as np

from strandline.protocol.records.batch import CRC_START, HEADER_BYTES, MAGIC, BatchHeader, InvalidBatch
from strandline.protocol.records.columnar import VARINT_MAX_BYTES, record_starts, varints
from strandline.protocol.records.compression import DecompressionFailed, decompress
from strandline.storage.cleaning.key_hash import I64, SLACK_BYTES, Bytes
from strandline.storage.cleaning.plan import Unreadable

_SLACK = bytes(4 * VARINT_MAX_BYTES + SLACK_BYTES)


class Batch(NamedTuple):
    """One batch of a chunk; `start` and `end` are its bytes in the chunk's buffer."""

    header: BatchHeader
    start: int
    end: int
    first_record: int
    """Number of its first record in the columns."""
    records_end: int


@dataclass(slots=True)
class Columns:
    """Positions are those of `buffer`. Columns have a row per record of all batches that are not control batches."""

    buffer: bytes
    batches: list[Batch]
    starts: I64
    """Of each record, its length varint included."""
    bodies: I64
    """Behind the length varint."""
    ends: I64
    offsets: I64
    timestamp_deltas: I64
    after_timestamps: I64
    """Behind the timestamp delta."""
    key_starts: I64
    key_lengths: I64
    """−1: no key."""
    is_tombstone: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

    @property
    def bytes_array(self) -> Bytes:
        return np.frombuffer(self.buffer, dtype=np.uint8)


class ChunkReader:
    """Collects batches until they are enough, then makes columns of them."""

    def __init__(self, data: bytes, max_decompressed_bytes: int) -> None:
        """data: whole batches of the file, and perhaps a part of another."""
        self._data = data
        self._max_decompressed_bytes = max_decompressed_bytes
        self._pieces: list[bytes | bytearray | memoryview] = [data]
        self._batches: list[Batch] = []
        self._starts: list[int] = []
        self._end = len(data)

    @property
    def decoded_bytes(self) -> int:
        """What the compressed batches so far became."""
        return self._end - len(self._data)

    def add(self, header: BatchHeader, position: int, *, with_records: bool = True) -> None:
        """The batch at `position` of the data. with_records: else (and for control batches) it has no rows."""
        start, end = position, position + header.size_bytes
        check_batch(header, memoryview(self._data)[start:end])
        first = len(self._starts)
        if with_records and not header.is_control and header.records_count:
            if header.codec:
                source, begin, stop = self._decode(header, start, end)
                base = self._end
                self._pieces.append(source)
                self._end += stop
            else:
                source, begin, stop, base = self._data, start + HEADER_BYTES, end, 0
            try:
                starts = record_starts(source, begin, stop, header.base_offset, header.records_count)
            except InvalidBatch as error:
                raise Unreadable(header.base_offset, str(error)) from None
            self._starts += [start + base for start in starts] if base else starts
        self._batches.append(Batch(header, start, end, first, len(self._starts)))

    def _decode(self, header: BatchHeader, start: int, end: int) -> tuple[bytes, int, int]:
        try:
            records = decompress(
                header.codec, memoryview(self._data)[start + HEADER_BYTES : end], self._max_decompressed_bytes
            )
        except DecompressionFailed as error:
            raise Unreadable(header.base_offset, str(error)) from None
        return bytes(records), 0, len(records)

    def columns(self) -> Columns:
        """Of the batches so far; `Unreadable` names the first of them that is not what it should be."""
        buffer = b"".join((*self._pieces, _SLACK))
        array = np.frombuffer(buffer, dtype=np.uint8)
        starts = np.array(self._starts, dtype=np.int64)
        _, bodies = varints(array, starts)
        ends = self._record_ends(starts)
        base_offsets = np.repeat(
            np.array([batch.header.base_offset for batch in self._batches], dtype=np.int64),
            [batch.records_end - batch.first_record for batch in self._batches],
        )
        timestamp_deltas, after_timestamps = varints(array, bodies + 1)
        offset_deltas, position = varints(array, after_timestamps)
        key_lengths, key_starts = varints(array, position)
        # Lengths are believed only once they are known to stay within the record, and used for indexing only then.
        sane = (key_lengths >= -1) & (key_lengths <= ends - key_starts)
        values_at = np.where(sane, key_starts + np.maximum(key_lengths, 0), bodies)
        value_lengths, values = varints(array, values_at)
        sane &= (values <= ends) & (value_lengths >= -1) & (np.maximum(value_lengths, 0) < ends - values + 1)
        columns = Columns(
            buffer,
            self._batches,
            starts,
            bodies,
            ends,
            base_offsets + offset_deltas,
            timestamp_deltas,
            after_timestamps,
            key_starts,
            key_lengths,
            value_lengths < 0,
        )
        self._check(columns, sane, offset_deltas)
        return columns

    def _record_ends(self, starts: I64) -> I64:
        """A record ends where the next one of its batch begins; the last one of a batch, where its bytes end."""
        ends = np.empty_like(starts)
        if len(starts):
            ends[:-1] = starts[1:]
        decoded_end = len(self._data)
        pieces = iter(self._pieces[1:])
        for batch in self._batches:
            if batch.records_end > batch.first_record:
                if batch.header.codec:
                    decoded_end += len(next(pieces))
                    ends[batch.records_end - 1] = decoded_end
                else:
                    ends[batch.records_end - 1] = batch.end
        return ends

    def _check(self, columns: Columns, sane: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], deltas: I64) -> None:
        if not len(deltas):
            return
        last_deltas = np.repeat(
            np.array([batch.header.last_offset_delta for batch in self._batches], dtype=np.int64),
            [batch.records_end - batch.first_record for batch in self._batches],
        )
        sane &= (deltas >= 0) & (deltas <= last_deltas)
        rising = np.empty(len(deltas), dtype=np.bool_)
        rising[0] = True
        rising[1:] = deltas[1:] > deltas[:-1]
        rising[[batch.first_record for batch in self._batches if batch.records_end > batch.first_record]] = True
        sane &= rising
        if not sane.all():
            wrong = int(np.flatnonzero(~sane)[0])
            for batch in self._batches:
                if batch.first_record <= wrong < batch.records_end:
                    raise Unreadable(batch.header.base_offset, f"record {wrong - batch.first_record} is malformed")


def check_batch(header: BatchHeader, view: memoryview) -> None:
    """Unreadable: a header that cannot be, or a wrong CRC."""
    if header.magic != MAGIC or header.last_offset_delta < 0 or header.records_count < 0:
        raise Unreadable(header.base_offset, f"no batch stands there: magic {header.magic}")
    if crc32c.crc32c(view[CRC_START:]) != header.crc:
        raise Unreadable(header.base_offset, "the CRC does not match")
