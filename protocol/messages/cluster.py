"""Between brokers: LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown (inter-broker listener only).

Every one carries `controller_epoch` (a lower one than seen: STALE_CONTROLLER_EPOCH) and `broker_epoch`, the czxid of
the receiver's registration that the controller has in mind (another one: STALE_BROKER_EPOCH, KIP-380).
"""

from __future__ import annotations

from strandline.protocol.keys_in_repr import repr_without_key
from strandline.protocol.messages.admin import RefusedReplica, UnfinishedDeletion
from strandline.protocol.messages.base import Message, Request
from strandline.protocol.reasons import Reason
from strandline.protocol.types import NO_EPOCH, Int16, Int32, Int64, TopicId

LEADER_EPOCH_TOPIC_DELETED = -2
"""StopReplica's leader epoch when the whole topic goes: newer than any epoch (KIP-570)."""


# --- LeaderAndIsr ----------------------------------------------------------------------------------------------


class LeaderAndIsrPartitionState(Message, frozen=True, array_like=True, gc=False):
    """What ZooKeeper says of one partition; `partition_epoch` is the state znode's version (compare-and-set token).
    `adding_replicas`: those of `replicas` that a reassignment under way adds; `removing_replicas`: those that it will
    take away."""

    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    partition_epoch: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []
    is_new: bool = False
    eligible_leader_replicas: list[Int32] = []
    """Beside the ISR: who has everything committed (`PartitionStateZnode.elr`), until the leader writes otherwise."""

    @property
    def replication_factor(self) -> int:
        """How many replicas count for the minimum in sync: those that a reassignment adds do once it is done."""
        added = sum(replica in self.adding_replicas for replica in self.replicas) if self.adding_replicas else 0
        return len(self.replicas) - added or len(self.replicas)


class LeaderAndIsrTopicState(Message, frozen=True, array_like=True, gc=False):
    topic_name: str
    topic_id: TopicId
    partition_states: list[LeaderAndIsrPartitionState]


class LiveLeader(Message, frozen=True, array_like=True, gc=False):
    """Where followers reach a leader: its inter-broker listener, and the key by which it knows them."""

    broker_id: Int32
    host_name: str
    port: Int32
    broker_key: str = ""

    def __repr__(self) -> str:
        return repr_without_key(self)


class PartitionError(Message, frozen=True, array_like=True, gc=False):
    topic_name: str
    partition_index: Int32
    error_code: Int16
    error_message: Reason | None = None
    """Why, in words for the operator."""
    log_epoch: Int32 = NO_EPOCH
    """LeaderAndIsr: the last leader epoch of a log that is refused for being later than the order's."""


class LeaderAndIsrResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    partition_errors: list[PartitionError]
    """Every partition of the request, also those without an error (error_code 0)."""


class LeaderAndIsrRequest(Request, frozen=True, array_like=True, gc=False):
    """Who leads, who follows; idempotent, and the highest (controller epoch, leader epoch) wins in any order.
    told_at_us, in each order of a controller: when it was written, by its monotonic clock. TCP may bring what was
    written on a connection that was given up behind what followed."""

    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Int64
    topic_states: list[LeaderAndIsrTopicState]
    live_leaders: list[LiveLeader]
    told_at_us: Int64 = 0


# --- StopReplica -----------------------------------------------------------------------------------------------


class StopReplicaPartitionState(Message, frozen=True, array_like=True, gc=False):
    """`leader_epoch` −2: the topic is gone. `topic_id` guards a re-created topic against a late deletion."""

    topic_name: str
    topic_id: TopicId
    partition_index: Int32
    leader_epoch: Int32
    delete_partition: bool


class StopReplicaResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    partition_errors: list[PartitionError]


class StopReplicaRequest(Request, frozen=True, array_like=True, gc=False):
    """Stop following; with `delete_partition` also remove the log."""

    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Int64
    partition_states: list[StopReplicaPartitionState]
    told_at_us: Int64 = 0


# --- UpdateMetadata --------------------------------------------------------------------------------------------


class UpdateMetadataEndpoint(Message, frozen=True, array_like=True, gc=False):
    listener: str
    host: str
    port: Int32
    security_protocol: str = "PLAINTEXT"


class UpdateMetadataBroker(Message, frozen=True, array_like=True, gc=False):
    id: Int32
    endpoints: list[UpdateMetadataEndpoint]
    rack: str | None = None
    broker_key: str = ""
    """For brokers' eyes only."""

    def __repr__(self) -> str:
        return repr_without_key(self)


class UpdateMetadataPartitionState(Message, frozen=True, array_like=True, gc=False):
    """`leader` −1: none lives; −2: the topic is being deleted, forget the partition."""

    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]
    offline_replicas: list[Int32] = []
    refused_replicas: list[RefusedReplica] = []


class UpdateMetadataTopicState(Message, frozen=True, array_like=True, gc=False):
    topic_name: str
    topic_id: TopicId
    partition_states: list[UpdateMetadataPartitionState]


class UpdateMetadataResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16


class UpdateMetadataRequest(Request, frozen=True, array_like=True, gc=False):
    """What every broker answers Metadata from. `live_brokers` and `unfinished_deletions` are complete each time,
    `topic_states` is a change set. `all_topics`: the names of all that there are, in a controller's first word to a
    broker, which may have been away when others went, and there in the first request; None: no news. `has_told_all`: in
    the last request of such a word, when every partition has been told."""

    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Int64
    topic_states: list[UpdateMetadataTopicState]
    live_brokers: list[UpdateMetadataBroker]
    unfinished_deletions: list[UnfinishedDeletion] = []
    all_topics: list[str] | None = None
    told_at_us: Int64 = 0
    has_told_all: bool = False


LEADER_DURING_DELETE = -2
"""`UpdateMetadataPartitionState.leader` of a topic that is being deleted."""


# --- ControlledShutdown ----------------------------------------------------------------------------------------


class ControlledShutdownResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    remaining_partitions: list[tuple[str, Int32]]
    """(topic, partition) that this broker still leads; empty: it may go."""


class ControlledShutdownRequest(Request, frozen=True, array_like=True, gc=False):
    """A broker asks the controller to move leadership away before it stops."""

    broker_id: Int32
    broker_epoch: Int64 = NO_EPOCH
