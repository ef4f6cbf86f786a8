"""The header of a record batch (magic 2): reading, scanning and patching it in place.

Format, all integers big endian (Kafka's DefaultRecordBatch):
```
 0 int64  base offset             12 int32  partition leader epoch      23 int32 last offset delta
 8 int32  length of what follows  16 int8   magic = 2                   27 int64 base timestamp, ms
                                  17 uint32 CRC-32C of all from 21 on   35 int64 max timestamp, ms
                                  21 int16  attributes                  43 int64 producer id, −1 none
57 int32  records count           53 int32  base sequence               51 int16 producer epoch
61 records, compressed as a whole when the attributes say so
attributes: bits 0–2 codec (none, gzip, snappy, lz4, zstd), 3 timestamp type (1: LogAppendTime), 4 transactional,
            5 control, 6 delete horizon (set by the cleaner only), 7–15 unused
record:     varint length | int8 attributes | varint timestamp delta | varint offset delta | varint key length, key |
            varint value length, value | varint headers count | (varint length, key | varint length, value)…
            all varints zigzag; a length of −1 means null
```
Base offset and leader epoch stand before the CRC's range: the leader patches them without touching the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records.compression import Codec

HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12
"""Base offset and length: what `batch_length` does not count."""
MIN_BATCH_LENGTH = HEADER_BYTES - LENGTH_PREFIX_BYTES
CRC_START = 21
"""The CRC covers everything from here to the end of the batch."""
MAGIC = 2

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

CREATE_TIME = 0
LOG_APPEND_TIME = 1

HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_POSITION = 12
_new_tuple = tuple.__new__

Buffer = bytes | bytearray | memoryview


class InvalidBatch(Exception):
    """A batch that breaks a rule of the format. `code` is what the producer or the log is told, the text says why.
    `at_fault`: which of its records do, counted from 0, and what is wrong with each; none where that is not known."""

    def __init__(self, code: ErrorCode, message: str, at_fault: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.at_fault = tuple(at_fault)


class BatchHeader(NamedTuple):
    """The 61 bytes in front of the records. `batch_length` counts from the leader epoch on, as on the wire."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record: where the next batch begins."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """0–4 as in `Codec`; 5–7 are reserved."""
        return self.attributes & CODEC_MASK

    @property
    def compression_type(self) -> str:
        """The codec's name as in `compression.type`; `reserved-5` … for the reserved numbers."""
        return Codec(self.codec).name.lower() if self.codec <= Codec.ZSTD else f"reserved-{self.codec}"

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` or `LOG_APPEND_TIME`."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, as it stands: nothing is checked but that 61 bytes are there.

    InvalidBatch (CORRUPT_MESSAGE): fewer than 61 bytes.
    """
    try:
        return _new_tuple(BatchHeader, HEADER.unpack_from(buffer, position))
    except struct.error:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"{len(buffer) - position} bytes where a batch header of {HEADER_BYTES} begins"
        ) from None


def scan(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch from `position` on; stops silently at a partial one at the end.

    InvalidBatch (CORRUPT_MESSAGE): a length below that of a header, or a magic other than 2. CRCs are not checked.
    """
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header: BatchHeader = _new_tuple(BatchHeader, HEADER.unpack_from(buffer, position))
        if header.batch_length < MIN_BATCH_LENGTH or header.magic != MAGIC:
            raise InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE,
                f"no batch at position {position}: length {header.batch_length}, magic {header.magic}",
            )
        next_position = position + header.batch_length + LENGTH_PREFIX_BYTES
        if next_position > end:
            return
        yield position, header
        position = next_position


def assign_offset(view: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Patch base offset and partition leader epoch into the batch at the beginning of `view`; the CRC stays valid."""
    _BASE_OFFSET.pack_into(view, 0, base_offset)
    _LEADER_EPOCH.pack_into(view, _LEADER_EPOCH_POSITION, leader_epoch)
