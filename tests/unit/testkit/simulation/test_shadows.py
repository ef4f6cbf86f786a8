"""The god's copy of a log, and what is committed of it."""

from __future__ import annotations

import pytest

from strandline.testkit.simulation.shadows import Committed, Copy, Entry, Shadow

ENTRIES = [Entry(0, 3, 0, 11), Entry(3, 4, 0, 12), Entry(6, 8, 2, 13)]
"""A gap is what compaction leaves."""


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [(0, 8, ENTRIES), (0, 3, ENTRIES[:1]), (2, 4, ENTRIES[:2]), (4, 6, []), (7, 9, ENTRIES[2:])],
)
def test_batches_between_two_offsets_are_those_with_an_offset_in_there(
    start: int, end: int, found: list[Entry]
) -> None:
    assert list(Shadow(ENTRIES).between(start, end)) == found


def test_a_cut_takes_whole_batches() -> None:
    shadow = Shadow(ENTRIES)
    assert shadow.cut(7) == ENTRIES[2:]
    assert shadow.entries == ENTRIES[:2]
    assert shadow.cut(4) == []


@pytest.mark.parametrize(
    ("other", "start", "missing"),
    [
        (ENTRIES, 0, None),
        (ENTRIES[:2], 0, ENTRIES[2]),
        (ENTRIES[1:], 0, ENTRIES[0]),
        (ENTRIES[1:], 3, None),
        ([*ENTRIES[:2], Entry(6, 8, 3, 13)], 0, ENTRIES[2]),
        ([*ENTRIES[:2], Entry(6, 8, 2, 99)], 0, ENTRIES[2]),
    ],
)
def test_what_is_committed_has_to_be_there_with_its_epoch_and_bytes(
    other: list[Entry], start: int, missing: Entry | None
) -> None:
    committed = Committed()
    committed.grow(ENTRIES, 8, 2)
    assert committed.missing_in(Shadow(other), start) == missing


def test_a_leader_has_what_earlier_ones_have_committed_also_where_it_hears_late_that_it_leads() -> None:
    committed = Committed()
    committed.grow(ENTRIES[:2], 4, 1)
    committed.grow(ENTRIES[2:], 8, 5)
    late = Shadow(ENTRIES[:2])
    assert committed.missing_in(late, 0, 3) is None, "an election that nobody had heard of when epoch 5 committed more"
    assert committed.missing_in(late, 0, 6) == committed.missing_in(late, 0) == ENTRIES[2]
    assert committed.missing_in(late, 0, 5) == ENTRIES[2], "its own, too"
    assert committed.missing_in(Shadow(ENTRIES[:1]), 0, 3) == ENTRIES[1]
    committed.lose_from(3)
    committed.grow([Entry(3, 9, 7, 14)], 9, 7)
    assert committed.missing_in(Shadow(ENTRIES[:1]), 0, 6) is None, "what stands there now is of a later leader"


def test_what_a_disaster_took_is_not_asked_for_any_more() -> None:
    committed = Committed()
    committed.grow(ENTRIES, 8, 2)
    committed.lose_from(6)
    assert (committed.entries, committed.high_watermark) == (ENTRIES[:2], 6)


def test_a_leader_commits_nothing_a_second_time() -> None:
    committed = Committed()
    committed.grow(ENTRIES, 8, 2)
    assert (committed.known_below(2), committed.known_below(3)) == (8, 8)
    committed.lose_from(3)
    assert (committed.known_below(2), committed.known_below(3)) == (8, 3), "who led then has not heard of the loss"


def test_what_no_log_reads_any_more_is_not_asked_for() -> None:
    committed = Committed()
    committed.grow(ENTRIES, 8, 2)
    first, _, third = ENTRIES
    committed.keep({(first.base_offset, first.epoch), (third.next_offset - 1, third.epoch)}, 8)
    assert (committed.entries, committed.high_watermark) == ([first, third], 8)
    committed.keep({(first.base_offset, first.epoch)}, 7)
    assert (committed.entries, committed.high_watermark) == ([first, third], 8), "no log begins above it"
    committed.keep({(first.base_offset, first.epoch), (third.base_offset, third.epoch - 1)}, 8)
    assert (committed.entries, committed.high_watermark) == ([first], first.next_offset)
    committed.keep(set(), 3)
    assert (committed.entries, committed.high_watermark) == ([], 0)


def test_a_copy_is_of_what_was_committed_by_its_offset_and_epoch() -> None:
    committed = Committed()
    committed.grow(ENTRIES, 8, 2)
    assert committed.has_copy(Copy(7, 2, b"v"))
    assert not committed.has_copy(Copy(7, 1, b"v")), "of a leader whose records were cut off"
    assert not committed.has_copy(Copy(5, 0, b"v"))
    assert not committed.has_copy(Copy(8, 2, b"v"))
    committed.compacted_below = 6
    assert committed.has_copy(Copy(5, 1, b"v")), "what it was is not known any more"
    assert not committed.has_copy(Copy(7, 1, b"v")), "it was not compacted"
    committed.compacted_below = 9
    assert not committed.has_copy(Copy(8, 2, b"v"))


def test_what_compaction_has_not_reached_is_asked_for_as_before() -> None:
    committed = Committed()
    committed.grow(ENTRIES, 8, 2)
    committed.compacted_below = 4
    assert committed.missing_in(Shadow(ENTRIES[2:]), 0) is None
    assert committed.missing_in(Shadow(ENTRIES[:2]), 0) == ENTRIES[2]


def test_what_a_disaster_left_of_a_compacted_log_ends_where_that_may_have_ended() -> None:
    committed = Committed()
    committed.grow(ENTRIES, 8, 2)
    committed.compacted_below = 6
    committed.keep({(0, 0)}, 8)
    assert committed.high_watermark == 6, "of what was there before nothing is known"
    committed.keep(set(), 8)
    assert committed.high_watermark == 0


def test_a_leader_has_no_more_than_the_next_one_had_when_he_began() -> None:
    committed = Committed()
    for epoch, end_offset in ((0, 0), (2, 8), (5, 11)):
        committed.begin(epoch, end_offset)
    assert [committed.ends_for(epoch) for epoch in (0, 1, 2, 5, 6)] == [8, 8, 11, None, None]


def test_what_clients_were_told_binds_this_leader_and_later_ones_unless_a_disaster_took_it() -> None:
    committed = Committed()
    assert committed.show(2, 8) == 0
    assert committed.show(1, 5) == 0, "he has been replaced, and does not know what his successor tells"
    assert committed.show(3, 7) == 8
    assert committed.show(2, 8) == 8
    committed.lose_from(6)
    assert committed.show(3, 6) == 6


def test_what_was_ever_committed_includes_what_a_disaster_took() -> None:
    committed = Committed()
    committed.grow(ENTRIES, 8, 2)
    committed.lose_from(3)
    assert (committed.high_watermark, committed.ever_committed) == (3, 8)


def test_what_does_not_reach_beyond_an_offset_is_left_there() -> None:
    shadow = Shadow(ENTRIES)
    assert shadow.up_to(7).entries == ENTRIES[:2]
    assert shadow.up_to(-1).entries == []
    assert shadow.entries == ENTRIES
