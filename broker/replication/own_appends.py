"""What this broker itself appends to a partition that it leads, such as one of the brokers' own topics, and waits for.

It goes with the burst and waits like a producer's append with acks=all; there is no request behind it.
"""

from __future__ import annotations

import trio

from strandline.broker.replication.appends import Appends
from strandline.broker.replication.burst import Burst
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.purgatory import Waiter
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.records import validate_produced
from strandline.protocol.types import NO_BROKER, NO_EPOCH


class _OwnAppend:
    """The operation of one `commit`."""

    waits_for_commit = True

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.is_abandoned = False
        self.ended = trio.Event()
        self.base_offset = -1
        self.error: BrokerError | None = None

    def reached(self, waiter: Waiter, log_start_offset: int) -> None:
        self.base_offset = waiter.base_offset
        self.ended.set()

    def failed(
        self, position: int, partition: int, code: int, leader_id: int = NO_BROKER, leader_epoch: int = NO_EPOCH
    ) -> None:
        self.refused(position, partition, code, "")

    def refused(self, position: int, partition: int, code: int, message: str) -> None:
        self.error = BrokerError(ErrorCode(code), message)
        self.ended.set()


class OwnAppends:
    def __init__(self, appends: Appends, burst: Burst) -> None:
        self._appends = appends
        self._burst = burst

    async def commit(self, partition: Partition, records: bytearray, timeout_s: float) -> int:
        """Append these batches and wait until they are committed. Returns the offset of the first record.

        BrokerError: NOT_ENOUGH_REPLICAS, or NOT_LEADER_OR_FOLLOWER before anything was appended; later that, as
        REQUEST_TIMED_OUT, says that nobody knows yet whether they stay; KAFKA_STORAGE_ERROR. InvalidBatch.
        """
        leadership = partition.leadership
        if leadership is None:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not leadership.has_enough_replicas:
            raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS)
        batches = validate_produced(memoryview(records), max_batch_bytes=partition.config.max_message_bytes)
        own = _OwnAppend(trio.current_time() + timeout_s)
        self._appends.add(partition, own, 0, batches)
        self._burst.end()
        try:
            await own.ended.wait()
        except trio.Cancelled:
            own.is_abandoned = True
            raise
        if own.error is not None:
            raise own.error
        return own.base_offset
