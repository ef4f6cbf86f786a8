"""Questions that a broker answers from memory: ApiVersions, Metadata, ListOffsets, OffsetForLeaderEpoch.

All inline, but for those about more than PARTITIONS_PER_STEP partitions, which are answered in steps, and for
ListOffsets by timestamp: a handler task reads indexes and decodes batches for it, a worker what is compressed. Both
leave their burst and let others run in between; only the latter waits for anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from functools import partial

import trio

from strandline.broker.membership.broker_key import is_key
from strandline.broker.network.request import Remainder, RequestInHand
from strandline.broker.replication.burst import Burst
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.broker.steps import at_once_or_in_steps
from strandline.protocol.api import APIS
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    ALL_CLUSTER_OPERATIONS,
    ALL_TOPIC_OPERATIONS,
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    OPERATIONS_NOT_ASKED_FOR,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResponse,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResponse,
    UpdateMetadataPartitionState,
)
from strandline.protocol.records import first_record_from
from strandline.protocol.records.batch import BatchHeader, InvalidBatch
from strandline.protocol.records.conversion import find_record
from strandline.protocol.topic_name import INTERNAL_TOPICS, InvalidTopicName, check_topic_name
from strandline.protocol.types import ANY_REPLICA, NO_BROKER, NO_EPOCH, TopicId, TopicPartition
from strandline.runtime.environment import Computing, ComputingFailed
from strandline.storage.errors import LogStorageError
from strandline.storage.log.timestamps import batch_for_timestamp, largest_timestamp
from strandline.storage.manager.log_manager import LogManager

INLINE_DECODE_BYTES = 256 * 1024
"""Uncompressed batches up to this size are looked into on the event loop: a millisecond or two of small records."""


class QueryHandler:
    """Answers from this broker's replicas and the metadata cache."""

    def __init__(
        self,
        logs: LogManager,
        replicas: Replicas,
        burst: Burst,
        computing: Computing,
        *,
        cluster_id: str,
        software_version: str,
        broker_key: str,
        create_topics: Callable[[list[str], RequestInHand[MetadataRequest]], None],
    ) -> None:
        """`create_topics(names, request)` starts automatic creations for who asks and returns at once."""
        self._logs = logs
        self._replicas = replicas
        self._burst = burst
        self._computing = computing
        self._metadata = replicas.metadata
        self._cluster_id = cluster_id
        self._software_version = software_version
        self._broker_key = broker_key
        self._create_topics = create_topics

    # --- ApiVersions -------------------------------------------------------------------------------------------

    def api_versions(self, request: RequestInHand[ApiVersionsRequest]) -> None:
        """Whoever names this broker's key is a broker from here on, by whatever listener it came."""
        is_inter_broker = request.context.is_inter_broker
        if not is_inter_broker and is_key(request.message.broker_key, self._broker_key):
            is_inter_broker = True
            connection = request.connection
            connection.context = replace(connection.context, is_inter_broker=True)
        keys = [
            ApiVersion(key, *listed)
            for key, api in sorted(APIS.items())
            if (listed := request.dialect.listed(api)) is not None and (is_inter_broker or not api.inter_broker_only)
        ]
        request.respond(
            ApiVersionsResponse(
                0,
                keys,
                broker_id=self._replicas.broker_id,
                cluster_id=self._cluster_id,
                software_version=self._software_version,
            )
        )

    # --- Metadata ----------------------------------------------------------------------------------------------

    def metadata(self, request: RequestInHand[MetadataRequest]) -> Remainder | None:
        """Brokers at the address that the asking listener advertises; topics as asked, or all."""
        asked, known, name_of = request.message.topics, self._metadata.topics, self._metadata.name_of
        names = sorted(known) if asked is None else list(dict.fromkeys(asked))
        ids = list(dict.fromkeys(request.message.topic_ids))
        described = [*names, *(name_of.get(topic_id) for topic_id in ids)]
        partitions = sum(len(known[name].partitions) for name in described if name in known)
        return at_once_or_in_steps(self._describe(request, names, ids), len(described) + partitions)

    def _describe(self, request: RequestInHand[MetadataRequest], names: list[str], ids: list[TopicId]) -> Iterator[int]:
        """Topic by topic, each as it is at its turn; the brokers as they are at the first: who is named as a leader is
        among the brokers of the answer."""
        answer, alive, missing = self._brokers(request), self._metadata.brokers, list[str]()
        for name in names:
            if request.message.topics is None and name not in self._metadata.topics:
                continue  # it went meanwhile, and nobody asked for it
            topic = self._topic(name, request, alive, missing)
            answer.topics.append(topic)
            yield 1 + len(topic.partitions)
        for topic_id in ids:
            found = self._metadata.name_of.get(topic_id)
            if found is None:
                topic = MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, [], topic_id)
            else:
                topic = self._topic(found, request, alive, missing)
            answer.topics.append(topic)
            yield 1 + len(topic.partitions)
        if missing:
            self._create_topics(missing, request)
        request.respond(answer)

    def _brokers(self, request: RequestInHand[MetadataRequest]) -> MetadataResponse:
        """The answer without its topics."""
        listener = request.context.listener_name
        brokers = [
            MetadataBroker(broker.id, endpoint.host, endpoint.port, broker.rack)
            for broker in self._metadata.brokers.values()
            for endpoint in broker.endpoints
            if endpoint.listener == listener
        ]
        tells_operations = request.message.include_cluster_authorized_operations
        return MetadataResponse(
            brokers,
            [],
            cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if tells_operations else OPERATIONS_NOT_ASKED_FOR,
            controller_id=self._metadata.controller_id,
            cluster_id=self._cluster_id,
            unfinished_deletions=self._metadata.unfinished_deletions if request.message.topics is None else [],
        )

    def _topic(
        self, name: str, request: RequestInHand[MetadataRequest], alive: Container[int], missing: list[str]
    ) -> MetadataTopic:
        """missing: gets the name, too, where the topic is to be created."""
        known = self._metadata.topics.get(name)
        if known is not None:
            partitions = [_partition(state, alive) for _, state in sorted(known.partitions.items())]
            tells_operations = request.message.include_topic_authorized_operations
            operations = ALL_TOPIC_OPERATIONS if tells_operations else OPERATIONS_NOT_ASKED_FOR
            return MetadataTopic(0, name, partitions, known.topic_id, name in INTERNAL_TOPICS, operations)
        try:
            check_topic_name(name)
        except InvalidTopicName:
            return MetadataTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name, [])
        if request.message.allow_auto_topic_creation and name in INTERNAL_TOPICS:  # not for clients to make
            return MetadataTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name, [], is_internal=True)
        if self._metadata.version == 0:  # nothing is known yet: the topic may well exist
            return MetadataTopic(ErrorCode.LEADER_NOT_AVAILABLE, name, [])
        if request.message.allow_auto_topic_creation and self._replicas.config.auto_create_topics_enable:
            missing.append(name)
            return MetadataTopic(ErrorCode.LEADER_NOT_AVAILABLE, name, [])
        return MetadataTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, [])

    # --- ListOffsets -------------------------------------------------------------------------------------------

    def list_offsets(self, request: RequestInHand[ListOffsetsRequest]) -> Remainder | None:
        """Earliest, latest (the read limit), by timestamp, or the largest timestamp; asked of the leader only, but for
        `_end_of_replica`. Whether transactions are open changes nothing: there are none, so what is committed is
        stable, too."""
        self._burst.write_appends()  # an earlier produce of the same burst is visible to this question
        topics = request.message.topics
        answers = [ListOffsetsTopicResponse(topic.name, []) for topic in topics]
        if any(_is_by_time(wanted) for topic in topics for wanted in topic.partitions):
            return partial(self._search, request, answers)
        return at_once_or_in_steps(self._list(request, answers), _count(topics))

    def _list(
        self, request: RequestInHand[ListOffsetsRequest], answers: list[ListOffsetsTopicResponse]
    ) -> Iterator[int]:
        of_any_replica = request.message.replica_id == ANY_REPLICA
        for topic, answer in zip(request.message.topics, answers, strict=True):
            for wanted in topic.partitions:
                ask = self._end_of_replica if of_any_replica else self._list_offset
                answer.partitions.append(ask(topic.name, wanted))
                yield 1
        request.respond(ListOffsetsResponse(answers))

    async def _search(
        self, request: RequestInHand[ListOffsetsRequest], answers: list[ListOffsetsTopicResponse]
    ) -> None:
        """One after the other, each as the log is at its turn."""
        for topic, answer in zip(request.message.topics, answers, strict=True):
            for wanted in topic.partitions:
                await trio.lowlevel.checkpoint()
                answer.partitions.append(
                    await self._find_by_time(topic.name, wanted)
                    if _is_by_time(wanted)
                    else self._list_offset(topic.name, wanted)
                )
        request.respond(ListOffsetsResponse(answers))

    def _list_offset(self, topic: str, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        """What no record has to be read for; for a timestamp: the error, if there is one."""
        index, timestamp = wanted.partition_index, wanted.timestamp
        partition = self._replicas.partitions.get((topic, index))
        code = self._fence(topic, index, wanted.current_leader_epoch, partition)
        if code:
            return ListOffsetsPartitionResponse(index, code)
        assert partition is not None and partition.leadership is not None
        log, leadership = partition.log, partition.leadership
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            start = log.log_start_offset
            return ListOffsetsPartitionResponse(index, 0, -1, start, log.epochs.epoch_at(start))
        if timestamp == LATEST_TIERED_TIMESTAMP:
            return ListOffsetsPartitionResponse(index, 0)
        if leadership.high_watermark < leadership.leading_since_offset:
            # A new leader's HW may lag behind what its predecessor has shown: wait until it is sure (invariant 8).
            return ListOffsetsPartitionResponse(index, ErrorCode.OFFSET_NOT_AVAILABLE)
        if timestamp == LATEST_TIMESTAMP:
            return ListOffsetsPartitionResponse(index, 0, -1, leadership.high_watermark, partition.leader_epoch)
        if timestamp < MAX_TIMESTAMP:
            return ListOffsetsPartitionResponse(index, ErrorCode.UNSUPPORTED_VERSION)
        return ListOffsetsPartitionResponse(index, 0)

    def _end_of_replica(self, topic: str, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        """For tools that compare replicas (`ANY_REPLICA`), also from a follower, as a Kafka does: the latest offset is
        where this replica's log ends, whatever is committed of it, and the earliest where it begins."""
        index, log_end = wanted.partition_index, wanted.timestamp == LATEST_TIMESTAMP
        partition = self._replicas.partitions.get((topic, index))
        serves = partition is not None and (partition.leadership is not None or partition.is_following)
        if partition is None or not serves or wanted.timestamp not in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP):
            return self._list_offset(topic, wanted)
        if code := self._fence_epoch(wanted.current_leader_epoch, partition):
            return ListOffsetsPartitionResponse(index, code)
        log = partition.log
        offset = log.log_end_offset if log_end else log.log_start_offset
        epoch = partition.leader_epoch if log_end else log.epochs.epoch_at(offset)
        return ListOffsetsPartitionResponse(index, 0, -1, offset, epoch)

    async def _find_by_time(self, topic: str, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        """The first record that is not older, or that has the largest timestamp of those below the read limit. The role
        is looked at anew after each wait for a worker."""
        index, timestamp_ms = wanted.partition_index, wanted.timestamp
        behind = 0
        while True:
            refusal = self._list_offset(topic, wanted)
            if refusal.error_code:
                return refusal
            partition = self._replicas.partitions[(topic, index)]
            epoch = partition.leader_epoch
            start, end = max(behind, partition.log.log_start_offset), partition.high_watermark
            try:
                if wanted.timestamp == MAX_TIMESTAMP and not behind:
                    timestamp_ms = largest_timestamp(partition.log, start, end)
                found = batch_for_timestamp(partition.log, timestamp_ms, start, end) if timestamp_ms >= 0 else None
                if found is None:
                    return ListOffsetsPartitionResponse(index, 0)
                header, batch = found
                record = await self._first_record(header, batch, timestamp_ms, start, end)
            except InvalidBatch as error:  # a producer may have compressed nonsense, which is looked into only here
                return ListOffsetsPartitionResponse(index, error.code)
            except LogStorageError as error:
                self._replicas.partition_failed(partition, error)
                return ListOffsetsPartitionResponse(index, ErrorCode.KAFKA_STORAGE_ERROR)
            if self._replicas.partitions.get((topic, index)) is not partition or partition.leader_epoch != epoch:
                behind = 0  # meanwhile the log may have become another: once more from the start
            elif record:
                return ListOffsetsPartitionResponse(index, 0, record[1], record[0], header.partition_leader_epoch)
            else:
                behind = header.next_offset

    async def _first_record(
        self, header: BatchHeader, batch: memoryview, timestamp_ms: int, start: int, end: int
    ) -> Sequence[int]:
        """(offset, timestamp), or nothing. InvalidBatch: it cannot be decoded."""
        cap = self._replicas.config.max_decompressed_message_bytes
        if not header.codec and len(batch) <= INLINE_DECODE_BYTES:
            return first_record_from(batch, timestamp_ms, start, end, cap) or ()
        try:
            found = await self._computing.run(find_record, batch, timestamp_ms, start, end, cap)
        except ComputingFailed as error:
            code = ErrorCode.REQUEST_TIMED_OUT if error.may_succeed_later else ErrorCode.UNKNOWN_SERVER_ERROR
            raise InvalidBatch(code, str(error)) from error
        if isinstance(found, int):
            raise InvalidBatch(ErrorCode(found), f"the batch at offset {header.base_offset} cannot be decoded")
        return found

    # --- OffsetForLeaderEpoch ----------------------------------------------------------------------------------

    def offset_for_leader_epoch(self, request: RequestInHand[OffsetForLeaderEpochRequest]) -> Remainder | None:
        """Where an epoch ends: from the leader for clients; for the controller (`ANY_REPLICA`) from whatever log lies
        here, which it asks for when every in-sync replica may have lost data (invariant 22)."""
        of_any_replica = request.message.replica_id == ANY_REPLICA and request.context.is_inter_broker
        epoch_end = self._epoch_end_on_disk if of_any_replica else self._epoch_end
        return at_once_or_in_steps(self._tell_epoch_ends(request, epoch_end), _count(request.message.topics))

    def _tell_epoch_ends(
        self,
        request: RequestInHand[OffsetForLeaderEpochRequest],
        epoch_end: Callable[[str, OffsetForLeaderPartition], OffsetForLeaderPartitionResponse],
    ) -> Iterator[int]:
        topics = [OffsetForLeaderTopicResponse(topic.topic, []) for topic in request.message.topics]
        for topic, answer in zip(request.message.topics, topics, strict=True):
            for wanted in topic.partitions:
                answer.partitions.append(epoch_end(topic.topic, wanted))
                yield 1
        request.respond(OffsetForLeaderEpochResponse(topics))

    def _epoch_end(self, topic: str, wanted: OffsetForLeaderPartition) -> OffsetForLeaderPartitionResponse:
        partition = self._replicas.partitions.get((topic, wanted.partition))
        code = self._fence(topic, wanted.partition, wanted.current_leader_epoch, partition)
        if code:
            return OffsetForLeaderPartitionResponse(wanted.partition, code)
        assert partition is not None
        epoch, end_offset = partition.log.epoch_end_offset(wanted.leader_epoch)
        return OffsetForLeaderPartitionResponse(wanted.partition, 0, epoch, end_offset)

    def _epoch_end_on_disk(self, topic: str, wanted: OffsetForLeaderPartition) -> OffsetForLeaderPartitionResponse:
        """A log that cannot be read may hold anything, and so may a directory: that is another answer than none."""
        tp, logs = TopicPartition(topic, wanted.partition), self._logs
        log = logs.get(tp)
        if log is None:
            is_unknown = tp in logs.refused or logs.directories.has_unread
            code = ErrorCode.KAFKA_STORAGE_ERROR if is_unknown else ErrorCode.REPLICA_NOT_AVAILABLE
            return OffsetForLeaderPartitionResponse(wanted.partition, code)
        if log.failure is not None:
            return OffsetForLeaderPartitionResponse(wanted.partition, ErrorCode.KAFKA_STORAGE_ERROR)
        epoch, end_offset = log.epoch_end_offset(wanted.leader_epoch)
        return OffsetForLeaderPartitionResponse(
            wanted.partition, 0, epoch, end_offset if epoch >= 0 else log.log_end_offset
        )

    def _fence(self, topic: str, index: int, epoch: int, partition: Partition | None) -> int:
        """0, or why this broker may not answer for that partition at that epoch."""
        if partition is not None and (code := self._fence_epoch(epoch, partition)):
            return code
        if partition is None or partition.leadership is None:
            return self._replicas.why_not_leading(topic, index, partition)[0]
        return 0

    @staticmethod
    def _fence_epoch(epoch: int, partition: Partition) -> int:
        if epoch in (NO_EPOCH, partition.leader_epoch):
            return 0
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < partition.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


def _is_by_time(wanted: ListOffsetsPartition) -> bool:
    """Indexes and batches have to be read for it."""
    return wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP


def _count(topics: Sequence[ListOffsetsTopic] | Sequence[OffsetForLeaderTopic]) -> int:
    return sum(len(topic.partitions) for topic in topics)


def _partition(state: UpdateMetadataPartitionState, alive: Container[int]) -> MetadataPartition:
    leader = state.leader if state.leader in alive else NO_BROKER
    return MetadataPartition(
        ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_BROKER else 0,
        state.partition_index,
        leader,
        state.leader_epoch,
        state.replicas,
        state.isr,
        [replica for replica in state.replicas if replica not in alive],
        state.refused_replicas,
    )
