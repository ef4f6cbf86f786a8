"""What becomes of a batch that a broker refuses as too large, and that has more than one record: two batches (KIP-126).

The limit is the topic's `max.message.bytes`, which a producer does not know. So the batch is cut in the middle, by
bytes, as often as it takes. The halves stand where it stood, and share its sequence numbers: the first half begins with
its base sequence, the other with the one after the first half's last record. So what was numbered behind it follows
them, as in Kafka (`ProducerBatch.split`). Where an earlier attempt may have appended the whole, the halves may be in
the log, too: with numbers the broker refuses them as out of order then, without they may stand twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.client.accumulator import Batch, ToldOf
from strandline.client.identity import SEQUENCES
from strandline.client.record_sizes import content_bytes
from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import BatchBuilder, InvalidBatch, Record, assign_producer, decode_batch, read_header

_NO_LIMIT_BYTES = 2**31 - 1


def can_be_split(batch: Batch, error: Exception) -> bool:
    """After that answer to its last attempt."""
    is_too_large = getattr(error, "code", None) == ErrorCode.MESSAGE_TOO_LARGE
    return is_too_large and batch.records_count > 1 and not batch.done


def halves(batch: Batch) -> list[Batch]:
    """Of a batch that can be split, in order; none where it cannot even be read, since somebody else has built it."""
    try:
        records = decode_batch(batch.data)
    except InvalidBatch:
        return []
    if len(records) != batch.records_count:
        return []
    middle = _middle(records)
    return [_part(batch, records, 0, middle), _part(batch, records, middle, len(records))]


def _middle(records: Sequence[Record]) -> int:
    """Where the second half begins: neither is empty."""
    sizes = [content_bytes([(record.key, record.value, record.headers, 0)]) + 1 for record in records]
    half, passed = sum(sizes) / 2, 0
    for index, size in enumerate(sizes):
        if passed + size > half:
            # A record across the middle goes where there is less.
            index += passed + size / 2 < half
            return min(max(1, index), len(records) - 1)
        passed += size
    return len(records) - 1


def _part(batch: Batch, records: Sequence[Record], begin: int, end: int) -> Batch:
    header = read_header(batch.data)
    builder = BatchBuilder(header.compression_type, _NO_LIMIT_BYTES)
    builder.append_full((each.key, each.value, each.headers, each.timestamp_ms) for each in records[begin:end])
    data = builder.build()
    if batch.is_numbered:
        base_sequence = (header.base_sequence + begin) % SEQUENCES
        assign_producer(data, header.producer_id, header.producer_epoch, base_sequence)
    return Batch(
        batch.number,
        batch.topic_partition,
        data,
        end - begin,
        list(_sinks(batch.sinks, begin, end)),
        batch.deadline,
        maybe_appended=batch.maybe_appended,
        last_error=batch.last_error,
        is_numbered=batch.is_numbered,
        first_index=batch.first_index + begin,
    )


def _sinks(sinks: Sequence[ToldOf], begin: int, end: int) -> Iterator[ToldOf]:
    """Who is told of the records from `begin` to `end`."""
    for sink, first, count, start in sinks:
        low, high = max(first, begin), min(first + count, end)
        if low < high:
            yield sink, low - begin, high - low, start + low - first
