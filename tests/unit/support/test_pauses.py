"""The longest pause is the one that a benchmark quotes: of which partition, from when, and what does not count."""

from __future__ import annotations

from support.pauses import NONE_YET, Pause, Pauses


def pauses_of(*signs: tuple[int, float], partitions: int = 2) -> Pauses:
    pauses = Pauses(partitions)
    for partition, now_s in signs:
        pauses.came(partition, now_s)
    return pauses


def test_the_first_sign_of_life_ends_no_pause() -> None:
    assert pauses_of((0, 100.0), (1, 200.0)).longest() == NONE_YET


def test_the_longest_pause_is_that_of_one_partition() -> None:
    pauses = pauses_of((0, 1.0), (1, 1.0), (0, 2.0), (1, 1.5), (0, 2.5), (1, 4.0))
    assert pauses.longest() == Pause(1, 1.5, 4.0)
    assert pauses.longest_of(0) == Pause(0, 1.0, 2.0)
    assert pauses.longest_s() == {0: 1.0, 1: 2.5}


def test_what_ended_before_the_beginning_does_not_count_and_what_goes_on_counts_whole() -> None:
    pauses = pauses_of((0, 0.0), (0, 10.0), (1, 9.0))
    pauses.begin()
    assert pauses.longest_s() == {0: 0.0, 1: 0.0}
    pauses.came(1, 12.0)
    assert pauses.longest() == Pause(1, 9.0, 12.0)


def test_all_flows_only_when_every_partition_has_given_a_sign_after_the_moment() -> None:
    pauses = pauses_of((0, 1.0))
    assert not pauses.flow_since(0.0), "nothing came from partition 1"
    pauses.came(1, 3.0)
    assert pauses.flow_since(0.5)
    assert not pauses.flow_since(1.0), "partition 0 gave its last sign at that moment"
