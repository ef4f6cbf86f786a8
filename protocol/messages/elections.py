"""ElectLeaders: an operator asks for leaders that the controller would not elect by itself, or not yet.

Kafka's message (API 43) with a field of ours in the request, to ask only what would be, and one in the answer, which
says what each replica has: who accepts a loss should know which.
"""

from __future__ import annotations

from strandline.protocol.messages.base import Message, Named, Request
from strandline.protocol.types import NO_BROKER, NO_EPOCH, NO_OFFSET, Int8, Int16, Int32, Int64

PREFERRED = 0
UNCLEAN = 1


class ReplicaStanding(Message, frozen=True, array_like=True, gc=False):
    """What is known of one replica. `end_offset`, `leader_epoch`: of its log, −1 where it does not say.
    `has_everything`: it has all that was acknowledged with acks=all, whether it lives or not."""

    broker_id: Int32
    is_alive: bool
    has_everything: bool
    end_offset: Int64 = NO_OFFSET
    leader_epoch: Int32 = NO_EPOCH


class ElectLeadersTopic(Message, frozen=True, array_like=True, gc=False):
    topic: str
    partitions: Named[Int32]


class ElectLeadersPartitionResult(Message, frozen=True, array_like=True, gc=False):
    """`leader_id`: who leads now, or would."""

    partition_id: Int32
    error_code: Int16
    error_message: str | None = None
    leader_id: Int32 = NO_BROKER
    replicas: list[ReplicaStanding] = []


class ElectLeadersTopicResult(Message, frozen=True, array_like=True, gc=False):
    topic: str
    partition_result: list[ElectLeadersPartitionResult]


class ElectLeadersResponse(Message, frozen=True, array_like=True, gc=False):
    replica_election_results: list[ElectLeadersTopicResult]
    error_code: Int16 = 0
    error_message: str | None = None
    throttle_time_ms: Int32 = 0


class ElectLeadersRequest(Request, frozen=True, array_like=True, gc=False):
    """Served by the controller. `election_type`:

    0, preferred: the first of the assigned replicas leads, where it is in sync and lives; else
       PREFERRED_LEADER_NOT_AVAILABLE.
    1, unclean: lead by the longest log of those who live, the loss of what the others have is accepted;
       ELIGIBLE_LEADERS_NOT_AVAILABLE where nobody lives.

    Partitions that are led as asked for already: ELECTION_NOT_NEEDED. `topic_partitions` None: all partitions of the
    cluster, and the answer leaves those out. `validate_only`: say what an unclean election would do, and do nothing."""

    election_type: Int8
    topic_partitions: Named[ElectLeadersTopic] | None
    timeout_ms: Int32 = 30_000
    validate_only: bool = False
