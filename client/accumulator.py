"""Records that wait for delivery, in batches, per partition; and the memory that they take.

Rules: nothing here waits or sends. A batch opens with its first record, closes when it is full or when the sender says
so, and from then on is bytes. Per partition batches leave in the order in which they were filled, and those that failed
go back to where they stood. One group of batches is under way at a time; of an idempotent producer several, each of one
batch (`numbering`). Memory is counted per batch: its limit while it is open, its real size afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from strandline.client.delivery import DeliveredBatch, DeliverySink, FailedBatch
from strandline.client.errors import DeliveryFailed, InvalidRecordValue, RecordTooLarge
from strandline.client.lingering import Gathering
from strandline.client.numbering import Numbering
from strandline.client.record_sizes import batch_bytes
from strandline.client.samples import Samples
from strandline.client.settings import ProducerSettings
from strandline.client.unread_failures import UnreadFailures
from strandline.protocol.records import HEADER_BYTES, BatchBuilder, assign_producer, read_header
from strandline.protocol.types import NO_BROKER, NO_EPOCH, NO_PRODUCER_ID, TopicPartition

Header = tuple[str, bytes | None]
KeyAndValue = tuple[bytes | None, bytes | None]
FullRecord = tuple[bytes | None, bytes | None, Sequence[Header], int]
"""Key, value, headers, timestamp in ms since 1970."""
ToSend = KeyAndValue | FullRecord


class EncodedBatch(NamedTuple):
    """A whole batch that somebody else has built, and gives away: `data` is written to. Its producer fields and its CRC
    need not be right."""

    data: bytearray | memoryview
    records_count: int


class EncodedBatches:
    """Some of them, in order; as long as there are records in them. InvalidRecordValue on what is no batch."""

    __slots__ = ("_records_count", "batches")

    def __init__(self, batches: Sequence[EncodedBatch]) -> None:
        for data, count in batches:
            if memoryview(data).readonly:
                raise InvalidRecordValue("a batch is refused: its numbers are written into it, and it is read-only")
            header = read_header(data) if len(data) >= HEADER_BYTES else None
            if header is None or header.size_bytes != len(data) or header.records_count != count or count < 1:
                raise InvalidRecordValue(f"{len(data)} bytes are refused: they are not one batch of {count} records")
        if len({id(data) for data, _ in batches}) < len(batches):
            raise InvalidRecordValue("batches are refused: two of them are the same bytes, and each is to be numbered")
        self.batches = tuple(batches)
        self._records_count = sum(batch.records_count for batch in batches)

    def __len__(self) -> int:
        return self._records_count


ToldOf = tuple[DeliverySink, int, int, int]
"""Who is told of records of a batch: (sink, index of the first one in the batch, number of them, index of the first one
among those that were given with the sink)."""


@dataclass(slots=True, eq=False)
class Batch:
    """One closed batch on its way. Times are those of the event loop, in seconds."""

    number: int
    topic_partition: TopicPartition
    data: bytearray | memoryview
    records_count: int
    sinks: list[ToldOf]
    deadline: float
    attempts: int = 0
    maybe_appended: bool = False
    """An attempt was sent whose answer did not rule out that the records are in the log."""
    last_error: Exception | None = None
    done: bool = False
    is_numbered: bool = False
    """An idempotent producer's, and it was sent: it has its numbers."""
    first_index: int = 0
    """Of its first record in the batch that it was split from (`batch_splitting`), whose number it has."""

    @property
    def order(self) -> tuple[int, int]:
        """Batches of one partition are sent in this order."""
        return self.number, self.first_index


