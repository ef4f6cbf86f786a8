"""The batches of one replica in order, fetched as they are looked at; and those of several replicas, side by side.

A stream holds one answer of its replica at a time, so a comparison of any length needs the memory of a few. It ends
where the replica has no more that is committed, as far as it knows (`is_behind`), cannot be asked (`failure`), or hands
out bytes that are no batches (`damage`). Reading is a function that the caller gives, so all of this is plain and pure.

Side by side, replicas are mostly the same bytes: such stretches are checked once for all of them (`_same`), and only
where they are not, batch is held against batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from strandline.client.errors import ClientError
from strandline.client.replicas.reading import ReplicaPart
from strandline.protocol.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MIN_BATCH_LENGTH,
    BatchHeader,
    InvalidBatch,
    scan,
)

MAX_GROUP_BYTES = 64 << 20
"""Batches that overlap without end, of replicas that have nothing in common, are looked at in pieces of this size."""

WINDOW_BYTES = 256 << 10
"""So much is compared at once. Where it differs somewhere, its batches are compared one by one."""


class Batch(NamedTuple):
    """As a replica handed it out. is_sound: its bytes have the CRC-32C that its header says."""

    header: BatchHeader
    is_sound: bool
    data: memoryview

    @property
    def start(self) -> int:
        return self.header.base_offset

    @property
    def end(self) -> int:
        """Of a damaged batch nothing is believed but where it stands."""
        return self.header.next_offset if self.is_sound else self.header.base_offset + 1


class BatchStream:
    """The batches of one replica from `start` on, up to `end`, below which it should have everything.

    floor: where its log begins, as far as it has told; below it nothing is compared. `end` goes down to where the
    replica turned out to have no more."""

    def __init__(self, read: Callable[[int], ReplicaPart], start: int, end: int) -> None:
        """read: what the replica has from an offset on; ClientError."""
        self._read = read
        self._has_begun = False
        self._chunk = memoryview(b"")
        self._batch: Batch | None = None
        self.position = start
        """The next offset that is not in `uncut` or before."""
        self.floor = 0
        self.end = end
        self.is_behind = False
        self.failure = ""
        self.damage = ""

    def head(self, limit: int) -> Batch | None:
        """The next batch; None where there is none, or none was read so far and it cannot begin below `limit`."""
        while self._batch is None and self.uncut(limit):
            self._cut()
        return self._batch

    def take(self) -> Batch:
        """The batch that `head` showed."""
        batch, self._batch = self._batch, None
        assert batch is not None
        return batch

    def uncut(self, limit: int) -> memoryview:
        """The bytes from which the next batches will be cut; none while `head` has one, at the end, or as in `head`."""
        if self._batch is not None:
            return memoryview(b"")
        while not self._chunk and self.position < min(self.end, limit):
            self._fill()
        return self._chunk

    def skip(self, size_bytes: int, next_offset: int) -> None:
        """Go on behind whole batches of `uncut` that end there."""
        self._chunk, self.position, self._has_begun = self._chunk[size_bytes:], next_offset, True

    def continue_to(self, end: int) -> None:
        """Go on behind the end, unless the replica has no more."""
        if not (self.is_behind or self.failure or self.damage):
            self.end = max(self.end, end)

    def _fill(self) -> None:
        try:
            part = self._read(self.position)
        except ClientError as error:
            self.failure, self.end = str(error), self.position
            return
        self.floor = max(self.floor, part.log_start_offset)
        if part.log_start_offset > self.position:  # retention, or a DeleteRecords, was faster
            self.position, self._has_begun = part.log_start_offset, False
        elif not part.records and part.high_watermark > self.position:  # nothing stands there, though it should
            self.position = min(self.end, part.high_watermark)
        elif not part.records:
            self.is_behind, self.end = True, min(self.position, part.high_watermark)
        else:
            self._chunk = memoryview(part.records)

    def _cut(self) -> None:
        """Make a batch of what comes next. What is no batch, or goes back, ends the stream."""
        try:
            found = next(scan(self._chunk), None)
        except InvalidBatch as error:
            self._end_here(str(error))
            return
        if found is None:
            self._end_here(f"{len(self._chunk)} bytes that are no whole batch")
            return
        header = found[1]
        data, rest = self._chunk[: header.size_bytes], self._chunk[header.size_bytes :]
        batch = Batch(header, crc32c(data[CRC_START:]) == header.crc, data)
        goes_back = batch.start < self.position and (self._has_begun or header.next_offset <= self.position)
        if goes_back or (batch.is_sound and batch.end <= batch.start):
            self._end_here(f"a batch says that it has the offsets [{batch.start}, {header.next_offset})")
            return
        next_position = batch.end if batch.is_sound else _behind_damage(batch, rest)
        self._batch, self._chunk, self._has_begun = batch, rest, True
        self.position = max(next_position, self.position)

    def _end_here(self, damage: str) -> None:
        self.damage, self.end, self._chunk = damage, self.position, memoryview(b"")


def _behind_damage(batch: Batch, rest: memoryview) -> int:
    """Where the batches behind a damaged one begin: the next one says so, else fields of the damaged one that agree."""
    try:
        found = next(scan(rest), None)
    except InvalidBatch:
        found = None
    if found is not None and found[1].base_offset > batch.start:
        return found[1].base_offset
    header = batch.header
    return header.next_offset if header.records_count == header.last_offset_delta + 1 > 0 else batch.end


class Group(NamedTuple):
    """What replicas have of a stretch of offsets that no batch of them reaches across; one entry per stream."""

    start: int
    end: int
    batches: tuple[tuple[Batch, ...], ...]


class Stretch(NamedTuple):
    """Sound batches that all replicas have, byte for byte."""

    batches: int
    records: int
    size_bytes: int


def side_by_side(
    streams: Sequence[BatchStream], start: int, end: int, may_skip: Callable[[], bool] = lambda: True
) -> Iterator[Group | Stretch]:
    """Whatever batches overlap, from the first that reaches beyond `start` to the last that begins before `end`; of
    what is the same everywhere only how much it is, as long as `may_skip`."""
    while True:
        if may_skip() and (same := _same(streams, end)) is not None:
            yield same
        elif (group := _next_group(streams, end)) is None:
            return
        elif group.end > start:
            yield group


def _same(streams: Sequence[BatchStream], end: int) -> Stretch | None:
    """The stretch that comes next, and go on behind it; None where there is none."""
    views = [stream.uncut(end) for stream in streams]
    if not all(views):
        return None
    position = max(stream.position for stream in streams)
    size = min(WINDOW_BYTES, *map(len, views))
    window = bytes(views[0][:size])
    if any(bytes(view[:size]) != window for view in views[1:]):
        return None
    view, at, batches, records = memoryview(window), 0, 0, 0
    while size - at >= HEADER_BYTES:
        header = HEADER.unpack_from(window, at)
        base_offset, length, _, magic, crc, _, last_offset_delta, *_, count = header
        batch_end = at + LENGTH_PREFIX_BYTES + length
        is_plain = magic == MAGIC and length >= MIN_BATCH_LENGTH and batch_end <= size and last_offset_delta >= 0
        if not (is_plain and position <= base_offset < end and crc32c(view[at + CRC_START : batch_end]) == crc):
            break
        at, position = batch_end, base_offset + last_offset_delta + 1
        batches += 1
        records += count
    if not batches:
        return None
    for stream in streams:
        stream.skip(at, position)
    return Stretch(batches, records, at)


def _next_group(streams: Sequence[BatchStream], end: int) -> Group | None:
    heads = [batch for stream in streams if (batch := stream.head(end)) is not None]
    first = min((batch.start for batch in heads), default=end)
    if first >= end:
        return None
    group_end = max(batch.end for batch in heads if batch.start == first)
    taken: list[list[Batch]] = [[] for _ in streams]
    size_bytes, before = 0, -1
    while before != group_end and size_bytes <= MAX_GROUP_BYTES:
        before = group_end
        for stream, batches in zip(streams, taken, strict=True):
            while (batch := stream.head(max(end, group_end))) is not None and batch.start < group_end:
                batches.append(stream.take())
                size_bytes += len(batch.data)
                group_end = max(group_end, batch.end)
    return Group(first, group_end, tuple(map(tuple, taken)))
