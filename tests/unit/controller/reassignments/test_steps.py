"""What a reassignment may do next: pure, from how the partition stands."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.controller.controller_context import ControllerContext, LeaderAndIsr, LiveBroker, Topic
from strandline.controller.partition_replicas import PartitionReplicas
from strandline.controller.reassignments.request_checks import plan_move, shown
from strandline.controller.reassignments.steps import (
    has_left,
    is_over_without_leader,
    may_go,
    needs_minimum,
    plan_departures,
    plan_new_epochs,
    plan_target_leaders,
    would_lead,
)
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.types import TopicPartition
from strandline.runtime.network import Address

TP = TopicPartition("t", 0)
MOVE = PartitionReplicas((1, 2, 3)).towards([4, 5, 6])
CANCELLED = MOVE.towards([1, 2, 3])
FEWER = PartitionReplicas((1, 2, 3)).towards([1, 2])
MORE = PartitionReplicas((1,)).towards([1, 2, 3])
ALL = (1, 2, 3, 4, 5, 6)


def state(*isr: int, leader: int = 1, elr: tuple[int, ...] = (), lossy: tuple[int, ...] = ()) -> LeaderAndIsr:
    return LeaderAndIsr(leader, 4, isr, 6, 9, elr=elr, lossy=lossy)


def context_of(
    replicas: PartitionReplicas, partition: LeaderAndIsr | None = None, live: tuple[int, ...] = ALL
) -> ControllerContext:
    context = ControllerContext(epoch=7)
    context.brokers = {n: LiveBroker(n, 100, (), Address("b", n)) for n in live}
    context.topics = {"t": Topic("t", b"i" * 16, {0: replicas.assigned}).with_replicas({0: replicas})}
    if partition is not None:
        context.states = {TP: partition}
    return context


# --- who was there, who is to be there -------------------------------------------------------------------------------


def test_all_replicas_stand_in_one_list_the_target_first() -> None:
    assert PartitionReplicas((4, 5, 6, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3)) == MOVE
    assert (MOVE.target, MOVE.original, MOVE.replication_factor) == ((4, 5, 6), (1, 2, 3), 3)
    overlapping = PartitionReplicas((1, 2, 3)).towards([3, 4])
    assert overlapping == PartitionReplicas((3, 4, 1, 2), adding=(4,), removing=(1, 2))
    assert (overlapping.target, sorted(overlapping.original)) == ((3, 4), [1, 2, 3])


def test_another_target_keeps_who_was_there_before_and_takes_along_whom_the_first_one_added() -> None:
    elsewhere = MOVE.towards([2, 5, 7])
    assert elsewhere.target == (2, 5, 7)
    assert sorted(elsewhere.original) == [1, 2, 3]
    assert sorted(elsewhere.assigned) == [1, 2, 3, 4, 5, 6, 7]
    assert sorted(elsewhere.removing) == [1, 3, 4, 6]


def test_the_way_back_ends_with_the_original_replicas_and_no_others() -> None:
    assert CANCELLED.assigned == (1, 2, 3, 4, 5, 6)
    assert CANCELLED.target == CANCELLED.original == CANCELLED.done.assigned == (1, 2, 3)
    assert CANCELLED.adding == CANCELLED.removing == (4, 5, 6)
    assert FEWER.towards([1, 2, 3]) == PartitionReplicas((1, 2, 3)), "nothing is left to be done"
    assert CANCELLED.towards([4, 5, 6]) == MOVE


def test_the_replication_factor_counts_who_was_there_before_until_it_is_done() -> None:
    assert (MORE.replication_factor, MORE.done.replication_factor) == (1, 3)
    assert (FEWER.replication_factor, FEWER.done.replication_factor) == (3, 2)
    assert MORE.towards([1]).replication_factor == 1, "also on the way back"


targets = st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True)


@given(targets, st.lists(targets, min_size=1, max_size=4))
def test_after_any_changes_of_mind_the_sets_are_what_they_are_called(
    original: list[int], asked_for: list[list[int]]
) -> None:
    replicas = PartitionReplicas(tuple(original))
    for target in asked_for:
        replicas = replicas.towards(target)
        assert replicas.target == tuple(target)
        if replicas.is_moving:
            assert set(replicas.original) == set(original)
        assert len(set(replicas.assigned)) == len(replicas.assigned)
        assert set(replicas.assigned) >= {*original, *target}
        assert replicas.done == PartitionReplicas(tuple(target))


# --- when those may go who have to -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "partition", "minimum", "may"),
    [
        (MOVE, state(1, 2, 3), 1, False),
        (MOVE, state(1, 2, 3, 4, 5), 1, False),
        (MOVE, state(1, 2, 3, 4, 5, 6), None, True),
        (MOVE, state(4, 5, 6, leader=4), None, True),  # after step 8
        (MOVE, state(4, 5, leader=4), 1, False),  # nobody goes before the last of the target has come
        (MOVE, state(1, 4, 5, 6, lossy=(6,)), 1, False),  # who may have lost data is not in sync
        # Nobody is added: who counts for nothing may go.
        (FEWER, state(1, 2, 3), None, True),
        (FEWER, state(1, 3), 1, False),  # 2 has to come back before 3 goes
        (FEWER, state(1, elr=(3,)), 1, False),
        (FEWER, state(1, elr=(2,)), None, True),
        (FEWER, state(1), None, True),
        (FEWER, state(3, leader=3), 1, False),  # nobody of the target has anything
        (FEWER, state(1, lossy=(1,), leader=-1), 1, False),
        (MORE, state(1), 1, False),  # new ones have to come first, whoever counts
        (MORE, state(1, 2), 1, False),
        (MORE, state(1, 2, 3), None, True),
        # Cancelled: whom it has added may go if enough are in sync without them.
        (CANCELLED, state(1, 2, 3, 4), None, True),
        (CANCELLED, state(1, 2, 4), 2, True),
        (CANCELLED, state(1, 2, 4), None, False),
        (CANCELLED, state(1, 4), 2, False),
        (CANCELLED, state(1), None, True),
        (CANCELLED, state(1, elr=(4,)), 1, True),
        (CANCELLED, state(1, elr=(4,)), 2, False),
        (CANCELLED, state(4, 5, leader=4), 1, False),
        (MORE.towards([1]), state(1), None, True),
        (MORE.towards([1]), state(1, 2), 2, True),  # the minimum is one of one
        # Cancelled, and an original replica was to go as well: that one goes as before.
        (MOVE.towards([1, 2]), state(1, 3, 4), 1, False),
        (MOVE.towards([1, 2]), state(1, 4), 1, True),
        (MOVE.towards([1, 2]), state(1, 2, 3, 4), None, True),
    ],
)
def test_when_those_may_go_who_have_to(
    replicas: PartitionReplicas, partition: LeaderAndIsr, minimum: int | None, may: bool
) -> None:
    assert may_go(replicas, partition, minimum) is may
    if may_go(replicas, partition, 1) is may_go(replicas, partition):
        assert not needs_minimum(replicas, partition)


@given(targets, targets, st.sets(st.integers(1, 6)), st.sets(st.integers(1, 6)), st.integers(1, 3))
def test_who_goes_takes_nothing_along(
    original: list[int], target: list[int], isr: set[int], eligible: set[int], minimum: int
) -> None:
    replicas = PartitionReplicas(tuple(original)).towards(target)
    partition = state(*sorted(isr), elr=tuple(sorted(eligible - isr)))
    if not may_go(replicas, partition, minimum):
        return
    staying = isr & set(target)
    assert staying
    if staying != set(target):
        assert set(target) <= set(original), "who is new has come"
        assert not (isr | eligible) & (set(original) - set(target)), "who was there before and goes had nothing alone"
        assert len(staying) >= min(minimum, len(target)) or not (isr | eligible) & set(replicas.removing)


@pytest.mark.parametrize(
    ("replicas", "partition", "is_over"),
    [
        (CANCELLED, state(1, 2, leader=-1), True),
        (CANCELLED, state(1, leader=-1, elr=(2,)), True),
        (CANCELLED, state(1, 2, leader=1), False),  # its leader may take others into the ISR yet
        (CANCELLED, state(1, 4, leader=-1), False),
        (CANCELLED, state(1, leader=-1, elr=(4,)), False),
        (CANCELLED, state(1, leader=-1, lossy=(1,)), False),  # 4 may have the longest log that is left
        (CANCELLED, replace(state(1, leader=-1), last_known_leader=4), False),
        (MOVE, state(1, 2, 3, leader=-1), False),  # it was not cancelled
        (FEWER, state(1, leader=-1), False),  # original replicas go by the steps
        (MOVE.towards([1, 2]), state(1, leader=-1), False),
        (MOVE.towards([1, 2, 3, 4]), state(1, leader=-1), False),
    ],
)
def test_what_was_cancelled_and_changed_nothing_ends_though_nobody_leads(
    replicas: PartitionReplicas, partition: LeaderAndIsr, is_over: bool
) -> None:
    assert is_over_without_leader(replicas, partition) is is_over


# --- the steps -------------------------------------------------------------------------------------------------------


def test_step_2_raises_the_epoch_and_changes_nothing_else() -> None:
    context = context_of(MOVE, state(1, 3, elr=(2,)))
    [change] = plan_new_epochs(context, [TP])
    after = change.after
    assert (after.leader, after.leader_epoch, after.isr, after.elr) == (1, 5, (1, 3), (2,))
    assert plan_new_epochs(context_of(MOVE, state(1, 2), live=(2,)), [TP]) == [], "its next leader hears of all"


@pytest.mark.parametrize(
    ("live", "answering", "partition", "leader"),
    [
        (ALL, ALL, state(1, 2, 3, 4, 5, 6), 4),
        ((1, 5, 6), ALL, state(1, 2, 3, 4, 5, 6), 5),
        ((1, 2, 3), ALL, state(1, 2, 3, 4, 5, 6), None),
        ((1, 4, 5, 6), ALL, state(4, 5, 6, leader=5), None),
        (ALL, (1, 2, 3, 6), state(1, 2, 3, 4, 5, 6), 6),
        (ALL, (1, 2, 3), state(1, 2, 3, 4, 5, 6), None),
    ],
)
def test_step_7_moves_the_leader_to_one_of_the_target_that_answers_and_keeps_the_isr(
    live: tuple[int, ...], answering: tuple[int, ...], partition: LeaderAndIsr, leader: int | None
) -> None:
    changes = plan_target_leaders(context_of(MOVE, partition, live), answering, [TP])
    assert [change.after.leader for change in changes] == ([] if leader is None else [leader])
    assert all(change.after.isr == partition.isr for change in changes)


def test_step_8_takes_out_who_has_to_go() -> None:
    context = context_of(MOVE, state(1, 2, 4, 5, 6, leader=4, elr=(3,)))
    [change] = plan_departures(context, ALL, [TP])
    assert (change.after.isr, change.after.elr, change.after.leader_epoch) == ((4, 5, 6), (), 5)
    assert has_left(MOVE, change.after)
    assert not has_left(MOVE, context.states[TP])
    assert plan_departures(context_of(MOVE, state(1, 4, 5, 6)), ALL, [TP]) == [], "not before step 7"
    assert plan_departures(context, [1, 2, 3, 5, 6], [TP]) == [], "not while the leader is silent"
    [fewer] = plan_departures(context_of(FEWER, state(1, elr=(2,))), ALL, [TP])
    assert (fewer.after.isr, fewer.after.elr) == ((1,), (2,)), "who stays and is eligible stays so"


def test_asked_is_the_leader_that_stays_or_whoever_may_take_over() -> None:
    assert would_lead(context_of(MOVE, state(1, 4, 5, 6)), [TP]) == {4, 5, 6}
    assert would_lead(context_of(MOVE, state(1, 5, 6)), [TP]) == {5, 6}
    assert would_lead(context_of(MOVE, state(4, 5, 6, leader=5)), [TP]) == {5}
    assert would_lead(context_of(MOVE, state(1, 4, 5, 6), live=(1, 2, 5)), [TP]) == {5}


# --- what is asked for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([4, 4], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([4, -1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([4, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_what_cannot_be_is_refused(target: list[int] | None, code: ErrorCode) -> None:
    refusal = plan_move(context_of(PartitionReplicas((1, 2, 3))), TP, target)
    assert isinstance(refusal, BrokerError)
    assert refusal.code is code


def test_what_is_told_of_a_refusal_is_short_whatever_was_asked_for() -> None:
    """Each partition of a topic has its answer: a name of a megabyte would stand in thousands of them."""
    context = context_of(PartitionReplicas((1, 2, 3)))
    long_name = TopicPartition("x" * 1_000_000, 0)
    for tp, target in ((long_name, [1]), (TP, [4] * 100_000), (TP, range(-1, 100_000)), (TP, range(4, 100_000))):
        refusal = plan_move(context, tp, list(target))
        assert isinstance(refusal, BrokerError)
        assert len(str(refusal.args[0])) < 1000
    assert len(shown(long_name)) < 1000


def test_partitions_that_are_not_there_or_go_are_unknown() -> None:
    context = context_of(MOVE)
    context.deleting["t"] = None
    for tp in (TP, TopicPartition("t", 1), TopicPartition("other", 0)):
        refusal = plan_move(context, tp, [1])
        assert isinstance(refusal, BrokerError)
        assert refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_who_was_a_replica_before_may_be_away_and_who_becomes_one_may_not() -> None:
    context = context_of(MOVE, live=(1, 4, 5))
    back = plan_move(context, TP, None)
    assert not isinstance(back, BrokerError)
    assert back.after == CANCELLED
    assert not isinstance(plan_move(context, TP, [2, 4]), BrokerError)
    assert isinstance(plan_move(context, TP, [4, 6]), BrokerError)


def test_the_target_that_is_under_way_or_reached_is_no_change() -> None:
    for replicas, target in ((MOVE, [4, 5, 6]), (PartitionReplicas((1, 2)), [1, 2])):
        move = plan_move(context_of(replicas, live=(1, 4, 5)), TP, target)  # also while one of them is away
        assert not isinstance(move, BrokerError)
        assert move.before == move.after == replicas
    turned = plan_move(context_of(PartitionReplicas((1, 2))), TP, [2, 1])
    assert not isinstance(turned, BrokerError)
    assert turned.after == PartitionReplicas((2, 1)), "another preferred leader, and nobody moves"
