"""What this broker itself appends to partitions that it leads: the records of one of the brokers' own topics.

    append ── gathered for the burst ── write: one batch per partition ── Appends ── done, once

Rules:
* No task and no future for who appends: `done` is called once, in the order of the log where all goes well. NONE: the
  records are below the high watermark, on all replicas in sync. Else an error: before anything was appended
  NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE, KAFKA_STORAGE_ERROR; after that NOT_LEADER_OR_FOLLOWER
  and REQUEST_TIMED_OUT, which say that nobody knows yet whether they stay.
* Whoever has to know how that goes on after REQUEST_TIMED_OUT names `late`, too: it is called once, when they are below
  the high watermark after all, or the leadership is over.
* It is never called from within `append`, and may append itself: that goes with the next burst.
* The records of one call stay together in one batch. Where more is gathered than the topic takes in one
  (`max.message.bytes`), there are several batches.
* What was gathered under one leadership is not appended under the next: who leads anew may have read the log before.
* Whoever calls `append` ends the burst, as whoever changes a partition does.

So a burst in which a thousand members commit costs one batch, one write and one waiter, and some microseconds a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import trio

from strandline.broker.replication.appends import Appends
from strandline.broker.replication.deadlines import NEVER
from strandline.broker.replication.leadership import Leadership
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.purgatory import Waiter
from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import HEADER_BYTES, BatchBuilder, InvalidBatch, ProducedBatch, validate_produced
from strandline.protocol.types import NO_BROKER, NO_EPOCH
from strandline.runtime.environment import WallClock

RECORD_OVERHEAD_BYTES = 32
"""At most so much is written of a record beside key and value."""

Record = tuple[bytes | None, bytes | None]
"""Key and value."""
Done = Callable[[ErrorCode], None]


class _Append(msgspec.Struct, eq=False):
    """One call. `leadership`: under which it was made."""

    records: Sequence[Record]
    done: Done
    late: Done | None
    leadership: Leadership | None
    size_bytes: int


class _Batch(msgspec.Struct, eq=False):
    """The operation of some calls whose records are one batch."""

    appends: list[_Append]
    deadline: float
    waits_for_commit: bool = True
    is_abandoned: bool = False

    def reached(self, waiter: Waiter, log_start_offset: int) -> None:
        self.end(ErrorCode.NONE)

    def failed(
        self, position: int, partition: int, code: int, leader_id: int = NO_BROKER, leader_epoch: int = NO_EPOCH
    ) -> None:
        self.end(ErrorCode(code))
        if code == ErrorCode.REQUEST_TIMED_OUT:
            self._wait_on()

    def _wait_on(self) -> None:
        """For those who want to know; none of them is told of a time-out again."""
        self.deadline = NEVER
        appends, self.appends = self.appends, []
        for append in appends:
            if append.late is not None:
                append.done, append.late, append.records = append.late, None, ()
                self.appends.append(append)
        self.is_abandoned = not self.appends

    def refused(self, position: int, partition: int, code: int, message: str) -> None:
        self.end(ErrorCode(code))

    def end(self, code: ErrorCode) -> None:
        for append in self.appends:
            append.done(code)


class OwnAppends:
    """See the module. Each of the brokers' own topics has its own."""

    def __init__(
        self, appends: Appends, wall_clock: WallClock, codec: Callable[[], str], timeout_s: Callable[[], float]
    ) -> None:
        """codec, timeout_s: of the batches, and until `done` is called at the latest; asked for each batch."""
        self._appends = appends
        self._wall_clock = wall_clock
        self._codec = codec
        self._timeout_s = timeout_s
        self._gathered: dict[Partition, list[_Append]] = {}

    def append(self, partition: Partition, records: Sequence[Record], done: Done, late: Done | None = None) -> None:
        """Append these records with this burst; see the module. Where there are none `done` is called all the same."""
        size_bytes = sum(len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in records)
        appended = _Append(records, done, late, partition.leadership, size_bytes)
        self._gathered.setdefault(partition, []).append(appended)

    def write(self) -> None:
        """Make batches of what was gathered, and write the wave that they are part of."""
        if self._gathered:
            gathered, self._gathered = self._gathered, {}
            for partition, appends in gathered.items():
                for bundle in _bundles(appends, partition.config.max_message_bytes):
                    self._add(partition, bundle)
        self._appends.write()

    def _add(self, partition: Partition, appends: list[_Append]) -> None:
        operation = _Batch(appends, trio.current_time() + self._timeout_s())
        position, index = 0, partition.topic_partition.partition
        leadership = partition.leadership
        if leadership is None or leadership is not appends[0].leadership:
            operation.refused(position, index, ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
        elif not leadership.has_enough_replicas:
            operation.refused(position, index, ErrorCode.NOT_ENOUGH_REPLICAS, "")
        elif not any(append.records for append in appends):
            operation.end(ErrorCode.NONE)
        else:
            try:
                batches = self._build(appends, partition.config.max_message_bytes)
            except InvalidBatch as error:
                operation.refused(position, index, error.code, str(error))
                return
            self._appends.add(partition, operation, position, batches)

    def _build(self, appends: list[_Append], max_batch_bytes: int) -> list[ProducedBatch]:
        now_ms = self._wall_clock.now_ms()
        builder = BatchBuilder(self._codec(), batch_size_bytes=2**31 - 1)
        for append in appends:
            for key, value in append.records:
                builder.append(now_ms, key, value)
        return validate_produced(memoryview(bytearray(builder.build())), max_batch_bytes=max_batch_bytes)


def _bundles(appends: list[_Append], max_bytes: int) -> Iterator[list[_Append]]:
    """Neighbours of one leadership that fit a batch together; who does not fit one alone is alone."""
    bundle: list[_Append] = []
    size_bytes = HEADER_BYTES
    for append in appends:
        is_other = bool(bundle) and append.leadership is not bundle[0].leadership
        if bundle and (is_other or size_bytes + append.size_bytes > max_bytes):
            yield bundle
            bundle, size_bytes = [], HEADER_BYTES
        bundle.append(append)
        size_bytes += append.size_bytes
    if bundle:
        yield bundle
