"""Decompression with a limit: no input, however it lies, costs more memory than the caller allows. And compression.

`decompress(codec, data, max_bytes)` serves the four codecs of record batches:

* gzip   up to 100 gzip members; zlib stops at the limit by itself.
* snappy either raw, or xerial framing: 16 bytes of header, then (int32 big endian length, raw snappy block)…; each
         block begins with its own decompressed length, which is added up before anything is decoded.
* lz4    one LZ4 frame.
* zstd   frames; each declares a window, for which the decoder allocates before it has read a block. The frames are
         walked first (RFC 8878, 3.1.1): windows above the limit are refused, and the blocks (at most 128 KiB each
         when decoded) give an upper bound of the output.

lz4 and zstd are decoded into a buffer that cannot grow: a first guess, raised up to the limit.

`compress(codec, data)` writes what Kafka's readers take, at Kafka's default levels: one gzip member (without a time in
its header: the same data gives the same bytes), xerial snappy, lz4 with independent blocks, one zstd frame.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Callable

import cramjam

from strandline.protocol.errors import ErrorCode

MAX_DECOMPRESSED_BYTES = 64 * 2**20
"""Default limit for the decoded records of one batch; gzip can reach 1028 times its input."""


class Codec(enum.IntEnum):
    """The three low bits of a batch's attributes; the names are those of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionFailed(Exception):
    """The data is damaged, or larger than the limit when decoded. `code` is what the wire says about it."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.CORRUPT_MESSAGE) -> None:
        super().__init__(message)
        self.code = code


Buffer = bytes | bytearray | memoryview


def decompress(codec: int, data: memoryview, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """What `data` decodes to. DecompressionFailed: damaged, more than `max_bytes`, or no such codec."""
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise DecompressionFailed(f"compression codec {codec} does not exist", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return decoder(data, max_bytes)


def compress(codec: int, data: memoryview) -> bytes:
    """`data` in that codec. KeyError: no such codec."""
    return _ENCODERS[codec](data)


def _too_large(codec: str, max_bytes: int) -> DecompressionFailed:
    return DecompressionFailed(
        f"{codec} data decodes to more than the {max_bytes} bytes allowed", ErrorCode.MESSAGE_TOO_LARGE
    )


def _plain(data: memoryview, max_bytes: int) -> Buffer:
    if len(data) > max_bytes:
        raise _too_large("uncompressed", max_bytes)
    return data


# --- gzip --------------------------------------------------------------------------------------------------------

_GZIP_ONLY = 16 + zlib.MAX_WBITS
MAX_GZIP_MEMBERS = 100
"""Producers write one. What follows a member is copied to be read, so a megabyte of empty members would be gigabytes
of copying."""


def _gzip(data: memoryview, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    room = max_bytes
    rest: Buffer = data
    for _ in range(MAX_GZIP_MEMBERS):
        member = zlib.decompressobj(_GZIP_ONLY)
        try:
            # One byte more than allowed, so that "exactly the limit" and "more" can be told apart; 0 means no limit.
            piece = member.decompress(rest, room + 1)
        except zlib.error as error:
            raise DecompressionFailed(f"gzip data is damaged: {error}") from None
        room -= len(piece)
        if room < 0:
            raise _too_large("gzip", max_bytes)
        pieces.append(piece)
        if not member.eof:
            raise DecompressionFailed("gzip data ends too early")
        rest = member.unused_data
        if not rest:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    raise DecompressionFailed(f"gzip data of more than {MAX_GZIP_MEMBERS} members")


def _gzip_encode(data: memoryview) -> bytes:
    member = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, _GZIP_ONLY)
    return member.compress(data) + member.flush()


# --- snappy ------------------------------------------------------------------------------------------------------

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_BLOCK_LENGTH = struct.Struct(">i")


def _snappy(data: memoryview, max_bytes: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(data, max_bytes, max_bytes)
    pieces: list[bytes] = []
    room = max_bytes
    position, end = _XERIAL_HEADER_BYTES, len(data)
    while position < end:
        if end - position < _BLOCK_LENGTH.size:
            raise DecompressionFailed("snappy data ends within a block length")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if length < 1 or length > end - position:
            raise DecompressionFailed(f"snappy block of {length} bytes where {end - position} are left")
        piece = _snappy_block(data[position : position + length], room, max_bytes)
        room -= len(piece)
        pieces.append(piece)
        position += length
    return b"".join(pieces)


def _snappy_block(block: memoryview, room: int, max_bytes: int) -> bytes:
    """The decoded block, which must fit the room that `max_bytes` leave."""
    try:
        if cramjam.snappy.decompress_raw_len(block) > room:
            raise _too_large("snappy", max_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecompressionFailed(f"snappy data is damaged: {error}") from None


_XERIAL_VERSIONS = struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024


def _snappy_encode(data: memoryview) -> bytes:
    pieces = [_XERIAL_MAGIC, _XERIAL_VERSIONS]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(pieces)


# --- lz4 and zstd ------------------------------------------------------------------------------------------------

_FIRST_GUESS_FACTOR = 4
_FIRST_GUESS_MIN_BYTES = 64 * 1024
_OUTPUT_FULL = "failed to write whole buffer"
"""How cramjam (the text is that of Rust's standard library) says that the fixed output buffer is full."""


def _into_fixed_buffer(
    codec: str, decode_into: Callable[[Buffer, bytearray], int], data: memoryview, max_bytes: int, guess: int
) -> memoryview:
    while True:
        guess = min(guess, max_bytes)
        output = bytearray(guess)
        try:
            return memoryview(output)[: decode_into(data, output)]
        except (cramjam.DecompressionError, OSError, ValueError) as error:
            if str(error) != _OUTPUT_FULL:
                raise DecompressionFailed(f"{codec} data is damaged: {error}") from None
        if guess == max_bytes:
            raise _too_large(codec, max_bytes)
        guess *= 4


def _lz4(data: memoryview, max_bytes: int) -> memoryview:
    guess = max(_FIRST_GUESS_MIN_BYTES, _FIRST_GUESS_FACTOR * len(data))
    return _into_fixed_buffer("lz4", cramjam.lz4.decompress_into, data, max_bytes, guess)


_LZ4_LEVEL = 9
_ZSTD_LEVEL = 3
"""Kafka's defaults (KIP-390)."""


def _lz4_encode(data: memoryview) -> bytes:
    encoder = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)  # KIP-57
    encoder.compress(bytes(data))  # it takes no memoryview
    return bytes(encoder.finish())


