"""Producer states: which batch of an idempotent producer is new, which one is there already, which one is refused."""

from __future__ import annotations

import pytest

from strandline.protocol.errors import ErrorCode
from strandline.storage.errors import ProducerRefused
from strandline.storage.producers.states import SEQUENCES, ProducerRow, ProducerStates

PID = 7
LAST = SEQUENCES - 1


def states(*batches: tuple[int, int], epoch: int = 0) -> ProducerStates:
    """(base sequence, records) of one producer, at the offsets 0, 1, 2 …"""
    made = ProducerStates()
    offset = 0
    for base_sequence, count in batches:
        made.note(PID, epoch, base_sequence, offset, offset + count - 1, 1000 + offset)
        offset += count
    return made


def refusal(made: ProducerStates, base_sequence: int, count: int = 1, epoch: int = 0) -> ErrorCode:
    with pytest.raises(ProducerRefused) as caught:
        made.check(PID, epoch, base_sequence, count)
    return caught.value.code


@pytest.mark.parametrize("base_sequence", [0, 1, 77, LAST])
def test_an_unknown_producer_may_begin_at_any_sequence(base_sequence: int) -> None:
    assert ProducerStates().check(PID, 3, base_sequence, 1) is None


def test_the_next_sequence_is_taken() -> None:
    assert states((0, 3)).check(PID, 0, 3, 5) is None


@pytest.mark.parametrize("base_sequence", [1, 2, 4, 5, 100, LAST])
def test_any_other_sequence_is_out_of_order(base_sequence: int) -> None:
    assert refusal(states((0, 3)), base_sequence) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_is_recognised_with_its_offset() -> None:
    made = states(*((sequence, 2) for sequence in range(0, 14, 2)))
    found = [made.check(PID, 0, sequence, 2) for sequence in range(4, 14, 2)]
    assert [batch and batch.base_offset for batch in found] == [4, 6, 8, 10, 12]


def test_a_batch_before_the_last_five_is_a_duplicate_without_offset() -> None:
    made = states(*((sequence, 2) for sequence in range(0, 14, 2)))
    assert refusal(made, 2, 2) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert refusal(made, 0, 2) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_batch_that_was_overtaken_while_its_producer_was_unknown_is_no_duplicate() -> None:
    """It may never have been appended: saying duplicate, which means success, would lose it."""
    assert refusal(states((100, 1), (101, 1), (102, 1), (103, 1)), 99) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(("base_sequence", "count"), [(2, 1), (2, 3), (3, 1), (1, 2), (0, 4), (0, 1)])
def test_a_batch_that_only_overlaps_is_out_of_order(base_sequence: int, count: int) -> None:
    assert refusal(states((0, 2), (2, 2)), base_sequence, count) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_go_on_with_0_after_the_largest() -> None:
    made = states((LAST - 1, 2))
    assert made.check(PID, 0, 0, 1) is None
    assert refusal(made, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_across_the_largest_sequence_is_recognised() -> None:
    made = states((LAST - 1, 5))
    repeated = made.check(PID, 0, LAST - 1, 5)
    assert repeated is not None and (repeated.base_offset, repeated.last_sequence) == (0, 2)
    assert made.check(PID, 0, 3, 1) is None


def test_duplicates_are_told_across_the_wrap() -> None:
    made = states((LAST - 3, 2), (LAST - 1, 2), (0, 1), (1, 1), (2, 1), (3, 1), (4, 1))
    assert refusal(made, LAST - 3, 2) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert refusal(made, 7) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced() -> None:
    assert refusal(states((0, 1), epoch=4), 1, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_0() -> None:
    made = states((0, 1), epoch=4)
    assert refusal(made, 1, epoch=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert made.check(PID, 5, 0, 1) is None


def test_a_newer_epoch_forgets_the_batches_of_the_former_one() -> None:
    made = states((0, 1), (1, 1))
    made.note(PID, 1, 0, 2, 2, 1000)
    assert made.check(PID, 1, 1, 1) is None
    assert refusal(made, 1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    producer = made.get(PID)
    assert producer is not None and len(producer.batches) == 1


def test_a_producer_without_known_batches_goes_on_at_0() -> None:
    made = ProducerStates()
    made.take([ProducerRow(PID, 2, -1, -1, 0, -1, 9, -1)])
    assert made.check(PID, 2, 0, 1) is None
    assert refusal(made, 1, epoch=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# --- cutting ---------------------------------------------------------------------------------------------------


def test_a_cut_forgets_the_batches_behind_it() -> None:
    made = states((0, 2), (2, 2), (4, 2))
    assert made.cut(4)
    assert made.check(PID, 0, 4, 2) is None
    assert made.check(PID, 0, 2, 2) is not None


def test_a_cut_that_takes_every_known_batch_says_that_more_is_needed() -> None:
    assert not states(*((sequence, 1) for sequence in range(9))).cut(3)


def test_a_cut_leaves_alone_who_stands_before_it() -> None:
    made = states((0, 2))
    made.note(8, 0, 0, 2, 3, 1000)
    made.note(8, 0, 2, 4, 5, 1000)
    assert made.cut(4)
    assert made.check(PID, 0, 0, 2) is not None
    assert made.check(8, 0, 2, 2) is None


# --- expiry ----------------------------------------------------------------------------------------------------


def test_an_idle_producer_is_forgotten() -> None:
    made = states((0, 1))
    assert made.expire(10, 100) == []
    assert made.expire(99, 100) == []
    assert made.expire(1, 100) == [PID]
    assert len(made) == 0


def test_who_appends_stays_whatever_the_timestamps_say() -> None:
    made = ProducerStates()
    for sequence in range(20):
        made.note(PID, 0, sequence, sequence, sequence, -1)
        assert made.expire(99, 100) == []


def test_an_open_transaction_is_not_forgotten() -> None:
    made = ProducerStates()
    made.take([ProducerRow(PID, 2, 0, 0, 0, 0, 9, 0)])
    made.expire(0, 100)
    assert made.expire(1000, 100) == []


# --- rows ------------------------------------------------------------------------------------------------------


def test_rows_hold_the_last_batch() -> None:
    made = states((LAST, 3))
    assert made.rows() == [ProducerRow(PID, 0, 1, 2, 2, 1000, -1, -1)]
    other = ProducerStates()
    other.take(made.rows())
    assert other.rows() == made.rows()
    repeated = other.check(PID, 0, LAST, 3)
    assert repeated is not None and repeated.base_offset == 0


def test_headers_complete_what_a_snapshot_holds() -> None:
    whole = states(*((sequence, 1) for sequence in range(9)))
    loaded = ProducerStates()
    loaded.take(whole.rows())
    assert loaded.complete_from(whole, lambda offset: False)
    assert loaded.check(PID, 0, 5, 1) is not None


def test_headers_of_another_history_complete_nothing() -> None:
    loaded = states((0, 1))
    other = states((0, 1), (1, 1))
    assert not loaded.complete_from(other, lambda offset: True)
    assert loaded.check(PID, 0, 1, 1) is None


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_last_batch_that_no_header_shows_counts_where_compaction_took_it(is_compacted: bool) -> None:
    loaded = ProducerStates()
    loaded.take(states(*((sequence, 1) for sequence in range(9))).rows())
    left = states(*((sequence, 1) for sequence in range(7)))
    assert loaded.complete_from(left, lambda offset: is_compacted) == is_compacted
    if is_compacted:
        assert [batch.base_sequence for batch in loaded.get(PID).batches] == [3, 4, 5, 6, 8]
