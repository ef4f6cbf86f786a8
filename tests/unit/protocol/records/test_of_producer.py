"""Records of one producer, found again by the numbers of their batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.records import InvalidBatch, assign_offset, build_batch
from strandline.protocol.records.of_producer import SEQUENCES, records_of_producer

BATCHES = st.lists(
    st.tuples(
        st.sampled_from([-1, 7, 8]), st.sampled_from([0, 1]), st.integers(1, 4), st.sampled_from(["none", "gzip"])
    ),
    max_size=8,
)


def log_of(batches: list[tuple[int, int, int, str]], first_sequence: int) -> tuple[bytes, dict]:
    """The log, and what it holds: (producer, epoch) → [(sequence, offset, value)]."""
    data, offset = b"", 0
    expected: dict[tuple[int, int], list[tuple[int, int, bytes]]] = {}
    for producer_id, epoch, count, codec in batches:
        mine = expected.setdefault((producer_id, epoch), [])
        sequence = (first_sequence + len(mine)) % SEQUENCES
        numbers = (producer_id, epoch, sequence) if producer_id >= 0 else None
        values = [b"%d" % (offset + index) for index in range(count)]
        records = [(1000, None, value) for value in values]
        batch = bytearray(build_batch(records, codec, **({"producer": numbers} if numbers else {})))
        assign_offset(batch, offset, 3)
        data += bytes(batch)
        mine += [((sequence + index) % SEQUENCES, offset + index, value) for index, value in enumerate(values)]
        offset += count
    return data, expected


@given(BATCHES, st.sampled_from([0, 5, SEQUENCES - 3]), st.integers(0, 60))
def test_each_record_of_a_producer_has_the_sequence_under_which_it_was_sent(
    batches: list[tuple[int, int, int, str]], first_sequence: int, cut: int
) -> None:
    data, expected = log_of(batches, first_sequence)
    partial = build_batch([(1, None, b"x")], producer=(7, 0, 0))[:cut]
    for producer_id, epoch in ((7, 0), (7, 1), (8, 0), (9, 0)):
        found = list(records_of_producer(data + bytes(partial), producer_id, epoch))
        told = [(sequence, record.offset, record.value) for sequence, record in found]
        assert told == expected.get((producer_id, epoch), [])


def test_damage_in_a_batch_of_the_producer_is_found_and_in_another_it_is_not_looked_for() -> None:
    data = bytearray(build_batch([(1, None, b"x" * 20)], producer=(7, 0, 0)))
    data[-5] ^= 1
    assert list(records_of_producer(data, 8, 0)) == []
    with pytest.raises(InvalidBatch):
        list(records_of_producer(data, 7, 0))
