"""Parked operations: produce requests that wait for the high watermark, fetches that wait for data.

No task and no timer per operation (performance.md): a partition keeps its waiters in order of their offset, so a rising
HW pops a prefix; one coarse timer of the replica manager expires what is overdue. Completion is decided by the
condition, never by which event woke first, and happens exactly once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import NamedTuple, Protocol

from strandline.broker.network.request import RequestInHand
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse


class ProduceOperation:
    """One Produce request on its way: one outcome per partition, in the order of the request.

    It is answered when the last outcome is known; with acks=0 there is no answer, but an error closes the connection
    (the producer has no other way to learn of it).
    """

    __slots__ = ("deadline", "outcomes", "pending", "request")

    def __init__(self, request: RequestInHand[ProduceRequest], partitions: int, deadline: float) -> None:
        """`partitions`: how many the request names; `deadline`: monotonic seconds."""
        self.request = request
        self.deadline = deadline
        self.pending = partitions
        self.outcomes: list[PartitionProduceResponse | None] = [None] * partitions

    def complete(self, position: int, outcome: PartitionProduceResponse) -> None:
        """The partition at `position` (counted over all topics) is done."""
        assert self.outcomes[position] is None, "a produce outcome is decided once"
        self.outcomes[position] = outcome
        self.pending -= 1
        if self.pending == 0:
            self.respond()

    def respond(self) -> None:
        if self.request.message.acks == 0:
            failed = next((o for o in self.outcomes if o is not None and o.error_code), None)
            if failed is not None:
                reason = ErrorCode(failed.error_code).name
                self.request.connection.close(f"a produce request with acks=0 failed: {reason}")
            self.request.no_response()
            return
        responses: list[TopicProduceResponse] = []
        position = 0
        for topic in self.request.message.topic_data:
            end = position + len(topic.partition_data)
            responses.append(TopicProduceResponse(topic.name, self.outcomes[position:end]))  # type: ignore[arg-type]
            position = end
        self.request.respond(ProduceResponse(responses))


class Waiter(NamedTuple):
    """One partition of a produce request that waits until HW reaches `required_offset` (exclusive).

    `log_append_time_ms`: the broker's time in its batches, −1 where they have the producer's."""

    required_offset: int
    operation: ProduceOperation
    position: int
    partition: int
    base_offset: int
    log_append_time_ms: int = -1


class ProduceWaiters:
    """The waiters of one partition, in order of their offsets."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[Waiter] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def park(self, waiter: Waiter) -> None:
        waiting = self._waiting
        if not waiting or waiting[-1].required_offset <= waiter.required_offset:
            waiting.append(waiter)
        else:  # a repetition of what was appended before others that wait
            waiting.insert(bisect_right(waiting, waiter.required_offset, key=_required_offset), waiter)

    def complete_below(self, high_watermark: int, log_start_offset: int) -> None:
        """Everything below HW is committed: answer its waiters."""
        waiting = self._waiting
        while waiting and waiting[0].required_offset <= high_watermark:
            _, operation, position, partition, base_offset, stamped_ms = waiting.popleft()
            outcome = PartitionProduceResponse(partition, 0, base_offset, stamped_ms, log_start_offset)
            operation.complete(position, outcome)

    def fail_all(self, code: ErrorCode, leader_id: int, leader_epoch: int) -> None:
        """Leadership is lost: nobody can say any more whether these records stay."""
        while self._waiting:
            waiter = self._waiting.popleft()
            waiter.operation.complete(
                waiter.position,
                PartitionProduceResponse(
                    waiter.partition, code, current_leader_id=leader_id, current_leader_epoch=leader_epoch
                ),
            )

    def expire(self, now: float) -> None:
        """End what is overdue with REQUEST_TIMED_OUT (the records stay and may still be committed)."""
        if not self._waiting:
            return
        kept: deque[Waiter] = deque()
        for waiter in self._waiting:
            if waiter.operation.deadline <= now:
                waiter.operation.complete(
                    waiter.position, PartitionProduceResponse(waiter.partition, ErrorCode.REQUEST_TIMED_OUT)
                )
            elif not waiter.operation.request.connection.closed:
                kept.append(waiter)
        self._waiting = kept


def _required_offset(waiter: Waiter) -> int:
    return waiter.required_offset


class ParkedFetch(Protocol):
    """A fetch that waits for data in any of several partitions."""

    deadline: float
    done: bool

    def try_complete(self) -> bool:
        """Answer if the condition holds now (or nothing can come any more). Returns whether it is done."""

    def expire(self) -> None:
        """The wait is over: answer with what is there."""
