"""What idempotent producers have appended to one log: is a batch new, a repetition, or an error?

Pure: no disk, no clock. Each sequence lands once and in order (invariant 17). Per producer id: the epoch, the last five
batches, and (for logs of Kafka with transactions) coordinator epoch and first offset of the open transaction. The rules
are those of Kafka 3.9's ProducerAppendInfo:

```
producer id unknown (new, expired, or its records are gone)   any first sequence is taken
same epoch, sequence follows the last one                     taken; 0 follows 2^31 - 1
same epoch, exactly one of the last five batches              a repetition: answered with the first append's offset
same epoch, five batches known, all of them later             DUPLICATE_SEQUENCE_NUMBER: it is there, somewhere
same epoch, anything else                                     OUT_OF_ORDER_SEQUENCE_NUMBER
higher epoch                                                  taken at sequence 0, else OUT_OF_ORDER_SEQUENCE_NUMBER
lower epoch                                                   INVALID_PRODUCER_EPOCH
```
UNKNOWN_PRODUCER_ID, which a Kafka before 2.5 gave to an unknown producer, is not given (KIP-360).
A producer has at most five batches on their way. So one that stands before five known ones was acknowledged, and the
word "duplicate", which clients take for success, is true. With fewer known it might be a batch that was overtaken while
the producer was unknown here: that is out of order, never a silent loss.

A follower takes what its leader has checked (`note`). An epoch's state is replaced by the next one's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records.batch import BatchHeader
from strandline.storage.errors import ProducerRefused

RETAINED_BATCHES = 5
SEQUENCES = 2**31
"""Sequence numbers run from 0 to 2^31 - 1, and on with 0."""
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1


class AppendedBatch(NamedTuple):
    """One batch of a producer, as it stands in the log."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int
    """Its largest."""


class ProducerRow(NamedTuple):
    """A producer as a snapshot file holds it: with its last batch only."""

    producer_id: int
    epoch: int
    last_sequence: int
    """−1, as `last_offset`, where no batch is known."""
    last_offset: int
    offset_delta: int
    """Last minus first offset of that batch."""
    timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int
    """First offset of the open transaction, −1 without."""


