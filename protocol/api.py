"""Which requests exist: one row per API with all that there is to know of it. Adding an API is a message class, a row
here and a handler (`broker/server.py`).

Source of the numbers: Kafka's protocol guide ("Api Keys"). LeaderAndIsr, StopReplica, UpdateMetadata and
ControlledShutdown are spoken between brokers only and exist in the native dialect only.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from strandline.protocol import failures as failed
from strandline.protocol import messages as m
from strandline.protocol.failures import Failure
from strandline.protocol.messages.base import Message, Request


class ApiKey(enum.IntEnum):
    """The first integer of every request header: which message follows."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61


class Scheduling(enum.Enum):
    """How a request reaches its handler (`broker/network/request_channel.py`)."""

    INLINE = "called within its burst; what it leaves to do, a handler task does"
    QUEUED = "by one of the handler tasks"
    ADMIN = "by tasks of their own, since it waits for the controller or for ZooKeeper"
    LEAVING = "by tasks of their own, since a broker that leaves waits for it"
    CONTROL = "by the task that only controllers' orders have"


@dataclass(frozen=True, slots=True)
class Api:
    """One row. `failure` makes the answer to a request that failed as a whole. `native`, `kafka`: the lowest and the
    highest version that is spoken in that dialect; None: the API is not spoken in it."""

    key: ApiKey
    request: type[Request]
    response: type[Message]
    failure: Failure
    scheduling: Scheduling = Scheduling.INLINE
    is_controllers: bool = False
    """Answered by the controller, whichever broker is asked (`Duties.answers`)."""
    inter_broker_only: bool = False
    """Served on the inter-broker listener only (a controller's orders come from no client)."""
    native: tuple[int, int] = (0, 0)
    kafka: tuple[int, int] | None = None


_ORDER = (Scheduling.CONTROL, False, True)
_CONTROLLERS = (Scheduling.ADMIN, True)


def _configs(
    key: ApiKey, request: type[Request], response: type[Message], result: type[Message], kafka: tuple[int, int]
) -> Api:
    return Api(key, request, response, failed.per_resource(response, result), Scheduling.ADMIN, kafka=kafka)


