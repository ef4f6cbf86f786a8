"""The proof of a followed load fails where a record stands twice, or where a reader saw something else."""

from __future__ import annotations

import pytest

from strandline.protocol.types import TopicPartition
from strandline.testkit.verification import PromiseBroken, make_value
from support.followed_load import check_once
from support.lasting import Reading

TP = TopicPartition("t", 0)


def read(*numbers: int) -> Reading:
    reading = Reading()
    for offset, number in enumerate(numbers):
        reading.note(offset, number)
    return reading


def found(*numbers: int) -> list[tuple[int, bytes]]:
    return [(offset, make_value(0, number)) for offset, number in enumerate(numbers)]


def test_a_reader_who_saw_what_stands_is_content_also_with_a_part_of_it() -> None:
    check_once(TP, found(0, 1, 2), read(0, 1, 2))
    check_once(TP, found(0, 1, 2), read(0, 1))


def test_a_record_that_stands_twice_is_named() -> None:
    with pytest.raises(PromiseBroken, match="offsets 1 and 2"):
        check_once(TP, found(0, 1, 1), read())


def test_a_reader_who_saw_another_record_or_more_than_stands_is_named() -> None:
    with pytest.raises(PromiseBroken, match="saw 5 at offset 1, where 1 stands"):
        check_once(TP, found(0, 1), read(0, 5))
    with pytest.raises(PromiseBroken, match="saw 2 at offset 2, where None stands"):
        check_once(TP, found(0, 1), read(0, 1, 2))
