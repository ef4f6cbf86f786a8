"""What should be written for each partition, decided from the context alone: (context, partitions) → Plan.

Rules:
* Level triggered: a plan comes from how things stand, not from what changed; a missed or repeated event does no harm.
* Each leader or ISR write bumps the leader epoch (safety.md 34) and is conditional on the znode version; which requests
  follow is derived (`batches`) after ZooKeeper took the write.
* A leaderless partition's ISR stays as it is: without a leader nothing is committed, so each member still has all.
* Nothing is written over a partition whose ISR members may have lost data until it is resolved (`Plan.recover`): the
  transaction that wrote its state is the evidence that they are members of old.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial

from strandline.controller.context import ControllerContext, LeaderAndIsr, LiveBroker
from strandline.controller.elections import (
    LogEnd,
    controlled_shutdown_election,
    offline_election,
    recovery_election,
    unclean_election,
)
from strandline.controller.partition_states import PartitionState, check_partition_move, partition_state
from strandline.protocol.types import NO_BROKER, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """One state znode to write. `expected_version` None: create it. `after.zk_version` is what the write will yield.

    why: for the state-change log. unclean: data may be lost; counted and logged loudly.
    """

    topic_partition: TopicPartition
    before: LeaderAndIsr | None
    after: LeaderAndIsr
    expected_version: int | None
    why: str
    unclean: bool = False


@dataclass(slots=True)
class Plan:
    """`recover`: every ISR member is back and may have lost data, and so are those that left the ISR because of it: ask
    all live replicas where their logs end.
    `unclean_candidates`: topics that could be led at the price of data, if their configuration allows it."""

    changes: list[PartitionChange] = field(default_factory=list)
    recover: list[TopicPartition] = field(default_factory=list)
    unclean_candidates: dict[str, None] = field(default_factory=dict)


def plan_partitions(
    context: ControllerContext, partitions: Iterable[TopicPartition], unclean_topics: Collection[str] = ()
) -> Plan:
    """Bring each partition to the best state that its live replicas allow: leaders for new and leaderless ones, dead
    members out of the ISR. Covers broker failure, broker start, topic creation and fail-over."""
    plan = Plan()
    for topic_partition in partitions:
        if topic_partition.topic in context.deleting:
            continue  # deletion is exclusive with elections (safety.md 36)
        state = context.states.get(topic_partition)
        if state is None:
            change = _first_leader(context, topic_partition)
        elif _leads_in_this_life(context, topic_partition, state):
            change = _shrink(context, topic_partition, state)
        else:
            change = _elect(context, topic_partition, state, unclean_topics, plan)
        if change is not None:
            plan.changes.append(change)
    return plan


def _leads_in_this_life(context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr) -> bool:
    """Does the leader live, in the life in which it became leader, with its data?"""
    return context.has_live_leader(topic_partition) and not (0 < state.mzxid < context.brokers[state.leader].epoch)


def _members_online(
    context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr
) -> tuple[int, ...]:
    """Members that stay. Who is no replica (Kafka was interrupted while it moved the partition) is told of no leader
    and follows none: it would count for the minimum without having anything."""
    return tuple(
        member
        for member in state.isr
        if member in context.replicas(topic_partition)
        and context.is_online(member, topic_partition)
        and (member, topic_partition) not in context.suspects
    )


def _first_leader(context: ControllerContext, topic_partition: TopicPartition) -> PartitionChange | None:
    """A new topic's partition: all live assigned replicas are in sync, since there is nothing yet."""
    live = tuple(r for r in context.replicas(topic_partition) if context.may_lead(r, topic_partition))
    if not live:
        return None
    check_partition_move(topic_partition, partition_state(context, topic_partition), PartitionState.ONLINE)
    after = LeaderAndIsr(live[0], 0, live, context.epoch, zk_version=0)
    return PartitionChange(topic_partition, None, after, None, "new partition")


def _shrink(context: ControllerContext, topic_partition: TopicPartition, state: LeaderAndIsr) -> PartitionChange | None:
    isr = _members_online(context, topic_partition, state)
    if isr == state.isr:
        return None
    return change_state(context, topic_partition, state, state.leader, isr, "in-sync replica failed")


def _elect(
    context: ControllerContext,
    topic_partition: TopicPartition,
    state: LeaderAndIsr,
    unclean_topics: Collection[str],
    plan: Plan,
) -> PartitionChange | None:
    replicas = context.replicas(topic_partition)
    leader = offline_election(replicas, state.isr, partial(_may_lead, context, topic_partition))
    if leader is not None:
        isr = _members_online(context, topic_partition, state)
        return change_state(context, topic_partition, state, leader, isr, "leader failed")
    suspected = [member for member in state.isr if (member, topic_partition) in context.suspects]
    if suspected:
        back = all(context.is_online(r, topic_partition) for r in suspected)
        left = {member for member in state.left_isr if member in replicas}
        if len(suspected) == len(state.isr) and back and left <= context.brokers.keys():
            plan.recover.append(topic_partition)
        return None
    stray = unclean_election(
        replicas,
        lambda replica: context.is_online(replica, topic_partition) and replica not in context.shutting_down,
    )
    if stray is not None:
        if topic_partition.topic in unclean_topics:
            why = "unclean election: no in-sync replica lives"
            return change_state(context, topic_partition, state, stray, (stray,), why, unclean=True)
        plan.unclean_candidates[topic_partition.topic] = None
    if not state.has_leader:
        return None
    return change_state(context, topic_partition, state, NO_BROKER, state.isr, "no in-sync replica lives")


