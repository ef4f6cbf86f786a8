"""Decompression: what each codec wrote comes back up to the limit, and no input costs more than the limit."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records.compression import Codec, DecompressionFailed, decompress

ENCODERS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.NONE: bytes,
    Codec.GZIP: gzip_encode,
    Codec.SNAPPY: snappy_encode,
    Codec.LZ4: lz4_encode,
    Codec.ZSTD: zstd_encode,
}
every_codec = pytest.mark.parametrize("codec", ENCODERS, ids=lambda codec: codec.name.lower())
compressing = pytest.mark.parametrize("codec", [c for c in ENCODERS if c], ids=lambda codec: codec.name.lower())

MEGABYTE = 1_000_000


def decoded(codec: int, data: bytes, max_bytes: int = MEGABYTE) -> bytes:
    return bytes(decompress(codec, memoryview(data), max_bytes))


@every_codec
@settings(max_examples=30)
@given(content=st.binary(max_size=300), times=st.integers(1, 1000))
def test_content_comes_back_at_exactly_the_limit_and_not_one_byte_below(
    codec: Codec, content: bytes, times: int
) -> None:
    content = content * times
    encoded = ENCODERS[codec](content)
    assert decoded(codec, encoded, max(1, len(content))) == content
    if len(content) > 1:
        with pytest.raises(DecompressionFailed, match="more than") as caught:
            decoded(codec, encoded, len(content) - 1)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@compressing
def test_a_bomb_costs_little_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = ENCODERS[codec](bytes(32 * MEGABYTE))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionFailed, match="more than"):
            decoded(codec, bomb)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * MEGABYTE


@compressing
def test_what_is_cut_short_is_refused(codec: Codec) -> None:
    encoded = ENCODERS[codec](b"some content, " * 100)
    for cut in range(len(encoded)):
        try:
            assert decoded(codec, encoded[:cut]) == b"" and cut <= 16  # an empty stream, or just xerial's header
        except DecompressionFailed as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE


@compressing
@settings(max_examples=150)
@given(data=st.data())
def test_damage_gives_content_or_a_typed_error(codec: Codec, data: st.DataObject) -> None:
    encoded = bytearray(ENCODERS[codec](b"some content, " * 50))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded(codec, bytes(encoded), 100_000)
    except DecompressionFailed:
        pass


@compressing
@settings(max_examples=50)
@given(garbage=st.binary(max_size=60))
def test_garbage_gives_content_or_a_typed_error(codec: Codec, garbage: bytes) -> None:
    try:
        decoded(codec, garbage, 100_000)
    except DecompressionFailed:
        pass


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_reserved_codecs_are_unsupported(codec: int) -> None:
    with pytest.raises(DecompressionFailed) as caught:
        decoded(codec, b"x")
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_gzip_members_follow_one_another_and_share_the_limit() -> None:
    members = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decoded(Codec.GZIP, members) == b"one two"
    with pytest.raises(DecompressionFailed, match="more than"):
        decoded(Codec.GZIP, members, 6)
    with pytest.raises(DecompressionFailed, match="damaged"):
        decoded(Codec.GZIP, zlib.compress(b"zlib, not gzip"))


def test_snappy_is_read_raw_and_in_blocks() -> None:
    assert decoded(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"raw"))) == b"raw"
    content = bytes(range(256)) * 500
    assert decoded(Codec.SNAPPY, snappy_encode(content, xerial_blocksize=1024)) == content


@pytest.mark.parametrize("claimed", [5_000_000, 2**32 - 1])
def test_snappy_that_lies_about_its_size_is_refused_unread(claimed: int) -> None:
    length = bytearray()
    while claimed > 0x7F:
        length.append(claimed & 0x7F | 0x80)
        claimed >>= 7
    length.append(claimed)
    block = bytes(length) + b"\x00x"
    for lie in (block, b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + struct.pack(">i", len(block)) + block):
        with pytest.raises(DecompressionFailed, match="more than"):
            decoded(Codec.SNAPPY, lie)


@pytest.mark.parametrize("length", [-1, 0, 100, 2**31 - 1])
def test_snappy_block_lengths_are_checked_against_the_bytes_that_are_left(length: int) -> None:
    with pytest.raises(DecompressionFailed, match="block of"):
        decoded(Codec.SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, length) + b"\x01\x00x")


def zstd_frame(descriptor: int, rest: bytes) -> bytes:
    return struct.pack("<IB", 0xFD2FB528, descriptor) + rest


@pytest.mark.parametrize(
    "frame",
    [
        zstd_frame(0x00, b"\xa8" + b"\x01\x00\x00"),
        zstd_frame(0x00, b"\xff" + b"\x01\x00\x00"),
        zstd_frame(0xE0, struct.pack("<Q", 2**40) + b"\x01\x00\x00"),
        zstd_encode(b"small") + zstd_frame(0x00, b"\xa8" + b"\x01\x00\x00"),
    ],
    ids=["2 GiB", "the largest", "single segment of 1 TiB", "in the second frame"],
)
def test_a_zstd_window_above_the_limit_is_refused_before_the_decoder_allocates_it(frame: bytes) -> None:
    with pytest.raises(DecompressionFailed, match="more than"):
        decoded(Codec.ZSTD, frame)


def test_zstd_frames_follow_one_another_and_skippable_ones_are_skipped() -> None:
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    assert decoded(Codec.ZSTD, zstd_encode(b"one ") + skippable + zstd_encode(b"two")) == b"one two"


def test_zstd_with_the_window_of_its_level_is_read_however_short_the_content() -> None:
    compressor = cramjam.zstd.Compressor(level=19)
    compressor.compress(b"short")
    assert decoded(Codec.ZSTD, bytes(compressor.finish()), 1000) == b"short"
