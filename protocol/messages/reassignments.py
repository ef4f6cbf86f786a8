"""AlterPartitionReassignments and ListPartitionReassignments: which brokers are to hold a partition, and what of that
is under way (Kafka's APIs 45 and 46, KIP-455)."""

from __future__ import annotations

from strandline.protocol.messages.base import Message, Named, Request
from strandline.protocol.types import Int16, Int32


class ReassignablePartition(Message, frozen=True, array_like=True, gc=False):
    """`replicas`: the target, preferred first. None: cancel what is under way."""

    partition_index: Int32
    replicas: Named[Int32] | None = None


class ReassignableTopic(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: Named[ReassignablePartition]


class ReassignablePartitionResponse(Message, frozen=True, array_like=True, gc=False):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None


class ReassignableTopicResponse(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: list[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    error_message: str | None = None
    responses: list[ReassignableTopicResponse] = []
    throttle_time_ms: Int32 = 0


class AlterPartitionReassignmentsRequest(Request, frozen=True, array_like=True, gc=False):
    """Served by the controller, which answers once the intent is written down; `ListPartitionReassignments` tells what
    is left to do. Of each partition on its own: another target replaces the one before, None cancels it."""

    topics: Named[ReassignableTopic]
    timeout_ms: Int32 = 60_000


class OngoingPartitionReassignment(Message, frozen=True, array_like=True, gc=False):
    """`replicas`: all that hold it meanwhile, the target first."""

    partition_index: Int32
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []


class OngoingTopicReassignment(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: list[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    error_message: str | None = None
    topics: list[OngoingTopicReassignment] = []
    throttle_time_ms: Int32 = 0


class ListPartitionReassignmentsTopics(Message, frozen=True, array_like=True, gc=False):
    name: str
    partition_indexes: Named[Int32]


class ListPartitionReassignmentsRequest(Request, frozen=True, array_like=True, gc=False):
    """Served by the controller. `topics` None: whatever is being reassigned."""

    timeout_ms: Int32 = 60_000
    topics: Named[ListPartitionReassignmentsTopics] | None = None
