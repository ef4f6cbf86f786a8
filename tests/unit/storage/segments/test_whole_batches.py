"""Whole batches behind damage are found wherever they stand, and what a write leaves that was cut short is none."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.records.batch import HEADER_BYTES, read_header
from strandline.storage.segments import whole_batches
from strandline.storage.segments.whole_batches import is_followed, passes_crc
from support.foreign import kafkas_batch

NOISE = random.Random(1).randbytes(400)


class Content:
    """A file that notes how much is read at once."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.most = 0

    def pread(self, size: int, position: int) -> bytes:
        self.most = max(self.most, size)
        return self.content[position : position + size]


def found(content: bytes, *, base_offset: int = 0, position: int = 0) -> bool:
    return is_followed(Content(content), base_offset, position, len(content))


@pytest.mark.parametrize("chunk_bytes", [HEADER_BYTES, 64, 100, 1000])
def test_a_whole_batch_is_found_at_any_place(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_batches, "_CHUNK_BYTES", chunk_bytes)
    for before in (NOISE, bytes(400), b"\x02" * 400, kafkas_batch(4)[:-1] * 4):
        for place in range(len(before)):
            file = Content(before[:place] + kafkas_batch(5) + b"tail")
            assert is_followed(file, 0, 0, len(file.content)), place
            assert file.most <= chunk_bytes


@pytest.mark.parametrize("before", [b"", kafkas_batch(0)])
def test_the_beginning_of_a_write_is_none(before: bytes) -> None:
    batch = kafkas_batch(1)
    for end in range(len(batch)):
        assert not found(before + batch[:end], position=len(before))
    assert found(before + batch, position=len(before))


@given(st.binary(max_size=300))
def test_bytes_that_somebody_made_up_are_none(content: bytes) -> None:
    assert not found(content)


@pytest.mark.parametrize("byte", range(len(kafkas_batch(5))))
def test_a_batch_with_a_wrong_byte_is_none_but_for_what_its_crc_does_not_cover(byte: int) -> None:
    batch = bytearray(kafkas_batch(5))
    batch[byte] ^= 0x55
    is_covered = 8 <= byte < 12 or byte >= 16  # all but base offset and epoch; length and magic have their own checks
    assert found(bytes(batch)) is not is_covered


@pytest.mark.parametrize(
    ("base_offset", "offset", "is_found"),
    [
        (0, 0, True),
        (10, 9, False),
        (0, 2**31 - 1, True),
        (0, 2**31, False),
        (0, 2**40, False),
        (2**32 - 5, 2**32 - 6, False),
        (2**32 - 5, 2**32 + 5, True),
        (2**40, 2**40 - 1, False),
        (2**40, 2**40 + 2**31 - 1, True),
    ],
)
def test_behind_the_damage_only_batches_of_the_segment_count(base_offset: int, offset: int, is_found: bool) -> None:
    assert found(b"?" + kafkas_batch(offset), base_offset=base_offset) == is_found
    assert found(kafkas_batch(offset), base_offset=base_offset)  # at the damage itself it is a contradiction


def test_what_would_take_too_long_counts_as_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    likeness = bytearray(kafkas_batch(1)[:HEADER_BYTES])
    struct.pack_into(">i", likeness, 8, HEADER_BYTES)
    content = bytes(likeness) * 50
    assert not found(content)
    monkeypatch.setattr(whole_batches, "_MOST_BYTES", 40 * HEADER_BYTES)
    assert found(content) and not found(NOISE) and not found(bytes(10_000))


def test_headers_without_a_possible_length_take_their_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    likeness = bytearray(kafkas_batch(1)[:HEADER_BYTES])
    struct.pack_into(">i", likeness, 8, 2**30)
    monkeypatch.setattr(whole_batches, "_MOST_BYTES", 40 * HEADER_BYTES)
    assert not found(bytes(likeness) * 39) and found(bytes(likeness) * 50)


def test_a_crc_is_computed_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = kafkas_batch(3)
    for chunk_bytes in (1, 7, len(batch)):
        monkeypatch.setattr(whole_batches, "_CHUNK_BYTES", chunk_bytes)
        for content, is_right in ((batch, True), (batch[:-1] + b"?", False)):
            assert passes_crc(Content(b"??" + content), 2, read_header(content)) == is_right
