"""What one idempotent producer wrote, read back from the log with the numbers under which it was sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from strandline.protocol.records.batch import scan
from strandline.protocol.records.codec import Buffer, Record, decode_batch

SEQUENCES = 2**31
"""Sequences run from 0 to 2^31 - 1, and on with 0."""


class SequencedRecord(NamedTuple):
    sequence: int
    record: Record


def records_of_producer(
    view: Buffer, producer_id: int, epoch: int, check_crc: bool = True
) -> Iterator[SequencedRecord]:
    """The records of this producer and epoch among all whole batches of `view` (`FetchedBatches.records`), in the log's
    order. Only its batches are decoded. Where compaction took records the others keep their sequences.

    InvalidBatch: as `decode_records`."""
    whole = memoryview(view)
    for position, header in scan(whole):
        if (header.producer_id, header.producer_epoch) != (producer_id, epoch) or header.base_sequence < 0:
            continue
        for record in decode_batch(whole[position : position + header.size_bytes], check_crc):
            yield SequencedRecord((header.base_sequence + record.offset - header.base_offset) % SEQUENCES, record)
