"""Preferred elections, decided from the context alone: who leads again where it should, why another one does not, and
of which brokers too many partitions are led elsewhere.

The preferred replica is the first of the assignment. It leads if it is in sync and certain to have everything, lives,
stays and answers; the living leader gives way to it, and all others stay in sync. While a partition is moved its
assignment begins with the target's replicas, so the preferred one is the first of these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from strandline.controller.controller_context import ControllerContext, LeaderAndIsr, PartitionChange
from strandline.controller.planning.planner import change_state, members_online
from strandline.protocol.errors import ErrorCode
from strandline.protocol.topic_name import shortened
from strandline.protocol.types import NO_BROKER, TopicPartition


class NotElected(NamedTuple):
    """Why the preferred replica of a partition is not elected."""

    code: ErrorCode
    text: str


def preferred_replica(context: ControllerContext, topic_partition: TopicPartition) -> int:
    """NO_BROKER for a partition that does not exist."""
    return next(iter(context.replicas(topic_partition)), NO_BROKER)


def leads_as_preferred(context: ControllerContext, topic_partition: TopicPartition) -> bool:
    state = context.states.get(topic_partition)
    return (
        state is not None
        and state.leader == preferred_replica(context, topic_partition)
        and context.has_live_leader(topic_partition)
    )


def why_not_elected(
    context: ControllerContext, silent: Collection[int], topic_partition: TopicPartition
) -> NotElected | None:
    """None where `plan_preferred_leaders` has its preferred replica lead. silent: registered brokers that do not
    answer."""
    name = f"{shortened(topic_partition.topic)}:{topic_partition.partition}"
    preferred = preferred_replica(context, topic_partition)
    if preferred == NO_BROKER or topic_partition.topic in context.deleting:
        return NotElected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}")
    if leads_as_preferred(context, topic_partition):
        return NotElected(ErrorCode.ELECTION_NOT_NEEDED, f"broker {preferred}, which is preferred, leads {name}")
    why = _why_not_able(context, silent, topic_partition, preferred)
    if why is None:
        return None
    return NotElected(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred}, which {name} prefers, {why}")


def _why_not_able(
    context: ControllerContext, silent: Collection[int], topic_partition: TopicPartition, preferred: int
) -> str | None:
    state = context.states.get(topic_partition)
    if preferred not in context.brokers:
        return "is away"
    if context.is_leaving(preferred):
        return "is about to stop"
    if not context.is_online(preferred, topic_partition):
        why = context.offline_replicas[preferred, topic_partition]
        return f"does not serve its replica{why and ': '}{why}"
    if preferred in silent:
        return "does not answer"
    if state is None or not _is_whole_member(state, preferred):
        return "is not in sync"
    later = context.replicas_with_later_epochs(topic_partition)
    if later:
        brokers = ", ".join(map(str, later))
        return f"stays as it is while brokers {brokers} have logs with later leader epochs than the partition's state"
    return None


def _is_whole_member(state: LeaderAndIsr, broker_id: int) -> bool:
    """In sync, and certain to have what it acknowledged."""
    return broker_id in state.isr and broker_id not in state.lossy


def plan_preferred_leaders(
    context: ControllerContext, silent: Collection[int], partitions: Iterable[TopicPartition]
) -> list[PartitionChange]:
    """The preferred replica leads wherever it can and does not yet. Members of the ISR that are gone leave with the
    same write."""
    changes = []
    for topic_partition in partitions:
        if why_not_elected(context, silent, topic_partition) is None:
            state, preferred = context.states[topic_partition], preferred_replica(context, topic_partition)
            isr = members_online(context, topic_partition, state)
            changes.append(change_state(context, topic_partition, state, preferred, isr, "preferred leader election"))
    return changes


def plan_rebalance(context: ControllerContext, steady: Collection[int], percentage: int) -> list[TopicPartition]:
    """Partitions whose preferred replicas should be elected, since more than `percentage` percent of those that prefer
    their broker are led elsewhere (Kafka's rule, broker by broker).

    steady: the live brokers that count; others get nothing. Left out are partitions that are being moved or deleted,
    and those whose preferred replica could not lead now."""
    preferring = dict.fromkeys(steady, 0)
    elsewhere: dict[int, list[TopicPartition]] = {broker_id: [] for broker_id in steady}
    for topic_partition in context.partitions():
        preferred = preferred_replica(context, topic_partition)
        if preferred in preferring and topic_partition.topic not in context.deleting:
            preferring[preferred] += 1
            state = context.states.get(topic_partition)
            if state is not None and state.leader != preferred:
                elsewhere[preferred].append(topic_partition)
    return [
        topic_partition
        for broker_id, its in elsewhere.items()
        if len(its) * 100 > percentage * preferring[broker_id]
        for topic_partition in its
        if not _is_moved(context, topic_partition) and why_not_elected(context, (), topic_partition) is None
    ]


def _is_moved(context: ControllerContext, topic_partition: TopicPartition) -> bool:
    """Is a reassignment under way?"""
    topic, partition = context.topics[topic_partition.topic], topic_partition.partition
    return bool(topic.adding_replicas.get(partition) or topic.removing_replicas.get(partition))
