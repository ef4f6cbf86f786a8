"""Records in and out of batches: what clients, Spark and `dump-log` use. Brokers never decode on their hot path.

Only the compiled codec will do (the pure Python fallback is 12–29 times slower): importing this module without it
raises `CodecNotCompiled`. Decoding copies each batch once, so that records outlive the buffer that they came from.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

import crc32c as crc32c_package
from aiokafka.record import default_records
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    InvalidBatch,
    read_header,
    scan,
)
from strandline.protocol.records.compression import MAX_DECOMPRESSED_BYTES, Codec
from strandline.protocol.records.validation import MALFORMED_RECORDS, PADDING, uncompressed_copy

DEFAULT_BATCH_BYTES = 16384
"""Kafka's `batch.size`."""

NO_TIMESTAMP_MS = -1

Headers = Sequence[tuple[str, bytes | None]]


class CodecNotCompiled(ImportError):
    """The record codec's C extension is missing; the text names the remedy."""


def compiled_codec() -> str:
    """Which compiled parts are in use, for people (`strandline doctor`). CodecNotCompiled: the fallback would be."""
    module = DefaultRecordBatch.__module__
    if "_crecords" not in module or "_crecords" not in DefaultRecordBatchBuilder.__module__:
        raise CodecNotCompiled(
            "aiokafka's compiled record codec is missing, its pure Python fallback is 12-29 times slower:"
            " reinstall aiokafka from a wheel for this Python and unset AIOKAFKA_NO_EXTENSIONS"
        )
    crc = "hardware" if crc32c_package.hardware_based else "software (slow)"
    return f"record codec {module}, CRC-32C in {crc}"


compiled_codec()


class Record(NamedTuple):
    """One record as consumers see it. `timestamp_ms` −1: none; `timestamp_type` 0 CreateTime, 1 LogAppendTime."""

    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Columns(NamedTuple):
    """The same records, one list per field, each as long as there are records."""

    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[list[tuple[str, bytes | None]]]


Buffer = bytes | bytearray | memoryview
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_POSITION = 43
_BASE_AND_MAX_TIMESTAMP = struct.Struct(">qq")
_TIMESTAMPS_POSITION = 27
_CRC = struct.Struct(">I")
_CRC_POSITION = CRC_START - _CRC.size
_record_fields = attrgetter("offset", "timestamp", "timestamp_type", "key", "value", "headers")


