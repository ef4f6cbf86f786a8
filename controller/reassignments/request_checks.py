"""What an AlterPartitionReassignments request, or `/admin/reassign_partitions`, asks for, checked: pure.

Of each partition: where it is to go from how it stands, or why not. A broker that was a replica before may be away; one
that is to become a replica has to be registered. The brokers' own topics may be moved like others.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.controller.controller_context import ControllerContext
from strandline.controller.partition_replicas import PartitionReplicas
from strandline.controller.reassignments.reassignment_store import Move
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.topic_name import shortened
from strandline.protocol.types import TopicPartition

MAX_IDS_SHOWN = 20


def plan_move(
    context: ControllerContext, topic_partition: TopicPartition, target: Sequence[int] | None
) -> Move | BrokerError:
    """target: None cancels what is under way: the partition goes back to where it was. Where nothing is to be changed
    the move ends as it begins."""
    topic, now = context.topics.get(topic_partition.topic), context.replicas_of(topic_partition)
    if topic is None or now is None or topic.name in context.deleting:
        why = (
            "its topic is being deleted" if topic is not None and topic.name in context.deleting else "it is not there"
        )
        return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{shown(topic_partition)}: {why}")
    if target is None:
        if not now.is_moving:
            return BrokerError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic_partition}: no reassignment is under way"
            )
        return Move(topic.topic_id, now, now.towards(now.original or now.target))
    if tuple(target) == now.target:  # also while one of these is away, who was not when it began
        return Move(topic.topic_id, now, now)
    problem = _problem(context, now, target)
    if problem is not None:
        return BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{topic_partition}: {problem}")
    return Move(topic.topic_id, now, now.towards(target))


def _problem(context: ControllerContext, now: PartitionReplicas, target: Sequence[int]) -> str | None:
    """Kafka's words where it has some."""
    if not target:
        return "Empty replica list specified in partition reassignment."
    if len(set(target)) < len(target):
        return f"Duplicate replica ids in partition reassignment replica list: {_first(target)}"
    if min(target) < 0:
        return f"Invalid broker id in replica list: {_first(target)}"
    unknown = [replica for replica in target if replica not in context.brokers and replica not in now.original]
    if unknown:
        lists = f"Replica list: {_first(target)}, not there: {_first(unknown)}"
        return f"Replica assignment has brokers that are not alive. {lists}"
    return None


def shown(topic_partition: TopicPartition) -> str:
    """Its name for an answer."""
    return str(TopicPartition(shortened(topic_partition.topic), topic_partition.partition))


def _first(replicas: Sequence[int]) -> list[int]:
    return list(replicas[:MAX_IDS_SHOWN])
