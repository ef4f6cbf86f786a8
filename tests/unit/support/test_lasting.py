"""The proofs of topics that forget fail when something is missing, altered, doubled or different."""

from __future__ import annotations

import pytest

from strandline.protocol.records import assign_offset, build_batch
from strandline.testkit.verification import Outcomes, PromiseBroken, make_value
from support.lasting import (
    KeyHistory,
    Reading,
    check_compacted,
    check_retained,
    keyed_value,
    newest_numbers,
    padded,
    same_bytes,
    same_values,
    unpadded,
)


def batch(base_offset: int, *records: tuple[bytes | None, bytes | None]) -> bytes:
    built = bytearray(build_batch([(1_700_000_000_000, key, value) for key, value in records]))
    assign_offset(built, base_offset, 0)
    return bytes(built)


def told_and_found(begin: int, count: int) -> tuple[Outcomes, Reading, list[tuple[int, bytes]]]:
    """Number n was acknowledged at offset n and read; what lies below `begin` is gone."""
    reading = Reading()
    for offset in range(count):
        reading.note(offset, offset)
    found = [(offset, make_value(0, offset)) for offset in range(begin, count)]
    return Outcomes({number: number for number in range(count)}), reading, found


def test_a_padded_value_comes_back_and_a_changed_filler_is_seen() -> None:
    value = padded(b"0:1:abc", 100)
    assert len(value) == 100
    assert unpadded(value) == b"0:1:abc"
    with pytest.raises(PromiseBroken):
        unpadded(value[:-1] + b"!")


def test_what_lies_below_the_log_start_may_be_gone() -> None:
    told, reading, found = told_and_found(4, 10)
    kept = check_retained(0, told, reading, found, 4)
    assert (kept.standing, kept.expired_seen, kept.expired_unseen) == (6, 4, 0)


def test_a_record_missing_above_the_log_start_is_a_broken_promise() -> None:
    told, reading, found = told_and_found(4, 10)
    del found[3]
    with pytest.raises(PromiseBroken, match="7 was acknowledged at offset 7"):
        check_retained(0, told, reading, found, 4)


def test_a_log_that_begins_behind_its_start_is_a_broken_promise() -> None:
    told, reading, found = told_and_found(4, 10)
    with pytest.raises(PromiseBroken, match="begins at 4"):
        check_retained(0, told, reading, found[1:], 4)


def test_a_reader_who_saw_something_else_where_a_record_has_expired_is_a_broken_promise() -> None:
    told, _, found = told_and_found(4, 10)
    reading = Reading()
    for offset, number in enumerate((0, 2, 1)):
        reading.note(offset, number)
    with pytest.raises(PromiseBroken, match="1 was acknowledged at offset 1, where a reader saw 2"):
        check_retained(0, told, reading, found, 4)


def test_a_reader_may_be_told_that_the_log_begins_later_and_then_only_that_is_unread() -> None:
    told, _, found = told_and_found(4, 10)
    reading = Reading()
    reading.note(0, 0)
    reading.skip_to(3)
    reading.note(3, 3)
    assert check_retained(0, told, reading, found, 4).expired_unseen == 2
    with pytest.raises(PromiseBroken, match="sent back"):
        reading.skip_to(2)
    with pytest.raises(PromiseBroken, match="given 6"):
        reading.note(6, 6)


@pytest.mark.parametrize(
    ("history", "legal", "broken"),
    [
        (KeyHistory(sent=3, acked=3), [3], [2, None, 4]),
        (KeyHistory(sent=0, acked=0), [None], [1]),
        (KeyHistory(sent=3, acked=3, tombstones={3}), [None], [2, 3 + 1]),
        (KeyHistory(sent=3, acked=2, open_ended=True), [2, 3], [1, None]),
        (KeyHistory(sent=3, acked=2, open_ended=True, tombstones={3}), [2, None], [1]),
        (KeyHistory(sent=3, acked=2), [2], [3]),  # 3 failed for sure
        (KeyHistory(sent=3, acked=3, repeated={2}), [3, 2], [1, None]),
        (KeyHistory(sent=3, acked=3, tombstones={1}), [3], [None]),
    ],
)
def test_of_each_key_only_the_newest_acknowledged_value_will_do(
    history: KeyHistory, legal: list[int | None], broken: list[int | None]
) -> None:
    for number in legal:
        check_compacted(0, [history], {0: number})
    for number in broken:
        with pytest.raises(PromiseBroken, match="key 0"):
            check_compacted(0, [history], {0: number})


def test_a_key_without_a_record_counts_as_deleted() -> None:
    with pytest.raises(PromiseBroken):
        check_compacted(0, [KeyHistory(sent=1, acked=1)], {})


def test_the_newest_number_of_each_key_is_read_from_its_values() -> None:
    records = [(b"7", padded(keyed_value(0, 7, 1), 60)), (b"8", padded(keyed_value(0, 8, 1), 60)), (b"7", None)]
    assert newest_numbers(0, records) == {7: None, 8: 1}
    with pytest.raises(PromiseBroken, match="key b'9'"):
        newest_numbers(0, [(b"9", padded(keyed_value(0, 7, 1), 60))])


def test_replicas_are_compared_from_where_all_of_them_have_records() -> None:
    first, second, third = batch(0, (None, b"a")), batch(1, (None, b"b"), (None, b"c")), batch(3, (None, b"d"))
    begin, size_bytes = same_bytes("t-0", {1: first + second + third, 2: second + third})
    assert (begin, size_bytes) == (1, len(second + third))
    with pytest.raises(PromiseBroken, match="differ in length"):
        same_bytes("t-0", {1: first + second + third, 2: second})
    with pytest.raises(PromiseBroken, match="behind offset 1"):
        same_bytes("t-0", {1: first + second, 2: batch(1, (None, b"b"), (None, b"x"))})
    with pytest.raises(PromiseBroken, match="bytes"):
        same_bytes("t-0", {1: first, 2: first + b"torn"})
    with pytest.raises(PromiseBroken, match="no batch at offset 2"):
        same_bytes("t-0", {1: second + third, 2: batch(2, (None, b"c")) + third})


def test_compacted_replicas_agree_in_their_newest_values_whatever_each_has_cleaned() -> None:
    whole = batch(0, (b"k", b"1")) + batch(1, (b"k", b"2"), (b"gone", b"1")) + batch(3, (b"gone", None))
    cleaned = batch(1, (b"k", b"2"))
    assert same_values("t-0", {1: whole, 2: cleaned}) == {b"k": (1, b"2")}
    for other in (batch(0, (b"k", b"1")), b"", cleaned + batch(2, (b"gone", b"1")), batch(2, (b"k", b"2"))):
        with pytest.raises(PromiseBroken, match="brokers 1 and 2 have"):
            same_values("t-0", {1: whole, 2: other})
