"""128-bit hashes of many record keys at once: MurmurHash3 x64-128, in numpy.

A key's hash is the two 64-bit halves of MurmurHash3_x64_128(key, seed). Two keys with one hash would be taken for one,
which at 10⁹ keys has a chance of 10⁻²¹; the seed is drawn per cleaning, so that it does not hit the same two twice.
Keys above `LONG_KEY_BYTES` are hashed one by one by BLAKE2b instead, since the loop here runs as long as the longest.

All arithmetic is modulo 2⁶⁴ (numpy wraps). Words are little endian, as in the reference.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

LONG_KEY_BYTES = 256
SLACK_BYTES = 16
"""Readable bytes that must follow the last key in the buffer: whole words are loaded and masked."""

_u = np.uint64
_C1, _C2 = _u(0x87C37B91114253D5), _u(0x4CF5AD432745937F)
_FIVE, _N1, _N2 = _u(5), _u(0x52DCE729), _u(0x38495AB5)
_F1, _F2 = _u(0xFF51AFD7ED558CCD), _u(0xC4CEB9FE1A85EC53)
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)
"""By how many bytes of a word count."""


def hash_keys(buffer: Bytes, starts: I64, lengths: I64, seed: int) -> tuple[U64, U64]:
    """(low, high) of the keys buffer[start : start + length]."""
    low = np.full(len(starts), seed, dtype=np.uint64)
    high = low.copy()
    long_ones = np.flatnonzero(lengths > LONG_KEY_BYTES)
    if len(long_ones):
        short = np.flatnonzero(lengths <= LONG_KEY_BYTES)
        low[short], high[short] = _murmur(buffer, starts[short], lengths[short], low[short], high[short])
        for place in long_ones.tolist():
            start, end = int(starts[place]), int(starts[place] + lengths[place])
            digest = hashlib.blake2b(buffer[start:end].tobytes(), digest_size=16, salt=seed.to_bytes(8, "big")).digest()
            low[place] = int.from_bytes(digest[:8], "little")
            high[place] = int.from_bytes(digest[8:], "little")
        return low, high
    return _murmur(buffer, starts, lengths, low, high)


def _murmur(buffer: Bytes, starts: I64, lengths: I64, low: U64, high: U64) -> tuple[U64, U64]:
    if not len(starts):
        return low, high
    words = np.ndarray((len(buffer) - 7,), dtype="<u8", buffer=buffer, strides=(1,))  # the word at every byte
    shortest, longest = int(lengths.min()), int(lengths.max())
    everybody: I64 = np.arange(len(starts))
    for begin in range(0, longest - 15, 16):  # whole blocks
        if shortest >= begin + 16:
            low, high = _block(low, high, words[starts + begin], words[starts + (begin + 8)])
        else:
            some = everybody[lengths >= begin + 16]
            at = starts[some] + begin
            low[some], high[some] = _block(low[some], high[some], words[at], words[at + 8])
    tails = lengths & 15
    at = starts + lengths - tails
    low = low ^ _mixed(words[at] & _MASKS[np.minimum(tails, 8)], _C1, 31, _C2)
    if int(tails.max()) > 8:
        high = high ^ _mixed(words[at + 8] & _MASKS[np.maximum(tails - 8, 0)], _C2, 33, _C1)
    return _finish(low, high, lengths.astype(np.uint64))


def _rotated(values: U64, bits: int) -> U64:
    return (values << _u(bits)) | (values >> _u(64 - bits))


def _mixed(words: U64, first: np.uint64, bits: int, second: np.uint64) -> U64:
    return _rotated(words * first, bits) * second


def _block(low: U64, high: U64, word1: U64, word2: U64) -> tuple[U64, U64]:
    low = (_rotated(low ^ _mixed(word1, _C1, 31, _C2), 27) + high) * _FIVE + _N1
    high = (_rotated(high ^ _mixed(word2, _C2, 33, _C1), 31) + low) * _FIVE + _N2
    return low, high


def _finish(low: U64, high: U64, lengths: U64) -> tuple[U64, U64]:
    low, high = low ^ lengths, high ^ lengths
    low = low + high
    high = high + low
    low, high = _final_mix(low), _final_mix(high)
    low = low + high
    return low, high + low


def _final_mix(values: U64) -> U64:
    values = (values ^ (values >> _u(33))) * _F1
    values = (values ^ (values >> _u(33))) * _F2
    return values ^ (values >> _u(33))
