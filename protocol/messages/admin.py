"""What clients ask about and of the cluster: ApiVersions, Metadata, CreateTopics, DeleteTopics, DeleteRecords."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from strandline.protocol.keys_in_repr import repr_without_key
from strandline.protocol.messages.base import MAX_NAMED, Message, Named, Request
from strandline.protocol.messages.operations import OPERATIONS_NOT_ASKED_FOR
from strandline.protocol.reasons import Reason
from strandline.protocol.types import NO_BROKER, NO_OFFSET, NO_TOPIC_ID, Int16, Int32, Int64, TopicId

# --- ApiVersions -----------------------------------------------------------------------------------------------


class ApiVersion(Message, frozen=True, array_like=True, gc=False):
    api_key: Int16
    min_version: Int16
    max_version: Int16


class ApiVersionsResponse(Message, frozen=True, array_like=True, gc=False):
    """`broker_id` and `cluster_id` let a client notice that it reached another cluster than it thinks."""

    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = 0
    broker_id: Int32 = NO_BROKER
    cluster_id: str = ""
    software_version: str = ""


class ApiVersionsRequest(Request, frozen=True, array_like=True, gc=False):
    """The first request of every connection; answered whatever its version."""

    client_software_name: str = ""
    client_software_version: str = ""
    client_id: str = ""
    """Names this client in logs and, later, quotas; holds for the whole connection."""
    broker_key: str = ""
    """Of the broker that is asked, by another one of its cluster: it is no client then, for the whole connection."""

    def __repr__(self) -> str:
        return repr_without_key(self)


# --- Metadata --------------------------------------------------------------------------------------------------


class MetadataBroker(Message, frozen=True, array_like=True, gc=False):
    """Where a client reaches a broker: the address that the listener it asked on advertises."""

    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


class RefusedReplica(Message, frozen=True, array_like=True, gc=False):
    """A replica that its broker, which lives, does not serve, because of its log."""

    broker_id: Int32
    why: Reason


class MetadataPartition(Message, frozen=True, array_like=True, gc=False):
    """`offline_replicas`: whose broker does not live."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = []
    refused_replicas: list[RefusedReplica] = []


class MetadataTopic(Message, frozen=True, array_like=True, gc=False):
    """`name` None: asked for by an id that no topic has. `topic_authorized_operations`: as in `operations`."""

    error_code: Int16
    name: str | None
    partitions: list[MetadataPartition]
    topic_id: TopicId = NO_TOPIC_ID
    is_internal: bool = False
    topic_authorized_operations: Int32 = OPERATIONS_NOT_ASKED_FOR


class UnfinishedDeletion(Message, frozen=True, array_like=True, gc=False):
    """A topic that is being deleted, and what holds that up. It is none of the topics any more."""

    topic_name: str
    why: Reason


class MetadataResponse(Message, frozen=True, array_like=True, gc=False):
    brokers: list[MetadataBroker]
    topics: list[MetadataTopic]
    controller_id: Int32 = NO_BROKER
    cluster_id: str = ""
    throttle_time_ms: Int32 = 0
    error_message: str | None = None
    """Of an answer that refuses the request as a whole."""
    unfinished_deletions: list[UnfinishedDeletion] = []
    """Told to who asks for all topics."""
    cluster_authorized_operations: Int32 = OPERATIONS_NOT_ASKED_FOR


class MetadataRequest(Request, frozen=True, array_like=True, gc=False):
    """`topics` None: all topics; an empty list: brokers only, and the topics of `topic_ids` (KIP-516)."""

    topics: Named[str] | None = None
    allow_auto_topic_creation: bool = False
    topic_ids: Named[TopicId] = []
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


# --- CreateTopics ----------------------------------------------------------------------------------------------


class CreatableTopic(Message, frozen=True, array_like=True, gc=False):
    """−1 for `num_partitions` or `replication_factor` means the broker's default; a manual `assignments`
    (partition → replica ids, preferred first) excludes both."""

    name: str
    num_partitions: Int32 = -1
    replication_factor: Int16 = -1
    assignments: Annotated[dict[Int32, Named[Int32]], Meta(max_length=MAX_NAMED)] = {}
    configs: Annotated[dict[str, str], Meta(max_length=MAX_NAMED)] = {}


