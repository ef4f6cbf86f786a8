"""Decompression bombs in a real worker process: a typed refusal, in memory that the cap bounds."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest
from crc32c import crc32c

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import Codec, build_batch
from strandline.protocol.records.batch import HEADER
from strandline.protocol.records.conversion import convert_all, find_record
from strandline.protocol.records.rules import BatchRules
from strandline.runtime.processes.workers import WorkerPool

MEGABYTE = 2**20
CAP_BYTES = 8 * MEGABYTE
SLACK_BYTES = 40 * MEGABYTE
"""What decoders, copies and the interpreter may take besides, with a cap of 8 MiB; every bomb is 256 MiB or more."""
BOMB_BYTES = 256 * MEGABYTE
TOO_LARGE, INVALID = ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD


def gzip_bomb(times: int = BOMB_BYTES // MEGABYTE) -> bytes:
    member = zlib.compressobj(9, zlib.DEFLATED, 31)
    chunk = bytes(MEGABYTE)
    return b"".join(member.compress(chunk) for _ in range(times)) + member.flush()


def streamed(compressor: object) -> bytes:
    chunk = bytes(MEGABYTE)
    pieces = []
    for _ in range(BOMB_BYTES // MEGABYTE):
        compressor.compress(chunk)  # type: ignore[attr-defined]
        pieces.append(bytes(compressor.flush()))  # type: ignore[attr-defined]
    pieces.append(bytes(compressor.finish()))  # type: ignore[attr-defined]
    return b"".join(pieces)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def xerial(*blocks: bytes) -> bytes:
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed


def lz4_lying() -> bytes:
    """A frame whose header claims a content of 2⁶⁰ bytes."""
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    compressor.compress(b"short")
    frame = bytes(compressor.finish())
    flags, block = frame[4] | 0x08, frame[5]
    described = bytes((flags, block)) + struct.pack("<Q", 2**60)
    return frame[:4] + described + bytes((xxh32(described) >> 8 & 0xFF,)) + frame[7:]


def xxh32(data: bytes) -> int:
    """xxHash 32 of fewer than 16 bytes, seed 0 (the checksum of an LZ4 frame header)."""
    prime2, prime3, prime4, prime5 = 2246822519, 3266489917, 668265263, 374761393
    prime1, mask = 2654435761, 2**32 - 1

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & mask

    value = (prime5 + len(data)) & mask
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = rotate((value + word * prime3) & mask, 17) * prime4 & mask
    for byte in data[whole:]:
        value = rotate((value + byte * prime5) & mask, 11) * prime1 & mask
    value = (value ^ value >> 15) * prime2 & mask
    value = (value ^ value >> 13) * prime3 & mask
    return value ^ value >> 16


def zstd_window(descriptor: int) -> bytes:
    """A frame that asks for a window of 2 GiB or more, then ends in an empty last block."""
    return struct.pack("<IBB", 0xFD2FB528, 0, descriptor) + b"\x01\x00\x00"


BOMBS: dict[str, tuple[Codec, Callable[[], bytes], ErrorCode]] = {
    "gzip": (Codec.GZIP, gzip_bomb, TOO_LARGE),
    "gzip in many members": (Codec.GZIP, lambda: gzip_bomb(1) * 90, TOO_LARGE),
    "gzip in more members than anybody needs": (Codec.GZIP, lambda: zlib_empty() * 40_000, INVALID),
    "gzip nested": (Codec.GZIP, lambda: nested(gzip_bomb()), INVALID),
    "snappy": (Codec.SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(bytes(BOMB_BYTES))), TOO_LARGE),
    "snappy in blocks": (
        Codec.SNAPPY,
        lambda: xerial(*itertools.repeat(bytes(cramjam.snappy.compress_raw(bytes(MEGABYTE))), 256)),
        TOO_LARGE,
    ),
    "snappy that claims 4 GiB": (Codec.SNAPPY, lambda: varint(2**32 - 1) + b"\x00x", TOO_LARGE),
    "snappy block that claims 4 GiB": (Codec.SNAPPY, lambda: xerial(varint(2**32 - 1) + b"\x00x"), TOO_LARGE),
    "lz4": (
        Codec.LZ4,
        lambda: streamed(cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)),
        TOO_LARGE,
    ),
    "lz4 that claims 2^60 bytes": (Codec.LZ4, lz4_lying, INVALID),
    "zstd": (Codec.ZSTD, lambda: streamed(cramjam.zstd.Compressor(level=3)), TOO_LARGE),
    "zstd with a window of 2 GiB": (Codec.ZSTD, lambda: zstd_window(21 << 3), TOO_LARGE),
    "zstd with the largest window": (Codec.ZSTD, lambda: zstd_window(0xFF), TOO_LARGE),
}


def zlib_empty() -> bytes:
    return zlib.compressobj(9, zlib.DEFLATED, 31).flush()


def nested(bomb: bytes) -> bytes:
    member = zlib.compressobj(9, zlib.DEFLATED, 31)
    return member.compress(bomb) + member.flush()


def batch_of(codec: Codec, section: bytes) -> bytes:
    """A batch whose header is right in everything and whose records are `section`."""
    head = bytearray(build_batch([(1000, b"k", b"v")])[: HEADER.size])
    head[8:12] = (HEADER.size + len(section) - 12).to_bytes(4, "big")
    head[21:23] = int(codec).to_bytes(2, "big")
    head[17:21] = crc32c(section, crc32c(bytes(head[21:]))).to_bytes(4, "big")
    return bytes(head) + section


def peak_bytes(pid: int) -> int:
    """The most memory that the process ever had resident."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


@pytest.mark.parametrize(("codec", "make", "code"), BOMBS.values(), ids=BOMBS)
async def test_a_bomb_is_refused_in_bounded_memory(codec: Codec, make: Callable[[], bytes], code: ErrorCode) -> None:
    batch = batch_of(codec, make())
    ordinary = build_batch([(1000, b"k", b"v" * 1000)] * 1000, "gzip")
    pool = WorkerPool(1)
    try:
        for rules in (BatchRules(codec=0), BatchRules(needs_keys=True)):
            limits = [[2**30, CAP_BYTES]]
            await pool.run(convert_all, [ordinary], [rules], limits, 0, 2**30)
            (pid,) = pool.pids
            before_bytes = peak_bytes(pid)
            outcomes, _ = await pool.run(convert_all, [batch], [rules], limits, 0, 2**30)
            assert outcomes[0][0] == code, outcomes[0]
            found = await pool.run(find_record, batch, 0, 0, 1, CAP_BYTES)
            assert found in (TOO_LARGE, ErrorCode.CORRUPT_MESSAGE)
            assert pool.pids == [pid], "the worker lives on"
            assert peak_bytes(pid) - before_bytes < CAP_BYTES + SLACK_BYTES + 4 * len(batch)
    finally:
        await pool.close()
