"""What should be written for each partition, decided from the context alone: (context, partitions) → Plan.

Rules:
* Level triggered: a plan comes from how things stand, not from what changed; a missed or repeated event does no harm.
* Each leader or ISR write bumps the leader epoch (invariant 34) and is conditional on the znode version; which requests
  follow is derived (`broker_orders`) after ZooKeeper took the write.
* A leaderless partition's ISR stays as it is: without a leader nothing is committed, so each member still has all.
* Whoever leaves an ISR is eligible from then on, unless it may have lost data: it has what was committed while it was a
  member, and no leader commits anything more before that list is empty (`broker/replication/leadership.py`). Where the
  ISR keeps the minimum, whoever writes the plan empties the list at once (`Settlement`).
* Who is only suspected to be dead may come back as it is: while one of those who have everything is, nothing is decided
  that costs data, and a state that no other can lead is left as it is, with its leader. When its session ends, that
  goes on.
* Nobody leads who may have lost what it acknowledged, while anybody is known who has it: the partition waits for those
  (invariant 22). Where nobody is known, all assigned replicas are asked for their longest log (`Plan.recover`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from strandline.controller.controller_context import ControllerContext, LeaderAndIsr, LiveBroker, PartitionChange
from strandline.controller.planning.leader_elections import (
    LogEnd,
    controlled_shutdown_election,
    offline_election,
    recovery_election,
)
from strandline.protocol.types import NO_BROKER, TopicPartition


@dataclass(slots=True)
class Plan:
    """`recover`: partition → the replicas whose longest log is to lead; all that are assigned, unless the loss of what
    the others may have is accepted.
    `waits`: partition → replicas that are missed, one of which, or all, must come back before it can be led.
    `unclean_candidates`: topics that could be led at the price of data, if their configuration allows it."""

    changes: list[PartitionChange] = field(default_factory=list)
    recover: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    waits: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    unclean_candidates: dict[str, None] = field(default_factory=dict)


def plan_partitions(
    context: ControllerContext, partitions: Iterable[TopicPartition], unclean_topics: Collection[str] = ()
) -> Plan:
    """Bring each partition to the best state that its live replicas allow: leaders for new and leaderless ones, dead
    members out of the ISR. Covers broker failure, broker start, topic creation and fail-over.

    unclean_topics: rather lose data than wait for it, as partitions of `context.accepted_losses` do."""
    plan = Plan()
    for topic_partition in partitions:
        if topic_partition.topic in context.deleting:
            continue  # deletion is exclusive with elections (invariant 36)
        state = context.states.get(topic_partition)
        if state is None:
            change = _first_leader(context, topic_partition)
        elif _leads_in_this_life(context, topic_partition, state):
            change = _shrink(context, topic_partition, state)
        else:
            may_lose = topic_partition.topic in unclean_topics or topic_partition in context.accepted_losses
            change = _elect(context, topic_partition, state, may_lose, plan)
        if change is not None:
            plan.changes.append(change)
    return plan


def _leads_in_this_life(context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr) -> bool:
    """Does the leader live, in the life in which it became leader?"""
    return context.has_live_leader(topic_partition) and not (0 < state.mzxid < context.brokers[state.leader].epoch)


def members_online(context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr) -> tuple[int, ...]:
    """Members that stay. Who is no replica (Kafka was interrupted while it moved the partition) is told of no leader
    and follows none: it would count for the minimum without having anything."""
    return tuple(
        member
        for member in state.isr
        if member in context.replicas(topic_partition)
        and context.is_online(member, topic_partition)
        and member not in state.lossy
    )


def _first_leader(context: ControllerContext, topic_partition: TopicPartition) -> PartitionChange | None:
    """A new topic's partition: all live assigned replicas are in sync, since there is nothing yet."""
    live = context.able_replicas(topic_partition)
    if not live:
        return None
    return PartitionChange(topic_partition, None, LeaderAndIsr(live[0], 0, live, context.epoch, 0), "new partition")


def _shrink(context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr) -> PartitionChange | None:
    isr = members_online(context, topic_partition, state)
    if isr == state.isr:
        return None
    return change_state(context, topic_partition, state, state.leader, isr, "in-sync replica failed")


def _elect(
    context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr, may_lose: bool, plan: Plan
) -> PartitionChange | None:
    able = context.able_replicas(topic_partition)
    in_sync = [member for member in state.isr if member not in state.lossy]
    leader = offline_election(able, in_sync, state.elr)
    if leader is not None and leader in in_sync:
        isr = members_online(context, topic_partition, state)
        return change_state(context, topic_partition, state, leader, isr, "leader failed")
    if leader is not None:
        why = "no in-sync replica lives, an eligible one does"
        return change_state(context, topic_partition, state, leader, (leader,), why)
    missed = tuple(member for member in state.whole or context.replicas(topic_partition) if member not in able)
    if any(member in context.suspects for member in missed):
        plan.waits[topic_partition] = missed
        return None
    if able and (may_lose or not missed):
        plan.recover[topic_partition] = able
    else:
        plan.waits[topic_partition] = missed
        if able:
            plan.unclean_candidates[topic_partition.topic] = None
    if not state.has_leader:
        return None
    return change_state(context, topic_partition, state, NO_BROKER, state.isr, "no replica that has everything lives")