class CreatableTopicResult(Message, frozen=True, array_like=True, gc=False):
    name: str
    error_code: Int16
    error_message: str | None = None
    topic_id: TopicId = NO_TOPIC_ID
    num_partitions: Int32 = -1
    replication_factor: Int16 = -1


class CreateTopicsResponse(Message, frozen=True, array_like=True, gc=False):
    topics: list[CreatableTopicResult]
    throttle_time_ms: Int32 = 0


class CreateTopicsRequest(Request, frozen=True, array_like=True, gc=False):
    """Served by the controller (others answer NOT_CONTROLLER); answers once every partition has a leader that the
    brokers know, or after `timeout_ms` with REQUEST_TIMED_OUT (creation goes on)."""

    topics: Named[CreatableTopic]
    timeout_ms: Int32 = 30_000
    validate_only: bool = False


# --- DeleteTopics ----------------------------------------------------------------------------------------------


class DeletableTopicResult(Message, frozen=True, array_like=True, gc=False):
    """`name` None: asked for by an id that no topic has."""

    name: str | None
    error_code: Int16
    error_message: str | None = None
    topic_id: TopicId = NO_TOPIC_ID


class DeleteTopicsResponse(Message, frozen=True, array_like=True, gc=False):
    responses: list[DeletableTopicResult]
    throttle_time_ms: Int32 = 0


class DeleteTopicState(Message, frozen=True, array_like=True, gc=False):
    """A topic by its name, or by its id alone."""

    name: str | None = None
    topic_id: TopicId = NO_TOPIC_ID


class DeleteTopicsRequest(Request, frozen=True, array_like=True, gc=False):
    """Served by the controller; answers once the topic is gone from every broker or after `timeout_ms`. `topics`: more
    of them, as Kafka's version 6 names them; who asks by an id never deletes a topic that was made anew (KIP-516).
    `validate_only`: only say which topics would go, with their ids; Kafka's requests have no such thing."""

    topic_names: Named[str] = []
    timeout_ms: Int32 = 30_000
    topics: Named[DeleteTopicState] = []
    validate_only: bool = False

    def asked(self) -> list[DeleteTopicState]:
        """All of them in the order of the answer's results, each once however often it is named."""
        return list(dict.fromkeys([*map(DeleteTopicState, self.topic_names), *self.topics]))


# --- DeleteRecords ---------------------------------------------------------------------------------------------


class DeleteRecordsPartition(Message, frozen=True, array_like=True, gc=False):
    """Everything below `offset` goes; −1: everything below the high watermark."""

    partition_index: Int32
    offset: Int64


class DeleteRecordsTopic(Message, frozen=True, array_like=True, gc=False):
    """`topic_id`: of no topic that was made anew under that name meanwhile; Kafka's requests have no such thing."""

    name: str
    partitions: Named[DeleteRecordsPartition]
    topic_id: TopicId = NO_TOPIC_ID


class DeleteRecordsPartitionResult(Message, frozen=True, array_like=True, gc=False):
    """`low_watermark`: the smallest log start of all live replicas, −1 on an error or where one is not known."""

    partition_index: Int32
    error_code: Int16
    low_watermark: Int64 = NO_OFFSET


class DeleteRecordsTopicResult(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(Message, frozen=True, array_like=True, gc=False):
    topics: list[DeleteRecordsTopicResult]
    throttle_time_ms: Int32 = 0
    error_message: str | None = None
    """Of an answer that refuses the request as a whole."""


class DeleteRecordsRequest(Request, frozen=True, array_like=True, gc=False):
    """Served by the leaders; answers once every live replica begins there or after `timeout_ms` with
    REQUEST_TIMED_OUT (deletion goes on). OFFSET_OUT_OF_RANGE above the high watermark, POLICY_VIOLATION for a topic
    that is only compacted."""

    topics: Named[DeleteRecordsTopic]
    timeout_ms: Int32 = 30_000
