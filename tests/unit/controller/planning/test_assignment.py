"""Replica assignment: spread, rack awareness, and what a manual one must hold."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.controller.planning.assignment import (
    PreferredCounts,
    assign_replicas,
    check_manual_assignment,
    order_brokers,
)
from strandline.protocol.errors import BrokerError, ErrorCode

brokers = st.sets(st.integers(0, 1000), min_size=1, max_size=12)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[int, str | None], int, int]:
    ids = draw(brokers)
    racks = {i: draw(st.sampled_from(["a", "b", "c"])) for i in ids}
    return racks, draw(st.integers(1, 40)), draw(st.integers(1, len(ids)))


@given(brokers, st.integers(1, 40), st.data())
def test_replica_j_of_partition_i_is_on_broker_i_plus_j_of_the_sorted_ones(
    ids: set[int], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(ids)))
    ordered = sorted(ids)
    assignment = list(assign_replicas(dict.fromkeys(ids), partitions, factor))
    for i in range(partitions):
        assert assignment[i] == tuple(ordered[(i + j) % len(ordered)] for j in range(factor))


@given(clusters())
def test_replicas_of_a_partition_are_on_different_brokers_and_on_as_many_racks_as_there_are(
    cluster: tuple[dict[int, str | None], int, int],
) -> None:
    racks, partitions, factor = cluster
    for replicas in assign_replicas(racks, partitions, factor):
        assert len(set(replicas)) == factor
        used = Counter(racks[r] for r in replicas)
        assert len(used) == min(factor, len(set(racks.values())))


def test_leaders_are_spread_evenly_with_racks_too() -> None:
    racks: dict[int, str | None] = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    leaders = Counter(replicas[0] for replicas in assign_replicas(racks, 12, 3))
    assert set(leaders.values()) == {2}


def test_with_racks_the_brokers_take_turns_by_rack() -> None:
    assert order_brokers({0: "a", 1: "a", 2: "b", 3: "b", 4: "b"}) == [0, 2, 1, 3, 4]


def test_a_broker_without_a_rack_turns_racks_off() -> None:
    assert order_brokers({0: "a", 1: "a", 2: None}) == [0, 1, 2]


def test_small_topics_do_not_all_prefer_the_first_broker() -> None:
    cluster: dict[int, str | None] = dict.fromkeys((1, 2, 3))
    assignments: list[dict[int, tuple[int, ...]]] = []
    for _ in range(6):
        start = PreferredCounts(cluster, assignments).start()
        assignments.append(dict(enumerate(assign_replicas(cluster, 1, 2, start))))
    assert Counter(a[0][0] for a in assignments) == {1: 2, 2: 2, 3: 2}


def test_an_even_cluster_starts_with_the_first_broker() -> None:
    assert PreferredCounts(dict.fromkeys((3, 1, 2)), [{0: (1,), 1: (2,), 2: (3,)}]).start() == 0


def test_a_manual_assignment_comes_back_in_order() -> None:
    assert check_manual_assignment({1: [2, 1], 0: [1, 3]}, [1, 2, 3]) == {0: (1, 3), 1: (2, 1)}


@pytest.mark.parametrize(
    ("assignment", "why"),
    [
        ({1: [1]}, "without gaps"),
        ({0: [1], 2: [1]}, "without gaps"),
        ({0: []}, "no replica"),
        ({0: [1], 1: []}, "no replica"),
        ({0: [1, 2], 1: [1]}, "different replication factors"),
        ({0: [1, 1]}, "twice"),
        ({0: [9]}, "not registered"),
        ({-1: [1]}, "without gaps"),
    ],
)
def test_a_broken_manual_assignment_is_refused(assignment: dict[int, list[int]], why: str) -> None:
    with pytest.raises(BrokerError, match=why) as refused:
        check_manual_assignment(assignment, [1, 2, 3])
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