class Producer:
    """What is known of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "idle_ms",
        "swept_offset",
        "timestamp_ms",
        "transaction_start",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[AppendedBatch] = deque(maxlen=RETAINED_BATCHES)
        """The last ones of this epoch, oldest first."""
        self.timestamp_ms = -1
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.transaction_start = NO_OFFSET
        self.idle_ms = 0
        """For how long nothing came from it, as far as was noticed."""
        self.swept_offset = NO_OFFSET  # its last offset when that was looked at

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


class ProducerStates:
    """Of one log, up to its end."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[int]:
        """The producer ids."""
        return iter(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def check(self, producer_id: int, epoch: int, base_sequence: int, records_count: int) -> AppendedBatch | None:
        """Whether a batch may be appended: None if so, the batch in the log that it repeats, or ProducerRefused."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        if epoch != producer.epoch:
            if epoch < producer.epoch:
                raise ProducerRefused(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"producer {producer_id} has epoch {producer.epoch} by now, the batch is of epoch {epoch}",
                )
            if base_sequence != 0:
                raise ProducerRefused(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} begins its epoch {epoch} with sequence {base_sequence}, not with 0",
                )
            return None
        batches = producer.batches
        expected = (batches[-1].last_sequence + 1) % SEQUENCES if batches else 0
        if base_sequence == expected:
            return None
        last_sequence = (base_sequence + records_count - 1) % SEQUENCES
        for batch in batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        if len(batches) == RETAINED_BATCHES and _is_before(last_sequence, batches[0].base_sequence):
            raise ProducerRefused(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"producer {producer_id} repeats sequence {base_sequence}, which is in the log for long",
            )
        raise ProducerRefused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} sent sequence {base_sequence} where {expected} follows",
        )

    def note(
        self, producer_id: int, epoch: int, base_sequence: int, base_offset: int, last_offset: int, timestamp_ms: int
    ) -> None:
        """A batch is in the log (or about to be written: where that fails the log is not used any more)."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        last_sequence = (base_sequence + last_offset - base_offset) % SEQUENCES
        producer.batches.append(AppendedBatch(base_sequence, last_sequence, base_offset, last_offset, timestamp_ms))
        producer.timestamp_ms = timestamp_ms

    def note_header(self, header: BatchHeader) -> None:
        """The same of a batch that a producer wrote, by its header."""
        if header.base_sequence >= 0:  # control batches have none
            self.note(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp_ms,
            )

    def cut(self, end_offset: int) -> bool:
        """The log ends at `end_offset` now. Returns whether what remains is true; if not (all known batches of a
        producer were cut off, so its earlier ones are needed), the states have to be loaded anew."""
        for producer in self._producers.values():
            batches = producer.batches
            if not batches or batches[-1].last_offset < end_offset:
                continue
            while batches and batches[-1].last_offset >= end_offset:
                batches.pop()
            if not batches:
                return False
            producer.timestamp_ms = batches[-1].timestamp_ms
        return True

    def clear(self) -> None:
        self._producers.clear()

    def expire(self, elapsed_ms: int, expiration_ms: int) -> list[int]:
        """Forget who is idle for `expiration_ms`, but for open transactions; called from time to time.

        elapsed_ms: since the last call, by a clock that does not jump. The timestamps of records do not count: who
        copies old records is not idle, and one in the future would stay for ever. Returns the ids."""
        expired: list[int] = []
        for producer_id, producer in self._producers.items():
            last_offset = producer.last_offset
            if last_offset != producer.swept_offset:
                producer.swept_offset = last_offset
                producer.idle_ms = 0
                continue
            producer.idle_ms += elapsed_ms
            if producer.idle_ms >= expiration_ms and producer.transaction_start == NO_OFFSET:
                expired.append(producer_id)
        for producer_id in expired:
            del self._producers[producer_id]
        return expired

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def rows(self) -> list[ProducerRow]:
        """What a snapshot of this moment holds."""
        rows: list[ProducerRow] = []
        for producer_id, producer in self._producers.items():
            if producer.batches:
                _, sequence, base_offset, offset, _ = producer.batches[-1]
                delta = offset - base_offset
            else:
                sequence, offset, delta = -1, NO_OFFSET, 0
            rows.append(
                ProducerRow(
                    producer_id,
                    producer.epoch,
                    sequence,
                    offset,
                    delta,
                    producer.timestamp_ms,
                    producer.coordinator_epoch,
                    producer.transaction_start,
                )
            )
        return rows

    def take(self, rows: Iterable[ProducerRow]) -> None:
        """Become what a snapshot holds."""
        self._producers.clear()
        for row in rows:
            producer = self._producers[row.producer_id] = Producer(row.epoch)
            producer.timestamp_ms = row.timestamp_ms
            producer.coordinator_epoch = row.coordinator_epoch
            producer.transaction_start = row.transaction_start
            if row.last_offset >= 0:
                base_sequence = (row.last_sequence - row.offset_delta) % SEQUENCES
                base_offset = row.last_offset - row.offset_delta
                producer.batches.append(
                    AppendedBatch(base_sequence, row.last_sequence, base_offset, row.last_offset, row.timestamp_ms)
                )

    def complete_from(self, headers: ProducerStates, is_compacted: Callable[[int], bool]) -> bool:
        """Take over the earlier batches of those producers whose last batch both know, or that had one which
        compaction took. headers: the same log's states up to the same offset, seen from a later beginning.
        is_compacted(offset): no batch holds it any more. False where the two contradict each other."""
        for producer_id, producer in self._producers.items():
            seen = headers.get(producer_id)
            if seen is None:
                continue
            last, seen_last = producer.last_offset, seen.last_offset
            if seen.epoch > producer.epoch or seen_last > last:
                return False
            if seen_last < last:
                if not is_compacted(last):
                    return False
                if seen.epoch == producer.epoch:
                    producer.batches.extendleft(reversed([*seen.batches][-RETAINED_BATCHES + 1 :]))
            elif seen.epoch != producer.epoch or not _is_same(seen.batches[-1], producer.batches[-1]):
                return False
            else:
                producer.batches = seen.batches
        return True


def _is_same(batch: AppendedBatch, other: AppendedBatch) -> bool:
    """But for the timestamp: compaction may have taken the record that had the largest."""
    return batch[:-1] == other[:-1]


def _is_before(sequence: int, other: int) -> bool:
    """Whether `sequence` comes before `other`, on the circle: less than half a round away."""
    return 0 < (other - sequence) % SEQUENCES < SEQUENCES // 2
