"""What operators look at: DescribeCluster, DescribeLogDirs, AlterReplicaLogDirs (which moves nothing here),
DescribeProducers.

Kafka's messages, with Kafka's names (`DescribeClusterRequest.json` and so on).
"""

from __future__ import annotations

from strandline.protocol.messages.base import Message, Named, Request
from strandline.protocol.messages.operations import OPERATIONS_NOT_ASKED_FOR
from strandline.protocol.types import NO_BROKER, NO_OFFSET, Int8, Int16, Int32, Int64

# --- DescribeCluster -------------------------------------------------------------------------------------------

BROKERS_ENDPOINT = 1
CONTROLLERS_ENDPOINT = 2
"""Of a cluster without ZooKeeper."""


class DescribeClusterBroker(Message, frozen=True, array_like=True, gc=False):
    """Where a client reaches a broker: the address that the listener it asked on advertises."""

    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = None


class DescribeClusterResponse(Message, frozen=True, array_like=True, gc=False):
    """`cluster_authorized_operations`: as in `operations`."""

    error_code: Int16
    error_message: str | None = None
    cluster_id: str = ""
    controller_id: Int32 = NO_BROKER
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = OPERATIONS_NOT_ASKED_FOR
    endpoint_type: Int8 = BROKERS_ENDPOINT
    throttle_time_ms: Int32 = 0


class DescribeClusterRequest(Request, frozen=True, array_like=True, gc=False):
    """`endpoint_type`: what kind of server is meant to answer (KIP-919)."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: Int8 = BROKERS_ENDPOINT


# --- DescribeLogDirs -------------------------------------------------------------------------------------------


class DescribeLogDirsPartition(Message, frozen=True, array_like=True, gc=False):
    """`partition_size`: bytes of its segments. `offset_lag`: by how much the log ends below the high watermark, −1
    where the broker has no role for it. `is_future_key`: a log that is being moved here."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: bool = False


class DescribeLogDirsTopic(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsResult(Message, frozen=True, array_like=True, gc=False):
    """One log directory; `total_bytes`, `usable_bytes`: of the volume that it lies in, −1 where nobody knows."""

    error_code: Int16
    log_dir: str
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Int64 = -1
    usable_bytes: Int64 = -1


class DescribeLogDirsResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    results: list[DescribeLogDirsResult] = []
    throttle_time_ms: Int32 = 0
    error_message: str | None = None
    """Of an answer that refuses the request as a whole; ours, not Kafka's."""


class DescribableLogDirTopic(Message, frozen=True, array_like=True, gc=False):
    topic: str
    partitions: Named[Int32]


class DescribeLogDirsRequest(Request, frozen=True, array_like=True, gc=False):
    """`topics` None: all that lies on this broker."""

    topics: Named[DescribableLogDirTopic] | None = None


# --- AlterReplicaLogDirs ---------------------------------------------------------------------------------------


class AlterReplicaLogDirPartitionResult(Message, frozen=True, array_like=True, gc=False):
    partition_index: Int32
    error_code: Int16


class AlterReplicaLogDirTopicResult(Message, frozen=True, array_like=True, gc=False):
    topic_name: str
    partitions: list[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirsResponse(Message, frozen=True, array_like=True, gc=False):
    results: list[AlterReplicaLogDirTopicResult]
    throttle_time_ms: Int32 = 0
    error_message: str | None = None
    """Of an answer that refuses the request as a whole; ours, not Kafka's."""


class AlterReplicaLogDirTopic(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: Named[Int32]


class AlterReplicaLogDir(Message, frozen=True, array_like=True, gc=False):
    path: str
    topics: Named[AlterReplicaLogDirTopic]


class AlterReplicaLogDirsRequest(Request, frozen=True, array_like=True, gc=False):
    """In which directories a broker is to have its replicas."""

    dirs: Named[AlterReplicaLogDir]


# --- DescribeProducers -----------------------------------------------------------------------------------------


class ProducerState(Message, frozen=True, array_like=True, gc=False):
    """What a log knows of one idempotent producer. `last_timestamp`: of its last batch, in ms; `last_offset`: of its
    last record, −1 where no batch is known (ours, not Kafka's)."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = -1
    current_txn_start_offset: Int64 = NO_OFFSET
    last_offset: Int64 = NO_OFFSET


class DescribeProducersPartitionResponse(Message, frozen=True, array_like=True, gc=False):
    partition_index: Int32
    error_code: Int16
    error_message: str | None = None
    active_producers: list[ProducerState] = []


class DescribeProducersTopicResponse(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: list[DescribeProducersPartitionResponse]


class DescribeProducersResponse(Message, frozen=True, array_like=True, gc=False):
    topics: list[DescribeProducersTopicResponse]
    throttle_time_ms: Int32 = 0


class DescribeProducersTopic(Message, frozen=True, array_like=True, gc=False):
    name: str
    partition_indexes: Named[Int32]


class DescribeProducersRequest(Request, frozen=True, array_like=True, gc=False):
    """Asked of any replica: each keeps what it knows of producers beside its log (KIP-664). `producer_ids`: of these
    only; None: of all (ours, not Kafka's)."""

    topics: Named[DescribeProducersTopic]
    producer_ids: Named[Int64] | None = None
