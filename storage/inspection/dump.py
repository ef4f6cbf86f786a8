"""What the files of a log hold, in the lines of Kafka's DumpLogSegments and as fields for programs. Only reads.

`.log`: a line per batch, with `deep_iteration` or `print_data_log` one per record; a tail that is no batch is named
with its size. `.index`, `.timeindex`: a line per entry, each compared with the .log beside it (`verify_index_only`:
only what differs; `index_sanity_check`: only whether a broker would take the file at a start).
All other files: `dump_state`. A folder: all of these in it.
"""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import crc32c

from strandline.protocol.records import Record, decode_batch
from strandline.protocol.records.batch import CRC_START, LOG_APPEND_TIME, MAGIC, BatchHeader, InvalidBatch
from strandline.runtime.disk import Disk, File
from strandline.storage.disk.checkpoints import LEADER_EPOCHS
from strandline.storage.errors import CorruptIndex, StorageError
from strandline.storage.inspection.dump_entry import DumpEntry, damage
from strandline.storage.inspection.dump_state import dump_state, is_state_file
from strandline.storage.segments import time_index
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import read_batch, walk_headers
from strandline.storage.segments.segment import LOG_SUFFIX
from strandline.storage.segments.time_index import TimeIndex
from strandline.storage.segments.unserved import OldMessage, is_intact, old_message

