"""Produce: from a request in hand to batches in a log, and to the answer.

Inline, a plain function per request. The batches of one burst are gathered per partition and go out in one write each
(`replication/appends`), which is also where acknowledgements are decided:

    acks=0   nothing is answered; a failure closes the connection
    acks=1   answered once the leader's log has the batch
    acks=-1  parked until the high watermark is above its last record; refused at once while the ISR is too small

Where a topic's rules ask for more than the loop can do (`replication/converter`), the request leaves its burst with
those partitions: `handle` returns what is left to do, the channel has it done by a handler task while the connection is
muted. After that wait everything about roles is checked anew.

So does a request of very many or very large partitions, which would hold the loop for seconds: it is seen to in steps
(`broker/steps`), and a partition's batches are appended once all of them are checked.

A partition that stands twice in a request has both batches appended, in their order, each with its own answer. The
brokers' own topics are written by brokers, never through a request (INVALID_TOPIC_EXCEPTION).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial

import msgspec
import trio

from strandline.broker.network.request import Remainder, RequestInHand
from strandline.broker.replication.appends import Appends
from strandline.broker.replication.burst import Burst
from strandline.broker.replication.converter import Converter, RuledBatches
from strandline.broker.replication.leadership import Leadership
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.purgatory import Waiter
from strandline.broker.replication.replicas import Replicas
from strandline.broker.replication.topic_counts import TopicTraffic
from strandline.broker.steps import PARTITIONS_PER_STEP, InSteps
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from strandline.protocol.records import MAX_AT_FAULT, READER_SLACK_BYTES, InvalidBatch, validate_produced
from strandline.protocol.records.validation import PIECE_BYTES, ProducedBatch, validate_in_pieces
from strandline.protocol.topic_name import BROKERS_OWN, INTERNAL_TOPICS
from strandline.protocol.types import NO_BROKER, NO_EPOCH, NO_TOPIC_ID, TopicId
from strandline.runtime.environment import WallClock

ACKS_ALL = -1
APPEND_BYTES = 4 * 2**20
"""Of converted batches written without letting others run; the partition that exceeds it is the last."""

BYTES_PER_COUNT = PIECE_BYTES // PARTITIONS_PER_STEP
"""So many of a partition's batches count as one more partition, as `steps` counts."""
AT_ONCE = 2 * PARTITIONS_PER_STEP
"""A request that counts for more is seen to in steps. Producers send 1 MiB, if they are not told otherwise."""

UNDECIDED = PartitionProduceResponse(-1, ErrorCode.NONE)
"""Stands where an outcome will."""

Converting = dict[Partition, list[RuledBatches]]
"""What a worker has to see first, and what comes behind it in the same partition."""


class ProduceOperation(msgspec.Struct, eq=False):
    """One Produce request on its way: one outcome per partition, in the order of the request.

    It is answered when the last outcome is known; with acks=0 there is no answer, but an error closes the connection
    (the producer has no other way to learn of it). `deadline`: monotonic seconds. `pending`: so many are not known yet.
    `may_name`: so many records at fault, in all of its batches, so that the answer stays in proportion.
    """

    request: RequestInHand[ProduceRequest]
    deadline: float
    waits_for_commit: bool
    pending: int
    outcomes: list[PartitionProduceResponse]
    traffic: TopicTraffic
    may_name: int = MAX_AT_FAULT
    is_clean: bool = True
    """No partition has failed."""

    @property
    def is_abandoned(self) -> bool:
        return self.request.is_abandoned

    def reached(self, waiter: Waiter, log_start_offset: int) -> None:
        """The log has the records, on as many replicas as was asked for."""
        outcome = PartitionProduceResponse(
            waiter.partition,
            0,
            waiter.base_offset,
            waiter.log_append_time_ms,
            log_start_offset,
            is_repetition=waiter.is_repetition,
        )
        self.complete(waiter.position, outcome)

    def failed(
        self, position: int, partition: int, code: int, leader_id: int = NO_BROKER, leader_epoch: int = NO_EPOCH
    ) -> None:
        """Nobody can say any more, or not in time, whether these records stay."""
        outcome = PartitionProduceResponse(
            partition, code, current_leader_id=leader_id, current_leader_epoch=leader_epoch
        )
        self.complete(position, outcome)

    def refused(self, position: int, partition: int, code: int, message: str) -> None:
        self.complete(position, PartitionProduceResponse(partition, code, error_message=message))

    def invalid(self, index: int, error: InvalidBatch) -> PartitionProduceResponse:
        """What is wrong with a batch, and with which records: then a producer may send the others again (KIP-467)."""
        at_fault = error.at_fault[: self.may_name]
        self.may_name -= len(at_fault)
        named = [BatchIndexAndErrorMessage(batch_index, text) for batch_index, text in at_fault]
        return PartitionProduceResponse(index, error.code, error_message=str(error), record_errors=named)

    def complete(self, position: int, outcome: PartitionProduceResponse) -> None:
        """The partition at `position` (counted over all topics) is done."""
        assert self.outcomes[position] is UNDECIDED, "a produce outcome is decided once"
        self.outcomes[position] = outcome
        if outcome.error_code:
            self.is_clean = False
        self.pending -= 1
        if self.pending == 0:
            self.respond()

    def respond(self) -> None:
        request, outcomes = self.request, self.outcomes
        if not self.is_clean:
            self._count_failures()
        if not request.message.has_answer:
            failed = next((outcome for outcome in outcomes if outcome.error_code), None)
            if failed is None:
                request.no_response()
            else:
                request.refuse(ErrorCode(failed.error_code), failed.error_message or "")
            return
        topics = request.message.topic_data
        if len(topics) == 1:
            answer = ProduceResponse([TopicProduceResponse(topics[0].name, outcomes)])
            request.respond(answer, is_clean=self.is_clean)
            return
        responses: list[TopicProduceResponse] = []
        position = 0
        for topic in topics:
            end = position + len(topic.partition_data)
            responses.append(TopicProduceResponse(topic.name, outcomes[position:end]))
            position = end
        request.respond(ProduceResponse(responses), is_clean=self.is_clean)

    def _count_failures(self) -> None:
        names = (topic.name for topic in self.request.message.topic_data for _ in topic.partition_data)
        for name, outcome, records in zip(names, self.outcomes, self.request.records, strict=True):
            if outcome.error_code:
                self.traffic.produce_refused(name, outcome.error_code, len(records or ()))