def _zstd_encode(data: memoryview) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def _zstd(data: memoryview, max_bytes: int) -> memoryview:
    bound = zstd_output_bound(data, max(max_bytes, ZSTD_MIN_WINDOW_BYTES))
    guess = min(bound, max(_FIRST_GUESS_MIN_BYTES, _FIRST_GUESS_FACTOR * len(data)))
    return _into_fixed_buffer("zstd", cramjam.zstd.decompress_into, data, max_bytes, guess)


ZSTD_MIN_WINDOW_BYTES = 8 * 2**20
"""Windows up to this size are always accepted, as RFC 8878 asks of decoders: encoders that do not know the size of the
content declare their level's window, however short the content is."""

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
_ZSTD_SKIPPABLE_MASK = 0xFFFFFFF0
_ZSTD_BLOCK_MAX_BYTES = 128 * 1024
_ZSTD_RLE_BLOCK = 1
_ZSTD_RESERVED_BLOCK = 3
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)


def zstd_output_bound(data: memoryview, max_window_bytes: int) -> int:
    """An upper bound of what these zstd frames decode to, from their block headers alone.

    DecompressionFailed: a frame asks for a window above `max_window_bytes`, or the frames are damaged.
    """
    bound = 0
    position, end = 0, len(data)
    try:
        while position < end:
            (magic,) = struct.unpack_from("<I", data, position)
            if magic & _ZSTD_SKIPPABLE_MASK == _ZSTD_SKIPPABLE_MAGIC:
                position += 8 + struct.unpack_from("<I", data, position + 4)[0]
                continue
            if magic != _ZSTD_MAGIC:
                raise DecompressionFailed(f"zstd data is damaged: frame magic {magic:#x}")
            position, has_checksum = _zstd_frame_header(data, position + 4, max_window_bytes)
            last = False
            while not last:
                block = int.from_bytes(data[position : position + 3], "little")
                if position + 3 > end or (block >> 1) & 3 == _ZSTD_RESERVED_BLOCK:
                    raise DecompressionFailed("zstd data is damaged: block header")
                position += 3 + (1 if (block >> 1) & 3 == _ZSTD_RLE_BLOCK else block >> 3)
                bound += _ZSTD_BLOCK_MAX_BYTES
                last = bool(block & 1)
            position += 4 * has_checksum
    except (struct.error, IndexError):
        raise DecompressionFailed("zstd data ends too early") from None
    if position != end:
        raise DecompressionFailed("zstd data ends too early")
    return bound


def _zstd_frame_header(data: memoryview, position: int, max_window_bytes: int) -> tuple[int, bool]:
    """(position of the first block, whether a checksum of 4 bytes follows the last one)."""
    descriptor = data[position]
    position += 1
    single_segment = bool(descriptor & 0x20)
    window = 0
    if not single_segment:
        base = 1 << (10 + (data[position] >> 3))
        window = base + (base >> 3) * (data[position] & 7)
        position += 1
    position += _DICTIONARY_ID_BYTES[descriptor & 3]
    size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6] or int(single_segment)
    if single_segment:  # the whole content is the window
        if position + size_bytes > len(data):
            raise IndexError
        window = int.from_bytes(data[position : position + size_bytes], "little") + (256 if size_bytes == 2 else 0)
    if window > max_window_bytes:
        raise _too_large("zstd", max_window_bytes)
    return position + size_bytes, bool(descriptor & 4)


_DECODERS: dict[int, Callable[[memoryview, int], Buffer]] = {
    Codec.NONE: _plain,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}

_ENCODERS: dict[int, Callable[[memoryview], bytes]] = {
    Codec.NONE: bytes,
    Codec.GZIP: _gzip_encode,
    Codec.SNAPPY: _snappy_encode,
    Codec.LZ4: _lz4_encode,
    Codec.ZSTD: _zstd_encode,
}
