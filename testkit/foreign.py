"""What a Kafka leaves in a data folder, by hand: messages of old formats, transactions, the traces of its life."""

from __future__ import annotations

import struct
import zlib

import crc32c

from strandline.protocol.record_batch import CRC_START, TRANSACTIONAL_BIT
from strandline.storage.orderly_stops import CLEAN_MARKER, OUR_MARKER
from strandline.testkit.disk import MemoryDisk

KAFKAS_MARKER = b'{"version":0,"brokerEpoch":-1}'
FULL_INDEX_BYTES = 10 * 2**20


def old_message(offset: int, magic: int, *, key: bytes = b"k", value: bytes = b"v" * 20) -> bytes:
    """One message of format 0 or 1, uncompressed, with its CRC."""
    timestamp = struct.pack(">q", 1000) if magic else b""
    fields = b"".join(struct.pack(">i", len(field)) + field for field in (key, value))
    body = struct.pack(">bb", magic, 0) + timestamp + fields
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def old_messages(first: int, end: int, magic: int) -> bytes:
    return b"".join(old_message(offset, magic) for offset in range(first, end))


def as_of_transaction(batches: bytes) -> bytes:
    """The same, the first batch part of a transaction."""
    content = bytearray(batches)
    (length,) = struct.unpack_from(">i", content, 8)
    content[22] |= TRANSACTIONAL_BIT
    struct.pack_into(">I", content, 17, crc32c.crc32c(bytes(content[CRC_START : 12 + length])))
    return bytes(content)


def kafka_starts(disk: MemoryDisk, directory: str) -> None:
    """It takes its marker away; ours it does not know."""
    if disk.exists(f"{directory}/{CLEAN_MARKER}"):
        disk.unlink(f"{directory}/{CLEAN_MARKER}")


def kafka_is_killed(disk: MemoryDisk, folder: str) -> None:
    """It had this log open: the indexes of the last segment have their full size."""
    last = max(name for name in disk.listdir(folder) if name.endswith(".log")).removesuffix(".log")
    for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
        path = f"{folder}/{last}{suffix}"
        content = disk.read(path) if disk.exists(path) else b""
        disk.write(path, content.ljust(FULL_INDEX_BYTES // entry_bytes * entry_bytes, b"\0"))


def kafka_stops(disk: MemoryDisk, directory: str) -> None:
    """In order."""
    disk.write(f"{directory}/{CLEAN_MARKER}", KAFKAS_MARKER)


def markers(disk: MemoryDisk, directory: str) -> list[str]:
    return [name for name in (CLEAN_MARKER, OUR_MARKER) if disk.exists(f"{directory}/{name}")]
