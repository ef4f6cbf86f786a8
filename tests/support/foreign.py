"""What a Kafka leaves in a data folder, by hand: messages of old formats, transactions, the traces of its life."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence

import crc32c

from strandline.protocol.records import build_batch
from strandline.protocol.records.batch import CRC_START, MAGIC, TRANSACTIONAL_BIT
from strandline.storage.disk.checkpoints import HIGH_WATERMARKS, LEADER_EPOCHS, RECOVERY_POINTS, encode_offsets
from strandline.storage.manager.directory_state import STATE, read_state
from strandline.storage.manager.orderly_stops import CLEAN_MARKER
from strandline.testkit.disk import MemoryDisk
from support.storage_site import FOLDER, TP, StorageSite

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
    """Those of the two files that tell of an orderly stop of ours, or of a Kafka's."""
    found = [CLEAN_MARKER] if disk.exists(f"{directory}/{CLEAN_MARKER}") else []
    state = read_state(disk, f"{directory}/{STATE}")
    return [*found, STATE] if state is not None and state.segments_crc is not None else found


def kafkas_batch(offset: int, *, epoch: int = 0, magic: int = MAGIC) -> bytes:
    """One record. What stands outside of the CRC may be anything."""
    batch = bytearray(build_batch([(1000, b"k%d" % offset, b"v" * 20)], "none", None))
    struct.pack_into(">q", batch, 0, offset)
    struct.pack_into(">ib", batch, 12, epoch, magic)
    return bytes(batch)


def kafkas_site(
    segments: Mapping[int, Sequence[bytes]],
    *,
    is_clean: bool,
    recovery_point: int | None = None,
    high_watermark: int | None = None,
) -> StorageSite:
    """A data folder that no broker of ours has had yet, with one log. Its Kafka stopped in order or was killed."""
    site = StorageSite(cluster_id="kafkas")
    disk = site.disk
    disk.makedirs(FOLDER)
    disk.write(
        "/logs/meta.properties", b"cluster.id=kafkas\nversion=0\nbroker.id=7\ndirectory.id=ldirAAAAAAAAAAAAAAAAAA\n"
    )
    for name, offset in ((RECOVERY_POINTS, recovery_point), (HIGH_WATERMARKS, high_watermark)):
        if offset is not None:
            disk.write(f"/logs/{name}", encode_offsets({TP: offset}))
    for base_offset, batches in segments.items():
        disk.write(f"{FOLDER}/{base_offset:020d}.log", b"".join(batches))
        for suffix in (".index", ".timeindex"):
            disk.write(f"{FOLDER}/{base_offset:020d}{suffix}", b"")
    disk.write(f"{FOLDER}/{LEADER_EPOCHS}", b"0\n1\n0 0\n")
    if is_clean:
        kafka_stops(disk, "/logs")
    else:
        kafka_is_killed(disk, FOLDER)
    return site
