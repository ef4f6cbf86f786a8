"""A part of a partition's log, read once from its beginning to its end."""

from __future__ import annotations

from collections.abc import Iterator

from strandline import Consumer
from strandline.client.assignment import FetchedBatches
from strandline.client.errors import OffsetOutOfRange
from strandline.protocol.records.batch import scan
from strandline.protocol.types import TopicPartition

SILENT_MS = 1_000
SILENCES = 30
"""So long a leader may be slow; then there is nothing more to come."""


class Stretch:
    """The offsets [start, end) of a partition, or what is left of them. Iterate over it, then ask what came of that.

    `log_start`: what stood below was deleted, whoever wrote it. `is_readable`: all of it was committed, and nothing
    was deleted or cut while it was read. `has_gaps`: some of its offsets have no record, since compaction took them."""

    def __init__(self, consumer: Consumer, partition: TopicPartition, start: int, end: int) -> None:
        """The consumer is the stretch's own while it is read. Raises ClientError."""
        self._consumer, self._partition, self._end = consumer, partition, end
        self.log_start = consumer.beginning_offsets([partition])[partition]
        self.is_readable = True
        self._position = max(start, self.log_start)
        self._has_gap_before = False

    @property
    def has_gaps(self) -> bool:
        return self._has_gap_before or self._position < self._end

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """Records of some batches each; the last may reach beyond the end. Raises ClientError."""
        consumer, partition = self._consumer, self._partition
        consumer.assign([partition])
        consumer.seek(partition, self._position)
        silences = 0
        while self._position < self._end and silences < SILENCES:  # the last records may have been compacted
            try:
                chunks = consumer.fetch_batches(timeout_ms=SILENT_MS)
            except OffsetOutOfRange:
                self.is_readable = False
                return
            silences = 0 if chunks else silences + 1
            if not chunks and consumer.end_offsets([partition])[partition] < self._end:
                self.is_readable = False
                return
            for chunk in chunks:
                self._has_gap_before = self._has_gap_before or _has_gaps(chunk, self._position)
                self._position = chunk.next_offset
                yield chunk.records


def _has_gaps(chunk: FetchedBatches, position: int) -> bool:
    """Whether some offsets from `position` to the chunk's end have no record."""
    for _, header in scan(chunk.records):
        if header.base_offset > position or header.records_count <= header.last_offset_delta:
            return True
        position = header.next_offset
    return position < chunk.next_offset
