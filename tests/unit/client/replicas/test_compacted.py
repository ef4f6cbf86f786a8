"""Compacted replicas: cleaned as each broker likes they are equal; what cleaning cannot explain is found."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from strandline.client.replicas.compacted import ENTRY_BYTES, MAX_OPEN_BYTES, compare_compacted
from strandline.client.replicas.comparison import DAMAGED, DIFFERENT, MISSING, UNREAD, Compared
from strandline.protocol.records import decode_records
from strandline.protocol.records.batch import read_header
from support.damaged_replicas import KeyAndValue, MemoryReplica, batch_at, cleaned, flipped, streams

Written = list[list[KeyAndValue]]


def batches_of(written: Written) -> list[bytes]:
    batches, offset = [], 0
    for records in written:
        batches.append(batch_at(offset, records))
        offset += len(records)
    return batches


def without(written: Written, gone: set[int], keep_empty: bool = False) -> list[bytes]:
    """The batches without the records at these offsets."""
    left = []
    for batch in batches_of(written):
        header = read_header(batch)
        stays = [offset not in gone for offset in range(header.base_offset, header.next_offset)]
        if any(stays) or keep_empty:
            left.append(batch if all(stays) else cleaned(batch, stays))
    return left


def compared(replicas: dict[int, MemoryReplica], end: int, max_open_bytes: int = MAX_OPEN_BYTES) -> dict[int, Compared]:
    return compare_compacted(lambda: streams(replicas, 0, end), 0, end, max_open_bytes)


def found(*logs: Sequence[bytes], end: int, max_open_bytes: int = MAX_OPEN_BYTES) -> list[tuple[int, str, int, int]]:
    replicas = {broker: MemoryReplica(log, high_watermark=end) for broker, log in enumerate(logs, 1)}
    return [
        (broker, each.kind, each.start, each.end)
        for broker, result in compared(replicas, end, max_open_bytes).items()
        for each in result.findings
    ]


def overtaken(written: Written, up_to: int) -> set[int]:
    """What a cleaning up to there may take away."""
    records = [each for batch in written for each in batch][:up_to]
    newest = {key: offset for offset, (key, _) in enumerate(records)}
    return {
        offset
        for offset, (key, value) in enumerate(records)
        if key is None or newest[key] > offset or (value is None and newest[key] == offset)
    }


KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e" * 40])
LOGS = st.lists(
    st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=3))), min_size=1, max_size=4),
    min_size=1,
    max_size=10,
)


@given(written=LOGS, data=st.data())
def test_whatever_cleaning_may_take_away_is_no_difference(written: Written, data: st.DataObject) -> None:
    end = sum(map(len, written))
    logs = []
    for _ in range(3):
        may_go = overtaken(written, data.draw(st.integers(0, end)))
        # An older value of a key goes no later than a newer one, and before the tombstone: all of a cleaned stretch go.
        logs.append(without(written, may_go, data.draw(st.booleans())))
    assert found(*logs, end=end) == []
    assert found(*logs, end=end, max_open_bytes=2 * ENTRY_BYTES) == [], "in several readings, too"


@given(written=LOGS, data=st.data(), max_open_bytes=st.sampled_from([MAX_OPEN_BYTES, 2 * ENTRY_BYTES]))
def test_the_newest_value_of_a_key_may_not_be_missing_anywhere(
    written: Written, data: st.DataObject, max_open_bytes: int
) -> None:
    records = [each for batch in written for each in batch]
    newest = {key: (offset, value) for offset, (key, value) in enumerate(records)}
    values = {offset for offset, value in newest.values() if value is not None}
    if not values:
        return
    lost = data.draw(st.sampled_from(sorted(values)))
    of_key = {offset for offset, (key, _) in enumerate(records) if key == records[lost][0]}
    other = without(written, overtaken(written, data.draw(st.integers(0, len(records)))))
    broken = without(written, overtaken(written, data.draw(st.integers(0, len(records)))) | of_key)
    whole = batches_of(written)
    expected = [(2, MISSING, lost, lost + 1)]
    assert found(whole, broken, other, end=len(records), max_open_bytes=max_open_bytes) == expected
    assert [each[:2] for each in found(broken, other, end=len(records))] == [(1, MISSING)], "on the leader, too"


def test_a_record_that_two_replicas_have_is_the_same_in_both() -> None:
    written: Written = [[(b"a", b"1"), (b"b", b"2")], [(b"a", b"3")]]
    other: Written = [[(b"a", b"1"), (b"b", b"x")], [(b"a", b"3")]]
    cleaned_other = without(other, {0})
    assert found(batches_of(written), cleaned_other, end=3) == [(2, DIFFERENT, 1, 2)]


def test_what_overtook_a_record_may_stand_behind_the_end() -> None:
    """It was written, and cleaned on one replica, while the comparison ran."""
    written: Written = [[(b"a", b"1")], [(b"b", b"2")], [(b"a", b"3")]]
    replicas = {
        1: MemoryReplica(batches_of(written), high_watermark=2),
        2: MemoryReplica(without(written, {0}), high_watermark=3),
    }
    assert compared(replicas, 2)[2].findings == []
    replicas[2].high_watermark = 2
    assert [(each.kind, each.start) for each in compared(replicas, 2)[2].findings] == [(MISSING, 0)]


def test_damage_is_found_and_what_it_hides_is_not_called_missing() -> None:
    written: Written = [[(b"a", b"1")], [(b"b", b"2")], [(b"a", b"3")]]
    damaged = without(written, {0})
    damaged[-1] = flipped(damaged[-1], 66)
    assert found(batches_of(written), [damaged[0]], end=2) == [(2, MISSING, 0, 1)]
    replica = MemoryReplica(without(written, {0}))
    replica.stored[2] = damaged[-1]
    results = compared({1: MemoryReplica(batches_of(written)), 2: replica}, 3)
    assert [(each.kind, each.start) for each in results[2].findings] == [(DAMAGED, 2)]
    failing = MemoryReplica(without(written, {0}), failing_at=2, chunk_bytes=1)
    results = compared({1: MemoryReplica(batches_of(written)), 2: failing}, 3)
    assert [(each.kind, each.start) for each in results[2].findings] == [(UNREAD, 2)]


def test_who_lags_is_compared_as_far_as_it_is() -> None:
    written: Written = [[(b"a", b"1")], [(b"b", b"2")], [(b"c", b"3")]]
    results = compared({1: MemoryReplica(batches_of(written)), 2: MemoryReplica(batches_of(written)[:2])}, 3)
    assert (results[2].findings, results[2].end, results[2].is_behind) == ([], 2, True)
    assert decode_records(b"".join(batches_of(written)))[2].key == b"c"


def test_records_that_are_deleted_meanwhile_are_no_difference() -> None:
    written: Written = [[(b"a", b"1")], [(b"b", b"2")], [(b"c", b"3")], [(b"d", b"4")]]
    gone = MemoryReplica(batches_of(written), gone_to=3, chunk_bytes=1)
    results = compared({1: MemoryReplica(batches_of(written)), 2: gone}, 4)
    assert (results[2].findings, results[2].start) == ([], 3)
