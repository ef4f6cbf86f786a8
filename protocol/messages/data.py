"""The data plane: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch.

Field names are those of Kafka's message schema (ProduceRequest.json …) in snake_case.
"""

from __future__ import annotations

from strandline.protocol.messages.base import Message, Named, Request
from strandline.protocol.types import NO_BROKER, NO_EPOCH, NO_OFFSET, NO_TOPIC_ID, Int8, Int16, Int32, Int64, TopicId

EARLIEST_TIMESTAMP = -2
"""ListOffsets: ask for the log start offset."""
LATEST_TIMESTAMP = -1
"""ListOffsets: ask for the read limit (the high watermark)."""
MAX_TIMESTAMP = -3
"""ListOffsets: ask for the first record that has the largest timestamp (KIP-734)."""
EARLIEST_LOCAL_TIMESTAMP = -4
"""ListOffsets: ask where the log begins on the broker's own disk (KIP-405): the log start, since there is no other."""
LATEST_TIERED_TIMESTAMP = -5
"""ListOffsets: ask for the last offset that lies elsewhere (KIP-1005): there is none."""

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


# --- Produce ---------------------------------------------------------------------------------------------------


class PartitionProduceData(Message, frozen=True, array_like=True, gc=False):
    """`records_size` bytes of record batches for partition `index`, attached."""

    index: Int32
    records_size: Int32


class TopicProduceData(Message, frozen=True, array_like=True, gc=False):
    """One topic's part of a ProduceRequest; `topic_id` may be `NO_TOPIC_ID`."""

    name: str
    partition_data: Named[PartitionProduceData]
    topic_id: TopicId = NO_TOPIC_ID


class BatchIndexAndErrorMessage(Message, frozen=True, array_like=True, gc=False):
    """A record that keeps its batch out of the log: the `batch_index`-th of the batch, counted from 0 (KIP-467)."""

    batch_index: Int32
    batch_index_error_message: str | None = None


class PartitionProduceResponse(Message, frozen=True, array_like=True, gc=False):
    """`base_offset` is the offset of the first record, −1 on an error; `log_append_time_ms` −1 unless LogAppendTime."""

    index: Int32
    error_code: Int16
    base_offset: Int64 = NO_OFFSET
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = NO_OFFSET
    error_message: str | None = None
    current_leader_id: Int32 = NO_BROKER
    """With NOT_LEADER_OR_FOLLOWER: who leads now, as far as this broker knows."""
    current_leader_epoch: Int32 = NO_EPOCH
    record_errors: list[BatchIndexAndErrorMessage] = []
    """The records at fault, as far as that is known: the producer may send the others again."""
    is_repetition: bool = False
    """The log had a batch with these numbers of this producer, and nothing was appended; ours, not Kafka's."""


class TopicProduceResponse(Message, frozen=True, array_like=True, gc=False):
    name: str
    partition_responses: list[PartitionProduceResponse]


class ProduceResponse(Message, frozen=True, array_like=True, gc=False):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = 0


class ProduceRequest(Request, frozen=True, array_like=True, gc=False):
    """Append batches. `acks`: 0 no answer, 1 when the leader has it, −1 when it is below the high watermark."""

    acks: Int16
    timeout_ms: Int32
    topic_data: Named[TopicProduceData]
    transactional_id: str | None = None

    @property
    def has_answer(self) -> bool:
        return self.acks != 0


# --- Fetch -----------------------------------------------------------------------------------------------------


class FetchPartition(Message, frozen=True, array_like=True, gc=False):
    """Read `partition` from `fetch_offset` on.

    current_leader_epoch: the epoch the fetcher believes in (fencing, KIP-320); −1: none, consumers only.
    last_fetched_epoch: epoch of the follower's last batch, −1 when its log is empty or for consumers; lets the leader
        detect divergence (KIP-595).
    log_start_offset: the follower's, −1 for consumers.
    """

    partition: Int32
    fetch_offset: Int64
    partition_max_bytes: Int32
    current_leader_epoch: Int32 = NO_EPOCH
    last_fetched_epoch: Int32 = NO_EPOCH
    log_start_offset: Int64 = NO_OFFSET


class FetchTopic(Message, frozen=True, array_like=True, gc=False):
    """A topic by its name, or by its id alone, with `NO_TOPIC` as the name; with both they have to agree."""

    topic: str
    partitions: Named[FetchPartition]
    topic_id: TopicId = NO_TOPIC_ID


class ForgottenTopic(Message, frozen=True, array_like=True, gc=False):
    """Partitions that an incremental fetch takes out of its session; named as in `FetchTopic`."""

    topic: str
    partitions: Named[Int32]
    topic_id: TopicId = NO_TOPIC_ID


class EpochEndOffset(Message, frozen=True, array_like=True, gc=False):
    """The largest epoch ≤ the asked one that the leader knows, and where it ends."""

    epoch: Int32
    end_offset: Int64


