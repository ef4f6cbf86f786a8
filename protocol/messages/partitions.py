"""CreatePartitions: a topic gets more partitions. It never gets fewer."""

from __future__ import annotations

from strandline.protocol.messages.base import Message, Named, Request
from strandline.protocol.types import Int16, Int32


class CreatePartitionsAssignment(Message, frozen=True, array_like=True, gc=False):
    """Of one new partition: its replicas, preferred first."""

    broker_ids: Named[Int32]


class CreatePartitionsTopic(Message, frozen=True, array_like=True, gc=False):
    """`count`: how many partitions the topic is to have. `assignments`: of the new ones, in order; None: they are
    planned as those of a new topic, going on where the present ones end."""

    name: str
    count: Int32
    assignments: Named[CreatePartitionsAssignment] | None = None


class CreatePartitionsTopicResult(Message, frozen=True, array_like=True, gc=False):
    name: str
    error_code: Int16
    error_message: str | None = None


class CreatePartitionsResponse(Message, frozen=True, array_like=True, gc=False):
    results: list[CreatePartitionsTopicResult]
    throttle_time_ms: Int32 = 0


class CreatePartitionsRequest(Request, frozen=True, array_like=True, gc=False):
    """Served by the controller (others answer NOT_CONTROLLER); answers once every new partition has a leader that the
    brokers know, or after `timeout_ms` with REQUEST_TIMED_OUT (it goes on). Where a key leads to a partition by its
    hash, it leads to another one from then on: records of one key from before and after lie in different partitions."""

    topics: Named[CreatePartitionsTopic]
    timeout_ms: Int32 = 30_000
    validate_only: bool = False