def change_state(
    context: ControllerContext,
    topic_partition: TopicPartition,
    state: LeaderAndIsr,
    leader: int,
    isr: tuple[int, ...],
    why: str,
    unclean: bool = False,
) -> PartitionChange:
    """The next state of a partition, one leader epoch on. The leader, if any, is in its ISR, which is never empty.
    After an unclean election nobody else is eligible: what the others have may be more than the leader has, or less."""
    assert isr and (leader == NO_BROKER or leader in isr), f"{topic_partition}: leader {leader}, ISR {isr}"
    is_led = leader != NO_BROKER
    after = LeaderAndIsr(
        leader,
        state.leader_epoch + 1,
        isr,
        context.epoch,
        state.zk_version + 1,
        elr=() if unclean else tuple(member for member in state.whole if member not in isr),
        lossy=() if is_led else state.lossy,
        last_known_leader=NO_BROKER if is_led else state.leader if state.has_leader else state.last_known_leader,
    )
    return PartitionChange(topic_partition, state, after, why, unclean)


def plan_doubtful_eligibles(context: ControllerContext, partitions: Iterable[TopicPartition]) -> list[PartitionChange]:
    """Nobody is eligible any more: a controller of another kind was in charge, whose leaders commit without caring
    about that list, and leave it in the znodes that they do not write."""
    changes = []
    for tp in partitions:
        state = context.states.get(tp)
        if state is not None and state.elr:
            epoch, version = state.leader_epoch + 1, state.zk_version + 1
            after = replace(state, leader_epoch=epoch, controller_epoch=context.epoch, zk_version=version, elr=())
            changes.append(PartitionChange(tp, state, after, "another kind of controller was in charge"))
    return changes


def plan_losses(
    context: ControllerContext,
    is_lossy: Callable[[LiveBroker, TopicPartition], bool],
    partitions: Iterable[TopicPartition],
) -> list[PartitionChange]:
    """Live brokers that may have lost data, or are to begin anew, are without their claims
    (`broker/membership/loss_reports`)."""
    changes = []
    for topic_partition in partitions:
        state = context.states.get(topic_partition)
        if state is None:
            continue
        known = said = state.to_znode()
        for broker in context.brokers.values():
            if is_lossy(broker, topic_partition):
                said = said.without_claim(broker.broker_id) or said
        if said is not known:
            after = LeaderAndIsr.of(said, state.zk_version + 1)
            after = replace(after, leader_epoch=state.leader_epoch + 1, controller_epoch=context.epoch)
            changes.append(PartitionChange(topic_partition, state, after, "a broker may have lost data"))
    return changes


def plan_controlled_shutdown(
    context: ControllerContext, leaving: int, silent: Collection[int], partitions: Iterable[TopicPartition]
) -> list[PartitionChange]:
    """Take a broker that is about to stop out of leadership and ISR wherever another in-sync replica can stay
    (`leaving` is known as such already).

    silent: brokers that are registered and do not answer. One that has just died is so until its session ends: an ISR
    of such members alone would have lost the one that is whole."""
    changes = []
    for topic_partition in partitions:
        state = context.states.get(topic_partition)
        if state is None or leaving not in state.isr or topic_partition.topic in context.deleting:
            continue
        isr = tuple(m for m in members_online(context, topic_partition, state) if m != leaving)
        staying = [member for member in isr if member not in silent]
        leader: int | None = state.leader if state.leader in staying else None
        if state.leader == leaving:
            leader = controlled_shutdown_election(context.able_replicas(topic_partition), staying)
        if leader is not None:
            why = f"controlled shutdown of broker {leaving}"
            changes.append(change_state(context, topic_partition, state, leader, isr, why))
    return changes


def still_led(context: ControllerContext, leaving: int) -> list[TopicPartition]:
    """Partitions that a stopping broker still leads and that may move yet: where no other replica lives and stays,
    there is nowhere to go, and nothing to wait for. One that is silent now may answer the next time."""
    return [
        tp
        for tp in context.leads(leaving)
        if tp.topic not in context.deleting and not context.replicas_with_later_epochs(tp) and context.able_replicas(tp)
    ]


def plan_recovery(
    context: ControllerContext, topic_partition: TopicPartition, log_ends: dict[int, LogEnd]
) -> PartitionChange | None:
    """Nobody is known to have everything, or that loss is accepted: lead by the longest log of those who answered."""
    state = context.states.get(topic_partition)
    if state is None or topic_partition.topic in context.deleting:
        return None
    leader = recovery_election(context.able_replicas(topic_partition), log_ends, state.last_known_leader)
    if leader is None:
        return None
    ends = ", ".join(f"broker {b} ends at {end.end_offset} of epoch {end.epoch}" for b, end in log_ends.items())
    why = f"the longest of the logs that are left leads: {ends}"
    return change_state(context, topic_partition, state, leader, (leader,), why, unclean=True)
