"""What is found where replicas differ, and that nothing is found where they do not have to be the same."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.client.replicas import streams as side_by_side
from strandline.client.replicas.comparison import (
    DAMAGED,
    DIFFERENT,
    MAX_FINDINGS,
    MISSING,
    UNREAD,
    Compared,
    compare,
)
from strandline.protocol.records.batch import HEADER_BYTES
from support.damaged_replicas import MemoryReplica, batch_at, flipped, plain_batches, streams

SIZES = [3, 1, 4, 2, 5, 3, 2]
END = sum(SIZES)
STARTS = [sum(SIZES[:place]) for place in range(len(SIZES))]
LENGTH_POSITION, EPOCH_POSITION, LAST_OFFSET_DELTA_POSITION = 11, 15, 24


def three(**changed: MemoryReplica) -> dict[int, MemoryReplica]:
    """Brokers 1 (which leads), 2 and 3; `b2=…` is another replica of broker 2."""
    made = {f"b{broker}": MemoryReplica(plain_batches(SIZES)) for broker in (1, 2, 3)}
    return {int(name[1:]): replica for name, replica in {**made, **changed}.items()}


def compared(
    replicas: dict[int, MemoryReplica], start: int = 0, end: int = END, target: int = END
) -> dict[int, Compared]:
    return compare(streams(replicas, start, target), start, end)


def found(replicas: dict[int, MemoryReplica], **bounds: int) -> list[tuple[int, str, int, int]]:
    return [
        (broker, each.kind, each.start, each.end)
        for broker, result in compared(replicas, **bounds).items()
        for each in result.findings
    ]


def changed(place: int, batch: bytes | None) -> MemoryReplica:
    """A replica that has something else, or nothing, in the place of one batch."""
    replica = MemoryReplica(plain_batches(SIZES))
    replica.stored[STARTS[place]] = b"" if batch is None else batch
    if batch is None:
        del replica.stored[STARTS[place]]
    return replica


def test_equal_replicas_are_equal_and_counted() -> None:
    results = compared(three())
    assert found(three()) == []
    for result in results.values():
        assert (result.start, result.end, result.batches, result.records) == (0, END, len(SIZES), END)
        assert result.size_bytes == sum(map(len, plain_batches(SIZES))) and not result.is_behind


@pytest.mark.parametrize("broker", [1, 2, 3])
@pytest.mark.parametrize("place", [0, 3, len(SIZES) - 1])
def test_a_flipped_bit_is_found_where_it_is_and_nowhere_else(broker: int, place: int) -> None:
    damaged = changed(place, flipped(plain_batches(SIZES)[place], HEADER_BYTES + 5))
    assert found(three(**{f"b{broker}": damaged})) == [(broker, DAMAGED, STARTS[place], STARTS[place] + 1)]


@given(place=st.integers(0, len(SIZES) - 1), data=st.data())
def test_no_flipped_bit_goes_unnoticed(place: int, data: st.DataObject) -> None:
    batch = plain_batches(SIZES)[place]
    position = data.draw(st.integers(0, len(batch) - 1))
    damaged = flipped(batch, position, data.draw(st.integers(0, 7)))
    broker = data.draw(st.sampled_from([1, 2, 3]))
    brokers = {each[0] for each in found(three(**{f"b{broker}": changed(place, damaged)}))}
    assert brokers == {broker}, "two of three are as they should be"


@pytest.mark.parametrize("broker", [1, 2])
def test_a_wrong_offset_is_found_at_the_end_of_a_log_too(broker: int) -> None:
    """It then reaches beyond what is compared."""
    wrong = flipped(plain_batches(SIZES)[-1], 7)
    assert [each[:2] for each in found(three(**{f"b{broker}": changed(len(SIZES) - 1, wrong)}))] == [
        (broker, DIFFERENT)
    ]


@pytest.mark.parametrize("broker", [1, 2])
@pytest.mark.parametrize("place", [0, 3, len(SIZES) - 1])
def test_a_missing_batch_is_found_on_who_lacks_it(broker: int, place: int) -> None:
    lacking = changed(place, None)
    expected = [(broker, MISSING, STARTS[place], STARTS[place] + SIZES[place])]
    assert found(three(**{f"b{broker}": lacking})) == expected


def test_other_records_other_epochs_and_other_borders_are_differences() -> None:
    start = STARTS[2]
    other = batch_at(start, [(None, b"%d" % (start + place + 1)) for place in range(SIZES[2])])
    [result] = compared(three(b3=changed(2, other)))[3].findings
    assert (result.kind, result.start, result.end) == (DIFFERENT, start, start + SIZES[2])
    assert "has CRC-32C 0x" in result.text and "unlike on broker 1" in result.text
    epoch = flipped(plain_batches(SIZES)[2], EPOCH_POSITION)
    [result] = compared(three(b3=changed(2, epoch)))[3].findings
    assert (result.kind, result.text) == (
        DIFFERENT,
        "the batch is of leader epoch 1 instead of 0, unlike on broker 1",
    )
    values = [(None, b"%d" % offset) for offset in range(start, start + 4)]
    halves = [batch_at(start, values[:2]), batch_at(start + 2, values[2:])]
    split = MemoryReplica([*plain_batches(SIZES)[:2], *halves, *plain_batches(SIZES)[3:]])
    [result] = compared(three(b2=split))[2].findings
    assert (result.kind, result.start, result.end) == (DIFFERENT, start, start + 4)
    assert result.text.startswith("has 2 batches in [4, 8) instead of a batch of 4 records in [4, 8)")


def test_what_differs_is_held_against_what_most_have_and_of_two_against_the_leader() -> None:
    other = changed(1, batch_at(STARTS[1], [(None, b"other")]))
    assert found(three(b1=other)) == [(1, DIFFERENT, STARTS[1], STARTS[2])]
    replicas = three(b1=other)
    del replicas[3]
    assert found(replicas) == [(2, DIFFERENT, STARTS[1], STARTS[2])]


def test_where_a_damaged_batch_ends_is_believed_only_of_what_agrees() -> None:
    """Its last offset delta says that it reaches beyond everything; what stands behind it is compared all the same."""
    for place in range(len(SIZES) - 1):
        for chunk_bytes in (1, 10_000):
            damaged = changed(place, flipped(plain_batches(SIZES)[place], LAST_OFFSET_DELTA_POSITION, 3))
            damaged.chunk_bytes = chunk_bytes
            lacking = MemoryReplica(plain_batches(SIZES))
            del lacking.stored[STARTS[-1]]
            assert [each[:2] for each in found(three(b2=damaged, b3=lacking)) if each[1] == MISSING] == [(3, MISSING)]


def test_where_the_leaders_batch_is_damaged_the_others_are_held_against_each_other() -> None:
    damaged = changed(1, flipped(plain_batches(SIZES)[1], HEADER_BYTES + 2))
    other = changed(1, batch_at(STARTS[1], [(None, b"other")]))
    assert found(three(b1=damaged, b3=other)) == [
        (1, DAMAGED, STARTS[1], STARTS[1] + 1),
        (3, DIFFERENT, STARTS[1], STARTS[1] + 1),
    ]


def test_damage_that_all_replicas_share_is_found_on_all() -> None:
    damaged = flipped(plain_batches(SIZES)[4], HEADER_BYTES)
    assert [each[:2] for each in found(three(**{f"b{n}": changed(4, damaged) for n in (1, 2, 3)}))] == [
        (1, DAMAGED),
        (2, DAMAGED),
        (3, DAMAGED),
    ]


def test_bytes_that_are_no_batches_end_the_comparison_of_that_replica_there() -> None:
    damaged = changed(2, flipped(plain_batches(SIZES)[2], LENGTH_POSITION, 6))
    results = compared(three(b2=damaged))
    assert [each.kind for each in results[2].findings] == [DAMAGED]
    assert "nothing behind it was compared" in results[2].findings[0].text
    assert (results[2].end, results[3].end, results[3].findings) == (STARTS[2], END, [])


def test_logs_begin_and_end_where_retention_and_replication_left_them() -> None:
    """Also within a batch, where records were deleted up to there; and who lags is compared as far as it is."""
    replicas = three(
        b2=MemoryReplica(plain_batches(SIZES)[2:], log_start=STARTS[2]),
        b3=MemoryReplica(plain_batches(SIZES)[1:], log_start=STARTS[2] + 2, high_watermark=STARTS[5]),
    )
    results = compared(replicas)
    assert [(each.start, each.end, each.is_behind, each.findings) for each in results.values()] == [
        (0, END, False, []),
        (STARTS[2], END, False, []),
        (STARTS[2] + 2, STARTS[5], True, []),
    ]
    replicas[3].stored[STARTS[2]] = batch_at(STARTS[2], [(None, b"x")] * 4)
    assert found(replicas) == [(3, DIFFERENT, STARTS[2], STARTS[3])]


@pytest.mark.parametrize("gone_to", [STARTS[5], STARTS[4] + 2])
@pytest.mark.parametrize("broker", [1, 2])
def test_what_retention_deletes_meanwhile_is_no_difference(broker: int, gone_to: int) -> None:
    replica = MemoryReplica(plain_batches(SIZES), gone_to=gone_to, chunk_bytes=1)
    assert found(three(**{f"b{broker}": replica})) == []
    assert compared(three(**{f"b{broker}": replica}))[broker].start == gone_to


def test_batches_that_overlap_in_a_row_are_one_difference() -> None:
    replicas = {1: MemoryReplica(plain_batches([4, 4, 2])), 2: MemoryReplica(plain_batches([2, 4, 2, 2]))}
    [result] = compare(streams(replicas, 0, 10), 0, 10)[2].findings
    assert (result.start, result.end, result.count) == (0, 8, 1)


def test_a_replica_that_cannot_be_asked_is_unread_from_there_and_the_others_are_compared() -> None:
    failing = MemoryReplica(plain_batches(SIZES), failing_at=STARTS[3], chunk_bytes=1)
    lacking = changed(5, None)
    assert found(three(b2=failing, b3=lacking)) == [(2, UNREAD, STARTS[3], END), (3, MISSING, STARTS[5], STARTS[6])]


def test_findings_in_a_row_become_one_and_there_is_an_end_to_them() -> None:
    none = MemoryReplica([], high_watermark=END)
    [result] = compared(three(b2=none))[2].findings
    assert (result.kind, result.start, result.end, result.count) == (MISSING, 0, END, len(SIZES))
    unaware = compared(three(b2=MemoryReplica([])))[2]
    assert (unaware.findings, unaware.end, unaware.is_behind) == ([], 0, True), "it knows of nothing that is committed"
    replica = MemoryReplica(plain_batches(SIZES))
    for place in (2, 3, 4):
        del replica.stored[STARTS[place]]
    [result] = compared(three(b2=replica))[2].findings
    assert (result.start, result.end, result.count) == (STARTS[2], STARTS[5], 3)
    endless = Compared(0, 10**6)
    for offset in range(0, 10 * MAX_FINDINGS, 2):
        endless.add(MISSING, offset, offset + 1, "")
    assert len(endless.findings) == MAX_FINDINGS and endless.findings[-1].end == 10 * MAX_FINDINGS - 1


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    chunk_bytes=st.sampled_from([1, 200, 10_000]),
    window_bytes=st.sampled_from([1, 200, 10_000]),
    data=st.data(),
)
def test_ranges_together_find_and_count_what_the_whole_does(
    sizes: list[int], cuts: list[int], chunk_bytes: int, window_bytes: int, data: st.DataObject
) -> None:
    end = sum(sizes)
    replicas = {
        broker: MemoryReplica(
            plain_batches(sizes),
            log_start=data.draw(st.integers(0, end)) if broker > 1 else 0,
            high_watermark=sum(sizes[: data.draw(st.integers(0, len(sizes)))]) if broker == 3 else end,
            chunk_bytes=chunk_bytes,
        )
        for broker in (1, 2, 3)
    }
    for start in data.draw(st.lists(st.sampled_from(sorted(replicas[2].stored)), max_size=2, unique=True)):
        del replicas[2].stored[start]

    def counts(ranges: list[tuple[int, int]]) -> tuple[set[tuple[int, int, int]], dict[int, int]]:
        kept: set[tuple[int, int, int]] = set()
        batches = {1: 0, 2: 0, 3: 0}
        for first, last in ranges:
            results = compare(streams(replicas, first, end), first, last)
            for broker, result in results.items():
                batches[broker] += result.batches
                kept |= {
                    (broker, offset, offset + 1) for each in result.findings for offset in range(each.start, each.end)
                }
        return kept, batches

    edges = sorted({0, end, *(cut for cut in cuts if cut < end)})
    with patch.object(side_by_side, "WINDOW_BYTES", window_bytes):
        in_pieces = counts(list(pairwise(edges)))
    with patch.object(side_by_side, "WINDOW_BYTES", 0):
        assert in_pieces == counts([(0, end)]), "batch by batch"