class RefusedRecord(Exception):
    """The record at `index` cannot be encoded; its `__cause__` tells why. Those before it were appended."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class PartitionQueue:
    """The batches of one partition, in order: under way | ready | open. `numbering`: of an idempotent producer."""

    __slots__ = (
        "_reserved_bytes",
        "_sinks",
        "builder",
        "deadline",
        "filled_bytes",
        "gathering",
        "in_flight",
        "isolated",
        "number",
        "numbering",
        "opened_at",
        "ready",
        "retry_at",
        "sent_at",
        "sent_to",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, numbering: Numbering | None = None) -> None:
        self.topic_partition = topic_partition
        self.numbering = numbering
        self.ready: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.retry_at = 0.0
        self.sent_at = 0.0
        """When the oldest of those under way was sent, or one before it was answered."""
        self.sent_to = NO_BROKER
        self.isolated = 0
        """So many of the next batches travel alone: one of them was refused, and it is to be found out which."""
        self.builder: BatchBuilder | None = None
        self.opened_at = 0.0
        self.gathering = Gathering()
        self.deadline = 0.0
        self.number = 0
        self.filled_bytes = 0
        """Of all batches ever closed, before compression; a full one counts as all that fits into one."""
        self._sinks: list[ToldOf] = []
        self._reserved_bytes = 0

    @property
    def is_empty(self) -> bool:
        return self.builder is None and not self.ready and not self.in_flight

    def open(self, builder: BatchBuilder, number: int, now: float, deadline: float, reserved_bytes: int) -> None:
        assert self.builder is None
        self.builder = builder
        self.number, self.opened_at, self.deadline = number, now, deadline
        self.gathering = Gathering()
        self._sinks = []
        self._reserved_bytes = reserved_bytes

    def add(self, timestamp_ms: int, record: ToSend, sink: DeliverySink, headers: Sequence[Header]) -> bool:
        """Append one record, whose sink was told of no other; as `extend`, in less time. False: it does not fit.
        Raises what the codec does where it cannot be encoded."""
        builder = self.builder
        if builder is None:
            return False
        first = builder.records_count
        if len(record) == 2:
            key, value = record
        else:
            key, value, headers, timestamp_ms = record
        if not builder.append(timestamp_ms, key, value, headers):
            return False
        self._sinks.append((sink, first, 1, 0))
        return True

    def extend(
        self,
        timestamp_ms: int,
        records: Sequence[ToSend],
        start: int,
        sink: DeliverySink,
        headers: Sequence[Header],
    ) -> int:
        """Append `records[start:]`, all of one kind, as far as they fit; the index of the first that does not.
        `timestamp_ms` and `headers`: of those that have none of their own. RefusedRecord."""
        builder = self.builder
        if builder is None:
            return start
        first = builder.records_count
        left: Sequence[Any] = records[start:] if start else records
        try:
            if len(records[-1]) == 2:
                builder.append_pairs(timestamp_ms, left, headers)
            else:
                builder.append_full(left)
        except Exception as error:
            raise RefusedRecord(start + builder.records_count - first) from error
        finally:  # what was appended before that record counts
            index = start + builder.records_count - first
            if index > start:
                if self._sinks and self._sinks[-1][0] is sink:  # told once per batch
                    _, first, _, start = self._sinks.pop()
                self._sinks.append((sink, first, builder.records_count - first, start))
        return index

    def close_builder(self) -> int:
        """The open batch becomes ready; the bytes of memory that it turned out not to need. Raises what the codec does
        (no memory, …); then it is still open."""
        builder = self.builder
        assert builder is not None
        data = builder.build()
        self.builder = None
        self.ready.append(
            Batch(self.number, self.topic_partition, data, builder.records_count, self._sinks, self.deadline)
        )
        self._sinks = []
        return self._reserved_bytes - len(data)

    def discard_builder(self) -> tuple[Batch, int]:
        """The open batch is not sent: its records as a batch without bytes, and the bytes of memory that were kept for
        it."""
        assert self.builder is not None
        count, self.builder = self.builder.records_count, None
        batch = Batch(self.number, self.topic_partition, bytearray(), count, self._sinks, self.deadline)
        self._sinks = []
        return batch, self._reserved_bytes

    def take(self, max_bytes: int) -> list[Batch]:
        """The next group, now under way: ready batches up to `max_bytes`, at least one; one where they are numbered."""
        group = [self.ready.popleft()]
        if self.numbering is not None:
            self._number(group[0], self.numbering)
        elif self.isolated:
            self.isolated -= 1
        else:
            size = len(group[0].data)
            while self.ready and (size := size + len(self.ready[0].data)) <= max_bytes:
                group.append(self.ready.popleft())
        self.in_flight += group
        return group

    def _number(self, batch: Batch, numbering: Numbering) -> None:
        if not batch.is_numbered:
            assign_producer(batch.data, *numbering.take(batch.records_count))
            batch.is_numbered = True

    def take_back_numbers(self) -> list[Batch]:
        """The numbering began anew: what was sent with other numbers gets new ones, but for those batches that may be
        in the log, which are taken out and returned."""
        assert not self.in_flight
        numbered: list[Batch] = []
        while self.ready and self.ready[0].is_numbered:
            numbered.append(self.ready.popleft())
        for batch in numbered:
            batch.is_numbered = batch.maybe_appended
        self.ready.extendleft(batch for batch in reversed(numbered) if not batch.is_numbered)
        return [batch for batch in numbered if batch.is_numbered]

    def landed(self, group: Sequence[Batch], now: float) -> None:
        """The group is not under way any more."""
        self.in_flight = [batch for batch in self.in_flight if batch not in group]
        self.sent_at = now

    def put_back(self, group: Sequence[Batch], retry_at: float) -> None:
        """What is left of a group that failed is sent again, before what was filled later."""
        earlier: list[Batch] = []
        while self.ready and self.ready[0].order < group[0].order:
            earlier.append(self.ready.popleft())
        self.ready.extendleft(reversed((*earlier, *group)))
        self.retry_at = retry_at

    def is_first(self, batch: Batch) -> bool:
        """No batch that was filled earlier is under way or ready."""
        return all(other.order >= batch.order for other in (*self.in_flight, *islice(self.ready, 1)))


@dataclass(slots=True)
class Accumulator:
    """All queues of one producer and their memory."""

    settings: ProducerSettings
    on_batch: Callable[[DeliveredBatch | FailedBatch], None] | None = None
    queues: dict[TopicPartition, PartitionQueue] = field(default_factory=dict)
    active: dict[TopicPartition, PartitionQueue] = field(default_factory=dict)
    """Those that hold anything."""
    used_bytes: int = 0
    waiting_bytes: int = 0
    """Of records that are not in a queue yet: sent by other threads, and on their way."""
    is_awaited: Callable[[], bool] = lambda: False
    """Another thread waits for memory."""
    outstanding: dict[int, int] = field(default_factory=dict)
    """Numbers of the batches that are open, ready or under way, lowest first, and how many have that number."""
    on_settled: Callable[[], None] = lambda: None
    """Memory came free; where a batch was settled, a flush may be complete."""
    delivered_records: int = 0
    failed_records: int = 0
    unread: UnreadFailures = field(default_factory=UnreadFailures)
    delivered_batches: int = 0
    delivered_bytes: int = 0
    batch_sizes: Samples = field(default_factory=Samples)
    retried_records: int = 0
    """Delivered ones that were sent more than once."""
    _next_number: int = 0

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        queue = self.queues.get(topic_partition)
        if queue is None:
            numbering = self._numbering(topic_partition)
            queue = self.queues[topic_partition] = PartitionQueue(topic_partition, numbering)
        return queue

    def _numbering(self, topic_partition: TopicPartition) -> Numbering | None:
        if self.settings.identity is not None:
            return Numbering.given(self.settings.identity, topic_partition)
        return Numbering() if self.settings.is_idempotent else None

    def open_batch(self, queue: PartitionQueue, first: ToSend, headers: Sequence[Header], now: float) -> bool:
        """Make the queue ready to take `first`, closing a batch that is full. False: no memory now.

        RecordTooLarge: not even a batch of its own would be allowed to hold it.
        """
        needed = batch_bytes(first, headers)
        if needed > self.settings.max_request_size:
            raise self._too_large("a record", needed, queue)
        if queue.builder is not None:
            self.close_batch(queue, is_full=True)
        limit = self.settings.batch_limit_bytes
        reserved = max(limit, needed)
        number = self._reserve(queue, reserved)
        if number is None:
            return False
        builder = BatchBuilder(self.settings.compression_type, limit)  # the first record fits whatever its size
        queue.open(builder, number, now, self._deadline(now), reserved)
        return True

    def add_encoded(self, queue: PartitionQueue, encoded: EncodedBatch, sink: DeliverySink, now: float) -> bool:
        """The batch is ready behind all others of the queue. False: no memory now.

        RecordTooLarge: it is larger than any that may be sent.
        """
        data, count = encoded
        if len(data) > self.settings.max_request_size:
            what = "a record" if count == 1 else f"a batch of {count} records"
            raise self._too_large(what, len(data), queue)
        if queue.builder is not None:
            self.close_batch(queue)
        number = self._reserve(queue, len(data))
        if number is None:
            return False
        if queue.numbering is None:
            assign_producer(data, NO_PRODUCER_ID, NO_EPOCH, -1)
        sinks: list[ToldOf] = [(sink, 0, count, 0)]
        queue.ready.append(Batch(number, queue.topic_partition, data, count, sinks, self._deadline(now)))
        queue.filled_bytes += len(data)
        return True

    def _reserve(self, queue: PartitionQueue, size_bytes: int) -> int | None:
        """Memory for the queue's next batch, whose number is returned; None: there is not enough now."""
        if self.used_bytes and self.used_bytes + size_bytes > self.settings.buffer_memory:
            return None
        self.used_bytes += size_bytes
        number = self._next_number
        self._next_number += 1
        self.outstanding[number] = 1
        self.active[queue.topic_partition] = queue
        return number

    def _deadline(self, now: float) -> float:
        return now + self.settings.delivery_timeout_ms / 1000

    def _too_large(self, what: str, size_bytes: int, queue: PartitionQueue) -> RecordTooLarge:
        return RecordTooLarge(
            f"{what} of {size_bytes} bytes for {queue.topic_partition} is above max_request_size "
            f"({self.settings.max_request_size}) of the producer: raise it, and max.message.bytes of the topic "
            "(message.max.bytes of the brokers, 1048588 by default)"
        )

    def close_batch(self, queue: PartitionQueue, *, is_full: bool = False) -> None:
        """`is_full`: the next record has no room in it."""
        assert queue.builder is not None
        if not queue.builder.records_count:  # its first record was refused: nobody waits for it
            self.used_bytes -= queue.discard_builder()[1]
            del self.outstanding[queue.number]
            self.on_settled()
            return
        size_bytes = queue.builder.size_bytes
        queue.filled_bytes += max(size_bytes, self.settings.batch_limit_bytes) if is_full else size_bytes
        try:
            freed_bytes = queue.close_builder()
        except Exception as error:
            self._give_up_open(queue, error)
            return
        self.used_bytes -= freed_bytes
        if freed_bytes > 0:  # somebody may wait for it, while nothing can be delivered
            self.on_settled()

    def _give_up_open(self, queue: PartitionQueue, error: Exception) -> None:
        """No batch can be made of these records; those of others are none the worse for it."""
        batch, reserved_bytes = queue.discard_builder()
        self.used_bytes -= reserved_bytes
        text = f"{batch.records_count} records for {batch.topic_partition} cannot be made a batch: {error!r}"
        failure = DeliveryFailed(text, outcome_unknown=False, cause=error)
        failure.__cause__ = error
        if queue.numbering is not None:
            queue.numbering.note_failure(failure)
        self.give_up(batch, failure)

    def topics(self) -> set[str]:
        """Of everything that is not settled yet."""
        return {topic_partition.topic for topic_partition in self.active}

    def next_number(self) -> int:
        """Batches with lower numbers were opened before now."""
        return self._next_number

    def all_settled_before(self, number: int) -> bool:
        return next(iter(self.outstanding), number) >= number

    def replace(self, batch: Batch, parts: Sequence[Batch]) -> None:
        """The batch was split into these."""
        self.outstanding[batch.number] += len(parts)
        self.used_bytes += sum(len(part.data) for part in parts)
        self._settled(batch)

    def deliver(self, batch: Batch, base_offset: int, log_append_time_ms: int, now: float) -> None:
        """The batch is acknowledged: tell everybody, free its memory."""
        if batch.done:
            return
        topic, partition = batch.topic_partition
        may_stand_twice = batch.maybe_appended and not batch.is_numbered
        result = DeliveredBatch(topic, partition, base_offset, batch.records_count, log_append_time_ms, may_stand_twice)
        self.delivered_records += batch.records_count
        self.delivered_batches += 1
        self.delivered_bytes += len(batch.data)
        self.batch_sizes.add(len(batch.data), now)
        if batch.attempts > 1:
            self.retried_records += batch.records_count
        self._settled(batch)
        for sink, first_index, count, start in batch.sinks:
            sink.delivered(result, first_index, count, start)
        self._tell(result)

    def give_up(self, batch: Batch, error: DeliveryFailed) -> None:
        """The batch is not delivered, or nobody knows: tell everybody, free its memory."""
        if batch.done:
            return
        topic, partition = batch.topic_partition
        self._settled(batch)
        for sink, _, count, start in batch.sinks:
            self.fail(sink, error, count, start, is_read=self.on_batch is not None)
        self._tell(FailedBatch(topic, partition, batch.records_count, error))

    def fail(self, sink: DeliverySink, error: Exception, count: int, start: int, *, is_read: bool = False) -> None:
        """`count` records, from index `start` on, are not delivered. is_read: the program hears of it otherwise."""
        self.failed_records += count
        sink.failed(error, count, start)
        if is_read:
            sink.count_as_told(count, start)
        else:
            self.unread.note(sink)

    def _settled(self, batch: Batch) -> None:
        batch.done = True
        self.used_bytes -= len(batch.data)
        self.outstanding[batch.number] -= 1
        if not self.outstanding[batch.number]:
            del self.outstanding[batch.number]

    def _tell(self, result: DeliveredBatch | FailedBatch) -> None:
        self.on_settled()
        if self.on_batch is None:
            return
        try:
            self.on_batch(result)
        except SystemExit as error:  # it would end the loop, and with it every client of the process
            raise RuntimeError(f"on_batch raised {error!r}") from error
