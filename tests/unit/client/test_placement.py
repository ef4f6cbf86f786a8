"""Where partitions are planned to lie: the rules hold for any cluster, and what can stay stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.client.placement import BrokerLoad, Held, TooFewBrokers, bytes_to_move, loads, spread
from strandline.protocol.types import TopicPartition

Clusters = tuple[dict[TopicPartition, Held], dict[int, str | None]]


@st.composite
def clusters(draw: st.DrawFn, racks: int = 0) -> Clusters:
    """Partitions on brokers of which some are new and some shall be used no more; racks of equal size, 0: none."""
    count = draw(st.integers(1, 3)) * racks if racks else draw(st.integers(1, 7))
    brokers: dict[int, str | None] = {each: f"rack-{each % racks}" if racks else None for each in range(count)}
    known = draw(st.integers(max(1, count // 2), count + 2))
    held: dict[TopicPartition, Held] = {}
    for topic in range(draw(st.integers(1, 4))):
        factor = draw(st.integers(1, min(3, count, known)))
        for number in range(draw(st.integers(1, 12))):
            replicas = draw(st.permutations(range(known)))[:factor]
            held[TopicPartition(f"t{topic}", number)] = Held(tuple(replicas), draw(st.integers(0, 1000)))
    return held, brokers


def difference(counts: Counter[int], brokers: Mapping[int, object]) -> int:
    return max(counts[each] for each in brokers) - min(counts[each] for each in brokers)


def counted(plan: Mapping[TopicPartition, tuple[int, ...]], topic: str | None = None) -> Counter[int]:
    return Counter(each for tp, replicas in plan.items() if topic in (None, tp.topic) for each in replicas)


@given(clusters())
def test_every_partition_keeps_its_replication_factor_on_brokers_that_may_be_used(cluster: Clusters) -> None:
    held, brokers = cluster
    for evenly in (True, False):
        plan = spread(held, brokers, evenly=evenly)
        assert list(plan) == list(held)
        for tp, replicas in plan.items():
            assert len(set(replicas)) == len(replicas) == len(held[tp].replicas)
            assert set(replicas) <= set(brokers)
            stayed = [each for each in held[tp].replicas if each in replicas[1:]]
            assert list(replicas[1 : len(stayed) + 1]) == stayed, "in their order, and new ones last"


@given(clusters())
def test_without_racks_replicas_are_even_in_sum_and_leaders_of_each_topic_nearly(cluster: Clusters) -> None:
    held, brokers = cluster
    plan = spread(held, brokers)
    assert difference(counted(plan), brokers) <= 1
    for topic in {tp.topic for tp in held}:
        assert difference(counted(plan, topic), brokers) <= 2
        leaders = Counter(replicas[0] for tp, replicas in plan.items() if tp.topic == topic)
        assert difference(leaders, brokers) <= 2


@given(clusters())
def test_no_more_is_moved_than_has_to_be(cluster: Clusters) -> None:
    """From a broker goes what is beyond its share, and what a topic has there beyond another's; a plan that is carried
    out is kept by the next one."""
    held, brokers = cluster
    plan = spread(held, brokers)
    after = {tp: Held(replicas, held[tp].size_bytes) for tp, replicas in plan.items()}
    assert spread(after, brokers) == plan
    stays = spread(held, brokers, evenly=False)
    for tp, replicas in stays.items():
        assert set(held[tp].replicas) & set(brokers) <= set(replicas), "what lies on a broker that may be used stays"


@given(st.integers(2, 6), st.integers(1, 3), st.integers(1, 30))
def test_a_new_broker_gets_its_share_and_nothing_else_moves(brokers: int, factor: int, partitions: int) -> None:
    factor = min(factor, brokers)
    held = {
        TopicPartition("t", number): Held(tuple((number * factor + place) % brokers for place in range(factor)), 10)
        for number in range(partitions)
    }
    plan = spread(held, dict.fromkeys(range(brokers + 1)))
    moved = [set(plan[tp]) - set(held[tp].replicas) for tp in held]
    assert all(each <= {brokers} for each in moved)
    assert sum(map(len, moved)) == partitions * factor // (brokers + 1)


@given(st.integers(2, 3).flatmap(clusters))
def test_racks_of_equal_size_share_each_partition(cluster: Clusters) -> None:
    held, brokers = cluster
    plan = spread(held, brokers)
    racks = Counter(brokers.values())
    for replicas in plan.values():
        on = Counter(brokers[each] for each in replicas)
        assert max(on[each] for each in racks) - min(on[each] for each in racks) <= 1
    assert difference(counted(plan), brokers) <= 2
    kept = spread(held, brokers, evenly=False)
    for tp, replicas in kept.items():
        new = [each for each in replicas if each not in held[tp].replicas]
        on = Counter(brokers[each] for each in replicas)
        for each in new:
            assert on[brokers[each]] - min(on[rack] for rack in racks) <= 1, "a new one goes where there are fewest"


def test_racks_count_only_where_every_broker_has_one() -> None:
    held = {TopicPartition("t", number): Held((1, 2)) for number in range(4)}
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert all({1, 2} & set(replicas) and {3, 4} & set(replicas) for replicas in spread(held, racks).values())
    assert difference(counted(spread(held, {**racks, 2: None})), racks) == 0


def test_the_replication_factor_may_change() -> None:
    held = {TopicPartition("t", number): Held((number % 2 + 1,)) for number in range(6)}
    more = spread(held, dict.fromkeys((1, 2, 3)), replication_factor=3)
    assert {tuple(sorted(replicas)) for replicas in more.values()} == {(1, 2, 3)}
    assert Counter(replicas[0] for replicas in more.values()) == {1: 2, 2: 2, 3: 2}
    again = {tp: Held(replicas) for tp, replicas in more.items()}
    fewer = spread(again, dict.fromkeys((1, 2, 3)), replication_factor=1)
    assert Counter(replicas[0] for replicas in fewer.values()) == {1: 2, 2: 2, 3: 2}
    assert {tp: replicas[0] for tp, replicas in fewer.items()} == {tp: each.replicas[0] for tp, each in again.items()}


def test_too_few_brokers_names_the_topics() -> None:
    held = {TopicPartition("a", 0): Held((1, 2)), TopicPartition("b", 0): Held((1,))}
    with pytest.raises(TooFewBrokers, match=r"too few brokers, 1, for a \(2 replicas\)$") as refused:
        spread(held, {3: None})
    assert refused.value.topics == {"a": 2}
    many = {TopicPartition(f"t{number}", 0): Held((1, 2)) for number in range(7)}
    with pytest.raises(TooFewBrokers, match=r"and 2 more$"):
        spread(many, {3: None})


def test_other_topics_weigh_in_and_stay() -> None:
    held = {TopicPartition("t", number): Held((1,)) for number in range(3)}
    plan = spread(held, dict.fromkeys((1, 2, 3)), others=[(1, 2), (1, 9), (2, 1)])
    assert Counter(replicas[0] for replicas in plan.values()) == {3: 2, 2: 1}


def test_small_partitions_move_and_large_ones_stay() -> None:
    held = {TopicPartition("t", number): Held((1,), size) for number, size in enumerate([900, 5, 800, 7])}
    plan = spread(held, dict.fromkeys((1, 2)))
    assert [replicas[0] for replicas in plan.values()] == [1, 2, 1, 2]
    assert sum(bytes_to_move(held[tp], plan[tp]) for tp in held) == 12


def test_figures_are_told_for_each_broker() -> None:
    found = loads([((1, 2), 10), ((2, 3), 1), ((2,), 100)])
    assert found == {1: BrokerLoad(1, 1, 10), 2: BrokerLoad(3, 2, 111), 3: BrokerLoad(1, 0, 1)}
    assert bytes_to_move(Held((1, 2), 10), (3, 4)) == 20
    assert bytes_to_move(Held((1, 2), 10), (2, 1)) == 0


def test_those_who_hold_it_keep_their_order_and_new_ones_come_last() -> None:
    held = {TopicPartition("t", 0): Held((3, 1, 2))}
    assert spread(held, dict.fromkeys((1, 3, 4)), evenly=False) == {TopicPartition("t", 0): (3, 1, 4)}
    wider = spread(held, dict.fromkeys((1, 2, 3, 4, 5)), replication_factor=4, evenly=False)
    assert wider[TopicPartition("t", 0)][:3] == (3, 1, 2)
