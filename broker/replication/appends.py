"""What is to be appended to partitions that this broker leads: gathered for a burst, written by one call per partition.

The end of the burst writes it, which is also where acknowledgements are decided: who does not ask for a commit is
acknowledged once the leader's log has the batch, the others wait until the high watermark is above its last record.
"""

from __future__ import annotations

from typing import Protocol

from strandline.broker.replication.burst import Changes
from strandline.broker.replication.deadlines import Deadlines
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.purgatory import Operation, Waiter
from strandline.broker.replication.replicas import Replicas
from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import ProducedBatch
from strandline.protocol.records.batch import TIMESTAMP_TYPE_BIT
from strandline.storage.errors import LogStorageError, ProducerRefused


class AppendOperation(Operation, Protocol):
    """Whose appends these are."""

    waits_for_commit: bool

    def refused(self, position: int, partition: int, code: int, message: str) -> None:
        """Nothing of it is acknowledged."""


class Appends:
    """See the module. What is added stays valid until `write`: the bytes lie where they were received."""

    def __init__(self, replicas: Replicas, changes: Changes, deadlines: Deadlines) -> None:
        self._replicas = replicas
        self._changes = changes
        self._deadlines = deadlines
        self._wave: dict[Partition, list[tuple[AppendOperation, int, list[ProducedBatch]]]] = {}

    def add(
        self, partition: Partition, operation: AppendOperation, position: int, batches: list[ProducedBatch]
    ) -> None:
        """Append these checked batches with this burst. `position`: of this partition in the operation."""
        entries = self._wave.get(partition)
        if entries is None:
            self._wave[partition] = [(operation, position, batches)]
        else:
            entries.append((operation, position, batches))

    def write(self) -> None:
        """Write the wave: one append per partition, then acknowledge what may be."""
        if not self._wave:
            return
        wave, self._wave = self._wave, {}
        for partition, entries in wave.items():
            high_watermark = partition.high_watermark
            self._append(partition, entries)
            self._changes.grew(partition)
            if partition.high_watermark != high_watermark:  # nobody else is in sync
                self._changes.committed(partition)

    def _append(self, partition: Partition, entries: list[tuple[AppendOperation, int, list[ProducedBatch]]]) -> None:
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
        first_offset, size_bytes = offset, 0
        for operation, position, appended in entries:
            base_offset = offset
            for batch in appended:
                offset += batch.records_count
                size_bytes += batch.size_bytes
            stamped_ms = appended[0].max_timestamp_ms if appended[0].attributes & TIMESTAMP_TYPE_BIT else -1
            self._acknowledge(partition, operation, Waiter(offset, operation, position, index, base_offset, stamped_ms))
        partition.complete_waiters()
        counts = partition.counts
        counts.produce_requests += len(entries)
        counts.messages_in += offset - first_offset
        counts.bytes_in += size_bytes

    def _append_checked(
        self, partition: Partition, entries: list[tuple[AppendOperation, int, list[ProducedBatch]]]
    ) -> None:
        """The same, where idempotent producers take part: each entry is appended, known already, or refused alone.

        A repetition is answered as its first append was, with acks=all once that is below the high watermark."""
        try:
            outcomes = partition.append_checked([batches for _, _, batches in entries])
        except LogStorageError as error:
            self._fail(partition, entries, error)
            return
        index, counts = partition.topic_partition.partition, partition.counts
        for (operation, position, batches), outcome in zip(entries, outcomes, strict=True):
            if isinstance(outcome, ProducerRefused):
                operation.refused(position, index, outcome.code, str(outcome))
                continue
            stamped_ms = -1
            if batches[0].attributes & TIMESTAMP_TYPE_BIT:  # a repetition has the time of its first append
                stamped_ms = outcome.timestamp_ms if outcome.is_repetition else batches[0].max_timestamp_ms
            counts.produce_requests += 1
            known = outcome.is_repetition
            if not known:
                counts.messages_in += outcome.next_offset - outcome.base_offset
                counts.bytes_in += sum([batch.size_bytes for batch in batches])
            waiter = Waiter(outcome.next_offset, operation, position, index, outcome.base_offset, stamped_ms, known)
            self._acknowledge(partition, operation, waiter)
        partition.complete_waiters()

    def _acknowledge(self, partition: Partition, operation: AppendOperation, waiter: Waiter) -> None:
        """The log has the records: with acks=all that is not enough, they wait for the high watermark."""
        if operation.waits_for_commit:
            partition.waiters.park(waiter, self._deadlines)
        else:
            operation.reached(waiter, partition.log.log_start_offset)

    def _fail(
        self,
        partition: Partition,
        entries: list[tuple[AppendOperation, int, list[ProducedBatch]]],
        error: LogStorageError,
    ) -> None:
        """Nobody knows what of the wave was written: give the replica up, and say so to all."""
        self._replicas.partition_failed(partition, error)
        index = partition.topic_partition.partition
        for operation, position, _ in entries:
            operation.refused(position, index, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
