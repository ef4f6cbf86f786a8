"""Which task reads what: how ranges are cut, and in which order they are handed to Spark."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.options.request import DEFAULT_MAX_RECORDS_PER_TASK
from strandline.spark_connector.reading.planning import OffsetRange
from strandline.spark_connector.reading.tasks import split, spread, tasks

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_large_range_is_split_and_small_ones_stay_whole() -> None:
    ranges = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 0, 1)]
    parts = split(ranges, min_partitions=5, max_records_per_partition=None)
    assert [each.size for each in parts] == [25, 25, 25, 25, 1]
    parts = split(ranges, min_partitions=None, max_records_per_partition=30)
    assert [each.size for each in parts] == [25, 25, 25, 25, 1]
    assert split(ranges, min_partitions=2, max_records_per_partition=None) == ranges
    assert split([], min_partitions=9, max_records_per_partition=1) == []


def test_a_huge_range_is_cut_where_the_options_say_nothing_of_it() -> None:
    huge = OffsetRange("t", 0, 7, 7 + 2 * DEFAULT_MAX_RECORDS_PER_TASK + 2)
    parts = split([huge, OffsetRange("t", 1, 0, 5)], min_partitions=None, max_records_per_partition=None)
    assert [each.size for each in parts] == [3_333_334] * 3 + [5]
    assert split([huge], min_partitions=1, max_records_per_partition=None) == [huge], "the user has said how many"
    assert split([huge], min_partitions=None, max_records_per_partition=2**40) == [huge]


def test_a_range_is_cut_into_no_more_parts_than_it_has_offsets_however_many_are_asked_for() -> None:
    few = [OffsetRange("t", 0, 5, 8), OffsetRange("t", 1, 0, 1)]
    parts = split(few, min_partitions=2**62, max_records_per_partition=None)  # a step for each would take for ever
    assert [tuple(each[:4]) for each in parts] == [("t", 0, 5, 6), ("t", 0, 6, 7), ("t", 0, 7, 8), ("t", 1, 0, 1)]


def order(leaders: list[int]) -> list[int]:
    """The leaders of the tasks, where range number i is led by leaders[i]."""
    ranges = [OffsetRange("t", number, 0, 1) for number in range(len(leaders))]
    spread_out = spread(ranges, {TopicPartition("t", number): leader for number, leader in enumerate(leaders)})
    assert sorted(spread_out) == ranges
    return [leaders[each.partition] for each in spread_out]


def test_tasks_go_round_the_leaders() -> None:
    assert order([1, 1, 2, 2, 3, 3]) == [1, 2, 3, 1, 2, 3]
    assert order([1, 1, 1, 1, 2, 2, 3, 3]) == [1, 2, 1, 3, 1, 2, 1, 3]
    assert order([7]) == [7]
    assert spread([], {}) == []


def test_parts_of_one_partition_are_kept_apart_too() -> None:
    ranges = [OffsetRange("t", 0, 0, 30), OffsetRange("t", 1, 0, 10), OffsetRange("t", 2, 0, 10)]
    leaders = {T0: 1, T1: 2, TopicPartition("t", 2): 3}
    found = tasks(ranges, leaders, min_partitions=None, max_records_per_partition=10)
    assert [(each.partition, each.start) for each in found] == [(0, 0), (1, 0), (0, 10), (2, 0), (0, 20)]


def test_where_leaders_are_not_known_the_order_is_that_of_the_partitions() -> None:
    ranges = [OffsetRange("t", number, 0, 1) for number in range(4)]
    assert spread(ranges, {}) == ranges


@given(st.lists(st.integers(-1, 4), max_size=30))
def test_no_leader_comes_twice_in_a_row_unless_nothing_else_is_left(leaders: list[int]) -> None:
    found = order(leaders)
    for place, (before, after) in enumerate(itertools.pairwise(found)):
        left = found[place + 1 :]
        assert before != after or left.count(after) == len(left)


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5000)), max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 6000),
)
def test_splitting_covers_each_range_once_and_keeps_to_the_maximum(
    bounds: list[tuple[int, int]], min_partitions: int | None, most: int | None
) -> None:
    ranges = [OffsetRange("t", number, start, start + size) for number, (start, size) in enumerate(bounds)]
    parts = split(ranges, min_partitions=min_partitions, max_records_per_partition=most)
    for whole in ranges:
        own = sorted(part for part in parts if part.partition == whole.partition)
        covered = [offset for part in own for offset in (part.start, part.end)]
        if whole.size:
            assert [covered[0], covered[-1]] == [whole.start, whole.end]
            assert covered[1:-1:2] == covered[2:-1:2]
        else:
            assert not own
    assert all(part.size > 0 for part in parts)
    assert most is None or all(part.size <= most for part in parts)
