"""One assigned partition of a consumer: where it is, what is fetched and not handed out yet.

Rules: plain data and plain functions. `position` is the next offset to hand out, `fetch_offset` the next one to ask
for; between them lie the buffered chunks. `generation` changes whenever the position is set from outside, so that an
answer to an older question is recognised. A batch below `position` in part is handed out in part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from strandline.client.errors import CorruptRecords, LogTruncated
from strandline.client.record import ConsumerRecord, Loan
from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.records import BatchHeader, InvalidBatch, compiled_records, scan
from strandline.protocol.types import NO_EPOCH, NO_OFFSET, NO_TOPIC_ID, TopicId, TopicPartition

if TYPE_CHECKING:
    from strandline.client.columns import FetchedColumns


class FetchedBatches(NamedTuple):
    """Whole record batches as they are in the log; the first one may begin below `position`: skip those records.
    `next_offset` is where the next fetch goes on. Decode with `protocol.records.decode_columns` or `decode_records`."""

    topic: str
    partition: int
    position: int
    next_offset: int
    high_watermark: int
    log_start_offset: int
    records: memoryview


@dataclass(slots=True)
class Chunk:
    """The records of one fetch answer for one partition; `cursor` is where the first batch not yet decoded begins."""

    data: memoryview
    headers: deque[tuple[int, BatchHeader]]
    high_watermark: int

    @classmethod
    def cut(cls, records: memoryview, fetch_offset: int, high_watermark: int) -> Chunk:
        """Copy whole batches out of the receive buffer. RemoteProtocolError unless they continue at `fetch_offset`, in
        order, and end at the high watermark at the latest."""
        try:
            headers = deque(scan(records))
        except InvalidBatch as error:
            raise RemoteProtocolError(f"fetched records are no batches: {error}") from None
        if not headers:
            raise RemoteProtocolError(f"{len(records)} bytes of records without a whole batch")
        next_offset = NO_OFFSET
        for _, header in headers:
            if header.last_offset_delta < 0 or header.base_offset < max(0, next_offset):
                raise RemoteProtocolError(f"batch at offset {header.base_offset} after offset {next_offset - 1}")
            next_offset = header.next_offset
        if next_offset <= fetch_offset or next_offset > high_watermark:
            raise RemoteProtocolError(
                f"records up to offset {next_offset} for a fetch from {fetch_offset} with high watermark "
                f"{high_watermark}"
            )
        end = headers[-1][0] + headers[-1][1].size_bytes
        return cls(memoryview(bytes(records[:end])), headers, high_watermark)

    @property
    def next_offset(self) -> int:
        return self.headers[-1][1].next_offset

    @property
    def leader_epoch(self) -> int:
        return self.headers[-1][1].partition_leader_epoch


@dataclass(slots=True, eq=False)
class Assigned:
    """The state of one partition. Times are those of the event loop, in seconds."""

    topic_partition: TopicPartition
    topic_id: TopicId = NO_TOPIC_ID
    """Which of the topics that had this name the position is of; zeros while that is not known."""
    position: int = NO_OFFSET
    """NO_OFFSET: not known yet, `reset_to` says how it will be found."""
    fetch_offset: int = NO_OFFSET
    reset_to: int | None = None
    """A ListOffsets timestamp (EARLIEST, LATEST) while the position is to be looked up."""
    wants_committed: bool = False
    """Its group is being asked where to start."""
    position_epoch: int = NO_EPOCH
    """Leader epoch of the record before `position`."""
    last_epoch: int = NO_EPOCH
    """Leader epoch of the last fetched batch."""
    checked_epoch: int = NO_EPOCH
    """The leader epoch under which `fetch_offset` is known to continue the same log."""
    paused: bool = False
    hurried: bool = True
    """The program set the position (or resumed) and waits: not to be kept waiting by a long poll without it."""
    turn: int = 0
    """Grows with each fetch that asked for it, where one fetch cannot ask for all partitions of a leader."""
    retry_at: float = 0.0
    failures: int = 0
    generation: int = 0
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    error: Exception | None = None
    """Raised by the next poll that has nothing to hand out."""
    out_of_range: bool = False
    told_limits: tuple[int, int] = (NO_OFFSET, NO_OFFSET)
    """Log start and high watermark, as who said `out_of_range` told them."""
    missing_since: float | None = None
    """Since when the cluster does not know the topic any more."""
    last_error: Exception | None = None
    """For messages: why nothing comes."""
    chunks: deque[Chunk] = field(default_factory=deque)
    buffered_bytes: int = 0
    lent: Loan | None = None
    """Records below `position` of which a loop over the consumer has taken a part."""
    _records: list[ConsumerRecord] = field(default_factory=list)
    _handed_out: int = 0
    _records_epoch: int = NO_EPOCH

    @property
    def has_records(self) -> bool:
        return bool(self.chunks) or self._handed_out < len(self._records)

    @property
    def read_position(self) -> int:
        """The offset behind all that the program has had: `position`, or where a loop is."""
        left = None if self.lent is None else self.lent.next_offset
        return self.position if left is None else left

    @property
    def read_epoch(self) -> int:
        """Leader epoch of the record before `read_position`, as far as it is known."""
        return self.position_epoch if self.read_position == self.position else NO_EPOCH

    def lend(self, records: Sequence[ConsumerRecord]) -> Loan:
        """To a loop, what was taken just now."""
        self.lent = Loan(records, self.generation)
        return self.lent

    def end_loan(self) -> None:
        """The program goes on elsewhere: what it has not taken of it is not wanted any more."""
        if self.lent is not None:
            self.lent.is_over = True
            self.lent = None

    def take_back(self) -> None:
        """What was lent and is not taken is handed out another time."""
        loan = self.lent
        self.end_loan()
        if loan is None or (offset := loan.next_offset) is None:
            return
        if isinstance(self.error, LogTruncated):
            error, read = self.error, loan.records[loan.taken].offset
            self.set_position(read)
            if read > error.diverging_offset:  # else nothing is gone of what the program has had
                self.error = error
            return
        if loan.generation != self.generation or self.reset_to is not None:
            if self.reset_to is not None or offset != self.position:
                self.set_position(offset)
            return
        self._records = [*loan.records[loan.taken :], *self._records[self._handed_out :]]
        self._handed_out, self._records_epoch = 0, NO_EPOCH
        self.position, self.position_epoch = offset, NO_EPOCH

    def set_position(self, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Go on at `offset`; what was fetched is forgotten."""
        self.position = self.fetch_offset = offset
        self.reset_to, self.wants_committed = None, False
        self.position_epoch = self.last_epoch = leader_epoch
        self.checked_epoch = NO_EPOCH
        self._forget()

    def part_at(self, offset: int, leader_epoch: int, error: LogTruncated | None = None) -> None:
        """The log has other records from there on than those that were read: what is buffered or lent of them is not
        handed out any more. Go on there, or have the next poll raise the error."""
        if self.lent is not None:
            self.lent.parts_at, self.lent.is_over = offset, True
        if error is None:
            self.set_position(offset, leader_epoch)
        else:
            self.refetch()
            self.error = error

    def ask_reset(self, timestamp: int) -> None:
        """Look the position up (EARLIEST or LATEST)."""
        self.position = self.fetch_offset = NO_OFFSET
        self.reset_to, self.wants_committed = timestamp, False
        self.position_epoch = self.last_epoch = self.checked_epoch = NO_EPOCH
        self._forget()

    def ask_group(self) -> None:
        """Start where the group has committed."""
        self.wants_committed = True

    def refetch(self) -> None:
        """Forget what is buffered, keep the position."""
        self.fetch_offset = self.position
        self._forget()

    def fetch_anew(self) -> None:
        """What is buffered cannot be read. Nobody is hurried: it may be no better the next time, and others wait for
        answers of the same broker."""
        is_hurried = self.hurried
        self.refetch()
        self.hurried = is_hurried

    def _forget(self) -> None:
        self.generation += 1
        self.chunks.clear()
        self.buffered_bytes = 0
        self._records = []
        self._handed_out = 0
        self.error = None
        self.out_of_range = False
        self.hurried = True
        self.retry_at, self.failures = 0.0, 0

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.buffered_bytes += len(chunk.data)
        self.fetch_offset = chunk.next_offset
        self.last_epoch = chunk.leader_epoch

    def take_records(self, limit: int, check_crcs: bool) -> list[ConsumerRecord]:
        """Up to `limit` records from `position` on. CorruptRecords: the batch at `position` cannot be read."""
        taken: list[ConsumerRecord] = []
        while len(taken) < limit:
            if self._handed_out >= len(self._records):
                if not self.chunks:
                    break
                try:
                    self._decode_next(check_crcs)
                except CorruptRecords:
                    if taken:
                        break  # met again by the next call
                    raise
                continue
            part = self._records[self._handed_out : self._handed_out + limit - len(taken)]
            self._handed_out += len(part)
            taken += part
            self.position = part[-1].offset + 1
            self.position_epoch = self._records_epoch
        if self._handed_out >= len(self._records) and self.chunks:
            self.position = max(self.position, self.chunks[0].headers[0][1].base_offset)
        elif not self.has_records and self.fetch_offset > self.position:
            self.position = self.fetch_offset  # the end of a batch may be compacted away
        return taken

    def take_batches(self) -> FetchedBatches | None:
        """The next chunk undecoded, or what is left of it; None if nothing is buffered."""
        if self._handed_out < len(self._records):
            self.refetch()  # somebody mixes both ways of reading: the rest of that batch comes again
            return None
        if not self.chunks:
            return None
        chunk = self.chunks.popleft()
        self.buffered_bytes -= len(chunk.data)
        start, position = chunk.headers[0][0], self.position
        self.position, self.position_epoch = chunk.next_offset, chunk.leader_epoch
        topic, partition = self.topic_partition
        return FetchedBatches(
            topic,
            partition,
            position,
            chunk.next_offset,
            chunk.high_watermark,
            self.log_start_offset,
            chunk.data[start:],
        )

    def take_columns(self, check_crcs: bool) -> FetchedColumns | None:
        """The records of the next chunk from `position` on, as columns; None if nothing is buffered. CorruptRecords:
        the batch at `position` cannot be read; those before it were taken."""
        from strandline.client import columns  # numpy is not for everybody

        if self._handed_out < len(self._records):
            self.refetch()  # as in `take_batches`
            return None
        while self.chunks:
            chunk, position = self.chunks[0], self.position
            found = columns.decode(chunk.data, list(chunk.headers), check_crcs)
            if not found.batches_count and found.error is not None:
                raise self._corrupt(chunk.headers[0][1], found.error) from found.error
            for _ in range(found.batches_count):
                _, last = chunk.headers.popleft()
            self.position, self.position_epoch = last.next_offset, last.partition_leader_epoch
            if not chunk.headers:
                self.chunks.popleft()
                self.buffered_bytes -= len(chunk.data)
            taken = columns.columns_of(self.topic_partition, found.records, position, chunk.high_watermark)
            if taken.records_count:
                return taken
        return None

    def _corrupt(self, header: BatchHeader, error: InvalidBatch) -> CorruptRecords:
        return CorruptRecords(
            f"the records of {self.topic_partition} at offset {header.base_offset} are damaged: {error}; seek to "
            f"{header.next_offset} to go on behind them"
        )

    def _decode_next(self, check_crcs: bool) -> None:
        """Decode one batch; it leaves the chunk only when that succeeded."""
        chunk = self.chunks[0]
        start, header = chunk.headers[0]
        topic, partition = self.topic_partition
        try:
            compiled = compiled_records(chunk.data[start : start + header.size_bytes], check_crcs)
        except InvalidBatch as error:
            raise self._corrupt(header, error) from error
        new, position, timestamp_type = tuple.__new__, self.position, header.timestamp_type
        self._records = [  # one pass: lists of columns in between cost a third more
            new(
                ConsumerRecord,
                (topic, partition, row.offset, row.timestamp, timestamp_type, row.key, row.value, row.headers),
            )
            for row in compiled
        ]
        if header.base_offset < position:
            self._records = [record for record in self._records if record.offset >= position]
        self._handed_out, self._records_epoch = 0, header.partition_leader_epoch
        if len(chunk.headers) == 1:
            self.chunks.popleft()
            self.buffered_bytes -= len(chunk.data)
        else:
            chunk.headers.popleft()


def give_back(assigned: Mapping[TopicPartition, Assigned], taken: object) -> int:
    """Go back to where the records begin that a poll has taken, or the batches, where nobody set a position below.
    Returns how many records were before the position and are behind it now; those of undecoded batches do not count.
    """
    begins: list[tuple[TopicPartition, int]] = []
    reached = {partition: state.position for partition, state in assigned.items()}
    count = 0
    if isinstance(taken, dict):
        begins = [(partition, records[0].offset) for partition, records in taken.items()]
        for partition, records in taken.items():
            count += sum(record.offset < reached.get(partition, NO_OFFSET) for record in records)
    elif isinstance(taken, list):
        whole = [each for each in taken if not isinstance(each, Loan)]
        begins = [(TopicPartition(each.topic, each.partition), each.position) for each in whole]
        for (partition, offset), each in zip(begins, whole, strict=True):
            if not isinstance(each, FetchedBatches) and reached.get(partition, NO_OFFSET) > offset:
                count += each.records_count
    for partition, offset in begins:
        state = assigned.get(partition)
        if state is not None and state.position > offset:
            state.set_position(offset)
    return count
