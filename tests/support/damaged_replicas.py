"""Replicas in memory for tests of what compares them: batches that are handed out as brokers do it, and ways to damage
them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

from strandline.client.errors import ClientError
from strandline.client.replicas.reading import ReplicaPart
from strandline.client.replicas.streams import BatchStream
from strandline.protocol.records import Record, assign_offset, build_batch, decode_batch
from strandline.protocol.records.batch import CRC_START, HEADER, HEADER_BYTES, LENGTH_PREFIX_BYTES, read_header
from strandline.storage.cleaning.rewrite import encode_varint

BEGAN_AT_MS = 1000
"""The timestamp of the record at offset 0; each has one more."""

KeyAndValue = tuple[bytes | None, bytes | None]


def batch_at(offset: int, records: Sequence[KeyAndValue], epoch: int = 0) -> bytes:
    """A batch of these records from that offset on."""
    made = bytearray(build_batch([(BEGAN_AT_MS + offset + place, *each) for place, each in enumerate(records)]))
    assign_offset(made, offset, epoch)
    return bytes(made)


def plain_batches(sizes: Iterable[int], start: int = 0) -> list[bytes]:
    """Batches of so many records each."""
    batches, offset = [], start
    for size in sizes:
        batches.append(batch_at(offset, [(None, b"%d" % (offset + place)) for place in range(size)]))
        offset += size
    return batches


def cleaned(batch: bytes, stays: Sequence[bool]) -> bytes:
    """The batch as a cleaner leaves it: its borders and its epoch, with those of its records that stay."""
    header = read_header(batch)
    kept = [record for record, each in zip(decode_batch(batch), stays, strict=True) if each]
    records = b"".join(_encoded(record, header.base_offset, header.base_timestamp_ms) for record in kept)
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(records)
    fields = header._replace(batch_length=length, records_count=len(kept), crc=0)
    raw = HEADER.pack(*fields) + records
    return HEADER.pack(*fields._replace(crc=crc32c(raw[CRC_START:]))) + records


def _encoded(record: Record, base_offset: int, base_timestamp_ms: int) -> bytes:
    body = b"\x00" + encode_varint(record.timestamp_ms - base_timestamp_ms) + encode_varint(record.offset - base_offset)
    for part in (record.key, record.value):
        body += encode_varint(-1) if part is None else encode_varint(len(part)) + part
    body += encode_varint(0)
    return encode_varint(len(body)) + body


def flipped(batch: bytes, position: int, bit: int = 0) -> bytes:
    """With one bit the other way round."""
    made = bytearray(batch)
    made[position] ^= 1 << bit
    return bytes(made)


@dataclass
class MemoryReplica:
    """A log as its broker serves it: by the offsets that its batches had when they were written, whatever stands in
    their bytes now. `failing_at`: from that offset on it cannot be asked; `gone_to`: where the log begins once
    something was read of it."""

    batches: Sequence[bytes]
    log_start: int = 0
    high_watermark: int = -1
    chunk_bytes: int = 300
    failing_at: int | None = None
    gone_to: int = 0
    learns: list[int] = field(default_factory=list)
    """What it is told to be committed, one after the other, when somebody waits for it."""
    asked: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        headers = [read_header(batch) for batch in self.batches]
        self.stored = {header.base_offset: batch for header, batch in zip(headers, self.batches, strict=True)}
        self.ends = {header.base_offset: header.next_offset for header in headers}
        if self.high_watermark < 0:
            self.high_watermark = max(self.ends.values(), default=0)

    def learn(self) -> None:
        self.high_watermark = self.learns.pop(0) if self.learns else self.high_watermark

    def read(self, offset: int) -> ReplicaPart:
        if self.asked:
            self.log_start = max(self.log_start, self.gone_to)
        self.asked.append(offset)
        if self.failing_at is not None and offset >= self.failing_at:
            raise ClientError("the broker is gone")
        records = b""
        if offset >= self.log_start:
            for start, batch in sorted(self.stored.items()):
                if offset < self.ends[start] <= self.high_watermark:
                    if records and len(records) + len(batch) > self.chunk_bytes:
                        break
                    records += batch
        return ReplicaPart(records, self.high_watermark, self.log_start)


def streams(replicas: Mapping[int, MemoryReplica], start: int, end: int) -> dict[int, BatchStream]:
    return {broker: BatchStream(replica.read, start, end) for broker, replica in replicas.items()}
