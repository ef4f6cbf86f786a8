"""What is moved so that no broker has too much."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.client.balance.indicators import Traffic
from strandline.client.balance.load import Load, load_of
from strandline.client.balance.moves import Placed, Plan, planned
from strandline.protocol.types import TopicPartition

NO_RACKS: dict[int, str | None] = {}


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def cluster(*rows: tuple[int, ...]) -> dict[TopicPartition, Placed]:
    """A partition for each: its replicas, all in sync, led by the first."""
    return {tp(number): Placed(row[0], row, row) for number, row in enumerate(rows)}


def counts(placed: Mapping[TopicPartition, Placed], brokers: int = 3) -> Load:
    """By leaders and partitions only."""
    everyone = range(1, brokers + 1)
    return load_of(
        {
            "partitions": {each: sum(each in of.replicas for of in placed.values()) for each in everyone},
            "leaders": {each: sum(each == of.leader for of in placed.values()) for each in everyone},
        },
        {},
        0.1,
    )


def applied(placed: dict[TopicPartition, Placed], plan: Plan) -> dict[TopicPartition, Placed]:
    after = dict(placed)
    for each in plan.moves:
        leader = each.target if each.leads else after[each.partition].leader
        after[each.partition] = Placed(leader, each.replicas, each.replicas)
    return after


def test_an_even_cluster_is_left_alone() -> None:
    placed = cluster((1, 2, 3), (2, 3, 1), (3, 1, 2))
    assert planned(counts(placed), placed, {}, NO_RACKS).moves == ()


def test_leaders_move_to_replicas_in_sync_and_nothing_is_copied() -> None:
    placed = cluster(*[(1, 2, 3)] * 6)
    plan = planned(counts(placed), placed, {}, NO_RACKS)
    assert len(plan.moves) == 4 and not any(each.copies for each in plan.moves)
    assert sorted(each.target for each in plan.moves) == [2, 2, 3, 3]
    assert counts(applied(placed, plan)).is_even
    assert plan.deviations == pytest.approx({1: 0, 2: 0, 3: 0})
    assert set(plan.elections) == set(plan.assignment(placed)) == {each.partition for each in plan.moves}
    assert all(plan.assignment(placed)[each.partition][0] == each.target for each in plan.moves)


def after_a_restart_of_broker_3() -> dict[TopicPartition, Placed]:
    """What it led is led by the next of its replicas."""
    rows = [(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 10
    return {tp(number): Placed(row[0] if row[0] != 3 else row[1], row, row) for number, row in enumerate(rows)}


def test_after_a_restart_the_preferred_replicas_are_elected_and_nothing_else_moves() -> None:
    placed = after_a_restart_of_broker_3()
    plan = planned(counts(placed), placed, {}, NO_RACKS)
    assert plan.assignment(placed) == {}
    assert set(plan.elections) == {each for each, of in placed.items() if of.replicas[0] == 3}
    assert plan.deviations == pytest.approx({1: 0, 2: 0, 3: 0})


def test_whose_preferred_replica_is_not_in_sync_or_not_known_is_led_by_another() -> None:
    placed = {each: of._replace(in_sync=(1, 2)) for each, of in after_a_restart_of_broker_3().items()}
    load = load_of({"leaders": {1: 20, 2: 10}}, {}, 0.1)
    assert all(each.target == 2 for each in planned(load, placed, {}, NO_RACKS).moves)
    load = load_of({"leaders": {1: 20, 2: 10, 3: 0}}, {}, 0.1)
    assert all(each.target == 2 for each in planned(load, placed, {}, NO_RACKS).moves if not each.copies)


def test_who_is_to_lead_though_another_was_preferred_becomes_the_preferred_one() -> None:
    placed = {tp(number): Placed(1 if number < 4 else 2, (2, 1), (2, 1)) for number in range(12)}
    plan = planned(counts(placed, brokers=2), placed, {}, NO_RACKS)
    after = applied(placed, plan)
    assert counts(after, brokers=2).is_even
    stay = [each for each in plan.moves if each.source == each.target]
    assert stay and all(each.replicas == (1, 2) for each in stay)
    assert {each.partition for each in stay} <= set(plan.assignment(placed)) - set(plan.elections)
    assert all(of.leader == of.replicas[0] for of in after.values()), "electing all changes nothing any more"


def test_a_replica_that_is_not_in_sync_gets_no_leadership() -> None:
    placed = {tp(number): Placed(1, (1, 2, 3), (1, 2)) for number in range(6)}
    plan = planned(counts(placed), placed, {}, NO_RACKS)
    assert plan.moves and {each.target for each in plan.moves if not each.copies} == {2}


@pytest.mark.parametrize(
    ("brokers", "in_sync", "is_held_up"),
    [
        ((1, 3), (1,), True),  # broker 2 does not run
        ((1, 3), (1, 2), False),  # it runs, and does not tell its figures
        ((1, 2, 3), (1,), False),  # it runs, and catches up
    ],
)
def test_no_replica_moves_beside_one_that_may_never_be_in_sync(
    brokers: tuple[int, ...], in_sync: tuple[int, ...], is_held_up: bool
) -> None:
    placed = {tp(number): Placed(1, (1, 2), in_sync) for number in range(12)}
    load = load_of({"partitions": {each: 0.0 if each == 3 else 12.0 for each in brokers}}, {}, 0.1)
    plan = planned(load, placed, {}, NO_RACKS)
    assert plan.held_up == (dict.fromkeys(placed, (2,)) if is_held_up else {})
    assert any(each.copies for each in plan.moves) != is_held_up


def test_beside_a_replica_that_may_never_be_in_sync_leaders_still_move() -> None:
    placed = {tp(number): Placed(1, (1, 2, 9), (1, 2)) for number in range(6)}
    plan = planned(counts(placed, brokers=2), placed, {}, NO_RACKS)
    assert plan.moves and not any(each.copies for each in plan.moves)
    assert plan.held_up == dict.fromkeys(placed, (9,))
    even = cluster((1, 2), (2, 1))
    assert planned(counts(even, brokers=2), even, {}, NO_RACKS).held_up == {}


def test_a_large_partition_moves_rather_than_many_small_ones_unless_it_is_too_large() -> None:
    placed = cluster(*[(1, 2)] * 5, *[(2, 1)] * 5)
    traffic = {tp(number): Traffic(0.0, 100.0 if number == 3 else 1.0) for number in range(10)}
    out = {1: 4 * 1.0 + 100, 2: 5.0}
    load = load_of({"nwBytesOut": out | {3: 52.0}}, {}, 0.6)
    assert load.uneven == [1, 2]
    # The large one is as much as the whole gap: to move it would turn the two round.
    assert len(planned(load, placed, traffic, NO_RACKS).moves) == 4
    heavy = {tp(0): Traffic(0.0, 50.0), tp(1): Traffic(0.0, 50.0)}
    plan = planned(load_of({"nwBytesOut": {1: 104.0, 2: 5.0, 3: 52.0}}, {}, 0.1), placed, heavy, NO_RACKS)
    assert [each.partition for each in plan.moves] == [tp(0)]


def test_to_a_new_broker_replicas_move() -> None:
    placed = cluster(*[(1, 2), (2, 1)] * 6)
    plan = planned(counts(placed), placed, {}, NO_RACKS)
    assert all(each.copies and each.target == 3 for each in plan.moves)
    after = applied(placed, plan)
    assert counts(after).is_even
    assert all(len(set(each.replicas)) == 2 for each in after.values())


def test_what_got_another_leader_may_be_copied_too() -> None:
    placed = cluster(*[(1, 2, 3)] * 12)
    load = load_of({"leaders": {1: 12, 2: 0, 3: 0, 4: 0}}, {}, 0.1)
    plan = planned(load, placed, {}, NO_RACKS)
    assert plan.deviations == pytest.approx(dict.fromkeys((1, 2, 3, 4), 0))
    twice = [tp for tp in plan.partitions if sum(each.partition == tp for each in plan.moves) == 2]
    assert twice and set(twice) <= set(plan.elections)
    assert all(4 in plan.assignment(placed)[tp][:1] for tp in twice)


def test_who_copies_the_leaders_replica_is_preferred_afterwards() -> None:
    placed = {tp(number): Placed(1, (2, 1), (2, 1)) for number in range(6)}
    load = load_of({"leaders": {1: 6, 2: 6, 3: 0}, "partitions": {1: 6, 2: 6, 3: 0}}, {}, 0.1)
    moves = [each for each in planned(load, placed, {}, NO_RACKS).moves if each.copies and each.leads]
    assert moves and all(each.replicas[0] == each.target == 3 for each in moves)


def test_no_rack_gets_a_second_replica_that_had_none_to_give() -> None:
    placed = cluster(*[(1, 2), (2, 1)] * 6)
    racks = {1: "a", 2: "b", 3: "b"}
    plan = planned(counts(placed), placed, {}, racks)
    assert plan.moves and {each.source for each in plan.moves if each.copies} == {2}


def test_brokers_of_which_nothing_is_known_take_no_part() -> None:
    placed = cluster(*[(1, 2, 9)] * 4, *[(9, 1, 2)] * 4)
    load = load_of({"leaders": {1: 4, 2: 0}}, {}, 0.1)
    plan = planned(load, placed, {}, NO_RACKS)
    assert [(each.source, each.target) for each in plan.moves] == [(1, 2)] * 2


def test_what_follows_no_partition_is_not_moved_away() -> None:
    placed = cluster((1, 2, 3), (2, 3, 1), (3, 1, 2))
    load = load_of({"memUsed": {1: 9.0, 2: 1.0, 3: 1.0}}, {}, 0.1)
    plan = planned(load, placed, {}, NO_RACKS)
    assert plan.moves == () and plan.deviations == pytest.approx(load.deviations)


ROWS = st.lists(st.permutations([1, 2, 3, 4]).map(lambda row: tuple(row[:2])), min_size=1, max_size=40)


@given(ROWS, st.randoms(use_true_random=False))
def test_moves_never_make_it_worse_and_are_as_expected(rows: list[tuple[int, ...]], random) -> None:
    placed = {each: of._replace(leader=random.choice(of.replicas)) for each, of in cluster(*rows).items()}
    traffic = {each: Traffic(random.choice([0.0, 1.0, 1000.0]), random.choice([0.0, 50.0])) for each in placed}
    load = counts(placed, brokers=4)
    plan = planned(load, placed, traffic, NO_RACKS)
    after = applied(placed, plan)
    found = counts(after, brokers=4)
    assert found.deviations == pytest.approx(plan.deviations, abs=1e-9)
    assert found.sigma <= load.sigma + 1e-9
    assert len({(each.partition, each.copies) for each in plan.moves}) == len(plan.moves)
    changed = {tp: of.replicas for tp, of in after.items() if of.replicas != placed[tp].replicas}
    assert plan.assignment(placed) == changed
    assert not plan.moves or all(of.leader == of.replicas[0] for of in after.values())
    assert all(len(set(each.replicas)) == 2 for each in after.values())
    if load.is_even:
        assert not plan.moves


def measured(placed: Mapping[TopicPartition, Placed], traffic: Mapping[TopicPartition, Traffic]) -> Load:
    """What brokers would tell: processors cost by the byte, disks read what consumers get."""
    names = ("partitions", "leaders", "nwBytesIn", "nwBytesOut", "ioRead", "ioWrite", "cpuUsed")
    found: dict[str, dict[int, float | None]] = {name: dict.fromkeys((1, 2, 3, 4), 0.0) for name in names}

    def add(broker_id: int, **amounts: float) -> None:
        for name, amount in amounts.items():
            found[name][broker_id] = (found[name][broker_id] or 0.0) + amount

    for each, of in placed.items():
        in_bytes, out_bytes = traffic[each]
        sent = out_bytes + in_bytes * (len(of.replicas) - 1)
        add(of.leader, leaders=1, nwBytesOut=sent, ioRead=out_bytes, cpuUsed=sent / 1000)
        for broker_id in of.replicas:
            add(broker_id, partitions=1, nwBytesIn=in_bytes, ioWrite=in_bytes, cpuUsed=in_bytes / 1000)
    return load_of(found, {"cpuUsed": 2.0}, 0.1)


@given(ROWS, st.randoms(use_true_random=False))
def test_what_is_expected_is_what_is_measured_afterwards(rows: list[tuple[int, ...]], random) -> None:
    placed = cluster(*rows)
    traffic = {each: Traffic(random.uniform(1, 1000), random.uniform(1, 1000)) for each in placed}
    load = measured(placed, traffic)
    plan = planned(load, placed, traffic, NO_RACKS)
    assert measured(applied(placed, plan), traffic).deviations == pytest.approx(plan.deviations, abs=1e-9)


def test_two_replicas_that_are_on_one_rack_already_may_stay_there() -> None:
    placed = cluster(*[(1, 2), (2, 1)] * 6)
    plan = planned(counts(placed), placed, {}, dict.fromkeys((1, 2, 3), "the only one"))
    assert counts(applied(placed, plan)).is_even
