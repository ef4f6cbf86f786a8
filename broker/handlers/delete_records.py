"""DeleteRecords: a client raises the log start of partitions and waits until every live replica has followed (KIP-107).

    request ──leader──> log start := offset (at most the high watermark) ──answers to follower fetches carry it──>
    followers raise theirs, too ──each writes its own (`log_starts`), and its next fetch tells what is on its disk──>
    low watermark = min durable log start of the replicas that live or may be elected ──> answer

What lies below the log start is not served from the first moment on, and whole segments below it go with the next
retention check. Where nothing was answered yet, a crash may bring it back on some replicas. Each partition of a request
has its own outcome; the answer leaves when all are known or the request's time is over (REQUEST_TIMED_OUT for those
that still wait: their log start has moved all the same).

Refused, as in Kafka: internal topics (INVALID_TOPIC_EXCEPTION), topics that are only compacted (POLICY_VIOLATION),
offsets above the high watermark (OFFSET_OUT_OF_RANGE); and what is meant for a topic that was made anew meanwhile
(UNKNOWN_TOPIC_ID). An offset below the log start changes nothing. A request that names a partition twice is
INVALID_REQUEST, one that names many is carried out in steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from strandline.broker.network.request import Remainder, RequestInHand
from strandline.broker.network.request_context import RequestContext
from strandline.broker.replication.burst import Burst
from strandline.broker.replication.deadlines import Deadlines
from strandline.broker.replication.log_starts import LogStartWrites
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.purgatory import Waiter
from strandline.broker.replication.replicas import Replicas
from strandline.broker.steps import PARTITIONS_PER_STEP, InSteps
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from strandline.protocol.topic_name import INTERNAL_TOPICS
from strandline.protocol.types import NO_BROKER, NO_EPOCH, NO_OFFSET, NO_TOPIC_ID

HIGH_WATERMARK = -1
"""As an offset: delete all that is committed."""
SHORTEST_WAIT_MS = 1000
"""The log start is on the leader's disk a moment later. Kafka writes it after the answer, and so has one for who gives
no time at all: nothing would be done in time here."""


class DeleteOperation:
    """One request on its way: one outcome per partition, in the order of the request."""

    __slots__ = ("_outcomes", "_partitions", "_pending", "_request", "deadline")

    def __init__(self, request: RequestInHand[DeleteRecordsRequest], deadline: float) -> None:
        """`deadline`: monotonic seconds."""
        self.deadline = deadline
        self._partitions: dict[int, Partition] = {}
        self._request = request
        self._pending = sum(len(topic.partitions) for topic in request.message.topics)
        self._outcomes: list[DeleteRecordsPartitionResult | None] = [None] * self._pending

    @property
    def context(self) -> RequestContext:
        """Who asked."""
        return self._request.context

    @property
    def is_abandoned(self) -> bool:
        return self._request.is_abandoned

    def waiter(self, position: int, partition: Partition, offset: int) -> Waiter:
        """For the partition at `position`: its replicas are to begin at `offset` or above for good."""
        self._partitions[position] = partition
        return Waiter(offset, self, position, partition.topic_partition.partition)

    def reached(self, waiter: Waiter, log_start_offset: int) -> None:
        self.complete(waiter.position, DeleteRecordsPartitionResult(waiter.partition, 0, log_start_offset))

    def failed(
        self, position: int, partition: int, code: int, leader_id: int = NO_BROKER, leader_epoch: int = NO_EPOCH
    ) -> None:
        replica = self._partitions[position]
        low_watermark = NO_OFFSET if replica.leadership is None else replica.low_watermark
        self.complete(position, DeleteRecordsPartitionResult(partition, code, low_watermark))

    def complete(self, position: int, outcome: DeleteRecordsPartitionResult) -> None:
        """The partition at `position` (counted over all topics) is done."""
        assert self._outcomes[position] is None, "an outcome is decided once"
        self._outcomes[position] = outcome
        self._pending -= 1
        if self._pending == 0:
            self.respond()

    def respond(self) -> None:
        topics: list[DeleteRecordsTopicResult] = []
        position = 0
        for topic in self._request.message.topics:
            end = position + len(topic.partitions)
            outcomes = [outcome for outcome in self._outcomes[position:end] if outcome is not None]
            topics.append(DeleteRecordsTopicResult(topic.name, outcomes))
            position = end
        self._request.respond(DeleteRecordsResponse(topics))


class DeleteRecordsHandler:
    """Inline; the partition answers (`Partition.complete_deletions`)."""

    def __init__(
        self,
        replicas: Replicas,
        burst: Burst,
        deadlines: Deadlines,
        log_starts: LogStartWrites,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._replicas = replicas
        self._burst = burst
        self._deadlines = deadlines
        self._log_starts = log_starts
        self._log = log

    def handle(self, request: RequestInHand[DeleteRecordsRequest]) -> Remainder | None:
        replicas, message = self._replicas, request.message
        self._burst.write_appends()  # an earlier produce of the same burst is deleted, too
        limit_ms = min(max(message.timeout_ms, SHORTEST_WAIT_MS), replicas.config.connections_max_idle_ms)
        all_wanted = [(topic, wanted) for topic in message.topics for wanted in topic.partitions]
        if len({(topic.name, wanted.partition_index) for topic, wanted in all_wanted}) < len(all_wanted):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "a DeleteRecords request names a partition twice")
        operation = DeleteOperation(request, self._burst.now() + limit_ms / 1000)
        if not all_wanted:
            operation.respond()
        if len(all_wanted) > PARTITIONS_PER_STEP:
            return InSteps(self._delete_in_steps(all_wanted, operation))
        for position, (topic, wanted) in enumerate(all_wanted):
            self._delete(topic, wanted, operation, position)
        return None

    def _delete_in_steps(
        self, all_wanted: list[tuple[DeleteRecordsTopic, DeleteRecordsPartition]], operation: DeleteOperation
    ) -> Iterator[int]:
        """Who leads what is looked at partition by partition; each step ends a burst."""
        for position, (topic, wanted) in enumerate(all_wanted):
            self._delete(topic, wanted, operation, position)
            if position % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                self._burst.end()
            yield 1
        self._burst.end()

    def _delete(
        self, topic: DeleteRecordsTopic, wanted: DeleteRecordsPartition, operation: DeleteOperation, position: int
    ) -> None:
        index = wanted.partition_index
        partition = self._replicas.partitions.get((topic.name, index))
        code = self._refusal(topic, index, partition, wanted.offset)
        if code:
            operation.complete(position, DeleteRecordsPartitionResult(index, code))
            return
        assert partition is not None
        offset = partition.high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
        is_raised = partition.raise_log_start(offset)
        if is_raised:
            self._log.info(
                "records deleted",
                partition=str(partition.topic_partition),
                log_start_offset=offset,
                peer=str(operation.context.peer),
                client_id=operation.context.client_id,
            )
        if partition.log.durable_log_start_offset < offset:
            self._log_starts.add(partition)
        partition.deletions.park(operation.waiter(position, partition, offset), self._deadlines)
        if is_raised:
            partition.log_start_moved()
        else:
            partition.complete_deletions()

    def _refusal(self, topic: DeleteRecordsTopic, index: int, partition: Partition | None, offset: int) -> int:
        """0, or why this broker does not delete that."""
        if topic.name in INTERNAL_TOPICS:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if partition is None or partition.leadership is None:
            return self._replicas.why_not_leading(topic.name, index, partition)[0]
        if topic.topic_id not in (NO_TOPIC_ID, partition.log.topic_id):
            return ErrorCode.UNKNOWN_TOPIC_ID
        if "delete" not in partition.config.cleanup_policy:
            return ErrorCode.POLICY_VIOLATION
        if offset > partition.high_watermark or offset < HIGH_WATERMARK:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return 0
