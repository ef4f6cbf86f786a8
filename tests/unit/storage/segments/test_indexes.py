"""Offset and time index: lookups, formats, and which files are refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.storage.errors import CorruptIndex
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.time_index import NO_TIMESTAMP, TimeIndex


def offset_index(*entries: tuple[int, int], base: int = 100) -> OffsetIndex:
    index = OffsetIndex(base)
    for last_offset, position in entries:
        index.append(last_offset, position)
    return index


def time_index(*entries: tuple[int, int], base: int = 100) -> TimeIndex:
    index = TimeIndex(base)
    for timestamp_ms, offset in entries:
        index.maybe_append(timestamp_ms, offset)
    return index


@pytest.mark.parametrize(
    ("offset", "position"), [(0, 0), (100, 0), (108, 0), (109, 4000), (110, 4000), (119, 8000), (10**9, 8000)]
)
def test_an_offset_is_looked_for_from_the_last_batch_known_not_to_end_after_it(offset: int, position: int) -> None:
    assert offset_index((109, 4000), (119, 8000)).position_for_offset(offset) == position


@pytest.mark.parametrize(("limit", "boundary"), [(0, 0), (3999, 0), (4000, 4000), (7999, 4000), (8001, 8000)])
def test_a_read_may_end_at_any_position_the_index_knows(limit: int, boundary: int) -> None:
    index = offset_index((109, 4000), (119, 8000))
    assert [0, *index.positions][index.entry_at_position(limit) + 1] == boundary


def test_the_offset_index_file_has_kafkas_eight_byte_entries() -> None:
    index = offset_index((109, 4000), (119, 8000))
    assert index.encode() == struct.pack(">iiii", 9, 4000, 19, 8000)
    assert index.encode(first=1) == struct.pack(">ii", 19, 8000)


def test_the_time_index_file_has_kafkas_twelve_byte_entries() -> None:
    index = time_index((5000, 103), (6000, 109))
    assert index.encode() == struct.pack(">qiqi", 5000, 3, 6000, 9)
    assert index.encode(first=1) == struct.pack(">qi", 6000, 9)


def test_only_a_new_maximum_gets_a_time_entry() -> None:
    index = time_index((5000, 103), (4000, 105), (5000, 107), (5001, 109))
    assert list(index.timestamps_ms) == [5000, 5001]
    assert time_index((NO_TIMESTAMP, 103)).last_timestamp_ms == NO_TIMESTAMP


@pytest.mark.parametrize(("timestamp_ms", "offset"), [(0, 100), (4999, 100), (5000, 103), (5999, 103), (9999, 109)])
def test_a_timestamp_is_looked_for_behind_the_batches_that_are_older(timestamp_ms: int, offset: int) -> None:
    index = time_index((5000, 103), (6000, 109))
    assert index.offset_of(index.entry_before(timestamp_ms)) == offset


def test_truncating_forgets_what_lies_behind() -> None:
    index = offset_index((109, 4000), (119, 8000))
    index.truncate_to_position(8000)
    assert list(index.positions) == [4000] and index.last_offset == 109
    times = time_index((5000, 103), (6000, 109))
    times.truncate_to_offset(109)
    assert list(times.timestamps_ms) == [5000] and times.last_offset == 103


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0" * 7, "no whole number"),
        (struct.pack(">ii", 9, 4000) + b"\0", "no whole number"),
        (struct.pack(">iiii", 9, 4000, 9, 8000), "do not rise"),
        (struct.pack(">iiii", 9, 4000, 19, 4000), "do not rise"),
        (struct.pack(">iiii", 19, 8000, 9, 4000), "do not rise"),
        (struct.pack(">iiii", 9, 4000, 0, 0), "the last entry notes the first offset"),
        (struct.pack(">ii", -1, 4000), "before the segment"),
        (struct.pack(">ii", 9, -4), "before the segment"),
        (struct.pack(">ii", 0, 0), "the last entry notes the first offset"),
        (struct.pack(">ii", 9, 10_000), "points to byte 10000 of 10000"),
    ],
)
def test_an_offset_index_that_breaks_a_rule_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(CorruptIndex, match=why):
        OffsetIndex.decode(100, data, log_bytes=10_000)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0" * 11, "no whole number"),
        (struct.pack(">qiqi", 5, 3, 5, 4), "do not rise"),
        (struct.pack(">qiqi", 6, 3, 5, 4), "do not rise"),
        (struct.pack(">qiqi", 5, 3, 6, 3), "do not rise"),
        (struct.pack(">qi", 5, -3), "before the segment"),
        (struct.pack(">qi", -5, 3), "before the segment"),
    ],
)
def test_a_time_index_that_breaks_a_rule_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(CorruptIndex, match=why):
        TimeIndex.decode(100, data)


rising = st.lists(st.integers(1, 2**31 - 2), unique=True, max_size=50).map(sorted)


@given(rising, rising, st.integers(0, 2**40))
def test_an_offset_index_survives_its_file(offsets: list[int], positions: list[int], base: int) -> None:
    entries = [(base + offset, position) for offset, position in zip(offsets, positions, strict=False)]
    index = offset_index(*entries, base=base)
    again = OffsetIndex.decode(base, index.encode(), log_bytes=2**31)
    assert list(again.positions) == list(index.positions)
    assert list(again.relative_offsets) == list(index.relative_offsets)


@given(st.lists(st.integers(0, 2**63 - 1), unique=True, max_size=50).map(sorted), rising)
def test_a_time_index_survives_its_file(timestamps_ms: list[int], offsets: list[int]) -> None:
    entries = list(zip(timestamps_ms, offsets, strict=False))
    index = time_index(*entries, base=0)
    assert index.encode() == b"".join(struct.pack(">qi", *entry) for entry in entries)
    again = TimeIndex.decode(0, index.encode())
    assert list(zip(again.timestamps_ms, again.relative_offsets, strict=True)) == entries


@given(st.binary(max_size=100))
def test_any_bytes_are_an_index_or_refused(data: bytes) -> None:
    for decode in (lambda: OffsetIndex.decode(0, data, 1000), lambda: TimeIndex.decode(0, data)):
        try:
            decode()
        except CorruptIndex:
            pass
