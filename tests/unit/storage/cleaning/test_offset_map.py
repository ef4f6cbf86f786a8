"""Key hashes and the offset map against plain Python."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.storage.cleaning.key_hash import SLACK_BYTES, U64, hash_keys
from strandline.storage.cleaning.offset_map import OffsetMap

MASK = 2**64 - 1


def rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK


def mixed(word: int, first: int, bits: int, second: int) -> int:
    return rotated(word * first & MASK, bits) * second & MASK


def finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return value ^ value >> 33


def murmur3_x64_128(data: bytes, seed: int = 0) -> tuple[int, int]:
    """As published, one byte string at a time."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = seed
    for at in range(0, len(data) // 16 * 16, 16):
        k1, k2 = struct.unpack_from("<QQ", data, at)
        h1 = ((rotated(h1 ^ mixed(k1, c1, 31, c2), 27) + h2) * 5 + 0x52DCE729) & MASK
        h2 = ((rotated(h2 ^ mixed(k2, c2, 33, c1), 31) + h1) * 5 + 0x38495AB5) & MASK
    tail = data[len(data) // 16 * 16 :]
    h2 ^= mixed(int.from_bytes(tail[8:], "little"), c2, 33, c1)
    h1 ^= mixed(int.from_bytes(tail[:8], "little"), c1, 31, c2)
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & MASK
    h2 = h2 + h1 & MASK
    h1, h2 = finished(h1), finished(h2)
    h1 = h1 + h2 & MASK
    return h1, h2 + h1 & MASK


def hashes(keys: list[bytes], seed: int = 0) -> tuple[U64, U64]:
    lengths = np.array([len(key) for key in keys], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64)
    buffer = np.frombuffer(b"".join(keys) + b"\xff" * SLACK_BYTES, dtype=np.uint8)
    return hash_keys(buffer, starts, lengths, seed)


def test_the_published_hash_of_a_known_text() -> None:
    text = b"The quick brown fox jumps over the lazy dog"
    low, high = hashes([text])
    assert (int(low[0]), int(high[0])) == murmur3_x64_128(text) == (0xE34BBC7BBC071B6C, 0x7A433CA9C49A9347)


@given(st.lists(st.binary(max_size=256), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_many_keys_at_once_are_hashed_as_each_alone(keys: list[bytes], seed: int) -> None:
    low, high = hashes(keys, seed)
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == [murmur3_x64_128(key, seed) for key in keys]


def test_long_keys_among_short_ones_differ_and_do_not_depend_on_their_company() -> None:
    long, short = b"l" * 300, b"s"
    low, high = hashes([short, long, long + b"x", short])
    alone = hashes([long])
    assert (low[1], high[1]) == (alone[0][0], alone[1][0])
    assert low[0] == low[3] and len({int(value) for value in low}) == 3


@given(
    waves=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=30), max_size=8),
    crowded=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_the_map_remembers_the_newest_offset_of_each_key(waves: list[list[int]], crowded: bool) -> None:
    """crowded: all keys want the same few slots."""
    offset_map = OffsetMap(24 * 128, 0.9, 10**9)
    model: dict[int, int] = {}
    offset = 0
    for wave in waves:
        wave = wave[: offset_map.capacity - offset_map.size]
        low = np.array([key % 3 if crowded else key * 7919 for key in wave], dtype=np.uint64)
        high = np.array(wave, dtype=np.uint64)
        offset_map.put(low, high, np.arange(offset, offset + len(wave), dtype=np.int64))
        model |= {key: offset + place for place, key in enumerate(wave)}
        offset += len(wave)
        assert offset_map.size == len(model)
        assert offset_map.used == len(model) / 128
    asked = list(range(70))
    low = np.array([key % 3 if crowded else key * 7919 for key in asked], dtype=np.uint64)
    found = offset_map.get(low, np.array(asked, dtype=np.uint64))
    assert found.tolist() == [model.get(key, -1) for key in asked]


def test_the_map_takes_no_more_memory_than_allowed_and_no_more_than_is_needed() -> None:
    assert OffsetMap(24 * 1000, 0.9, 10**9).capacity in range(850, 901)
    small = OffsetMap(128 * 2**20, 0.9, 100)
    assert 100 <= small.capacity < 300