class FetchPartitionData(Message, frozen=True, array_like=True, gc=False):
    """One partition of a FetchResponse; `records_size` bytes of whole batches are attached (−1: none), which the
    dialect fills in.

    diverging_epoch: set when the fetcher's log is not a prefix of the leader's: truncate, then fetch again.
    last_stable_offset equals high_watermark until there are transactions.
    """

    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    records_size: Int32 = -1
    log_start_offset: Int64 = NO_OFFSET
    last_stable_offset: Int64 = NO_OFFSET
    diverging_epoch: EpochEndOffset | None = None
    current_leader_id: Int32 = NO_BROKER
    current_leader_epoch: Int32 = NO_EPOCH
    preferred_read_replica: Int32 = NO_BROKER


class FetchTopicResponse(Message, frozen=True, array_like=True, gc=False):
    """`topic_id` as in the request; `topic` also where it was asked for by its id, if any topic has that."""

    topic: str
    partitions: list[FetchPartitionData]
    topic_id: TopicId = NO_TOPIC_ID


class FetchResponse(Message, frozen=True, array_like=True, gc=False):
    responses: list[FetchTopicResponse]
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    session_id: Int32 = 0
    error_message: str | None = None
    """Of an answer that refuses the request as a whole."""


class FetchRequest(Request, frozen=True, array_like=True, gc=False):
    """Read from several partitions; the same request serves consumers and followers.

    replica_id: broker id of a follower, −1 for a consumer, `ANY_REPLICA` for whoever compares replicas: any of them
    answers, up to the high watermark that it knows. replica_epoch: the follower's incarnation (the version of
    `/brokers/incarnations/<id>`), checked in ZooKeeper before that follower may join an ISR (KIP-903).
    The answer waits up to max_wait_ms for min_bytes; it holds at most max_bytes, but the first batch of the first
    non-empty partition is always sent whole (KIP-74).
    is_idle: of a follower that knows all of these logs to be committed. Where nothing changes while it waits the
    answer names no partition.
    knows_followers: of a consumer that takes answers of followers, too, whether it says where it is or not (KIP-392).
    """

    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32
    topics: Named[FetchTopic]
    replica_id: Int32 = NO_BROKER
    replica_epoch: Int64 = NO_EPOCH
    isolation_level: Int8 = READ_UNCOMMITTED
    session_id: Int32 = 0
    session_epoch: Int32 = NO_EPOCH
    forgotten_topics_data: Named[ForgottenTopic] = []
    rack_id: str = ""
    is_idle: bool = False
    knows_followers: bool = False


# --- ListOffsets -----------------------------------------------------------------------------------------------


class ListOffsetsPartition(Message, frozen=True, array_like=True, gc=False):
    """`timestamp`: milliseconds, or one of the negative numbers above."""

    partition_index: Int32
    timestamp: Int64
    current_leader_epoch: Int32 = NO_EPOCH


class ListOffsetsTopic(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: Named[ListOffsetsPartition]


class ListOffsetsPartitionResponse(Message, frozen=True, array_like=True, gc=False):
    """`offset` −1 where no record has a timestamp ≥ the asked one; `timestamp` and `leader_epoch` are that record's."""

    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = -1
    offset: Int64 = NO_OFFSET
    leader_epoch: Int32 = NO_EPOCH


class ListOffsetsTopicResponse(Message, frozen=True, array_like=True, gc=False):
    name: str
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Message, frozen=True, array_like=True, gc=False):
    topics: list[ListOffsetsTopicResponse]
    throttle_time_ms: Int32 = 0
    error_message: str | None = None
    """Of an answer that refuses the request as a whole."""


class ListOffsetsRequest(Request, frozen=True, array_like=True, gc=False):
    """Offsets by time; asked of the leader. A leader answers OFFSET_NOT_AVAILABLE until its HW is sure.

    replica_id: −1 for a consumer. Whoever compares replicas asks as `ANY_REPLICA`: then the earliest and latest
    offset are where the asked replica's log begins and ends, leader or not, committed or not."""

    topics: Named[ListOffsetsTopic]
    replica_id: Int32 = NO_BROKER
    isolation_level: Int8 = READ_UNCOMMITTED


# --- OffsetForLeaderEpoch --------------------------------------------------------------------------------------


class OffsetForLeaderPartition(Message, frozen=True, array_like=True, gc=False):
    partition: Int32
    leader_epoch: Int32
    current_leader_epoch: Int32 = NO_EPOCH


class OffsetForLeaderTopic(Message, frozen=True, array_like=True, gc=False):
    topic: str
    partitions: Named[OffsetForLeaderPartition]


class OffsetForLeaderPartitionResponse(Message, frozen=True, array_like=True, gc=False):
    partition: Int32
    error_code: Int16
    leader_epoch: Int32 = NO_EPOCH
    end_offset: Int64 = NO_OFFSET


class OffsetForLeaderTopicResponse(Message, frozen=True, array_like=True, gc=False):
    topic: str
    partitions: list[OffsetForLeaderPartitionResponse]


class OffsetForLeaderEpochResponse(Message, frozen=True, array_like=True, gc=False):
    topics: list[OffsetForLeaderTopicResponse]
    throttle_time_ms: Int32 = 0
    error_message: str | None = None
    """Of an answer that refuses the request as a whole."""


class OffsetForLeaderEpochRequest(Request, frozen=True, array_like=True, gc=False):
    """Where did this epoch end in your log? Serves clients that resume after a leader change (KIP-320)."""

    topics: Named[OffsetForLeaderTopic]
    replica_id: Int32 = NO_BROKER