def decode_batch(
    view: Buffer, check_crc: bool = True, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> list[Record]:
    """The records of the batch at the beginning of `view`, in order; [] for a control batch.

    InvalidBatch: not a whole batch, a wrong CRC, damaged records, or more than `max_decompressed_bytes` of them.
    """
    new = tuple.__new__
    return [new(Record, _record_fields(record)) for record in compiled_records(view, check_crc, max_decompressed_bytes)]


def decode_records(
    view: Buffer, check_crc: bool = True, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> list[Record]:
    """The records of all whole batches of `view` (a fetch response's attachment); see `decode_batch`."""
    whole = memoryview(view)
    records: list[Record] = []
    for position, header in scan(whole):
        batch = whole[position : position + header.size_bytes]
        records += decode_batch(batch, check_crc, max_decompressed_bytes)
    return records


def decode_columns(
    view: Buffer, check_crc: bool = True, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Columns:
    """The records of all whole batches of `view`, one list per field (for Arrow); see `decode_batch`."""
    whole = memoryview(view)
    columns = Columns([], [], [], [], [])
    offsets, timestamps_ms, keys, values, headers = columns
    for position, header in scan(whole):
        batch = whole[position : position + header.size_bytes]
        records = compiled_records(batch, check_crc, max_decompressed_bytes)
        offsets += [record.offset for record in records]
        timestamps_ms += [record.timestamp for record in records]
        keys += [record.key for record in records]
        values += [record.value for record in records]
        headers += [record.headers for record in records]
    return columns


def first_record_from(
    view: Buffer, timestamp_ms: int, start_offset: int, end_offset: int, max_decompressed_bytes: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record of the batch in [start_offset, end_offset) that is at least as young as
    `timestamp_ms`; None where there is none. InvalidBatch: as for `decode_batch`."""
    for record in compiled_records(view, True, max_decompressed_bytes):
        if record.offset >= end_offset:
            return None
        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
            return record.offset, record.timestamp
    return None


def compiled_records(
    view: Buffer, check_crc: bool = True, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> list[default_records.DefaultRecord]:
    """As `decode_batch`, in the compiled codec's own class, for who makes something else of them: `offset`,
    `timestamp`, `key`, `value`, `headers`."""
    header = read_header(view)
    size_bytes = header.size_bytes
    if header.magic != MAGIC or not HEADER_BYTES <= size_bytes <= len(view):
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE,
            f"no whole batch: magic {header.magic}, {size_bytes} bytes of which {len(view)} are there",
        )
    batch = memoryview(view)[:size_bytes]
    if check_crc and crc32c(batch[CRC_START:]) != header.crc:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"CRC-32C of the batch at offset {header.base_offset} does not match"
        )
    if header.is_control:
        return []
    if header.attributes & CODEC_MASK:
        readable = uncompressed_copy(batch, header, max_decompressed_bytes)
    else:  # padded, because the compiled reader may look behind the end (see `validation`)
        readable = memoryview(b"".join((batch, PADDING)))[:size_bytes]
    try:
        return list(DefaultRecordBatch(readable))
    except MALFORMED_RECORDS as error:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"records of the batch at offset {header.base_offset} are malformed: {error}"
        ) from None


def assign_producer(batch: bytearray | memoryview, producer_id: int, epoch: int, base_sequence: int) -> None:
    """Patch these into the whole batch, and its CRC, which need not be right; −1 each: not an idempotent producer's."""
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer_id, epoch, base_sequence)
    _CRC.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))


class BatchBuilder:
    """Collects records into one batch of at most about `batch_size_bytes` before compression.

    The first record always fits. Producer fields stay −1 unless `set_producer` was called.

    A batch's base timestamp is that of its first record, also where this is −1 (none), as in Kafka. The compiled
    builder takes −1 for not begun, and would give such a record the time of a later one; so it is told of all of them
    a millisecond later, and `build` puts that right: records hold differences only.
    """

    __slots__ = ("_builder", "_later_ms", "records_count")

    def __init__(
        self, codec: str = "none", batch_size_bytes: int = DEFAULT_BATCH_BYTES, *, is_transactional: bool = False
    ) -> None:
        """codec: none, gzip, snappy, lz4 or zstd (KeyError otherwise)."""
        self._builder = DefaultRecordBatchBuilder(
            magic=MAGIC,
            compression_type=Codec[codec.upper()],
            is_transactional=int(is_transactional),
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=batch_size_bytes,
        )
        self._later_ms = 0
        self.records_count = 0

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> bool:
        """Add a record with the next offset delta. False, and nothing added, when the batch is full."""
        if timestamp_ms == NO_TIMESTAMP_MS and not self.records_count:
            self._later_ms = 1
        stamp_ms = timestamp_ms + self._later_ms
        if self._builder.append(self.records_count, stamp_ms, key, value, list(headers)) is None:
            return False
        self.records_count += 1
        return True

    def append_pairs(
        self, timestamp_ms: int, pairs: Iterable[tuple[bytes | None, bytes | None]], headers: Headers = ()
    ) -> None:
        """Add (key, value) pairs, all with these headers, until the batch is full: `records_count` tells how many. By
        itself a record costs twice as much. Where one cannot be encoded, those before it count."""
        append, count, listed = self._builder.append, self.records_count, list(headers)
        if timestamp_ms == NO_TIMESTAMP_MS and not count:
            self._later_ms = 1
        stamp_ms = timestamp_ms + self._later_ms
        try:
            for key, value in pairs:
                if append(count, stamp_ms, key, value, listed) is None:
                    break
                count += 1
        finally:
            self.records_count = count

    def append_full(self, records: Iterable[tuple[bytes | None, bytes | None, Headers, int]]) -> None:
        """Add (key, value, headers, timestamp_ms) likewise."""
        append, count, later_ms = self._builder.append, self.records_count, self._later_ms
        try:
            for key, value, headers, timestamp_ms in records:
                if timestamp_ms == NO_TIMESTAMP_MS and not count:
                    self._later_ms = later_ms = 1
                if append(count, timestamp_ms + later_ms, key, value, list(headers)) is None:
                    break
                count += 1
        finally:
            self.records_count = count

    def set_producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Make this an idempotent producer's batch."""
        self._builder.set_producer_state(producer_id, producer_epoch, base_sequence)

    @property
    def size_bytes(self) -> int:
        """Size so far, header included, before compression."""
        return int(self._builder.size())

    def build(self) -> bytearray:
        """The batch with base offset 0 and leader epoch −1; uncompressed where compression does not pay. Call once."""
        batch: bytearray = self._builder.build()
        if self._later_ms:
            base_ms, max_ms = _BASE_AND_MAX_TIMESTAMP.unpack_from(batch, _TIMESTAMPS_POSITION)
            _BASE_AND_MAX_TIMESTAMP.pack_into(batch, _TIMESTAMPS_POSITION, base_ms - 1, max_ms - 1)
            _CRC.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
        return batch


def build_batch(
    records: Iterable[tuple[int, bytes | None, bytes | None] | Record],
    codec: str = "none",
    producer: tuple[int, int, int] | None = None,
) -> bytes:
    """One batch of all these records: (timestamp_ms, key, value) tuples, or `Record`s (their offsets are not used).
    producer: id, epoch and base sequence of an idempotent one."""
    builder = BatchBuilder(codec, batch_size_bytes=2**31 - 1)
    if producer is not None:
        builder.set_producer(*producer)
    for record in records:
        if isinstance(record, Record):
            builder.append(record.timestamp_ms, record.key, record.value, record.headers)
        else:
            builder.append(*record)
    return bytes(builder.build())
