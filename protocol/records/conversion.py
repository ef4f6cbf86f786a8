"""What workers do to batches: decode, check every record by the topic's rules, encode in the topic's codec.

Only what the rules ask for (`BatchRules.needs_worker`). A batch is never taken apart into records: what is compressed
is their section as a whole, so offsets, timestamps, keys, headers and the producer's fields stay as they were sent,
byte for byte; the header gets the new codec, length, CRC and, where the producer's was wrong, the max timestamp.

Limits, since what travels may be a bomb: a batch decodes to at most `max_decompressed_bytes`
(`max.decompressed.message.bytes`), and one batch stored may not exceed `max.message.bytes` after conversion either.
What many batches of a request decode to is the caller's to bound: `convert_all` says how much it was.

`stamp` is the other change, cheap enough for the event loop: LogAppendTime is written into the header (attributes, max
timestamp, CRC); the base timestamp and the records' deltas stay, readers take the max timestamp (Kafka's
`DefaultRecordBatch.setMaxTimestamp`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    InvalidBatch,
    read_header,
)
from strandline.protocol.records.codec import first_record_from
from strandline.protocol.records.compression import compress
from strandline.protocol.records.rules import BatchRules
from strandline.protocol.records.validation import (
    MAX_AT_FAULT,
    PADDING,
    ProducedBatch,
    correct_max_timestamp,
    uncompressed_copy,
    walk_by_rules,
)

_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_POSITION = 21

Converted = bytes | list[Any] | None
"""Of one batch: its new bytes; or [error code, text, the records at fault]; or None: it is good as it is."""


def convert(
    batch: memoryview, rules: BatchRules, now_ms: int, max_batch_bytes: int, max_decompressed_bytes: int
) -> tuple[bytes | None, int]:
    """Check one batch whose header was checked; (its new bytes or None where it stays as it is, decoded bytes).

    InvalidBatch: what is wrong with it, never something that would be right if the producer sent it again.
    """
    header = read_header(batch)
    plain = _plain_copy(batch, header, max_decompressed_bytes)
    largest_ms = walk_by_rules(plain, header, rules, now_ms, True)
    codec = header.codec if rules.codec is None else rules.codec
    if codec != header.codec:
        converted = _rebuild(plain, header, codec, largest_ms)
        if len(converted) > max_batch_bytes:
            raise InvalidBatch(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"batch of {len(batch)} bytes becomes {len(converted)} in the topic's compression.type,"
                f" max.message.bytes is {max_batch_bytes}: send smaller ones or raise it",
            )
        return converted, len(plain)
    if largest_ms == header.max_timestamp_ms:
        return None, len(plain)
    corrected = bytearray(batch)
    correct_max_timestamp(memoryview(corrected), largest_ms)
    return bytes(corrected), len(plain)


def _plain_copy(batch: memoryview, header: BatchHeader, max_decompressed_bytes: int) -> memoryview:
    """The batch with its records decoded, in memory with slack behind it."""
    if not header.codec:
        return memoryview(b"".join((batch, PADDING)))[: len(batch)]
    try:
        return uncompressed_copy(batch, header, max_decompressed_bytes)
    except InvalidBatch as error:
        if error.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        # The CRC is right, so these are the bytes that were sent: a code that asks for another try would not help.
        raise InvalidBatch(ErrorCode.INVALID_RECORD, str(error), error.at_fault) from None


def _rebuild(plain: memoryview, header: BatchHeader, codec: int, largest_ms: int) -> bytes:
    records = compress(codec, plain[HEADER_BYTES:])
    changed = header._replace(
        batch_length=HEADER_BYTES + len(records) - LENGTH_PREFIX_BYTES,
        attributes=header.attributes & ~CODEC_MASK | codec,
        max_timestamp_ms=largest_ms,
    )
    head = HEADER.pack(*changed)
    changed = changed._replace(crc=crc32c(records, crc32c(head[CRC_START:])))
    return HEADER.pack(*changed) + records


def convert_all(
    _disk: object,
    batches: Sequence[bytes],
    rules: Sequence[Sequence[int]],
    limits: Sequence[Sequence[int]],
    now_ms: int,
    max_decoded_bytes: int,
) -> tuple[list[Converted], int]:
    """The job of a worker: many batches, each with the fields of its `BatchRules` and (max_batch_bytes,
    max_decompressed_bytes). Returns the outcome of each and how many bytes they were when decoded.

    Once those are more than `max_decoded_bytes` in all, the batches that are left are refused unread. At most
    `MAX_AT_FAULT` records are named in all.
    """
    outcomes: list[Converted] = []
    named = 0
    decoded_bytes = 0
    for batch, fields, (max_batch_bytes, max_decompressed_bytes) in zip(batches, rules, limits, strict=True):
        try:
            if decoded_bytes > max_decoded_bytes:
                raise InvalidBatch(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    "the request decodes to more than the broker takes at once: send fewer batches in one",
                )
            asked = BatchRules(bool(fields[0]), fields[1], bool(fields[2]), *fields[3:])
            outcome, size = convert(memoryview(batch), asked, now_ms, max_batch_bytes, max_decompressed_bytes)
            decoded_bytes += size
            outcomes.append(outcome)
        except InvalidBatch as error:
            decoded_bytes += max_decompressed_bytes if error.code is ErrorCode.MESSAGE_TOO_LARGE else len(batch)
            at_fault = error.at_fault[: MAX_AT_FAULT - named]
            named += len(at_fault)
            outcomes.append([int(error.code), str(error), at_fault])
    return outcomes, decoded_bytes


def find_record(
    _disk: object, batch: bytes, timestamp_ms: int, start_offset: int, end_offset: int, max_decompressed_bytes: int
) -> tuple[int, int] | tuple[()] | int:
    """The job of a lookup by timestamp in a compressed batch: (offset, timestamp); () where no record will do; an error
    code where the batch cannot be decoded."""
    try:
        return first_record_from(batch, timestamp_ms, start_offset, end_offset, max_decompressed_bytes) or ()
    except InvalidBatch as error:
        return int(error.code)


def take_over(batch: ProducedBatch, converted: bytes) -> None:
    """Let `batch` be what a worker made of it."""
    header = read_header(converted)
    batch.view = memoryview(bytearray(converted))
    batch.size_bytes = len(converted)
    batch.attributes = header.attributes
    batch.max_timestamp_ms = header.max_timestamp_ms


def stamp(batch: ProducedBatch, now_ms: int) -> None:
    """Give the batch the broker's time, in place: LogAppendTime."""
    batch.attributes |= TIMESTAMP_TYPE_BIT
    batch.max_timestamp_ms = now_ms
    _ATTRIBUTES.pack_into(batch.view, _ATTRIBUTES_POSITION, batch.attributes)
    correct_max_timestamp(batch.view, now_ms)
