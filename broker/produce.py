"""Produce: from a request in hand to batches in a log, and to the answer.

Inline, a plain function per request. The batches of one burst are gathered per partition and go out in one write each
(`flush`, at the end of the burst), which is also where acknowledgements are decided:

    acks=0   nothing is answered; a failure closes the connection
    acks=1   answered once the leader's log has the batch
    acks=-1  parked until the high watermark is above its last record; refused at once while the ISR is too small
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.broker.purgatory import ProduceOperation, Waiter
from strandline.broker.request_channel import RequestInHand
from strandline.protocol.errors import ErrorCode
from strandline.protocol.frame import split_attachments
from strandline.protocol.messages import PartitionProduceResponse
from strandline.protocol.records import READER_SLACK_BYTES, InvalidBatch, ProducedBatch, validate_produced
from strandline.protocol.types import NO_TOPIC_ID, TopicId
from strandline.storage.errors import LogStorageError

if TYPE_CHECKING:
    from strandline.broker.partition import Partition
    from strandline.broker.replica_manager import ReplicaManager

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1


class ProduceHandler:
    """Gathers the appends of a burst, then carries them out."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._wave: dict[Partition, list[tuple[ProduceOperation, int, list[ProducedBatch]]]] = {}

    def handle(self, request: RequestInHand) -> None:
        """Check every partition of the request; what may be appended joins the wave of this burst.

        The attachments stay valid until the end of the burst, which is when they are written.
        """
        message = request.message
        topics = message.topic_data
        deadline = self._replicas.burst_now() + message.timeout_ms / 1000
        sizes = [data.records_size for topic in topics for data in topic.partition_data]
        views = split_attachments(sizes, request.attachments)
        operation = ProduceOperation(request, len(sizes), deadline)
        if not sizes:
            operation.respond()
            return
        position = 0
        for topic in topics:
            for data in topic.partition_data:
                outcome = self._admit(
                    operation, position, topic.name, topic.topic_id, data.index, views[position], message.acks
                )
                if outcome is not None:
                    operation.complete(position, outcome)
                position += 1

    def _admit(
        self,
        operation: ProduceOperation,
        position: int,
        topic: str,
        topic_id: TopicId,
        index: int,
        records: memoryview | None,
        acks: int,
    ) -> PartitionProduceResponse | None:
        """Put one partition's batches into the wave, or return its error."""
        if not -1 <= acks <= 1:
            return PartitionProduceResponse(index, ErrorCode.INVALID_REQUIRED_ACKS)
        partition = self._replicas.partitions.get((topic, index))
        if partition is None or partition.leadership is None:
            return self._refuse_not_leading(topic, index, partition)
        if topic_id != NO_TOPIC_ID and topic_id != partition.topic_id:
            return PartitionProduceResponse(index, ErrorCode.UNKNOWN_TOPIC_ID)
        if acks == ACKS_ALL and not partition.leadership.has_enough_replicas:
            return PartitionProduceResponse(index, ErrorCode.NOT_ENOUGH_REPLICAS)
        if not records:
            return PartitionProduceResponse(index, 0, partition.log.log_end_offset)
        config = partition.config
        try:
            batches = validate_produced(
                records,
                max_batch_bytes=config.max_message_bytes,
                compacted=config.is_compacted,
                slack_bytes=READER_SLACK_BYTES,  # the processors' buffers are that much longer
            )
        except InvalidBatch as error:
            return PartitionProduceResponse(index, error.code, error_message=str(error))
        entries = self._wave.get(partition)
        if entries is None:
            self._wave[partition] = [(operation, position, batches)]
        else:
            entries.append((operation, position, batches))
        return None

    def _refuse_not_leading(self, topic: str, index: int, partition: Partition | None) -> PartitionProduceResponse:
        code, leader_id, leader_epoch = self._replicas.why_not_leading(topic, index, partition)
        return PartitionProduceResponse(index, code, current_leader_id=leader_id, current_leader_epoch=leader_epoch)

    def flush(self) -> None:
        """Write the wave: one append per partition, then acknowledge what may be."""
        if not self._wave:
            return
        wave, self._wave = self._wave, {}
        for partition, entries in wave.items():
            high_watermark = partition.high_watermark
            self._append(partition, entries)
            self._replicas.data_arrived(partition)
            if partition.high_watermark != high_watermark:  # nobody else is in sync
                self._replicas.high_watermark_advanced(partition)

    def _append(self, partition: Partition, entries: list[tuple[ProduceOperation, int, list[ProducedBatch]]]) -> None:
        index = partition.topic_partition.partition
        batches = entries[0][2] if len(entries) == 1 else [batch for entry in entries for batch in entry[2]]
        try:
            offset = partition.append(batches)
        except LogStorageError as error:
            self._replicas.partition_failed(partition, error)
            for operation, position, _ in entries:
                operation.complete(
                    position,
                    PartitionProduceResponse(index, ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error)),
                )
            return
        waiters = partition.waiters
        log_start_offset = partition.log.log_start_offset
        for operation, position, appended in entries:
            base_offset = offset
            for batch in appended:
                offset += batch.records_count
            if operation.request.message.acks == ACKS_ALL:
                waiters.park(Waiter(offset, operation, position, index, base_offset))
            else:
                operation.complete(position, PartitionProduceResponse(index, 0, base_offset, -1, log_start_offset))
        partition.complete_waiters()