class ProduceHandler:
    """Checks what producers send; `Appends` writes it."""

    def __init__(
        self, replicas: Replicas, appends: Appends, burst: Burst, converter: Converter, wall_clock: WallClock
    ) -> None:
        self._replicas = replicas
        self._appends = appends
        self._burst = burst
        self._converter = converter
        self._wall_clock = wall_clock

    def handle(self, request: RequestInHand[ProduceRequest]) -> Remainder | None:
        """Check every partition of the request; what may be appended joins the wave of this burst.

        The records stay valid until the end of the burst, which is when they are written. Returns what is left to
        do for partitions that need a worker.
        """
        message, records = request.message, request.records
        deadline = self._burst.now() + message.timeout_ms / 1000
        pending = len(records)
        outcomes, traffic = [UNDECIDED] * pending, self._replicas.traffic
        operation = ProduceOperation(request, deadline, message.acks == ACKS_ALL, pending, outcomes, traffic)
        if not records:
            operation.respond()
            return None
        if pending + sum([len(each) for each in records if each]) // BYTES_PER_COUNT > AT_ONCE:
            return partial(self._handle_in_steps, operation)
        converting: Converting = {}
        position = 0
        for topic in message.topic_data:
            for data in topic.partition_data:
                self._take(operation, position, topic, data.index, converting)
                position += 1
        return partial(self._convert_and_append, operation, converting) if converting else None

    async def _handle_in_steps(self, operation: ProduceOperation) -> None:
        """In a handler task: the same, piece by piece."""
        converting: Converting = {}
        await InSteps(self._take_all(operation, converting), self._burst.end)()
        if converting:
            await self._convert_and_append(operation, converting)

    def _take_all(self, operation: ProduceOperation, converting: Converting) -> Iterator[int]:
        position = 0
        for topic in operation.request.message.topic_data:
            for data in topic.partition_data:
                batches = yield from self._validated(operation, position, topic, data.index)
                if isinstance(batches, PartitionProduceResponse):
                    operation.complete(position, batches)
                else:
                    self._take(operation, position, topic, data.index, converting, batches)
                position += 1
                yield 1

    def _validated(
        self, operation: ProduceOperation, position: int, data: TopicProduceData, index: int
    ) -> Generator[int, None, list[ProducedBatch] | PartitionProduceResponse]:
        """What is to be appended to one partition, or its error. Others have run since the request came."""
        records = operation.request.records[position]
        partition = self._replicas.partitions.get((data.name, index))
        if partition is None or self._replicas.is_leaving:
            return self._refuse_not_leading(data.name, index, partition)
        batches: list[ProducedBatch] = []
        try:
            for piece in self._in_pieces(partition, records or memoryview(b"")):
                batches += piece
                yield sum([batch.size_bytes for batch in piece]) // BYTES_PER_COUNT
        except InvalidBatch as error:
            return operation.invalid(index, error)
        return batches

    def _in_pieces(self, partition: Partition, records: memoryview) -> Iterator[list[ProducedBatch]]:
        rules = partition.config.batch_rules
        return validate_in_pieces(
            records,
            max_batch_bytes=partition.config.max_message_bytes,
            slack_bytes=READER_SLACK_BYTES,
            rules=rules,
            now_ms=0 if rules is None else self._burst.wall_ms(),
        )

    def _take(
        self,
        operation: ProduceOperation,
        position: int,
        topic: TopicProduceData,
        index: int,
        converting: Converting,
        batches: list[ProducedBatch] | None = None,
    ) -> None:
        outcome = self._admit(operation, position, topic, index, batches)
        if outcome is not None:
            if isinstance(outcome, PartitionProduceResponse):
                operation.complete(position, outcome)
            elif outcome.needs_worker or outcome.partition in converting:
                converting.setdefault(outcome.partition, []).append(outcome)
            else:
                self._join_wave(operation, outcome)

    def _admit(
        self,
        operation: ProduceOperation,
        position: int,
        data: TopicProduceData,
        index: int,
        batches: list[ProducedBatch] | None = None,
    ) -> PartitionProduceResponse | RuledBatches | None:
        """Put one partition's batches into the wave, or return its error, or what its topic's rules are still to be
        applied to. `batches`: checked already."""
        request, topic, topic_id = operation.request, data.name, data.topic_id
        acks, records = request.message.acks, request.records[position]
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
        if batches is None:
            try:
                batches = validate_produced(
                    records,
                    max_batch_bytes=config.max_message_bytes,
                    slack_bytes=READER_SLACK_BYTES,  # the processors' buffers are that much longer
                    rules=rules,
                    now_ms=0 if rules is None else self._burst.wall_ms(),
                )
            except InvalidBatch as error:
                return operation.invalid(index, error)
        if rules is not None:
            return RuledBatches(partition, topic_id, position, batches, rules)
        self._appends.add(partition, operation, position, batches)
        return None

    def _join_wave(self, operation: ProduceOperation, part: RuledBatches) -> None:
        part.stamp(self._burst.wall_ms())
        self._appends.add(part.partition, operation, part.position, part.batches)

    async def _convert_and_append(self, operation: ProduceOperation, converting: Converting) -> None:
        """In a handler task: have a worker convert, then append what this broker still leads."""
        request, parts = operation.request, [part for parts in converting.values() for part in parts]
        for part in parts:
            part.move_to(request.records[part.position])
        async with self._converter.converted(parts, self._wall_clock.now_ms):
            await self._append_converted(operation, parts)

    async def _append_converted(self, operation: ProduceOperation, parts: list[RuledBatches]) -> None:
        gathered_bytes = 0
        for part in parts:
            if gathered_bytes > APPEND_BYTES:  # whether this broker still leads is asked of each part, after the wait
                self._burst.end()
                await trio.lowlevel.checkpoint()
                gathered_bytes = 0
            gathered_bytes += sum(batch.size_bytes for batch in part.batches)
            refusal = self._refuse_after_wait(operation, part)
            if refusal is None:
                self._join_wave(operation, part)
            else:
                operation.complete(part.position, refusal)
        self._burst.end()

    def _refuse_after_wait(self, operation: ProduceOperation, part: RuledBatches) -> PartitionProduceResponse | None:
        """Whatever may have changed since `_admit`: the role, the replica itself, the ISR. A broker that leaves
        may have been replaced without having heard of it."""
        topic, index = part.partition.topic_partition
        if part.refusal is not None:
            return operation.invalid(index, part.refusal)
        partition = self._replicas.partitions.get((topic, index))
        if partition is not part.partition or partition.leadership is None or self._replicas.is_leaving:
            return self._refuse_not_leading(topic, index, partition)
        return _refusal(partition, partition.leadership, part.topic_id, index, operation.request.message.acks)

    def _refuse_not_leading(self, topic: str, index: int, partition: Partition | None) -> PartitionProduceResponse:
        code, leader_id, leader_epoch = self._replicas.why_not_leading(topic, index, partition)
        return PartitionProduceResponse(index, code, current_leader_id=leader_id, current_leader_epoch=leader_epoch)


def _refusal(
    partition: Partition, leadership: Leadership, topic_id: TopicId, index: int, acks: int
) -> PartitionProduceResponse | None:
    """Why nothing may be appended although this broker leads."""
    if topic_id != NO_TOPIC_ID and topic_id != partition.topic_id:
        return PartitionProduceResponse(index, ErrorCode.UNKNOWN_TOPIC_ID)
    if acks == ACKS_ALL and not leadership.has_enough_replicas:
        return PartitionProduceResponse(index, ErrorCode.NOT_ENOUGH_REPLICAS)
    return None
