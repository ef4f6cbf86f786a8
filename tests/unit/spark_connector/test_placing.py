"""Which partition a row goes to."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given as property_of
from hypothesis import strategies as st

from strandline.client.accumulator import ToSend
from strandline.client.partitioner import murmur2, partition_for_key
from strandline.spark_connector.errors import WriteFailed
from strandline.spark_connector.writing.columns import Rows
from strandline.spark_connector.writing.placing import FEW, REMEMBERED_KEYS, Placing, hashes_of

T = "t"


@property_of(st.lists(st.integers(0, 13).flatmap(lambda size: st.binary(min_size=size, max_size=size)), max_size=120))
def test_keys_hashed_together_have_the_hash_that_each_has_by_itself(keys: list[bytes]) -> None:
    together = keys + [bytes([number, 200, 255 - number, 3, number]) for number in range(FEW + 1)]
    assert hashes_of(together) == [murmur2(key) & 0x7FFFFFFF for key in together]


def test_more_keys_than_are_remembered_stay_where_they_were() -> None:
    placing = Placing(lambda topic: 7)
    for first in (0, REMEMBERED_KEYS, 2 * REMEMBERED_KEYS, 0):
        given: list[ToSend] = [(b"%d" % number, None) for number in range(first, first + REMEMBERED_KEYS, 100)]
        given += [(b"%d" % number, None) for number in range(first, first + 600)]
        for at, records in placing.placed(Rows(T, None, given)).items():
            assert {partition_for_key(record[0], 7) for record in records} == {at.partition}


def test_a_row_for_a_partition_that_does_not_exist_is_refused() -> None:
    with pytest.raises(WriteFailed, match=r"topic 't' has no partition 7, only 3 of them"):
        Placing(lambda topic: 3).placed(Rows(T, [0, 7], [(None, b"x"), (None, b"y")]))


def test_rows_are_placed_by_key_as_kafka_does_and_without_one_by_value() -> None:
    given: list[ToSend] = [(b"ann", b"1"), (b"bob", b"2"), (None, b"a"), (None, b"a"), (None, None)]
    groups = Placing(lambda topic: 4).placed(Rows(T, None, given))
    found = {record: at.partition for at, records in groups.items() for record in records}
    assert found[(b"ann", b"1")] == partition_for_key(b"ann", 4)
    assert sorted(len(records) for records in groups.values())[-1] >= 2, "equal rows go to one partition"
    assert Counter(record for records in groups.values() for record in records) == Counter(given)
