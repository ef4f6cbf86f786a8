"""The planner: what follows from each event, as pure functions of the context."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.controller.controller_context import MAX_REASONS, ControllerContext, LeaderAndIsr, LiveBroker, Topic
from strandline.controller.planning.leader_elections import LogEnd
from strandline.controller.planning.planner import (
    plan_controlled_shutdown,
    plan_partitions,
    plan_recovery,
    still_led,
)
from strandline.protocol.types import TopicPartition
from strandline.runtime.network import Address

TP = TopicPartition("t", 0)


def broker(broker_id: int, epoch: int = 100) -> LiveBroker:
    return LiveBroker(broker_id, epoch, (), Address("localhost", 9000 + broker_id))


def context_of(
    live: tuple[int, ...],
    state: LeaderAndIsr | None = None,
    replicas: tuple[int, ...] = (1, 2, 3),
    shutting_down: tuple[int, ...] = (),
) -> ControllerContext:
    context = ControllerContext(epoch=7, epoch_zk_version=6)
    context.brokers = {b: broker(b) for b in live}
    context.shutting_down = {b: context.brokers[b].epoch for b in shutting_down if b in live}
    context.topics = {"t": Topic("t", b"i" * 16, {0: replicas})}
    if state is not None:
        context.states = {TP: state}
    return context


def led(leader: int, *isr: int, epoch: int = 4, version: int = 9, mzxid: int = 0) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, isr, 6, version, mzxid)


@pytest.mark.parametrize(
    ("live", "shutting_down", "state", "leader", "isr"),
    [
        # The leader died: the first in-sync live one of the assignment leads, the dead leave the ISR.
        ((2, 3), (), led(1, 1, 2, 3), 2, (2, 3)),
        ((3,), (), led(1, 1, 2, 3), 3, (3,)),
        ((2, 3), (), led(1, 1, 3), 3, (3,)),
        # A follower died: only the ISR changes.
        ((1, 3), (), led(1, 1, 2, 3), 1, (1, 3)),
        # Nobody in sync lives: no leader, the ISR stays whole.
        ((2, 3), (), led(1, 1), -1, (1,)),
        ((), (), led(1, 1, 2, 3), -1, (1, 2, 3)),
        # Back again: any of the ISR may lead.
        ((3,), (), led(-1, 1, 3), 3, (3,)),
        # Who is about to leave is not elected, and is no reason to shrink.
        ((2, 3), (2,), led(1, 1, 2, 3), 3, (2, 3)),
        ((2,), (2,), led(1, 1, 2), -1, (1, 2)),
    ],
)
def test_what_is_written_when_brokers_come_and_go(
    live: tuple[int, ...], shutting_down: tuple[int, ...], state: LeaderAndIsr, leader: int, isr: tuple[int, ...]
) -> None:
    [change] = plan_partitions(context_of(live, state, shutting_down=shutting_down), [TP]).changes
    assert (change.after.leader, change.after.isr) == (leader, isr)
    assert change.after.leader_epoch == state.leader_epoch + 1
    assert change.after.controller_epoch == 7
    assert (change.expected_version, change.after.zk_version) == (9, 10)
    assert not change.unclean


@pytest.mark.parametrize(
    ("live", "state"),
    [((1, 2, 3), led(1, 1, 2, 3)), ((1, 2, 3), led(1, 1)), ((2, 3), led(-1, 1)), ((), led(-1, 1, 2))],
)
def test_nothing_is_written_where_nothing_can_be_better(live: tuple[int, ...], state: LeaderAndIsr) -> None:
    assert plan_partitions(context_of(live, state), [TP]).changes == []


@given(
    st.sets(st.integers(1, 4)),
    st.sets(st.integers(1, 4)),
    st.lists(st.integers(1, 4), min_size=1, max_size=4, unique=True),
    st.booleans(),
)
def test_a_clean_plan_elects_only_from_isr_and_live_and_needs_nothing_else(
    live: set[int], leaving: set[int], isr: list[int], has_leader: bool
) -> None:
    state = led(isr[0] if has_leader else -1, *isr)
    context = context_of(tuple(sorted(live)), state, (1, 2, 3, 4), tuple(leaving))
    for change in plan_partitions(context, [TP]).changes:
        assert set(change.after.isr) <= set(isr)
        assert change.after.isr
        if change.after.leader != -1:
            assert change.after.leader in live & set(isr)
            assert set(change.after.isr) == live & set(isr)
        context.states[TP] = change.after
    assert plan_partitions(context, [TP]).changes == []


def test_only_topics_that_allow_it_are_led_by_the_longest_log_of_those_who_live() -> None:
    context = context_of((2, 3), led(1, 1))
    plan = plan_partitions(context, [TP])
    assert (list(plan.unclean_candidates), plan.recover, plan.waits) == (["t"], {}, {TP: (1,)})
    accepted = replace(context, accepted_losses={TP: None})
    for allowed in (plan_partitions(context, [TP], {"t"}), plan_partitions(accepted, [TP])):
        assert (allowed.recover, allowed.waits) == ({TP: (2, 3)}, {})


def test_without_any_live_replica_no_topic_is_an_unclean_candidate() -> None:
    plan = plan_partitions(context_of((), led(1, 1)), [TP], {"t"})
    assert (plan.unclean_candidates, plan.recover) == ({}, {})


def test_a_new_partition_is_led_by_the_first_live_replica_with_all_live_ones_in_sync() -> None:
    [change] = plan_partitions(context_of((2, 3)), [TP]).changes
    assert (change.after, change.expected_version) == (LeaderAndIsr(2, 0, (2, 3), 7, 0), None)
    assert plan_partitions(context_of(()), [TP]).changes == []


def test_a_topic_that_is_being_deleted_takes_no_part_in_elections() -> None:
    context = context_of((2, 3), led(1, 1, 2))
    context.deleting = {"t": None}
    assert plan_partitions(context, [TP]).changes == []


def test_a_leader_from_before_its_brokers_present_life_is_elected_anew() -> None:
    context = context_of((1, 2, 3), led(1, 1, 2, 3, mzxid=50))
    [change] = plan_partitions(context, [TP]).changes
    assert (change.after.leader, change.after.leader_epoch) == (1, 5)
    context.states[TP] = led(1, 1, 2, 3, mzxid=150)
    assert plan_partitions(context, [TP]).changes == []


def test_a_replica_whose_log_failed_is_treated_as_dead() -> None:
    context = context_of((1, 2, 3), led(1, 1, 2))
    context.offline_replicas = {(1, TP): "its disk failed"}
    [change] = plan_partitions(context, [TP]).changes
    assert (change.after.leader, change.after.isr) == (2, (2,))


# --- controlled shutdown -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "leader", "isr"),
    [(led(1, 1, 2, 3), 2, (2, 3)), (led(2, 2, 1), 2, (2,)), (led(1, 3, 1), 3, (3,))],
)
def test_a_controlled_shutdown_leaves_leadership_and_isr(
    state: LeaderAndIsr, leader: int, isr: tuple[int, ...]
) -> None:
    context = context_of((1, 2, 3), state, shutting_down=(1,))
    [change] = plan_controlled_shutdown(context, 1, (), [TP])
    assert (change.after.leader, change.after.isr, change.after.leader_epoch) == (leader, isr, 5)
    context.states[TP] = change.after
    assert still_led(context, 1) == []


def test_a_last_in_sync_replica_keeps_what_it_leads_and_is_told_so() -> None:
    context = context_of((1, 2, 3), led(1, 1), shutting_down=(1,))
    assert plan_controlled_shutdown(context, 1, (), [TP]) == []
    assert still_led(context, 1) == [TP]


def test_leadership_does_not_move_to_another_broker_that_is_leaving() -> None:
    context = context_of((1, 2, 3), led(1, 1, 2), shutting_down=(1, 2))
    assert plan_controlled_shutdown(context, 1, (), [TP]) == []


def test_an_unreplicated_partition_does_not_hold_a_shutdown_up() -> None:
    assert still_led(context_of((1,), led(1, 1), replicas=(1,), shutting_down=(1,)), 1) == []


def test_a_partition_whose_other_replicas_are_gone_or_leave_as_well_does_not_hold_a_shutdown_up() -> None:
    assert still_led(context_of((1, 3), led(1, 1, 3), shutting_down=(1, 3)), 1) == []


def test_a_partition_that_elects_nobody_since_a_log_is_later_than_its_state_does_not_hold_a_shutdown_up() -> None:
    context = context_of((1, 2, 3), led(1, 1), shutting_down=(1,))
    context.later_epochs = {(3, TP): 5}
    assert still_led(context, 1) == []
    context.later_epochs = {(3, TP): 4}
    assert still_led(context, 1) == [TP]


# --- who has everything, and who may have lost it (invariant 22) ----------------------------------------------------


def test_who_leaves_the_isr_is_eligible_and_who_led_last_is_known() -> None:
    [change] = plan_partitions(context_of((2,), led(1, 1, 2, 3)), [TP]).changes
    assert (change.after.leader, change.after.isr, change.after.elr) == (2, (2,), (1, 3))
    [change] = plan_partitions(context_of((1,), led(1, 1, 3)), [TP]).changes
    assert (change.after.leader, change.after.isr, change.after.elr) == (1, (1,), (3,))
    [change] = plan_partitions(context_of((3,), replace(led(1, 1), elr=(2,))), [TP]).changes
    assert (change.after.leader, change.after.isr, change.after.elr) == (-1, (1,), (2,))
    assert change.after.last_known_leader == 1


def test_an_eligible_replica_leads_and_those_it_replaces_stay_eligible() -> None:
    state = replace(led(-1, 1), elr=(2, 3))
    [change] = plan_partitions(context_of((3,), state), [TP]).changes
    assert (change.after.leader, change.after.isr, change.after.elr, change.unclean) == (3, (3,), (1, 2), False)


@pytest.mark.parametrize(
    ("isr", "lossy", "elr", "live", "waits", "recover"),
    [
        ((1,), (1,), (2,), (1, 3), (2,), None),  # 2 has everything and is away: whoever else is back does not matter
        ((1, 2), (1,), (), (1, 3), (2,), None),
        ((1,), (1,), (), (1, 3), (2,), None),  # nobody is known to have everything: all are waited for
        ((1,), (1,), (), (1, 2, 3), None, (1, 2, 3)),
        ((1,), (), (), (2, 3), (1,), None),
    ],
)
def test_who_may_have_lost_data_does_not_lead_while_anybody_else_may_have_it(
    isr: tuple[int, ...],
    lossy: tuple[int, ...],
    elr: tuple[int, ...],
    live: tuple[int, ...],
    waits: tuple[int, ...] | None,
    recover: tuple[int, ...] | None,
) -> None:
    plan = plan_partitions(context_of(live, replace(led(-1, *isr), lossy=lossy, elr=elr)), [TP])
    assert plan.changes == []
    assert (plan.waits.get(TP), plan.recover.get(TP)) == (waits, recover)


def test_a_sound_member_is_elected_and_one_that_lost_data_is_in_no_list_any_more() -> None:
    [change] = plan_partitions(context_of((1, 2), replace(led(-1, 1, 2), lossy=(1,))), [TP]).changes
    assert (change.after.leader, change.after.isr, change.after.elr, change.after.lossy) == (2, (2,), (), ())


def test_a_loss_is_remembered_while_nobody_leads() -> None:
    state = replace(led(1, 1), lossy=(1,), mzxid=50)  # its leader is another life of it
    [change] = plan_partitions(context_of((1, 2), state), [TP]).changes
    assert (change.after.leader, change.after.lossy) == (-1, (1,))


def test_recovery_elects_the_longest_log_loudly_and_nobody_is_eligible_then() -> None:
    context = context_of((1, 2, 3), replace(led(-1, 1), lossy=(1,), elr=(3,)))
    change = plan_recovery(context, TP, {1: LogEnd(3, 10), 2: LogEnd(3, 40)})
    assert change is not None
    assert (change.after.leader, change.after.isr, change.unclean) == (2, (2,), True)
    assert (change.after.elr, change.after.lossy) == ((), ())
    assert plan_recovery(context, TP, {}) is None


def test_a_controlled_shutdown_rests_on_nobody_who_does_not_answer() -> None:
    def planned(state: LeaderAndIsr, *silent: int) -> list[tuple[int, tuple[int, ...]]]:
        context = context_of((1, 2, 3), state, shutting_down=(2,))
        changes = plan_controlled_shutdown(context, 2, silent, [TP])
        return [(change.after.leader, change.after.isr) for change in changes]

    assert planned(led(3, 2, 3)) == [(3, (3,))]
    assert planned(led(3, 2, 3), 3) == []
    assert planned(led(2, 2, 3), 3) == []
    assert planned(led(2, 1, 2, 3), 3) == [(1, (1, 3))]


def test_of_so_many_refused_replicas_the_reasons_are_kept_and_all_of_them_count_as_offline() -> None:
    context = context_of((1, 2, 3))
    many = [(1, TopicPartition("t", index)) for index in range(MAX_REASONS + 1)]
    assert all(context.note_refusal(replica, "its disk failed") for replica in many)
    assert not any(context.is_online(*replica) for replica in many)
    assert list(context.offline_replicas.values()) == ["its disk failed"] * MAX_REASONS + [""]
    assert not any(context.note_refusal(replica, "its disk failed") for replica in many), "no news"
    assert context.note_refusal(many[0], "another reason") and context.offline_replicas[many[0]] == "another reason"
    context.remove_broker(1)
    assert not context.offline_replicas
