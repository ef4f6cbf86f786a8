"""What is checked of record batches that come from outside, before a byte of them reaches a log.

From a producer (`validate_produced`), in this order, cheap before dear:
1. framing: a length that fits, at most `max_batch_bytes`, magic 2, the CRC-32C;
2. the header: no unused, control or reserved bits, a count that fits the offsets, producer fields that belong together;
3. uncompressed records: one compiled walk over their framing (lengths, offset deltas 0, 1, 2 …, count, no bytes left),
   with their timestamps; a wrong max timestamp is corrected in place, as Kafka does, since the time index rests on it;
   where the topic has rules (`rules`), also keys and bounds of timestamps, record by record;
4. compressed records: by header only. Where the topic's rules reach into them, or ask for another codec, a worker
   decodes them (`conversion`). (A producer that compresses nonsense harms its own readers only.)

From a leader (`validate_fetched`): whole batches, CRCs, offsets that rise from the expected one on, epochs that never
fall. Offsets may be missing: compaction leaves gaps, and they stay when a topic is not compacted any more.

The compiled reader may look up to 20 bytes behind a batch whose last varint does not end. Where those bytes are not
known to be readable, the walk gets a padded copy (0.4 µs for 16 KB).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MIN_BATCH_LENGTH,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    InvalidBatch,
)
from strandline.protocol.records.compression import Codec, DecompressionFailed, decompress
from strandline.protocol.records.rules import BatchRules

READER_SLACK_BYTES = 32
"""Bytes that must be readable behind a batch that the compiled reader walks."""
PADDING = bytes(READER_SLACK_BYTES)

MAX_BATCHES = 1000
"""Batches of one partition in one produce request (Kafka's producers send one): 100 MiB of the smallest possible
batches would hold the event loop for seconds."""

PIECE_BYTES = 2**20
"""Of batches checked without letting others run, but for a larger batch: so many bytes of the smallest records take
some 30 ms."""

MAX_AT_FAULT = 1000
"""How many records are named that break their topics' rules, of a request and so of a batch, too: what comes back stays
in proportion, since a gzip batch of 1.5 KB may have thousands."""

MAX_TIMESTAMP_MS = (2**63 - 1) // 1000
"""Later ones do not fit the 64-bit microseconds of Arrow and Spark (the year 294247)."""
NO_TIMESTAMP_MS = -1

MALFORMED_RECORDS = (CorruptRecordException, UnicodeDecodeError, MemoryError, OverflowError)
"""What the compiled reader raises; the last two for lengths near 2⁶³, before anything is allocated."""

_CRC = struct.Struct(">I")
_CRC_POSITION = 17
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35
_unpack_header = HEADER.unpack_from


class ProducedBatch(msgspec.Struct, gc=False):
    """One batch of a produce request that passed every check.

    view: writable memory of exactly this batch, to be patched by `assign_offset` and written as it is. A worker's
    conversion replaces it, together with size, attributes and max timestamp.
    producer_id −1: not idempotent; then epoch and sequence are −1, too.
    """

    view: memoryview
    size_bytes: int
    records_count: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    attributes: int


def validate_produced(
    records: memoryview,
    *,
    max_batch_bytes: int,
    slack_bytes: int = 0,
    rules: BatchRules | None = None,
    now_ms: int = 0,
) -> list[ProducedBatch]:
    """Check the batches that a producer sent for one partition; none at all is fine.

    records: whole batches back to back, writable. slack_bytes: how many bytes behind `records` the caller knows to be
    readable in the same buffer; with `READER_SLACK_BYTES` or more nothing is copied. rules: the topic's, with the wall
    clock; batches for which `rules.needs_worker` holds are checked by header only here.

    InvalidBatch: the first rule that is broken (CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE
    …); nothing of `records` may be appended then.
    """
    batches: list[ProducedBatch] = []
    position = 0
    end = len(records)
    while position < end:
        if end - position < HEADER_BYTES:
            raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"{end - position} bytes are no batch header")
        header = _unpack_header(records, position)
        _, length, _, magic, crc, attributes, last_delta, base_ms, max_ms, producer_id, epoch, sequence, count = header
        next_position = position + length + LENGTH_PREFIX_BYTES
        if magic != MAGIC or length < MIN_BATCH_LENGTH or next_position > end:
            raise _not_a_batch(header, end - position)
        size_bytes = next_position - position
        if size_bytes > max_batch_bytes:
            raise InvalidBatch(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"batch of {size_bytes} bytes, max.message.bytes is {max_batch_bytes} (message.max.bytes of brokers): "
                "raise it, or lower max.request.size of the producer, its batch.size where there are many records",
            )
        if crc32c(records[position + CRC_START : next_position]) != crc:
            raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"CRC-32C of a batch of {size_bytes} bytes does not match")
        view = records if size_bytes == end else records[position:next_position]
        if attributes != 0 or producer_id != -1 or epoch != -1 or sequence != -1:
            _check_attributes(attributes)
            _check_producer(producer_id, epoch, sequence, attributes)
            if producer_id >= 0 and size_bytes != end:
                raise _not_alone()
        if count <= 0 or last_delta != count - 1:
            raise InvalidBatch(
                ErrorCode.INVALID_RECORD, f"batch of {count} records with last offset delta {last_delta}"
            )
        if not NO_TIMESTAMP_MS <= max_ms <= MAX_TIMESTAMP_MS or not NO_TIMESTAMP_MS <= base_ms <= MAX_TIMESTAMP_MS:
            raise _bad_timestamp(base_ms if NO_TIMESTAMP_MS <= max_ms <= MAX_TIMESTAMP_MS else max_ms)
        if not attributes & CODEC_MASK and (rules is None or not rules.codec):
            readable = end - next_position + slack_bytes >= READER_SLACK_BYTES
            if rules is None:
                largest_ms = _walk(view, header, readable)
            else:
                largest_ms = walk_by_rules(view, header, rules, now_ms, readable)
            if largest_ms != max_ms:
                correct_max_timestamp(view, largest_ms)
                max_ms = largest_ms
        if len(batches) == MAX_BATCHES:
            raise _too_many()
        batches.append(ProducedBatch(view, size_bytes, count, max_ms, producer_id, epoch, sequence, attributes))
        position = next_position
    return batches


def validate_in_pieces(
    records: memoryview, *, max_batch_bytes: int, slack_bytes: int, rules: BatchRules | None, now_ms: int
) -> Iterator[list[ProducedBatch]]:
    """As `validate_produced`, of about `PIECE_BYTES` at a time, between which others may run. InvalidBatch: nothing of
    what was yielded may be appended either."""
    count = 0
    for piece in _pieces(records):
        batches = validate_produced(
            piece, max_batch_bytes=max_batch_bytes, slack_bytes=slack_bytes, rules=rules, now_ms=now_ms
        )
        count += len(batches)
        if count > MAX_BATCHES:
            raise _too_many()
        if len(piece) < len(records) and batches[0].producer_id >= 0:
            raise _not_alone()
        yield batches


def _pieces(records: memoryview) -> Iterator[memoryview]:
    """Whole batches; where the next one does not end within `records`, all the rest."""
    start = position = 0
    end = len(records)
    while end - position >= HEADER_BYTES:
        length = _unpack_header(records, position)[1]
        position += length + LENGTH_PREFIX_BYTES
        if length < MIN_BATCH_LENGTH or position > end:
            break
        if position - start >= PIECE_BYTES:
            yield records[start:position]
            start = position
    if start < end:
        yield records[start:]


def _walk(view: memoryview, header: tuple[int, ...], slack_is_readable: bool) -> int:
    """Check the framing of uncompressed records; returns the largest timestamp, ms. Hot: 0.1 µs per record."""
    base_offset = header[0]
    source = view if slack_is_readable else memoryview(b"".join((view, PADDING)))[: len(view)]
    largest_ms = NO_TIMESTAMP_MS
    expected = base_offset
    try:
        for record in DefaultRecordBatch(source):
            if record.offset != expected:
                raise _bad_offset(expected - base_offset, record.offset - base_offset)
            expected += 1
            timestamp_ms = record.timestamp
            if timestamp_ms > largest_ms:
                largest_ms = timestamp_ms
            elif timestamp_ms < NO_TIMESTAMP_MS:
                raise _bad_timestamp(timestamp_ms, record.offset - base_offset)
    except MALFORMED_RECORDS as error:
        raise _malformed(expected - base_offset, error) from None
    if largest_ms > MAX_TIMESTAMP_MS:
        raise _bad_timestamp(largest_ms)
    return largest_ms


def walk_by_rules(
    view: memoryview, header: tuple[int, ...], rules: BatchRules, now_ms: int, slack_is_readable: bool
) -> int:
    """As `_walk`, with keys and bounds of timestamps; names all records that break those rules, since producers give up
    these and may send the others again (KIP-467). A batch's header cannot stand for its records here: those between the
    first and the latest may be older than either."""
    base_offset = header[0]
    source = view if slack_is_readable else memoryview(b"".join((view, PADDING)))[: len(view)]
    earliest_ms, latest_ms = rules.timestamp_bounds_ms(now_ms)
    needs_keys = rules.needs_keys
    too_far: list[tuple[int, int]] = []
    keyless: list[int] = []
    largest_ms = NO_TIMESTAMP_MS
    expected = base_offset
    try:
        for record in DefaultRecordBatch(source):
            if record.offset != expected:
                raise _bad_offset(expected - base_offset, record.offset - base_offset)
            timestamp_ms = record.timestamp
            if not earliest_ms <= timestamp_ms <= latest_ms and timestamp_ms != NO_TIMESTAMP_MS:
                too_far.append((expected - base_offset, timestamp_ms))
                if len(too_far) == MAX_AT_FAULT:
                    break
            if timestamp_ms > largest_ms:
                largest_ms = timestamp_ms
            elif timestamp_ms < NO_TIMESTAMP_MS:
                raise _bad_timestamp(timestamp_ms, expected - base_offset)
            if needs_keys and record.key is None:
                keyless.append(expected - base_offset)
                if len(keyless) == MAX_AT_FAULT:
                    break
            expected += 1
    except MALFORMED_RECORDS as error:
        raise _malformed(expected - base_offset, error) from None
    if too_far or keyless:
        raise _against_rules(too_far, keyless, earliest_ms, latest_ms)
    if largest_ms > MAX_TIMESTAMP_MS:
        raise _bad_timestamp(largest_ms)
    return largest_ms


def uncompressed_copy(view: memoryview, header: BatchHeader, max_decompressed_bytes: int) -> memoryview:
    """The batch with its records decoded, followed by readable slack; length and CRC fields are those of the original.

    InvalidBatch: damaged, or more than `max_decompressed_bytes` of records.
    """
    try:
        records = decompress(header.codec, view[HEADER_BYTES:], max_decompressed_bytes)
    except DecompressionFailed as error:
        raise InvalidBatch(error.code, str(error)) from None
    plain_attributes = (header.attributes & ~CODEC_MASK).to_bytes(2, "big", signed=True)
    joined = b"".join((view[:CRC_START], plain_attributes, view[CRC_START + 2 : HEADER_BYTES], records, PADDING))
    return memoryview(joined)[: HEADER_BYTES + len(records)]


def correct_max_timestamp(view: memoryview, largest_ms: int) -> None:
    """Write the largest timestamp of the records into the header of their batch."""
    _MAX_TIMESTAMP.pack_into(view, _MAX_TIMESTAMP_POSITION, largest_ms)
    _CRC.pack_into(view, _CRC_POSITION, crc32c(view[CRC_START:]))


# --- the rare cases, out of the hot function ---------------------------------------------------------------------


def _too_many() -> InvalidBatch:
    text = f"more than {MAX_BATCHES} batches for one partition: send several requests"
    return InvalidBatch(ErrorCode.INVALID_RECORD, text)


def _not_alone() -> InvalidBatch:
    text = "an idempotent producer may send one batch per partition and request only"
    return InvalidBatch(ErrorCode.INVALID_RECORD, text)


def _not_a_batch(header: tuple[int, ...], available: int) -> InvalidBatch:
    length, magic = header[1], header[3]
    if length < MIN_BATCH_LENGTH or length + LENGTH_PREFIX_BYTES > available:
        return InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"batch length {length} where {available - LENGTH_PREFIX_BYTES} bytes follow"
        )
    return InvalidBatch(
        ErrorCode.INVALID_RECORD, f"record format {magic} is not supported: use a producer that writes format {MAGIC}"
    )


def _check_attributes(attributes: int) -> None:
    if attributes & CODEC_MASK > Codec.ZSTD:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"compression codec {attributes & CODEC_MASK} is reserved")
    if attributes & CONTROL_BIT:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "producers may not write control batches")
    if attributes & TIMESTAMP_TYPE_BIT:
        raise InvalidBatch(
            ErrorCode.INVALID_TIMESTAMP, "producers may not set the timestamp type LogAppendTime, the topic does"
        )
    if attributes & ~(CODEC_MASK | TRANSACTIONAL_BIT):
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"unused bits are set in the attributes {attributes:#06x}")


def _check_producer(producer_id: int, epoch: int, sequence: int, attributes: int) -> None:
    if attributes & TRANSACTIONAL_BIT:
        raise InvalidBatch(ErrorCode.INVALID_TXN_STATE, "transactional batches are not served yet")
    if producer_id >= 0:
        if epoch < 0 or sequence < 0:
            raise InvalidBatch(
                ErrorCode.INVALID_RECORD, f"producer id {producer_id} with epoch {epoch} and base sequence {sequence}"
            )
    elif producer_id != -1:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"producer id {producer_id}")


def _bad_timestamp(timestamp_ms: int, *at_fault: int) -> InvalidBatch:
    text = f"timestamp {timestamp_ms} ms is outside [{NO_TIMESTAMP_MS}, {MAX_TIMESTAMP_MS}]"
    return InvalidBatch(ErrorCode.INVALID_TIMESTAMP, text, [(index, text) for index in at_fault])


def _against_rules(
    too_far: list[tuple[int, int]], keyless: list[int], earliest_ms: int, latest_ms: int
) -> InvalidBatch:
    """One of both lists at least has something. As in Kafka, timestamps decide the code, and each record has a text of
    its own: producers give it to who sent that record. Short ones, since they may be a thousand."""
    texts = dict.fromkeys(keyless, "no key, which a compacted topic needs")
    texts |= dict.fromkeys((index for index, _ in too_far), f"timestamp outside [{earliest_ms}, {latest_ms}]")
    at_fault = sorted(texts.items())[:MAX_AT_FAULT]
    more = f" ({len(at_fault)} records of the batch are refused)" if len(at_fault) > 1 else ""
    if too_far:
        index, timestamp_ms = too_far[0]
        text = (
            f"record {index} has timestamp {timestamp_ms} ms, which is outside [{earliest_ms}, {latest_ms}]: correct"
            " the producer's clock or raise message.timestamp.before.max.ms and message.timestamp.after.max.ms"
        )
        return InvalidBatch(ErrorCode.INVALID_TIMESTAMP, text + more, at_fault)
    text = f"record {keyless[0]} has no key, which a compacted topic needs"
    return InvalidBatch(ErrorCode.INVALID_RECORD, text + more, at_fault)


def _bad_offset(index: int, delta: int) -> InvalidBatch:
    text = f"record {index} of a batch has offset delta {delta}"
    return InvalidBatch(ErrorCode.INVALID_RECORD, text, [(index, text)])


def _malformed(index: int, error: Exception) -> InvalidBatch:
    return InvalidBatch(ErrorCode.INVALID_RECORD, f"record {index} is malformed: {error}")


# --- from the leader ---------------------------------------------------------------------------------------------


def validate_fetched(records: memoryview, expected_offset: int, max_epoch: int) -> list[tuple[int, ...]]:
    """Check batches that a follower got from its leader: whole, CRC, offsets and epochs rising, from `expected_offset`.

    max_epoch: the leader epoch of the fetch; no batch may be newer. Returns the fields of each `BatchHeader` (to make
    one takes as long as to unpack it). InvalidBatch (CORRUPT_MESSAGE): nothing of `records` may be appended.
    """
    headers: list[tuple[int, ...]] = []
    position = 0
    end = len(records)
    lowest_epoch = 0
    while position < end:
        if end - position < HEADER_BYTES:
            raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"{end - position} bytes are no batch header")
        header = _unpack_header(records, position)
        base_offset, length, epoch, magic, crc, _, last_delta, _, _, _, _, _, count = header
        next_position = position + length + LENGTH_PREFIX_BYTES
        if magic != MAGIC or length < MIN_BATCH_LENGTH or next_position > end:
            raise InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE,
                f"no whole batch at byte {position} of {end}: length {length}, magic {magic}",
            )
        if base_offset < expected_offset:
            raise InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE, f"batch begins at offset {base_offset}, below {expected_offset}"
            )
        if not lowest_epoch <= epoch <= max_epoch:
            raise InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE,
                f"batch at offset {expected_offset} has leader epoch {epoch}, outside [{lowest_epoch}, {max_epoch}]",
            )
        if last_delta < 0 or not 0 <= count <= last_delta + 1:
            raise InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE,
                f"batch at offset {expected_offset} has {count} records and last offset delta {last_delta}",
            )
        if crc32c(records[position + CRC_START : next_position]) != crc:
            raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"CRC-32C of the batch at offset {expected_offset} is wrong")
        headers.append(header)
        expected_offset = base_offset + last_delta + 1
        lowest_epoch = epoch
        position = next_position
    return headers
