"""What a piece of a log of `__consumer_offsets` says, newest record of each key: how a group coordinator loads it.

`read_changes` is a job for a worker process: it decodes whole batches, as they stand in the log, into packed pieces
that `unpack_changes` makes objects of, so that who loads does little and may pause between two pieces.

A record that cannot be read is skipped, counted and named; the others count. Batches of transactions count as such
records: a log that has them is refused as a whole before it could be led (`storage/segments/unserved`). Damaged is
only what is not as it was written: a batch whose CRC is wrong, or that does not follow the one before.
"""

from __future__ import annotations

import msgspec
from crc32c import crc32c

from strandline.protocol.group_records import (
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    InvalidGroupRecord,
    OffsetKey,
    read_group_value,
    read_key,
    read_offset_value,
)
from strandline.protocol.records import BatchHeader, InvalidBatch, Record, decode_batch, scan
from strandline.protocol.records.batch import CRC_START

PIECE_RECORDS = 2000
"""Of about so many records a piece is made: a millisecond or two of who takes them over."""


class Changes(msgspec.Struct, array_like=True):
    """By group; offsets further by topic and partition. None: removed."""

    groups: dict[str, GroupMetadata | None]
    offsets: dict[str, dict[str, dict[int, CommittedOffset | None]]]


class Reading(msgspec.Struct, array_like=True):
    """What a piece of the log says, and where it ends. `is_damaged`: what stands at `next_offset` is. `skipped`: how
    many records cannot be read, and why the first of them. `pieces`: packed `Changes`; no key is in two of them."""

    next_offset: int
    is_damaged: bool = False
    skipped: int = 0
    why: str = ""
    pieces: list[bytes] = []


_pack = msgspec.msgpack.Encoder().encode
unpack_changes = msgspec.msgpack.Decoder(Changes).decode


def read_changes(_disk: object, data: bytes, offset: int, max_decompressed_bytes: int) -> list[object]:
    """The fields of a `Reading` of these whole batches; the first one holds `offset`, or follows it."""
    reader = _Reader(offset, max_decompressed_bytes)
    view = memoryview(data)
    end = 0
    try:
        for position, header in scan(view):
            batch = view[position : position + header.size_bytes]
            if header.next_offset <= reader.next_offset or crc32c(batch[CRC_START:]) != header.crc:
                break
            reader.take(header, batch)
            end = position + header.size_bytes
    except InvalidBatch:
        pass  # no batch stands at `end`
    return [reader.next_offset, end < len(data), reader.skipped, reader.why, reader.pieces()]


class _Reader:
    def __init__(self, offset: int, max_decompressed_bytes: int) -> None:
        self.next_offset = offset
        self.skipped = 0
        self.why = ""
        self._max_decompressed_bytes = max_decompressed_bytes
        self._keys: dict[bytes, OffsetKey | GroupKey | None] = {}
        self._groups: dict[str, GroupMetadata | None] = {}
        self._offsets: dict[str, dict[str, dict[int, CommittedOffset | None]]] = {}

    def take(self, header: BatchHeader, batch: memoryview) -> None:
        """A batch whose CRC is right."""
        self.next_offset = header.next_offset
        if header.is_transactional or header.is_control:
            self._skip(header.base_offset, "of a transaction", header.records_count)
            return
        try:
            records = decode_batch(batch, check_crc=False, max_decompressed_bytes=self._max_decompressed_bytes)
        except InvalidBatch as error:
            self._skip(header.base_offset, str(error), header.records_count)
            return
        for record in records:
            try:
                self._note(record)
            except InvalidGroupRecord as error:
                self._skip(record.offset, str(error))

    def _note(self, record: Record) -> None:
        key, value = record.key, record.value
        if key is None:
            raise InvalidGroupRecord("it has no key")
        if key in self._keys:
            about = self._keys[key]
        else:
            about = self._keys[key] = read_key(key)
        if isinstance(about, OffsetKey):
            committed = None if value is None else read_offset_value(value)
            self._offsets.setdefault(about.group, {}).setdefault(about.topic, {})[about.partition] = committed
        elif about is not None:
            self._groups[about.group] = None if value is None else read_group_value(about.group, value)

    def _skip(self, offset: int, why: str, records: int = 1) -> None:
        if not self.skipped:
            self.why = f"the record at offset {offset}: {why}"
        self.skipped += records

    def pieces(self) -> list[bytes]:
        pieces: list[bytes] = []
        changes, count = Changes({}, {}), 0
        for group, metadata in self._groups.items():
            changes.groups[group] = metadata
            count += 1 + (0 if metadata is None else len(metadata.members))
            if count >= PIECE_RECORDS:
                pieces.append(_pack(changes))
                changes, count = Changes({}, {}), 0
        for group, topics in self._offsets.items():
            for topic, partitions in topics.items():
                changes.offsets.setdefault(group, {})[topic] = partitions
                count += len(partitions)
                if count >= PIECE_RECORDS:
                    pieces.append(_pack(changes))
                    changes, count = Changes({}, {}), 0
        if count:
            pieces.append(_pack(changes))
        return pieces
