"""Which records of a chunk stay, and the batches that hold them: Kafka's rules (LogCleaner, KIP-534).

A record below the map's end stays when its key's newest offset is not above its own; a tombstone only until its batch's
delete horizon. Records without a key are not for compacted topics and go. Control batches stay.

A batch stays byte for byte where all of its records stay. One that loses some is built anew: base offset, last offset
delta, producer fields, leader epoch, codec and base timestamp stay, so offsets, order and sequences are as they were;
count, lengths, max timestamp and CRC are new; the records that stay are copied as bytes. One that loses all goes,
unless it has to hold an offset or a producer's last sequence: then it stays as a header with no records.

Delete horizon: the first time that a batch with tombstones is seen, it gets `now + delete.retention.ms` as its base
timestamp (attribute bit 6 says so), and all timestamp deltas count from there. Once that time is over, tombstones go.
A batch that is clean has its horizon; where it has none, no cleaning saw it (the checkpoint that calls it clean is
wrong) or another program did: it gets none any more, for its keys are not in the map, and without its tombstones older
values would come back.
"""

from __future__ import annotations

from dataclasses import dataclass

import crc32c
import numpy as np

from strandline.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from strandline.protocol.records.compression import compress
from strandline.storage.cleaning.columns import Batch, Columns
from strandline.storage.cleaning.key_hash import hash_keys
from strandline.storage.cleaning.offset_map import OffsetMap
from strandline.storage.cleaning.plan import EVERY_BATCH

DELETE_HORIZON_BIT = 0x40
NO_TIMESTAMP = -1
NO_BATCH = -1
_KEPT_IN_EMPTY = TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT

Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(slots=True)
class Rules:
    """What one cleaning goes by."""

    newest: OffsetMap
    seed: int
    end_offset: int
    """Records from here on stay: the map does not know them."""
    now_ms: int
    delete_retention_ms: int
    last_of_producer: dict[int, int]
    """Producer id → last offset of the batch with its last committed sequence, or `EVERY_BATCH`."""
    first_dirty_offset: int
    """The map does not know what stands below: an earlier cleaning did."""


@dataclass(slots=True)
class Rewritten:
    """What a chunk became: batches in order, each with where its bytes are."""

    batches: list[tuple[BatchHeader, bytes | None]]
    """None: the bytes of the chunk, as they were; their place is `kept`."""
    kept: list[tuple[int, int]]
    """(start, end) in the chunk of each batch that is None above, in order."""
    records_kept: int
    is_changed: bool


def has_horizon(header: BatchHeader) -> bool:
    """Its base timestamp is the time from which on its tombstones may go."""
    return bool(header.attributes & DELETE_HORIZON_BIT)


def retained(columns: Columns, rules: Rules) -> Flags:
    """Whether each record stays."""
    count = len(columns.starts)
    keep: Flags = np.ones(count, dtype=np.bool_)
    known = np.flatnonzero((columns.offsets < rules.end_offset) & (columns.key_lengths >= 0))
    low, high = hash_keys(columns.bytes_array, columns.key_starts[known], columns.key_lengths[known], rules.seed)
    newest = rules.newest.get(low, high)
    keep[known] = columns.offsets[known] >= newest
    if len(known) < count:
        keep[(columns.offsets < rules.end_offset) & (columns.key_lengths < 0)] = False
    for batch in columns.batches:
        if has_horizon(batch.header) and batch.header.base_timestamp_ms <= rules.now_ms:
            rows = slice(batch.first_record, batch.records_end)
            keep[rows] &= ~(columns.is_tombstone[rows] & (columns.offsets[rows] < rules.end_offset))
    return keep


def rewrite(columns: Columns, rules: Rules, held: int = NO_BATCH) -> Rewritten:
    """held: where in the chunk the batch begins whose last offset has to stay, in an empty batch if need be."""
    keep = retained(columns, rules)
    kept_before = np.concatenate(([0], np.cumsum(keep))).tolist()
    tombstones_before = np.concatenate(([0], np.cumsum(keep & columns.is_tombstone))).tolist()
    builder = _Builder(columns, keep, rules)
    result = Rewritten([], [], 0, False)
    for batch in columns.batches:
        header, first, end = batch.header, batch.first_record, batch.records_end
        kept = kept_before[end] - kept_before[first]
        result.records_kept += kept
        if header.is_control or header.base_offset >= rules.end_offset:
            _copy(result, batch)
        elif kept == 0:
            if not (batch.start == held or _holds_last_sequence(header, rules)):
                result.is_changed = True
            elif header.records_count == 0:
                _copy(result, batch)
            else:
                result.is_changed = True
                result.batches.append(_empty(header))
        else:
            is_dirty = header.last_offset >= rules.first_dirty_offset
            sets_horizon = is_dirty and tombstones_before[end] > tombstones_before[first] and not has_horizon(header)
            if kept == end - first and not sets_horizon:
                _copy(result, batch)
            else:
                result.is_changed = True
                result.batches.append(builder.build(batch, kept, sets_horizon))
    return result


