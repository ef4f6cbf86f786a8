"""What a fetch would be answered with now: reads partitions within the limits of the request, and changes nothing.

Where a bug stands in the way of one partition, the others are served all the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec
import trio

from strandline.broker.handlers.fetch_sessions import Read
from strandline.broker.replication.deadlines import NEVER
from strandline.broker.replication.leadership import Leadership
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.broker.replication.replication_quota import ReplicationQuota
from strandline.broker.replication.throttles import Allowance
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    EpochEndOffset,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from strandline.protocol.types import ANY_REPLICA, NO_BROKER, NO_EPOCH, NO_TOPIC_ID
from strandline.runtime.config.broker import RACK_AWARE_SELECTOR
from strandline.runtime.disk import FileRegion
from strandline.runtime.logging import Logger, RateLimited
from strandline.storage.errors import LogStorageError, OffsetOutOfRange

UNLIMITED_BYTES = 2**31 - 1

R = TypeVar("R", bound=Read)


class Answer(msgspec.Struct):
    """`regions`: of each partition, in order; None where there is nothing to read. `is_enough`: who asked need not wait
    for more; see `FetchReads.read`. `is_clean`: no partition has an error.

    `throttled_bytes`: what of it a throttle counts. `held`: partitions that it lets nothing through of before
    `ready_at`."""

    response: FetchResponse
    regions: list[FileRegion | None]
    size_bytes: int
    is_enough: bool
    is_clean: bool = True
    throttled_bytes: int = 0
    held: Sequence[Partition] = ()
    ready_at: float = NEVER


class FetchReads:
    """See the module."""

    def __init__(self, replicas: Replicas, quota: ReplicationQuota, log: Logger) -> None:
        """quota: of what leaders send to followers that are throttled."""
        self.replicas = replicas
        self.quota = quota
        self._log = RateLimited(log)

    def read(
        self,
        message: FetchRequest,
        reads: Collection[R],
        is_news: Callable[[R, FetchPartitionData, FileRegion | None], bool] | None = None,
    ) -> Answer:
        """Partition by partition, in this order, until the limits of the request are reached. The answer names those of
        which `is_news` says so, or all.

        It is enough where an error or a divergence stands in it, and where as much as is wanted is there, also where
        less of it is sent (`_is_there`)."""
        remaining_bytes = message.max_bytes
        if message.replica_id < 0:
            remaining_bytes = min(remaining_bytes, self.replicas.config.fetch_max_bytes)
        wanted_bytes = min(message.min_bytes, remaining_bytes)
        regions: list[FileRegion | None] = []
        size_bytes = 0
        is_enough, is_clean = False, True
        topics: list[FetchTopicResponse] = []
        data_of_topic: list[FetchPartitionData] = []
        current: Read | None = None
        allowance = None
        if self.quota.is_limited and message.replica_id >= 0:
            allowance = Allowance(self.quota, message.replica_id, trio.current_time())
        for read in reads:
            try:
                data, region = self.read_one(read, message, remaining_bytes, not size_bytes, allowance)
            except Exception as error:
                data, region = self._failure(read, error), None
            if is_news is not None and not is_news(read, data, region):
                continue
            if current is None or read.topic != current.topic or read.topic_id != current.topic_id:
                current = read
                data_of_topic = []
                topics.append(FetchTopicResponse(read.topic, data_of_topic, read.topic_id))
            data_of_topic.append(data)
            regions.append(region)
            if region is not None:
                size_bytes += region.length
                remaining_bytes -= region.length
            elif data.error_code or data.diverging_epoch is not None or data.preferred_read_replica != NO_BROKER:
                is_enough = True
                is_clean &= not data.error_code
        held = () if allowance is None else allowance.held
        if not is_enough:
            is_enough = size_bytes >= wanted_bytes or (
                size_bytes > 0 and self._is_there(message, reads, wanted_bytes, held)
            )
        answer = Answer(FetchResponse(topics), regions, size_bytes, is_enough, is_clean)
        if allowance is not None:
            answer.throttled_bytes, answer.held = allowance.used_bytes, held
            answer.ready_at = allowance.ready_at() if held else NEVER
        return answer

    def _failure(self, read: Read, error: Exception) -> FetchPartitionData:
        """As in Kafka no other error is a failure of the topic (FailedFetchRequestsPerSec): no wrong broker, offset or
        epoch, and no bad disk."""
        self.replicas.traffic.rows[read.topic].failed_fetch_requests += 1
        self.note_bug(read, error)
        return _refusal(read.wanted.partition, ErrorCode.UNKNOWN_SERVER_ERROR, NO_BROKER, NO_EPOCH)

    def note_bug(self, read: Read, error: Exception) -> None:
        fields = {"topic": read.topic, "partition": read.wanted.partition, "error": repr(error)}
        self._log.error("fetch failed", "a partition could not be fetched", **fields, exc_info=error)

    def _is_there(
        self, message: FetchRequest, reads: Collection[Read], wanted_bytes: int, held: Collection[Partition]
    ) -> bool:
        """Whether the partitions, but those that are held back, have so much by Kafka's count (DelayedFetch): each what
        may be sent of it, although that may end within a batch, which is not sent then. Who reads an older segment gets
        less than is there, too, since no answer goes beyond one."""
        for read in reads:
            partition = self.replicas.partitions.get((read.topic, read.wanted.partition))
            offset = read.wanted.fetch_offset
            if partition is None or partition in held or not partition.log.log_start_offset <= offset:
                continue
            limit = partition.log.log_end_offset if message.replica_id >= 0 else partition.high_watermark
            if offset < min(limit, partition.log.segments.active.base_offset):
                return True
            with suppress(Exception):  # who reads it is told
                region = partition.log.read(offset, UNLIMITED_BYTES, limit)
                wanted_bytes -= min(region.length, read.wanted.partition_max_bytes) if region is not None else 0
        return wanted_bytes <= 0

    def read_one(
        self,
        read: Read,
        message: FetchRequest,
        remaining_bytes: int,
        is_first: bool,
        allowance: Allowance | None = None,
    ) -> tuple[FetchPartitionData, FileRegion | None]:
        """allowance: of a follower, while a throttle is set."""
        wanted, replica_id = read.wanted, message.replica_id
        index = wanted.partition
        partition = self.replicas.partitions.get((read.topic, index))
        is_follower = replica_id >= 0
        if partition is None:
            if read.topic_id != NO_TOPIC_ID and not self.replicas.metadata.has_topic(read.topic, read.topic_id):
                return _refusal(index, ErrorCode.UNKNOWN_TOPIC_ID, NO_BROKER, NO_EPOCH), None
            why, leader_id, leader_epoch = self.replicas.why_not_leading(read.topic, index, None)
            return _refusal(index, why, leader_id, leader_epoch), None
        fenced = self.fence(partition, read, is_follower, message)
        if fenced is not None:
            return _refusal(index, fenced, partition.leader_id, partition.leader_epoch), None
        leadership = partition.leadership
        log = partition.log
        high_watermark = partition.high_watermark  # read once: this snapshot holds for the whole answer (invariant 9)
        if leadership is not None:
            if is_follower and replica_id not in leadership.followers:
                code = ErrorCode.REPLICA_NOT_AVAILABLE
                return _refusal(index, code, partition.leader_id, partition.leader_epoch), None
            diverging = partition.diverging_epoch(wanted.last_fetched_epoch, wanted.fetch_offset)
            if diverging is not None:
                return _data(index, 0, high_watermark, log.log_start_offset, diverging), None
            if message.rack_id and not is_follower:
                nearest = self._nearest_replica(leadership, wanted.fetch_offset, message.rack_id)
                if nearest != NO_BROKER:
                    start = log.log_start_offset
                    return _data(index, 0, high_watermark, start, preferred_read_replica=nearest), None
        limit = log.log_end_offset if is_follower else high_watermark
        region: FileRegion | None = None
        code = ErrorCode.NONE
        if wanted.fetch_offset < limit or wanted.fetch_offset < log.log_start_offset:
            max_bytes = min(wanted.partition_max_bytes, remaining_bytes)
            throttled = allowance.throttled(partition) if allowance is not None else None
            free_bytes = allowance.left_bytes() if allowance is not None and throttled is not None else UNLIMITED_BYTES
            if free_bytes and (max_bytes > 0 or is_first):
                try:
                    region = log.read(wanted.fetch_offset, max(min(max_bytes, free_bytes), 0), limit)
                except OffsetOutOfRange:
                    code = ErrorCode.OFFSET_OUT_OF_RANGE
                except (LogStorageError, OSError) as error:
                    self.replicas.partition_failed(partition, error)
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                if region is not None and not is_first and region.length > max_bytes:
                    region = None  # a batch larger than what is left: only the first partition's is sent whole (KIP-74)
            if allowance is not None and throttled is not None:
                throttled.is_held_back = not free_bytes
                if region is not None:
                    allowance.used_bytes += region.length
                elif not free_bytes:
                    allowance.held.append(partition)
        elif wanted.fetch_offset > log.log_end_offset:
            # A follower cannot tell what its leader has: the consumer is to ask there (KIP-392).
            code = ErrorCode.OFFSET_OUT_OF_RANGE if leadership is not None else ErrorCode.OFFSET_NOT_AVAILABLE
        elif leadership is not None and not is_follower and high_watermark < leadership.leading_since_offset:
            # Its predecessor may have shown more: this leader's HW would seem to go back (invariant 8).
            code = ErrorCode.OFFSET_NOT_AVAILABLE
        return _data(index, code, high_watermark, log.log_start_offset), region

    def _nearest_replica(self, leadership: Leadership, fetch_offset: int, rack: str) -> int:
        """Which follower a consumer in that rack is to read from instead, by Kafka's RackAwareReplicaSelector: of those
        in sync that live there and have the offset, the one that has most; nobody where this broker lives there."""
        config, alive = self.replicas.config, self.replicas.metadata.brokers
        if config.replica_selector_class != RACK_AWARE_SELECTOR or config.broker_rack == rack:
            return NO_BROKER
        near = [
            (progress.log_end_offset, progress.caught_up_at, -progress.broker_id)
            for progress in leadership.followers.values()
            if progress.broker_id in leadership.isr
            and 0 <= progress.log_start_offset <= fetch_offset <= progress.log_end_offset
            and progress.broker_id in alive
            and alive[progress.broker_id].rack == rack
        ]
        return -max(near)[2] if near else NO_BROKER

    def _is_any_replica(self, message: FetchRequest) -> bool:
        """Whether followers may answer it: of a tool that compares replicas, or of a consumer that says where it is, or
        knows of followers (KIP-392). Of the latter only where consumers are sent to followers at all: without the
        selector these learn late what is committed, and who knows another leader is better told so."""
        if message.replica_id >= 0:
            return False
        if message.replica_id == ANY_REPLICA or message.rack_id:
            return True
        return message.knows_followers and self.replicas.config.replica_selector_class == RACK_AWARE_SELECTOR

    def fence(
        self, partition: Partition, read: Read, is_follower: bool, message: FetchRequest | None = None
    ) -> ErrorCode | None:
        """Why this fetch may not be served here, or None (KIP-320). None for `message`: by leaders only."""
        if read.topic_id != NO_TOPIC_ID and read.topic_id != partition.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        epoch = read.wanted.current_leader_epoch
        if epoch != NO_EPOCH or is_follower:
            if epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            # Nobody who follows at this epoch can have records of a later one: it must not be told to cut them.
            if epoch > partition.leader_epoch or (is_follower and read.wanted.last_fetched_epoch > epoch):
                return ErrorCode.UNKNOWN_LEADER_EPOCH
        if partition.leadership is None and not (
            message is not None and partition.is_following and self._is_any_replica(message)
        ):
            return ErrorCode.KAFKA_STORAGE_ERROR if partition.failed else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return None


def _data(
    index: int,
    code: int,
    high_watermark: int,
    log_start_offset: int,
    diverging: EpochEndOffset | None = None,
    preferred_read_replica: int = NO_BROKER,
) -> FetchPartitionData:
    return FetchPartitionData(
        index,
        code,
        high_watermark,
        log_start_offset=log_start_offset,
        last_stable_offset=high_watermark,
        diverging_epoch=diverging,
        preferred_read_replica=preferred_read_replica,
    )


def _refusal(index: int, code: int, leader_id: int, leader_epoch: int) -> FetchPartitionData:
    return FetchPartitionData(index, code, -1, current_leader_id=leader_id, current_leader_epoch=leader_epoch)
