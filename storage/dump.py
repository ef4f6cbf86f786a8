"""What a segment's files hold, for people: `strandline dump-log` prints it, in the lines of Kafka's DumpLogSegments.

Each file becomes a sequence of `Entry`: a kind, named fields (for programs), Kafka's line (for people), and whether it
tells of damage. Nothing is repaired, nothing is written. Reading goes batch by batch, so the size of a file does not
matter; a torn tail ends a .log file with one entry, a damaged batch is reported and stepped over.
"""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from crc32c import crc32c

from strandline.protocol.records import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, InvalidBatch, Record, decode_batch
from strandline.runtime.disk import Disk, File
from strandline.storage.errors import CorruptIndex
from strandline.storage.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from strandline.storage.offset_index import OffsetIndex
from strandline.storage.scan import read_batch, walk_headers
from strandline.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from strandline.storage.time_index import TimeIndex

_CRC_START = 21
_MAX_INDEX_BYTES = 2**30


class DumpOptions(NamedTuple):
    """`deep`: every record, not only batches; `contents`: with key and value. `verify_only`: of indexes only what is
    wrong; `sanity_check_only`: of indexes only whether a broker would take them."""

    deep: bool = False
    contents: bool = False
    verify_only: bool = False
    sanity_check_only: bool = False


class Entry(NamedTuple):
    """One thing found in a file. `fields` has what `line` shows, keys and values as bytes."""

    kind: str
    line: str
    fields: dict[str, Any]
    is_damage: bool = False


class NotASegmentFile(Exception):
    """The file's name is none of a segment's."""


def dump_file(disk: Disk, path: str, options: DumpOptions = DumpOptions()) -> Iterator[Entry]:  # noqa: B008
    """Everything in one .log, .index or .timeindex file. OSError as the disk has it; NotASegmentFile."""
    name, suffix = posixpath.splitext(posixpath.basename(path))
    if suffix not in _DUMPERS or not (name.isascii() and name.isdigit()):
        raise NotASegmentFile(
            f"{path} is no segment file: their names are 20 digits and {', '.join(_DUMPERS)}, such as "
            "00000000000000000000.log"
        )
    yield Entry("file", f"Dumping {path}", {"path": path})
    file = disk.open(path, read_only=True)
    try:
        yield from _DUMPERS[suffix](disk, file, int(name), options)
    finally:
        file.close()


def _damage(line: str, **fields: Any) -> Entry:
    return Entry("damage", line, fields, is_damage=True)


# --- .log ------------------------------------------------------------------------------------------------------


def _dump_log(disk: Disk, file: File, base_offset: int, options: DumpOptions) -> Iterator[Entry]:
    yield Entry("log", f"Log starting offset: {base_offset}", {"starting_offset": base_offset})
    size, end, expected = file.size(), 0, base_offset
    for position, header in walk_headers(file, 0, size):
        batch = read_batch(file, position, header)
        is_valid = crc32c(batch[_CRC_START:]) == header.crc
        yield _batch_entry(header, position, is_valid)
        if header.base_offset < expected:
            yield _damage(
                f"Found out of order offset {header.base_offset} at position {position}, after {expected - 1}",
                position=position,
                offset=header.base_offset,
            )
        expected, end = header.next_offset, position + header.size_bytes
        if (options.deep or options.contents) and not header.is_control:
            yield from _records(batch, header, options)
    if end < size:
        name = posixpath.basename(file.path)
        yield _damage(f"Found {size - end} invalid bytes at the end of {name}", position=end, invalid_bytes=size - end)


def _batch_entry(header: BatchHeader, position: int, is_valid: bool) -> Entry:
    is_numbered = header.base_sequence >= 0
    fields = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.records_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.base_sequence + header.last_offset_delta if is_numbered else -1,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": "OptionalLong.empty",
        "position": position,
        _timestamp_name(header): header.max_timestamp_ms,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": header.compression_type,
        "crc": header.crc,
        "isvalid": is_valid,
    }
    return Entry("batch", " ".join(f"{name}: {_shown(value)}" for name, value in fields.items()), fields, not is_valid)


def _timestamp_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.timestamp_type == LOG_APPEND_TIME else "CreateTime"