def _copy(result: Rewritten, batch: Batch) -> None:
    result.batches.append((batch.header, None))
    result.kept.append((batch.start, batch.end))


def _holds_last_sequence(header: BatchHeader, rules: Rules) -> bool:
    if header.producer_id < 0:
        return False
    last_offset = rules.last_of_producer.get(header.producer_id)
    return last_offset in (header.last_offset, EVERY_BATCH)


def _empty(header: BatchHeader) -> tuple[BatchHeader, bytes]:
    """The header without records, as Kafka writes it (DefaultRecordBatch.writeEmptyHeader)."""
    return _sealed(
        header._replace(attributes=header.attributes & _KEPT_IN_EMPTY, base_timestamp_ms=NO_TIMESTAMP, records_count=0),
        b"",
    )


def _sealed(header: BatchHeader, records: bytes | memoryview) -> tuple[BatchHeader, bytes]:
    """The batch of these encoded records, its length and CRC computed."""
    header = header._replace(batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(records), crc=0)
    head = HEADER.pack(*header)
    header = header._replace(crc=crc32c.crc32c(records, crc32c.crc32c(head[CRC_START:])))
    return header, HEADER.pack(*header) + records


class _Builder:
    """Builds batches anew; the lists are made once per chunk, where it is needed."""

    def __init__(self, columns: Columns, keep: Flags, rules: Rules) -> None:
        self._columns = columns
        self._keep = keep
        self._rules = rules
        self._view = memoryview(columns.buffer)
        self._kept: list[bool] | None = None

    def build(self, batch: Batch, kept: int, sets_horizon: bool) -> tuple[BatchHeader, bytes]:
        if self._kept is None:
            columns = self._columns
            self._kept = self._keep.tolist()
            self._starts: list[int] = columns.starts.tolist()
            self._bodies: list[int] = columns.bodies.tolist()
            self._ends: list[int] = columns.ends.tolist()
        header = batch.header
        changes = {"records_count": kept, "max_timestamp_ms": self._max_timestamp_ms(batch)}
        if sets_horizon:
            horizon_ms = self._rules.now_ms + self._rules.delete_retention_ms
            records = self._restamped(batch, horizon_ms)
            changes |= {"base_timestamp_ms": horizon_ms, "attributes": header.attributes | DELETE_HORIZON_BIT}
        else:
            records = self._copied(batch)
        if header.attributes & CODEC_MASK:
            records = compress(header.codec, memoryview(records))
        return _sealed(header._replace(**changes), records)

    def _max_timestamp_ms(self, batch: Batch) -> int:
        header = batch.header
        if header.attributes & TIMESTAMP_TYPE_BIT:  # the broker's time, which all of them have
            return header.max_timestamp_ms
        rows = slice(batch.first_record, batch.records_end)
        return header.base_timestamp_ms + int(self._columns.timestamp_deltas[rows][self._keep[rows]].max())

    def _copied(self, batch: Batch) -> bytes:
        """The bytes of the records that stay, in runs."""
        assert self._kept is not None
        kept, starts, view = self._kept, self._starts, self._view
        pieces: list[memoryview] = []
        run = -1
        for row in range(batch.first_record, batch.records_end):
            if kept[row]:
                if run < 0:
                    run = starts[row]
            elif run >= 0:
                pieces.append(view[run : starts[row]])
                run = -1
        if run >= 0:
            pieces.append(view[run : self._ends[batch.records_end - 1]])
        return b"".join(pieces)

    def _restamped(self, batch: Batch, base_timestamp_ms: int) -> bytes:
        """The records that stay, with timestamp deltas from another base."""
        assert self._kept is not None
        columns, kept, view, bodies, ends = self._columns, self._kept, self._view, self._bodies, self._ends
        shift = batch.header.base_timestamp_ms - base_timestamp_ms
        pieces: list[bytes | memoryview] = []
        for row in range(batch.first_record, batch.records_end):
            if kept[row]:
                delta = encode_varint(int(columns.timestamp_deltas[row]) + shift)
                rest = view[int(columns.after_timestamps[row]) : ends[row]]
                body = bodies[row]
                pieces += (encode_varint(1 + len(delta) + len(rest)), view[body : body + 1], delta, rest)
        return b"".join(pieces)


def encode_varint(value: int) -> bytes:
    """Zigzag, as in a record; 64 bits."""
    raw = ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while raw > 127:
        encoded.append(raw & 127 | 128)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)