_DELETE_HORIZON_BIT = 0x40
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class NotASegmentFile(StorageError):
    """A name that none of the formats has."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: no file of a log (.log, .index, .timeindex, .snapshot, {LEADER_EPOCHS}, partition.metadata) and "
            "none of a data folder (*-offset-checkpoint, meta.properties)"
        )


@dataclass(frozen=True, slots=True)
class DumpOptions:
    deep_iteration: bool = False
    print_data_log: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_bytes: int = 2**63 - 1
    """Of a .log, look at so many only (whole batches)."""


class _Pair(NamedTuple):
    """A .log and the offset its name says."""

    file: File
    base_offset: int
    size_bytes: int


def dump_file(disk: Disk, path: str, options: DumpOptions) -> Iterator[DumpEntry]:
    """What a file (or every file of a folder) holds. NotASegmentFile; OSError from the disk."""
    if disk.is_dir(path):
        known = (LOG_SUFFIX, OffsetIndex.SUFFIX, TimeIndex.SUFFIX)
        names = [name for name in disk.listdir(path) if name.endswith(known) or is_state_file(name)]
        if not names:
            raise NotASegmentFile(path)
        for name in names:
            yield from dump_file(disk, f"{path}/{name}", options)
        return
    entries = dump_state(disk, path)
    if entries is not None:
        yield _file(path)
        yield from entries
        return
    stem, suffix = posixpath.splitext(path)
    name = posixpath.basename(stem)
    if suffix not in (LOG_SUFFIX, OffsetIndex.SUFFIX, TimeIndex.SUFFIX) or not (name.isascii() and name.isdigit()):
        raise NotASegmentFile(path)
    file = disk.open(stem + LOG_SUFFIX, read_only=True)
    log = _Pair(file, int(name), file.size())
    if suffix == LOG_SUFFIX:
        yield _file(path)
        yield from _dump_log(log, path, options)
        return
    file = disk.open(path, read_only=True)
    data = file.pread(file.size(), 0)
    yield _file(path)
    if options.index_sanity_check:
        yield _sanity(log, path, data, suffix)
    elif suffix == OffsetIndex.SUFFIX:
        yield from _dump_index(log, path, data, options)
    else:
        yield from _dump_time_index(log, path, data, options)


def _file(path: str) -> DumpEntry:
    return DumpEntry("file", f"Dumping {path}", {"path": path})


# --- .log -------------------------------------------------------------------------------------------------------------


def _dump_log(log: _Pair, path: str, options: DumpOptions) -> Iterator[DumpEntry]:
    yield DumpEntry("start", f"Log starting offset: {log.base_offset}", {"base_offset": log.base_offset})
    end = 0
    next_offset = log.base_offset
    for position, header in _from_batch_to_batch(log):
        if position >= options.max_bytes:
            return
        if isinstance(header, OldMessage):
            yield _old_message(header, log.file, position)
            next_offset, end = header.offset + 1, position + header.size_bytes
            continue
        view = read_batch(log.file, position, header)
        is_valid = crc32c.crc32c(view[CRC_START:]) == header.crc
        yield _batch(header, position, is_valid)
        if header.base_offset < next_offset:
            yield damage(
                f"Non-consecutive offsets in :{path}: {next_offset - 1} is followed by {header.base_offset}",
                path=path,
                position=position,
            )
        if options.deep_iteration or options.print_data_log:
            yield from _records(header, view, path, position, options.print_data_log)
        next_offset = header.next_offset
        end = position + header.size_bytes
    if end < log.size_bytes:
        yield damage(
            f"Found {log.size_bytes - end} invalid bytes at the end of {posixpath.basename(path)}",
            path=path,
            position=end,
            invalid_bytes=log.size_bytes - end,
        )


def _from_batch_to_batch(log: _Pair) -> Iterator[tuple[int, BatchHeader | OldMessage]]:
    """(position, what stands there) from the beginning on; the formats may change in between."""
    position = 0
    while position < log.size_bytes:
        start = position
        for found, header in walk_headers(log.file, position, log.size_bytes):
            if header.magic < MAGIC:
                break
            yield found, header
            position = found + header.size_bytes
        message = old_message(log.file, position, log.size_bytes)
        if message is not None:
            yield position, message
            position += message.size_bytes
        if position == start:
            return


def _old_message(message: OldMessage, file: File, position: int) -> DumpEntry:
    """A message of format 0 or 1, in the words that Kafka has for it; what is in it is not shown."""
    is_valid = is_intact(file, position, message)
    fields = {
        "offset": message.offset,
        "position": position,
        "timestamp_type": message.timestamp_type,
        "max_timestamp_ms": message.timestamp_ms,
        "size_bytes": message.size_bytes,
        "magic": message.magic,
        "codec": message.compression_type,
        "crc": message.crc,
        "is_valid": is_valid,
    }
    line = (
        f"offset: {message.offset} position: {position} {message.timestamp_type}: {message.timestamp_ms} "
        f"size: {message.size_bytes} magic: {message.magic} compresscodec: {message.compression_type} "
        f"crc: {message.crc} isvalid: {_said(is_valid)}"
    )
    return DumpEntry("message", line, fields, is_damage=not is_valid)


def _batch(header: BatchHeader, position: int, is_valid: bool) -> DumpEntry:
    time_type = "LogAppendTime" if header.timestamp_type == LOG_APPEND_TIME else "CreateTime"
    horizon_ms = header.base_timestamp_ms if header.attributes & _DELETE_HORIZON_BIT else None
    last_sequence = header.base_sequence + header.last_offset_delta if header.base_sequence >= 0 else -1
    line = (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.records_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_said(header.is_transactional)} isControl: {_said(header.is_control)} "
        f"deleteHorizonMs: {'OptionalLong.empty' if horizon_ms is None else f'OptionalLong[{horizon_ms}]'} "
        f"position: {position} {time_type}: {header.max_timestamp_ms} size: {header.size_bytes} "
        f"magic: {header.magic} compresscodec: {header.compression_type} crc: {header.crc} isvalid: {_said(is_valid)}"
    )
    fields = {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.records_count,
        "base_sequence": header.base_sequence,
        "last_sequence": last_sequence,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "leader_epoch": header.partition_leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": horizon_ms,
        "position": position,
        "timestamp_type": time_type,
        "max_timestamp_ms": header.max_timestamp_ms,
        "size_bytes": header.size_bytes,
        "magic": header.magic,
        "codec": header.compression_type,
        "crc": header.crc,
        "is_valid": is_valid,
    }
    return DumpEntry("batch", line, fields, is_damage=not is_valid)


def _records(
    header: BatchHeader, view: memoryview, path: str, position: int, with_content: bool
) -> Iterator[DumpEntry]:
    try:
        records = decode_batch(view, check_crc=False)
    except InvalidBatch as error:
        yield damage(f"The batch at byte {position} of {path} cannot be decoded: {error}", path=path, position=position)
        return
    for record in records:
        yield _record(header, record, with_content)


def _record(header: BatchHeader, record: Record, with_content: bool) -> DumpEntry:
    time_type = "LogAppendTime" if record.timestamp_type == LOG_APPEND_TIME else "CreateTime"
    sequence = header.base_sequence + record.offset - header.base_offset if header.base_sequence >= 0 else -1
    line = (
        f"| offset: {record.offset} {time_type}: {record.timestamp_ms} keySize: {_size(record.key)} "
        f"valueSize: {_size(record.value)} sequence: {sequence} "
        f"headerKeys: [{','.join(name for name, _ in record.headers)}]"
    )
    fields: dict[str, Any] = {
        "offset": record.offset,
        "timestamp_type": time_type,
        "timestamp_ms": record.timestamp_ms,
        "key_size": _size(record.key),
        "value_size": _size(record.value),
        "sequence": sequence,
        "header_keys": [name for name, _ in record.headers],
    }
    if with_content:
        for label, name, content in ((" key: ", "key", record.key), (" payload: ", "value", record.value)):
            fields[name] = content
            line += label + content.decode(errors="replace") if content is not None else ""
    return DumpEntry("record", line, fields)


def _size(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def _said(fact: bool) -> str:
    return "true" if fact else "false"


# --- indexes ----------------------------------------------------------------------------------------------------------


def _sanity(log: _Pair, path: str, data: bytes, suffix: str) -> DumpEntry:
    """The check that a broker makes before it uses an index instead of building it anew."""
    try:
        if suffix == OffsetIndex.SUFFIX:
            OffsetIndex.decode(log.base_offset, data, log.size_bytes)
        else:
            TimeIndex.decode(log.base_offset, data)
    except CorruptIndex as error:
        return damage(f"{path} would be rebuilt: {error}", path=path)
    if suffix == OffsetIndex.SUFFIX and not data:
        return DumpEntry("sane", f"{path} is empty.", {"path": path})
    return DumpEntry("sane", f"{path} passed sanity check.", {"path": path})


def _dump_index(log: _Pair, path: str, data: bytes, options: DumpOptions) -> Iterator[DumpEntry]:
    if not data:
        yield DumpEntry("index", f"{path} is empty.", {"path": path})
    for relative_offset, position in _entries(_OFFSET_ENTRY, data):
        offset = log.base_offset + relative_offset
        if not options.verify_index_only:
            yield DumpEntry("index", f"offset: {offset} position: {position}", {"offset": offset, "position": position})
        header = next((header for _, header in walk_headers(log.file, max(0, position), log.size_bytes)), None)
        if header is None or header.last_offset != offset:
            found = "none" if header is None else str(header.last_offset)
            yield damage(
                f"Mismatches in :{path}: Index offset: {offset}, log offset: {found}",
                path=path,
                misleads=header is None or header.magic != MAGIC or header.last_offset > offset,
            )
    yield from _odd_length(path, data, OffsetIndex.ENTRY_BYTES)


def _dump_time_index(log: _Pair, path: str, data: bytes, options: DumpOptions) -> Iterator[DumpEntry]:
    largest_ms: dict[int, int] = {}
    maximum_ms = {time_index.NO_TIMESTAMP: log.base_offset}  # and the batch that brought it
    for _, header in walk_headers(log.file, 0, log.size_bytes):
        largest_ms[header.last_offset] = header.max_timestamp_ms
        if header.max_timestamp_ms > next(reversed(maximum_ms)):
            maximum_ms[header.max_timestamp_ms] = header.last_offset
    previous_ms = time_index.NO_TIMESTAMP
    for timestamp_ms, relative_offset in _entries(_TIME_ENTRY, data):
        offset = log.base_offset + relative_offset
        if not options.verify_index_only:
            yield DumpEntry(
                "time_index",
                f"timestamp: {timestamp_ms} offset: {offset}",
                {"timestamp_ms": timestamp_ms, "offset": offset},
            )
        found_ms = largest_ms.get(offset)
        if found_ms is None:
            yield damage(f"Indexed offset: {offset} of {path} is not the last offset of any batch", path=path)
        elif found_ms != timestamp_ms:
            yield damage(
                f"Found timestamp mismatch in :{path}: Index timestamp: {timestamp_ms}, log timestamp: {found_ms}",
                path=path,
            )
        elif maximum_ms.get(timestamp_ms) != offset:
            yield damage(f"Indexed offset: {offset} of {path} is not where {timestamp_ms} came up first", path=path)
        if timestamp_ms <= previous_ms:
            yield damage(
                f"Found out of order timestamp in :{path}: Index timestamp: {timestamp_ms}, "
                f"Previously indexed timestamp: {previous_ms}",
                path=path,
            )
        previous_ms = timestamp_ms
    yield from _odd_length(path, data, TimeIndex.ENTRY_BYTES)


def _entries(entry: struct.Struct, data: bytes) -> Iterator[tuple[int, int]]:
    """Entry by entry up to zeros, which a file has behind its last entry where its space was reserved."""
    for number in range(len(data) // entry.size):
        first, second = entry.unpack_from(data, number * entry.size)
        if number and not (first and second):
            return
        yield first, second


def _odd_length(path: str, data: bytes, entry_bytes: int) -> Iterator[DumpEntry]:
    if len(data) % entry_bytes:
        yield damage(f"{path} has {len(data)} bytes, no whole number of {entry_bytes}-byte entries", path=path)
