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


@given(brokers, st.data())
def test_replica_j_of_partition_i_is_on_broker_i_plus_j_of_the_sorted_ones(ids: set[int], data: st.DataObject) -> None:
    """Reference text 000, for the first round of the brokers."""
    factor = data.draw(st.integers(1, len(ids)))
    ordered = sorted(ids)
    assignment = list(assign_replicas(dict.fromkeys(ids), len(ids), factor))
    for i in range(len(ids)):
        assert assignment[i] == tuple(ordered[(i + j) % len(ordered)] for j in range(factor))


def assigned(brokers: int | dict[int, str | None], partitions: int, factor: int, start: int = 0, first: int = 0) -> str:
    known = dict.fromkeys(range(brokers)) if isinstance(brokers, int) else brokers
    return " ".join("".join(map(str, r)) for r in assign_replicas(known, partitions, factor, start, first))


RACKS: dict[int, str | None] = {0: "a", 1: "c", 2: "b", 3: "b", 4: "a", 5: "c"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # Text 000: eight brokers, eight partitions, three replicas (there from 1 on).
        (assigned(8, 8, 3), "012 123 234 345 456 567 670 701"),
        # Text 003: topic-1 of three brokers, nine partitions, started at broker 2 there.
        (assigned(3, 9, 3, start=2), "201 012 120 210 021 102 201 012 120"),
        # Kafka's documentation: five brokers, ten partitions (its table is read from broker to partition).
        (assigned(5, 10, 3), "012 123 234 340 401 023 134 240 301 412"),
        # Three racks, of which the brokers take turns: 0 2 1 4 3 5.
        (assigned(RACKS, 7, 3), "021 214 143 435 350 502 013"),
        # What is added later goes on as if it had been there.
        (assigned(3, 5, 3, start=2, first=4), "021 102 201 012 120"),
        # A topic that starts when each broker was preferred once has other followers.
        (assigned(4, 2, 2, start=4), "02 13"),
        (assigned(1, 3, 1), "0 0 0"),
        (assigned(2, 4, 2), "01 10 01 10"),
    ],
)
def test_the_tables_of_the_reference_texts(found: str, expected: str) -> None:
    assert found == expected


@given(st.integers(2, 8), st.data())
def test_what_a_failed_broker_led_goes_to_all_others_alike(brokers: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(2, brokers))
    rounds = brokers * (brokers - 1)
    layout = [*assign_replicas(dict.fromkeys(range(brokers)), rounds, factor)]
    heirs = Counter(replicas[1] for replicas in layout if replicas[0] == 0)
    assert heirs == dict.fromkeys(range(1, brokers), 1)


@given(st.integers(2, 6), st.integers(1, 60))
def test_so_it_does_where_there_are_only_small_topics(brokers: int, topics: int) -> None:
    cluster: dict[int, str | None] = dict.fromkeys(range(brokers))
    layouts: list[dict[int, tuple[int, ...]]] = []
    for _ in range(topics):
        start = PreferredCounts(cluster, layouts).start()
        layouts.append(dict(enumerate(assign_replicas(cluster, 1, 2, start))))
    for broker in cluster:
        heirs = Counter(layout[0][1] for layout in layouts if layout[0][0] == broker)
        counts = [heirs[other] for other in cluster if other != broker]
        assert max(counts) - min(counts) <= 1


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
    assert PreferredCounts(dict.fromkeys((3, 1, 2)), [{0: (1,), 1: (2,), 2: (3,)}]).start() % 3 == 0


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