def change_state(
    context: ControllerContext,
    topic_partition: TopicPartition,
    state: LeaderAndIsr,
    leader: int,
    isr: tuple[int, ...],
    why: str,
    unclean: bool = False,
) -> PartitionChange:
    """The next state of a partition, one leader epoch on. The leader, if any, is in its ISR, which is never empty. Once
    somebody leads, it does not matter any more who had left the ISR before."""
    assert isr and (leader == NO_BROKER or leader in isr), f"{topic_partition}: leader {leader}, ISR {isr}"
    target = PartitionState.OFFLINE if leader == NO_BROKER else PartitionState.ONLINE
    check_partition_move(topic_partition, PartitionState.ONLINE if state.has_leader else PartitionState.OFFLINE, target)
    after = LeaderAndIsr(
        leader,
        state.leader_epoch + 1,
        isr,
        context.epoch,
        state.zk_version + 1,
        left_isr=state.left_isr if leader == NO_BROKER else (),
    )
    return PartitionChange(topic_partition, state, after, state.zk_version, why, unclean)


def plan_controlled_shutdown(
    context: ControllerContext, leaving: int, partitions: Iterable[TopicPartition]
) -> list[PartitionChange]:
    """Take a broker that is about to stop out of leadership and ISR wherever another in-sync replica can stay
    (`leaving` is in `context.shutting_down` already)."""
    changes = []
    for topic_partition in partitions:
        state = context.states.get(topic_partition)
        if state is None or leaving not in state.isr or topic_partition.topic in context.deleting:
            continue
        isr = tuple(m for m in _members_online(context, topic_partition, state) if m != leaving)
        leader: int | None = state.leader
        if state.leader == leaving:
            able = partial(_may_lead, context, topic_partition)
            leader = controlled_shutdown_election(context.replicas(topic_partition), isr, able, leaving)
        if leader is not None and leader in isr:
            why = f"controlled shutdown of broker {leaving}"
            changes.append(change_state(context, topic_partition, state, leader, isr, why))
    return changes


def _may_lead(context: ControllerContext, topic_partition: TopicPartition, replica: int) -> bool:
    return context.may_lead(replica, topic_partition)


def still_led(context: ControllerContext, leaving: int) -> list[TopicPartition]:
    """Partitions that a stopping broker still leads and that may move yet: where no other replica lives and stays,
    there is nowhere to go, and nothing to wait for."""
    return [
        tp
        for tp in context.leads(leaving)
        if tp.topic not in context.deleting and any(context.may_lead(r, tp) for r in context.replicas(tp))
    ]


def find_suspects(context: ControllerContext, brokers: Iterable[LiveBroker]) -> set[tuple[int, TopicPartition]]:
    """Replicas that stand in an ISR since before a life of their broker that may have lost data (safety.md 22).

    Such a broker takes itself out of every ISR that has another member before it registers, so this finds the
    partitions where it was the last one. A state that was written by a leader after the registration proves that the
    broker caught up in this life; one that is older than the registration proves that it did not. A leaderless state
    proves nothing: a controller may have written it a moment before it saw the registration.
    """
    lossy = {broker.broker_id: broker for broker in brokers if broker.lossy_start}
    if not lossy:
        return set()
    return {
        (member, tp)
        for tp, state in context.states.items()
        for member in state.isr
        if member in lossy and state.leader in (NO_BROKER, member) and _is_no_proof(state, lossy[member])
    }


def _is_no_proof(state: LeaderAndIsr, lossy: LiveBroker) -> bool:
    """Whether this state, which names the broker a member, does not show that it caught up since its lossy start."""
    was_written_unseen = state.leader == NO_BROKER and lossy.epoch == lossy.lossy_since
    return state.mzxid < lossy.lossy_since or was_written_unseen


def plan_recovery(
    context: ControllerContext, topic_partition: TopicPartition, log_ends: dict[int, LogEnd]
) -> PartitionChange | None:
    """Every ISR member may have lost data: lead by the longest surviving log of all live replicas."""
    state = context.states.get(topic_partition)
    if state is None or topic_partition.topic in context.deleting:
        return None
    replicas = [r for r in context.replicas(topic_partition) if context.is_online(r, topic_partition)]
    leader = recovery_election(replicas, log_ends)
    if leader is None:
        return None
    ends = ", ".join(f"broker {b} ends at {end.end_offset} of epoch {end.epoch}" for b, end in log_ends.items())
    why = f"balanced recovery, every in-sync replica may have lost data: {ends}"
    return change_state(context, topic_partition, state, leader, (leader,), why, unclean=True)
