"""What a piece of a log of `__consumer_offsets` says: the newest of each key, whatever stands beside it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.group_changes import PIECE_RECORDS, Reading, read_changes, unpack_changes
from strandline.protocol.group_records import (
    CommittedOffset,
    GroupMetadata,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from strandline.protocol.records import BatchBuilder, assign_offset, build_batch

CAP = 2**20
GROUP = GroupMetadata("g", "consumer", 1, "range", None, -1, [])


def commit(offset: int, *, group: str = "g", topic: str = "t", partition: int = 0) -> tuple[bytes, bytes | None]:
    return offset_key(group, topic, partition), offset_value(CommittedOffset(offset, 0, "", 1000))


def log(*batches: Iterable[tuple[bytes | None, bytes | None]], codec: str = "none", first: int = 0) -> bytes:
    """These batches as a log has them from offset `first` on."""
    data = b""
    for records in batches:
        listed = list(records)
        batch = bytearray(build_batch([(1000, key, value) for key, value in listed], codec))
        assign_offset(batch, first, 0)
        first += len(listed)
        data += batch
    return data


def reading(data: bytes, offset: int = 0, cap: int = CAP) -> Reading:
    return msgspec.convert(read_changes(None, data, offset, cap), Reading)


def content(found: Reading) -> tuple[dict[str, GroupMetadata | None], dict[tuple[str, str, int], int | None]]:
    groups: dict[str, GroupMetadata | None] = {}
    offsets: dict[tuple[str, str, int], int | None] = {}
    for piece in found.pieces:
        changes = unpack_changes(piece)
        groups |= changes.groups
        for group, topics in changes.offsets.items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    offsets[group, topic, partition] = None if committed is None else committed.offset
    return groups, offsets


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_newest_of_each_key_counts_in_every_codec(codec: str) -> None:
    data = log(
        [commit(1), commit(5, partition=1), (group_key("g"), group_value(GROUP))],
        [commit(2), (offset_key("g", "t", 1), None), (group_key("h"), None), *[commit(3)] * 50],
        codec=codec,
        first=10,
    )
    found = reading(data, 10)
    assert (found.next_offset, found.is_damaged, found.skipped) == (66, False, 0)
    assert content(found) == ({"g": GROUP, "h": None}, {("g", "t", 0): 3, ("g", "t", 1): None})


def test_what_cannot_be_read_is_skipped_and_the_first_is_named() -> None:
    bad = [(None, b"x"), (b"", b"x"), (offset_key("g", "t", 5), b"\0\3"), (group_key("g"), b"\0\x63")]
    found = reading(log([commit(1), *bad, (b"\0\x08unknown", b""), commit(2, partition=1)]))
    assert (found.skipped, found.why) == (4, "the record at offset 1: it has no key")
    assert content(found)[1] == {("g", "t", 0): 1, ("g", "t", 1): 2}


def test_a_bad_record_leaves_the_former_commit_of_its_key() -> None:
    found = reading(log([commit(1), (offset_key("g", "t", 0), b"\0\3")]))
    assert content(found)[1] == {("g", "t", 0): 1} and found.skipped == 1


def test_batches_of_transactions_never_count() -> None:
    builder = BatchBuilder(is_transactional=True)
    builder.set_producer(7, 0, 0)
    builder.append(1000, *commit(1))
    found = reading(builder.build() + log([commit(2, partition=1)], first=1))
    assert content(found)[1] == {("g", "t", 1): 2}
    assert (found.skipped, found.next_offset) == (1, 2)


def test_what_decodes_to_too_much_is_skipped() -> None:
    data = log([(offset_key("g", "t", 1), offset_value(CommittedOffset(1, metadata="x" * 30_000)))], codec="gzip")
    data += log([commit(2)], first=1)
    found = reading(data, cap=10_000)
    assert (found.skipped, found.next_offset) == (1, 2) and content(found)[1] == {("g", "t", 0): 2}


@pytest.mark.parametrize("place", [8, 16, 17, 61, 80])
def test_a_damaged_batch_ends_it_and_what_stands_before_counts(place: int) -> None:
    whole = log([commit(1)])
    data = bytearray(whole + log([commit(2)], [commit(3)], first=1))
    data[len(whole) + place] ^= 0x55
    found = reading(bytes(data))
    assert (found.next_offset, found.is_damaged) == (1, True)
    assert content(found)[1] == {("g", "t", 0): 1}


def test_a_batch_that_ends_before_where_it_should_begin_is_damage() -> None:
    found = reading(log([commit(1)], first=5) + log([commit(2)], first=3), 5)
    assert (found.next_offset, found.is_damaged) == (6, True)


def test_many_are_cut_into_pieces_that_no_key_is_in_twice() -> None:
    records = [
        commit(number, group=f"g{number % 7}", topic=f"t{number % 101}", partition=number) for number in range(9999)
    ]
    found = reading(log(records))
    assert 4 <= len(found.pieces) <= 6
    _, offsets = content(found)
    assert len(offsets) == 9999
    assert (
        max(
            sum(map(len, (p for t in unpack_changes(each).offsets.values() for p in t.values())))
            for each in found.pieces
        )
        < 2 * PIECE_RECORDS
    )


@given(st.binary(max_size=300), st.integers(1, 300))
def test_garbage_is_damage_and_never_more(garbage: bytes, cut: int) -> None:
    whole = log([commit(1), commit(2, partition=1)])
    found = reading(whole[:cut] + garbage)
    assert found.is_damaged or found.next_offset == 2