def _shown(value: object) -> str:
    """As Java prints it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _records(batch: memoryview, header: BatchHeader, options: DumpOptions) -> Iterator[Entry]:
    try:
        records = decode_batch(batch, check_crc=False)
    except InvalidBatch as error:
        yield _damage(f"Cannot decode the batch at offset {header.base_offset}: {error}", offset=header.base_offset)
        return
    for index, record in enumerate(records):
        sequence = header.base_sequence + index if header.base_sequence >= 0 else -1
        yield _record_entry(record, _timestamp_name(header), sequence, options)


def _record_entry(record: Record, timestamp_name: str, sequence: int, options: DumpOptions) -> Entry:
    fields: dict[str, Any] = {
        "offset": record.offset,
        timestamp_name: record.timestamp_ms,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": sequence,
        "headerKeys": [name for name, _ in record.headers],
    }
    line = "| " + " ".join(
        f"{name}: [{','.join(value)}]" if name == "headerKeys" else f"{name}: {value}" for name, value in fields.items()
    )
    if options.contents:
        for name, content in (("key", record.key), ("payload", record.value)):
            fields[name] = content
            if content is not None:
                line += f" {name}: {content.decode('utf-8', 'replace')}"
    return Entry("record", line, fields)


# --- .index and .timeindex -------------------------------------------------------------------------------------


def _dump_offset_index(disk: Disk, file: File, base_offset: int, options: DumpOptions) -> Iterator[Entry]:
    """Each entry must name the last offset of the batch at its position."""
    log = _log_beside(disk, file)
    try:
        if options.sanity_check_only:
            yield _sanity(file, lambda data: OffsetIndex.decode(base_offset, data, log.size() if log else 2**31))
            return
        for relative, position in _entries(file, ">ii", OFFSET_ENTRY_BYTES):
            offset = base_offset + relative
            if not options.verify_only:
                fields = {"offset": offset, "position": position}
                yield Entry("index", f"offset: {offset} position: {position}", fields)
            header = _header_at(log, position) if log is not None else None
            if log is not None and (header is None or header.last_offset != offset):
                found = "no batch" if header is None else str(header.last_offset)
                yield _damage(
                    f"Mismatches in {file.path}: index offset: {offset}, log offset: {found}",
                    offset=offset,
                    position=position,
                )
    finally:
        if log is not None:
            log.close()


def _dump_time_index(disk: Disk, file: File, base_offset: int, options: DumpOptions) -> Iterator[Entry]:
    """Each entry must name a batch that holds its timestamp as the largest; both columns rise."""
    if options.sanity_check_only:
        yield _sanity(file, lambda data: TimeIndex.decode(base_offset, data))
        return
    log = _log_beside(disk, file)
    batches: Iterator[tuple[int, BatchHeader]] = walk_headers(log, 0, log.size()) if log is not None else iter(())
    header: BatchHeader | None = None
    last_ms = -1
    for timestamp_ms, relative in _entries(file, ">qi", TIME_ENTRY_BYTES):
        offset = base_offset + relative
        if not options.verify_only:
            fields = {"timestamp": timestamp_ms, "offset": offset}
            yield Entry("timeindex", f"timestamp: {timestamp_ms} offset: {offset}", fields)
        if timestamp_ms <= last_ms:
            yield _damage(
                f"Found out of order timestamp in {file.path}: index timestamp: {timestamp_ms}, previously indexed "
                f"timestamp: {last_ms}",
                timestamp=timestamp_ms,
                offset=offset,
            )
        last_ms = max(last_ms, timestamp_ms)
        while log is not None and (header is None or header.last_offset < offset):
            found = next(batches, None)
            if found is None:
                header = None
                break
            header = found[1]
        if log is not None and (header is None or not header.base_offset <= offset):
            yield _damage(f"Found indexed offset {offset} of {file.path} without a batch in the log", offset=offset)
        elif header is not None and header.max_timestamp_ms != timestamp_ms:
            yield _damage(
                f"Found timestamp mismatch in {file.path}: index timestamp: {timestamp_ms}, log timestamp: "
                f"{header.max_timestamp_ms}",
                timestamp=timestamp_ms,
                offset=offset,
            )
    if log is not None:
        log.close()


def _sanity(file: File, decode: Any) -> Entry:
    """Would a broker take this index as it is?"""
    try:
        decode(file.pread(_MAX_INDEX_BYTES, 0))
    except CorruptIndex as error:
        return _damage(f"{file.path} failed sanity check: {error}", path=file.path)
    return Entry("sanity", f"{file.path} passed sanity check.", {"path": file.path})


def _entries(file: File, layout: str, entry_bytes: int) -> Iterator[tuple[int, int]]:
    """Whole entries up to the first that is all zero: what preallocation left."""
    data = file.pread(_MAX_INDEX_BYTES, 0)
    for position in range(0, len(data) - entry_bytes + 1, entry_bytes):
        first, second = struct.unpack_from(layout, data, position)
        if position and not first and not second:
            return
        yield first, second


def _log_beside(disk: Disk, file: File) -> File | None:
    """The .log file of the same segment; None where there is none to compare with."""
    path = posixpath.splitext(file.path)[0] + ".log"
    return disk.open(path, read_only=True) if disk.exists(path) else None


def _header_at(log: File, position: int) -> BatchHeader | None:
    size = log.size()
    if not 0 <= position <= size - HEADER_BYTES:
        return None
    return next((header for _, header in walk_headers(log, position, size)), None)


_DUMPERS = {".log": _dump_log, ".index": _dump_offset_index, ".timeindex": _dump_time_index}