_ROWS = (
    Api(ApiKey.PRODUCE, m.ProduceRequest, m.ProduceResponse, failed.produce, kafka=(3, 11)),
    Api(ApiKey.FETCH, m.FetchRequest, m.FetchResponse, failed.fetch, kafka=(4, 18)),
    Api(
        ApiKey.LIST_OFFSETS,
        m.ListOffsetsRequest,
        m.ListOffsetsResponse,
        failed.per_partition(
            m.ListOffsetsResponse,
            m.ListOffsetsTopicResponse,
            m.ListOffsetsPartitionResponse,
            "name",
            "partition_index",
        ),
        kafka=(1, 9),
    ),
    Api(ApiKey.METADATA, m.MetadataRequest, m.MetadataResponse, failed.metadata, kafka=(0, 12)),
    Api(
        ApiKey.LEADER_AND_ISR,
        m.LeaderAndIsrRequest,
        m.LeaderAndIsrResponse,
        failed.of_the_whole(m.LeaderAndIsrResponse, []),
        *_ORDER,
    ),
    Api(
        ApiKey.STOP_REPLICA,
        m.StopReplicaRequest,
        m.StopReplicaResponse,
        failed.of_the_whole(m.StopReplicaResponse, []),
        *_ORDER,
    ),
    Api(
        ApiKey.UPDATE_METADATA,
        m.UpdateMetadataRequest,
        m.UpdateMetadataResponse,
        failed.of_the_whole(m.UpdateMetadataResponse),
        *_ORDER,
    ),
    Api(
        ApiKey.CONTROLLED_SHUTDOWN,
        m.ControlledShutdownRequest,
        m.ControlledShutdownResponse,
        failed.of_the_whole(m.ControlledShutdownResponse, []),
        Scheduling.LEAVING,  # not an order: it waits for orders, and its own broker must be able to obey
        is_controllers=True,
        inter_broker_only=True,
    ),
    Api(
        ApiKey.OFFSET_COMMIT,
        m.OffsetCommitRequest,
        m.OffsetCommitResponse,
        failed.per_partition(
            m.OffsetCommitResponse,
            m.OffsetCommitResponseTopic,
            m.OffsetCommitResponsePartition,
            "name",
            "partition_index",
        ),
        kafka=(2, 9),
    ),
    Api(ApiKey.OFFSET_FETCH, m.OffsetFetchRequest, m.OffsetFetchResponse, failed.offset_fetch, kafka=(1, 9)),
    Api(
        ApiKey.FIND_COORDINATOR,
        m.FindCoordinatorRequest,
        m.FindCoordinatorResponse,
        failed.find_coordinator,
        kafka=(0, 6),
    ),
    Api(
        ApiKey.JOIN_GROUP,
        m.JoinGroupRequest,
        m.JoinGroupResponse,
        failed.of_the_whole(m.JoinGroupResponse),
        kafka=(0, 9),
    ),
    Api(
        ApiKey.HEARTBEAT,
        m.HeartbeatRequest,
        m.HeartbeatResponse,
        failed.of_the_whole(m.HeartbeatResponse),
        kafka=(0, 4),
    ),
    Api(
        ApiKey.LEAVE_GROUP,
        m.LeaveGroupRequest,
        m.LeaveGroupResponse,
        failed.of_the_whole(m.LeaveGroupResponse),
        kafka=(0, 5),
    ),
    Api(
        ApiKey.SYNC_GROUP,
        m.SyncGroupRequest,
        m.SyncGroupResponse,
        failed.of_the_whole(m.SyncGroupResponse),
        kafka=(0, 5),
    ),
    Api(
        ApiKey.DESCRIBE_GROUPS, m.DescribeGroupsRequest, m.DescribeGroupsResponse, failed.describe_groups, kafka=(0, 5)
    ),
    Api(
        ApiKey.LIST_GROUPS,
        m.ListGroupsRequest,
        m.ListGroupsResponse,
        failed.of_the_whole(m.ListGroupsResponse),
        kafka=(0, 5),
    ),
    Api(
        ApiKey.API_VERSIONS,
        m.ApiVersionsRequest,
        m.ApiVersionsResponse,
        failed.of_the_whole(m.ApiVersionsResponse, []),
        kafka=(0, 4),
    ),
    Api(
        ApiKey.CREATE_TOPICS,
        m.CreateTopicsRequest,
        m.CreateTopicsResponse,
        failed.create_topics,
        *_CONTROLLERS,
        kafka=(2, 7),
    ),
    Api(
        ApiKey.DELETE_TOPICS,
        m.DeleteTopicsRequest,
        m.DeleteTopicsResponse,
        failed.delete_topics,
        *_CONTROLLERS,
        kafka=(1, 6),
    ),
    Api(
        ApiKey.DELETE_RECORDS,
        m.DeleteRecordsRequest,
        m.DeleteRecordsResponse,
        failed.per_partition(
            m.DeleteRecordsResponse,
            m.DeleteRecordsTopicResult,
            m.DeleteRecordsPartitionResult,
            "name",
            "partition_index",
        ),
        kafka=(0, 2),
    ),
    Api(
        ApiKey.INIT_PRODUCER_ID,
        m.InitProducerIdRequest,
        m.InitProducerIdResponse,
        failed.of_the_whole(m.InitProducerIdResponse),
        kafka=(0, 5),
    ),
    Api(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        m.OffsetForLeaderEpochRequest,
        m.OffsetForLeaderEpochResponse,
        failed.per_partition(
            m.OffsetForLeaderEpochResponse,
            m.OffsetForLeaderTopicResponse,
            m.OffsetForLeaderPartitionResponse,
            "topic",
            "partition",
        ),
        kafka=(2, 4),
    ),
    _configs(
        ApiKey.DESCRIBE_CONFIGS,
        m.DescribeConfigsRequest,
        m.DescribeConfigsResponse,
        m.DescribeConfigsResult,
        kafka=(1, 4),
    ),
    _configs(
        ApiKey.ALTER_CONFIGS,
        m.AlterConfigsRequest,
        m.AlterConfigsResponse,
        m.AlterConfigsResourceResponse,
        kafka=(0, 2),
    ),
    Api(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        m.AlterReplicaLogDirsRequest,
        m.AlterReplicaLogDirsResponse,
        failed.alter_replica_log_dirs,
        kafka=(1, 2),
    ),
    Api(
        ApiKey.DESCRIBE_LOG_DIRS,
        m.DescribeLogDirsRequest,
        m.DescribeLogDirsResponse,
        failed.describe_log_dirs,
        Scheduling.QUEUED,  # it asks the disks how much room they have
        kafka=(1, 4),
    ),
    Api(
        ApiKey.CREATE_PARTITIONS,
        m.CreatePartitionsRequest,
        m.CreatePartitionsResponse,
        failed.create_partitions,
        *_CONTROLLERS,
        kafka=(0, 3),
    ),
    Api(ApiKey.DELETE_GROUPS, m.DeleteGroupsRequest, m.DeleteGroupsResponse, failed.delete_groups, kafka=(0, 2)),
    Api(
        ApiKey.ELECT_LEADERS,
        m.ElectLeadersRequest,
        m.ElectLeadersResponse,
        failed.elect_leaders,
        *_CONTROLLERS,
        kafka=(0, 2),
    ),
    _configs(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        m.IncrementalAlterConfigsRequest,
        m.IncrementalAlterConfigsResponse,
        m.AlterConfigsResourceResponse,
        kafka=(0, 1),
    ),
    Api(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        m.AlterPartitionReassignmentsRequest,
        m.AlterPartitionReassignmentsResponse,
        failed.with_message(m.AlterPartitionReassignmentsResponse),
        *_CONTROLLERS,
        kafka=(0, 0),
    ),
    Api(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        m.ListPartitionReassignmentsRequest,
        m.ListPartitionReassignmentsResponse,
        failed.with_message(m.ListPartitionReassignmentsResponse),
        *_CONTROLLERS,
        kafka=(0, 0),
    ),
    Api(
        ApiKey.OFFSET_DELETE,
        m.OffsetDeleteRequest,
        m.OffsetDeleteResponse,
        failed.of_the_whole(m.OffsetDeleteResponse),
        kafka=(0, 0),
    ),
    Api(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        m.DescribeClientQuotasRequest,
        m.DescribeClientQuotasResponse,
        failed.with_message(m.DescribeClientQuotasResponse),
        Scheduling.ADMIN,
        kafka=(0, 1),
    ),
    Api(
        ApiKey.ALTER_CLIENT_QUOTAS,
        m.AlterClientQuotasRequest,
        m.AlterClientQuotasResponse,
        failed.alter_client_quotas,
        Scheduling.ADMIN,
        kafka=(0, 1),
    ),
    Api(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        m.DescribeUserScramCredentialsRequest,
        m.DescribeUserScramCredentialsResponse,
        failed.with_message(m.DescribeUserScramCredentialsResponse),
        kafka=(0, 0),
    ),
    Api(
        ApiKey.DESCRIBE_CLUSTER,
        m.DescribeClusterRequest,
        m.DescribeClusterResponse,
        failed.with_message(m.DescribeClusterResponse),
        kafka=(0, 1),
    ),
    Api(
        ApiKey.DESCRIBE_PRODUCERS,
        m.DescribeProducersRequest,
        m.DescribeProducersResponse,
        failed.describe_producers,
        kafka=(0, 0),
    ),
)

APIS: dict[int, Api] = {row.key: row for row in _ROWS}
API_OF: dict[type[Request], Api] = {row.request: row for row in _ROWS}
