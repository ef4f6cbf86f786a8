"""Who waits at a partition, until an offset is reached or for data, and how that ends: once, by its condition or its
deadline.

| who | until | ends otherwise |
|---|---|---|
| an append with acks=all (invariants 1, 15) | HW is above its last record | leadership lost, deadline |
| DeleteRecords | the logs of all replicas that count begin there on their disks | leadership lost, deadline |
| a fetch | the log grew or its start moved (followers), or more was committed (consumers) | an error, deadline |

No task and no timer per operation: a partition keeps its waiters in order of their offset, so a rising HW pops a
prefix; `deadlines` expires what is overdue. Completion is decided by the condition, never by which event woke first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Protocol

import msgspec

from strandline.broker.replication.deadlines import NEVER, Deadlines
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import NO_BROKER, NO_EPOCH

ABANDONED_AFTER_S = 10.0
"""How often a queue is looked through for operations that nobody waits for any more, whatever their deadlines."""


class Operation(Protocol):
    """What somebody asked for, of one partition or several; each has a position of its own and one outcome."""

    deadline: float
    """Monotonic seconds."""

    @property
    def is_abandoned(self) -> bool:
        """Nobody will see the outcome."""

    def reached(self, waiter: Waiter, log_start_offset: int) -> None:
        """This waiter's offset is reached; where the log begins now (of a deletion: on all replicas that count)."""

    def failed(
        self, position: int, partition: int, code: int, leader_id: int = NO_BROKER, leader_epoch: int = NO_EPOCH
    ) -> None:
        """It will not be reached here, or not in time. Who then puts its deadline off waits on."""


class Waiter(msgspec.Struct, eq=False):
    """One partition of an operation, which waits until some offset of the partition reaches `required_offset`.

    `base_offset`: of what was appended; `log_append_time_ms`: the broker's time in its batches, −1 where they have the
    producer's; `is_repetition`: it was appended earlier."""

    required_offset: int
    operation: Operation
    position: int
    partition: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    is_repetition: bool = False


class OffsetWaiters:
    """The waiters of one partition for one of its offsets, in order; entered in `Deadlines` as one."""

    __slots__ = ("due_at", "waiting")

    def __init__(self) -> None:
        self.due_at = NEVER
        self.waiting: deque[Waiter] = deque()

    def park(self, waiter: Waiter, deadlines: Deadlines) -> None:
        waiting = self.waiting
        if not waiting or waiting[-1].required_offset <= waiter.required_offset:
            waiting.append(waiter)
        else:  # a repetition of what was appended before others that wait
            waiting.insert(bisect_right(waiting, waiter.required_offset, key=_required_offset), waiter)
        if waiter.operation.deadline < self.due_at:
            deadlines.enter(self, min(waiter.operation.deadline, deadlines.looked_at + ABANDONED_AFTER_S))

    def complete_up_to(self, offset: int, log_start_offset: int) -> None:
        """That offset is reached: end who waited for it or less."""
        waiting = self.waiting
        while waiting and waiting[0].required_offset <= offset:
            waiter = waiting.popleft()
            waiter.operation.reached(waiter, log_start_offset)

    def fail_all(self, code: ErrorCode, leader_id: int, leader_epoch: int) -> None:
        """Leadership is lost: nobody here can say any more what becomes of it."""
        while self.waiting:
            waiter = self.waiting.popleft()
            waiter.operation.failed(waiter.position, waiter.partition, code, leader_id, leader_epoch)

    def expire(self, now: float) -> float:
        """End what is overdue with REQUEST_TIMED_OUT (what was asked for may still come), and let go of what nobody
        waits for any more, with the bytes that it holds."""
        kept: deque[Waiter] = deque()
        waiting, self.waiting = self.waiting, kept
        for waiter in waiting:
            operation = waiter.operation
            if operation.deadline <= now:
                operation.failed(waiter.position, waiter.partition, ErrorCode.REQUEST_TIMED_OUT)
            if operation.deadline > now and not operation.is_abandoned:
                kept.append(waiter)
        if not kept:
            return NEVER
        return min(now + ABANDONED_AFTER_S, *(waiter.operation.deadline for waiter in kept))


def _required_offset(waiter: Waiter) -> int:
    return waiter.required_offset


class Watch(Protocol):
    """Who wants to know of the next change of a partition: once, then it has to watch anew."""

    def changed(self) -> ParkedFetch | None:
        """More was committed, the log starts elsewhere, or the role changed. Returns the fetch that waits for it, if
        one does. It neither looks at the partition nor changes it."""


class ParkedFetch(Protocol):
    """A fetch that waits for data in any of several partitions."""

    def look(self) -> None:
        """Answer if the condition holds now (or nothing can come any more)."""

    def answer(self) -> None:
        """Do not wait any longer: answer with what is there."""
