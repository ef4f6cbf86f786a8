"""The batches of one replica in order, fetched as they are looked at; and those of several replicas, side by side.

A stream holds one answer of its replica at a time, so a comparison of any length needs the memory of a few. It ends
where the replica has no more that is committed, as far as it knows (`is_behind`), cannot be asked (`failure`), or hands
out bytes that are no batches (`damage`). Reading is a function that the caller gives, so all of this is plain and pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from strandline.client.errors import ClientError
from strandline.client.replicas.reading import ReplicaPart
from strandline.protocol.records.batch import CRC_START, BatchHeader, InvalidBatch, scan

MAX_GROUP_BYTES = 64 << 20
"""Batches that overlap without end, of replicas that have nothing in common, are looked at in pieces of this size."""


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
        self._position = start
        self._has_begun = False
        self._queue: deque[Batch] = deque()
        self.floor = 0
        self.end = end
        self.is_behind = False
        self.failure = ""
        self.damage = ""

    def head(self, limit: int) -> Batch | None:
        """The next batch; None where there is none, or none was read so far and it cannot begin below `limit`."""
        while not self._queue and self._position < min(self.end, limit):
            self._fill()
        return self._queue[0] if self._queue else None

    def take(self) -> Batch:
        """The batch that `head` showed."""
        return self._queue.popleft()

    def continue_to(self, end: int) -> None:
        """Go on behind the end, unless the replica has no more."""
        if not (self.is_behind or self.failure or self.damage):
            self.end = max(self.end, end)

    def _fill(self) -> None:
        try:
            part = self._read(self._position)
        except ClientError as error:
            self.failure, self.end = str(error), self._position
            return
        self.floor = max(self.floor, part.log_start_offset)
        if part.log_start_offset > self._position:  # retention, or a DeleteRecords, was faster
            self._position, self._has_begun = part.log_start_offset, False
        elif not part.records and part.high_watermark > self._position:  # nothing stands there, though it should
            self._position = min(self.end, part.high_watermark)
        elif not part.records:
            self.is_behind, self.end = True, self._position
        else:
            self._cut(memoryview(part.records))

    def _cut(self, view: memoryview) -> None:
        """Queue the batches of an answer; what is no batch, or goes back, ends the stream."""
        read_to, headers = 0, []
        try:
            for position, header in scan(view):
                headers.append((position, header))
                read_to = position + header.size_bytes
        except InvalidBatch as error:
            self.damage = str(error)
        if not self.damage and read_to < len(view):
            self.damage = f"{len(view) - read_to} bytes that are no whole batch"
        for place, (position, header) in enumerate(headers):
            data = view[position : position + header.size_bytes]
            batch = Batch(header, crc32c(data[CRC_START:]) == header.crc, data)
            following = headers[place + 1][1].base_offset if place + 1 < len(headers) else -1
            goes_back = batch.start < self._position and (self._has_begun or header.next_offset <= self._position)
            if goes_back or (batch.is_sound and batch.end <= batch.start):
                self.damage = f"a batch says that it has the offsets [{batch.start}, {header.next_offset})"
                break
            self._has_begun = True
            self._queue.append(batch)
            next_position = header.next_offset
            if not batch.is_sound:
                next_position = max(following if following > batch.start else next_position, batch.end)
            self._position = max(next_position, self._position)
        if self.damage:
            self.end = self._position


class Group(NamedTuple):
    """What replicas have of a stretch of offsets that no batch of them reaches across; one entry per stream."""

    start: int
    end: int
    batches: tuple[tuple[Batch, ...], ...]


def groups(streams: Sequence[BatchStream], start: int, end: int) -> Iterator[Group]:
    """Whatever batches overlap, from the first that reaches beyond `start` to the last that begins before `end`."""
    while True:
        heads = [batch for stream in streams if (batch := stream.head(end)) is not None]
        first = min((batch.start for batch in heads), default=end)
        if first >= end:
            return
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
        if group_end > start:
            yield Group(first, group_end, tuple(map(tuple, taken)))
