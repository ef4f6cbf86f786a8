"""Which preferred replica leads, why another one does not, and when a broker gets its leaderships back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.controller.controller_context import ControllerContext, LeaderAndIsr, LiveBroker, Topic
from strandline.controller.planning.preferred_leaders import (
    plan_preferred_leaders,
    plan_rebalance,
    preferred_replica,
    why_not_elected,
)
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.runtime.network import Address

TP = TopicPartition("t", 0)
STATE = LeaderAndIsr(2, 7, (2, 1, 3), 4, 11)


def context_of(*states: LeaderAndIsr, replicas: tuple[int, ...] = (1, 2, 3)) -> ControllerContext:
    """Topic t with a partition per state, all on `replicas`; brokers 1 to 3 live."""
    context = ControllerContext(epoch=5)
    context.brokers = {b: LiveBroker(b, 100 + b, (), Address("b", b)) for b in (1, 2, 3)}
    context.topics = {"t": Topic("t", bytes(16), dict.fromkeys(range(len(states)), replicas))}
    context.states = {TopicPartition("t", p): state for p, state in enumerate(states)}
    return context


def test_the_preferred_replica_takes_over_and_everybody_stays_in_sync() -> None:
    context = context_of(STATE)
    [change] = plan_preferred_leaders(context, (), [TP])
    assert change.before == STATE
    assert change.after == LeaderAndIsr(1, 8, (2, 1, 3), 5, 12)


def test_who_is_gone_from_the_isr_leaves_with_the_same_write() -> None:
    context = context_of(STATE)
    context.remove_broker(2)
    [change] = plan_preferred_leaders(context, (), [TP])
    assert (change.after.leader, change.after.isr, change.after.elr) == (1, (1, 3), (2,))


def test_a_partition_without_a_leader_gets_its_preferred_one() -> None:
    [change] = plan_preferred_leaders(context_of(replace(STATE, leader=NO_BROKER)), (), [TP])
    assert (change.after.leader, change.after.last_known_leader) == (1, NO_BROKER)


def _away(context: ControllerContext) -> None:
    context.remove_broker(1)


def _leaving(context: ControllerContext) -> None:
    context.shutting_down[1] = context.brokers[1].epoch


def _refused(context: ControllerContext) -> None:
    context.note_refusal((1, TP), "its disk failed")


def _not_in_sync(context: ControllerContext) -> None:
    context.states[TP] = replace(STATE, isr=(2, 3))


def _only_eligible(context: ControllerContext) -> None:
    context.states[TP] = replace(STATE, isr=(2,), elr=(1,))


def _lossy(context: ControllerContext) -> None:
    context.states[TP] = replace(STATE, leader=NO_BROKER, isr=(1,), lossy=(1,))


def _later_epochs(context: ControllerContext) -> None:
    context.later_epochs[3, TP] = 9


def _never_led(context: ControllerContext) -> None:
    del context.states[TP]


def _silent(context: ControllerContext) -> None:
    """See `silent` below."""


def _leads(context: ControllerContext) -> None:
    context.states[TP] = replace(STATE, leader=1)


def _deleted(context: ControllerContext) -> None:
    context.deleting["t"] = None


def _unknown(context: ControllerContext) -> None:
    context.remove_topic("t")


@pytest.mark.parametrize(
    ("happens", "code", "text"),
    [
        (_away, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "broker 1, which t:0 prefers, is away"),
        (_leaving, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "is about to stop"),
        (_refused, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "does not serve its replica: its disk failed"),
        (_silent, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "does not answer"),
        (_not_in_sync, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "is not in sync"),
        (_only_eligible, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "is not in sync"),
        (_lossy, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "is not in sync"),
        (_never_led, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "is not in sync"),
        (_later_epochs, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "brokers 3 have logs with later leader epochs"),
        (_leads, ErrorCode.ELECTION_NOT_NEEDED, "broker 1, which is preferred, leads t:0"),
        (_deleted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition t:0"),
        (_unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition t:0"),
    ],
)
def test_why_the_preferred_replica_is_not_elected(happens: object, code: ErrorCode, text: str) -> None:
    context = context_of(STATE)
    assert callable(happens)
    happens(context)
    silent = (1,) if happens is _silent else ()
    why = why_not_elected(context, silent, TP)
    assert why is not None
    assert why.code is code
    assert text in why.text
    assert plan_preferred_leaders(context, silent, [TP]) == []


def test_while_a_partition_is_moved_the_first_of_the_target_is_preferred() -> None:
    """Its assignment is kept with the target's replicas first."""
    context = context_of(replace(STATE, leader=1, isr=(1, 2, 3)), replicas=(3, 2, 1))
    assert preferred_replica(context, TP) == 3
    [change] = plan_preferred_leaders(context, (), [TP])
    assert change.after.leader == 3


# --- automatic rebalance ---------------------------------------------------------------------------------------------


def context_with(led_elsewhere: int, led_by_preferred: int) -> ControllerContext:
    """All prefer broker 1."""
    return context_of(*[STATE] * led_elsewhere, *[replace(STATE, leader=1)] * led_by_preferred)


@pytest.mark.parametrize(
    ("elsewhere", "here", "percentage", "moved"),
    [
        (1, 9, 10, 0),  # exactly the percentage is not above it
        (2, 8, 10, 2),
        (1, 8, 10, 1),
        (10, 0, 100, 0),
        (1, 99, 0, 1),
        (0, 5, 0, 0),
    ],
)
def test_above_the_percentage_all_of_a_brokers_partitions_come_back(
    elsewhere: int, here: int, percentage: int, moved: int
) -> None:
    plan = plan_rebalance(context_with(elsewhere, here), [1, 2, 3], percentage)
    assert plan == [TopicPartition("t", p) for p in range(moved)]


def test_each_broker_counts_by_itself() -> None:
    context = context_with(2, 0)
    context.topics["u"] = Topic("u", bytes(16), dict.fromkeys(range(20), (2, 3)))
    for p in range(20):
        context.states[TopicPartition("u", p)] = LeaderAndIsr(3 if p == 0 else 2, 1, (2, 3), 4, 0)
    assert plan_rebalance(context, [1, 2, 3], 10) == [TopicPartition("t", p) for p in range(2)]


def test_only_brokers_that_are_steady_get_any_back() -> None:
    assert plan_rebalance(context_with(2, 0), [2, 3], 10) == []


def test_what_cannot_lead_is_moved_or_is_deleted_stays_and_counts_unless_it_is_deleted() -> None:
    context = context_with(3, 0)
    context.states[TP] = replace(STATE, isr=(2, 3))
    context.topics["t"] = replace(context.topics["t"], adding_replicas={1: (3,)})
    assert plan_rebalance(context, [1], 90) == [TopicPartition("t", 2)]
    context.topics["t"] = replace(context.topics["t"], adding_replicas={}, removing_replicas={1: (3,)})
    assert plan_rebalance(context, [1], 90) == [TopicPartition("t", 2)]
    context.deleting["t"] = None
    assert plan_rebalance(context, [1], 0) == []
