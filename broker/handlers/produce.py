"""Produce: from a request in hand to batches in a log, and to the answer.

Inline, a plain function per request. The batches of one burst are gathered per partition and go out in one write each
(`flush`, at the end of the burst), which is also where acknowledgements are decided:

    acks=0   nothing is answered; a failure closes the connection
    acks=1   answered once the leader's log has the batch
    acks=-1  parked until the high watermark is above its last record; refused at once while the ISR is too small

Where a topic's rules ask for more than the loop can do (`conversion`), the request leaves its burst with those
partitions: `handle` returns what is left to do, the channel has it done by a handler task while the connection is
muted. After that wait everything about roles is checked anew.

A partition that stands twice in a request has both batches appended, in their order, each with its own answer. The
brokers' own topics are written by brokers, never through a request (INVALID_TOPIC_EXCEPTION).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from strandline.broker.handlers.conversion import RuledBatches
from strandline.broker.network.request import Remainder, RequestInHand
from strandline.broker.replication.purgatory import ProduceOperation, Waiter
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import PartitionProduceResponse, ProduceRequest
from strandline.protocol.records import READER_SLACK_BYTES, InvalidBatch, ProducedBatch, validate_produced
from strandline.protocol.records.batch import TIMESTAMP_TYPE_BIT
from strandline.protocol.topic_name import BROKERS_OWN, INTERNAL_TOPICS
from strandline.protocol.types import NO_TOPIC_ID, TopicId
from strandline.storage.errors import LogStorageError, ProducerRefused

if TYPE_CHECKING:
    from strandline.broker.replication.leadership import Leadership
    from strandline.broker.replication.partition import Partition
    from strandline.broker.replication.replica_manager import ReplicaManager

APPEND_BYTES = 4 * 2**20
"""Of converted batches written without letting others run; the partition that exceeds it is the last."""
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1


class ProduceHandler:
    """Gathers the appends of a burst, then carries them out."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._wave: dict[Partition, list[tuple[ProduceOperation, int, list[ProducedBatch]]]] = {}

    def handle(self, request: RequestInHand[ProduceRequest]) -> Remainder | None:
        """Check every partition of the request; what may be appended joins the wave of this burst.

        The records stay valid until the end of the burst, which is when they are written. Returns what is left to
        do for partitions that need a worker.
        """
        message, records = request.message, request.records
        deadline = self._replicas.burst_now() + message.timeout_ms / 1000
        operation = ProduceOperation(request, len(records), deadline)
        if not records:
            operation.respond()
            return None
        converting: dict[Partition, list[RuledBatches]] = {}
        position = 0
        for topic in message.topic_data:
            for data in topic.partition_data:
                outcome = self._admit(
                    operation, position, topic.name, topic.topic_id, data.index, records[position], message.acks
                )
                if outcome is not None:
                    if isinstance(outcome, PartitionProduceResponse):
                        operation.complete(position, outcome)
                    elif outcome.needs_worker or outcome.partition in converting:
                        converting.setdefault(outcome.partition, []).append(outcome)
                    else:
                        self._join_wave(operation, outcome)
                position += 1
        if not converting:
            return None
        return partial(self._convert_and_append, operation, [part for parts in converting.values() for part in parts])

    def _admit(
        self,
        operation: ProduceOperation,
        position: int,
        topic: str,
        topic_id: TopicId,
        index: int,
        records: memoryview | None,
        acks: int,
    ) -> PartitionProduceResponse | RuledBatches | None:
        """Put one partition's batches into the wave, or return its error, or what its topic's rules are still to be
        applied to."""
        if not -1 <= acks <= 1:
            return PartitionProduceResponse(index, ErrorCode.INVALID_REQUIRED_ACKS)
        if topic in INTERNAL_TOPICS:
            text = f"topic {topic} {BROKERS_OWN}"
            return PartitionProduceResponse(index, ErrorCode.INVALID_TOPIC_EXCEPTION, error_message=text)
        partition = self._replicas.partitions.get((topic, index))
        if partition is None or partition.leadership is None:
            return self._refuse_not_leading(topic, index, partition)
        if (refusal := _refusal(partition, partition.leadership, topic_id, index, acks)) is not None:
            return refusal
        if not records:
            return PartitionProduceResponse(index, 0, partition.log.log_end_offset)
        config = partition.config
        rules = config.batch_rules
        try:
            batches = validate_produced(
                records,
                max_batch_bytes=config.max_message_bytes,
                slack_bytes=READER_SLACK_BYTES,  # the processors' buffers are that much longer
                rules=rules,
                now_ms=0 if rules is None else self._replicas.burst_wall_ms(),
            )
        except InvalidBatch as error:
            return PartitionProduceResponse(index, error.code, error_message=str(error))
        if rules is not None:
            return RuledBatches(partition, topic_id, position, batches, rules)
        entries = self._wave.get(partition)
        if entries is None:
            self._wave[partition] = [(operation, position, batches)]
        else:
            entries.append((operation, position, batches))
        return None

    def _join_wave(self, operation: ProduceOperation, part: RuledBatches) -> None:
        part.stamp(self._replicas.burst_wall_ms())
        self._wave.setdefault(part.partition, []).append((operation, part.position, part.batches))

    async def _convert_and_append(self, operation: ProduceOperation, parts: list[RuledBatches]) -> None:
        """In a handler task: have a worker convert, then append what this broker still leads."""
        replicas, request = self._replicas, operation.request
        for part in parts:
            part.move_to(request.records[part.position])
        async with replicas.converter.converted(parts, replicas.wall_ms):
            await self._append_converted(operation, parts)

    async def _append_converted(self, operation: ProduceOperation, parts: list[RuledBatches]) -> None:
        replicas, request = self._replicas, operation.request
        gathered_bytes = 0
        for part in parts:
            if gathered_bytes > APPEND_BYTES:  # whether this broker still leads is asked of each part, after the wait
                replicas.end_of_burst()
                await trio.lowlevel.checkpoint()
                gathered_bytes = 0
            gathered_bytes += sum(batch.size_bytes for batch in part.batches)
            refusal = self._refuse_after_wait(part, request.message.acks)
            if refusal is None:
                self._join_wave(operation, part)
            else:
                operation.complete(part.position, refusal)
        replicas.end_of_burst()

    def _refuse_after_wait(self, part: RuledBatches, acks: int) -> PartitionProduceResponse | None:
        """Whatever may have changed since `_admit`: the role, the replica itself, the ISR. A broker that leaves
        may have been replaced without having heard of it."""
        topic, index = part.partition.topic_partition
        if part.refusal is not None:
            return PartitionProduceResponse(index, part.refusal.code, error_message=str(part.refusal))
        partition = self._replicas.partitions.get((topic, index))
        if partition is not part.partition or partition.leadership is None or self._replicas.is_leaving:
            return self._refuse_not_leading(topic, index, partition)
        return _refusal(partition, partition.leadership, part.topic_id, index, acks)

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
        for entry in entries:
            if entry[2][0].producer_id >= 0:
                self._append_checked(partition, entries)
                return
        index = partition.topic_partition.partition
        batches = entries[0][2] if len(entries) == 1 else [batch for entry in entries for batch in entry[2]]
        try:
            offset = partition.append(batches)
        except LogStorageError as error:
            self._fail(partition, entries, error)
            return
        for operation, position, appended in entries:
            base_offset = offset
            for batch in appended:
                offset += batch.records_count
            stamped_ms = appended[0].max_timestamp_ms if appended[0].attributes & TIMESTAMP_TYPE_BIT else -1
            self._acknowledge(partition, Waiter(offset, operation, position, index, base_offset, stamped_ms))
        partition.complete_waiters()

    def _append_checked(
        self, partition: Partition, entries: list[tuple[ProduceOperation, int, list[ProducedBatch]]]
    ) -> None:
        """The same, where idempotent producers take part: each entry is appended, known already, or refused alone.

        A repetition is answered as its first append was, with acks=all once that is below the high watermark."""
        try:
            outcomes = partition.append_checked([batches for _, _, batches in entries])
        except LogStorageError as error:
            self._fail(partition, entries, error)
            return
        index = partition.topic_partition.partition
        for (operation, position, batches), outcome in zip(entries, outcomes, strict=True):
            if isinstance(outcome, ProducerRefused):
                refusal = PartitionProduceResponse(index, outcome.code, error_message=str(outcome))
                operation.complete(position, refusal)
                continue
            stamped_ms = -1
            if batches[0].attributes & TIMESTAMP_TYPE_BIT:  # a repetition has the time of its first append
                stamped_ms = outcome.timestamp_ms if outcome.is_repetition else batches[0].max_timestamp_ms
            waiter = Waiter(outcome.next_offset, operation, position, index, outcome.base_offset, stamped_ms)
            self._acknowledge(partition, waiter)
        partition.complete_waiters()

    def _acknowledge(self, partition: Partition, waiter: Waiter) -> None:
        """The log has the records: with acks=all that is not enough, they wait for the high watermark."""
        operation = waiter.operation
        if operation.request.message.acks == ACKS_ALL:
            partition.waiters.park(waiter)
        else:
            index, start = waiter.partition, partition.log.log_start_offset
            done = PartitionProduceResponse(index, 0, waiter.base_offset, waiter.log_append_time_ms, start)
            operation.complete(waiter.position, done)

    def _fail(
        self,
        partition: Partition,
        entries: list[tuple[ProduceOperation, int, list[ProducedBatch]]],
        error: LogStorageError,
    ) -> None:
        """Nobody knows what of the wave was written: give the replica up, and say so to all."""
        self._replicas.partition_failed(partition, error)
        index = partition.topic_partition.partition
        for operation, position, _ in entries:
            failure = PartitionProduceResponse(index, ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))
            operation.complete(position, failure)


def _refusal(
    partition: Partition, leadership: Leadership, topic_id: TopicId, index: int, acks: int
) -> PartitionProduceResponse | None:
    """Why nothing may be appended although this broker leads."""
    if topic_id != NO_TOPIC_ID and topic_id != partition.topic_id:
        return PartitionProduceResponse(index, ErrorCode.UNKNOWN_TOPIC_ID)
    if acks == ACKS_ALL and not leadership.has_enough_replicas:
        return PartitionProduceResponse(index, ErrorCode.NOT_ENOUGH_REPLICAS)
    return None
