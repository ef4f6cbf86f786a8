"""What the choice of a log to clean and the plan of its cleaning rest on; and reading what only the disk knows.

The timestamp of a segment's first batch is known where this process filled the segment; else it is in the first header
of its file, which is read in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import pairwise
from typing import NamedTuple

from strandline.protocol.records.batch import HEADER_BYTES, read_header
from strandline.runtime.disk import Disk
from strandline.storage.cleaning.choice import SealedSegment
from strandline.storage.cleaning.plan import EVERY_BATCH
from strandline.storage.log.log import Log
from strandline.storage.segments.segment import LOG_SUFFIX, Segment

UNKNOWN = -1
FIRST_TIMES_PER_STEP = 64


def sealed_segments(log: Log) -> list[SealedSegment]:
    """All but the active one, oldest first, as far as is known without the disk."""
    return [
        SealedSegment(
            segment.base_offset,
            following.base_offset,
            segment.size_bytes,
            segment.first_timestamp_ms,
            UNKNOWN if segment.sealed_timestamp_ms is None else segment.sealed_timestamp_ms,
        )
        for segment, following in pairwise(log.segments)
    ]


class WantedFirstTime(NamedTuple):
    segment: Segment
    path: str


def first_times_wanted(log: Log, first_dirty_offset: int) -> list[WantedFirstTime]:
    """Dirty segments whose first batch is not known, the next few."""
    wanted = [
        WantedFirstTime(segment, segment.path + LOG_SUFFIX)
        for segment, following in pairwise(log.segments)
        if segment.first_timestamp_ms == UNKNOWN and following.base_offset > first_dirty_offset and segment.size_bytes
    ]
    return wanted[:FIRST_TIMES_PER_STEP]


def read_first_times(disk: Disk, wanted: Sequence[WantedFirstTime]) -> list[int]:
    """The largest timestamp of each first batch; 0 where there is none or the file is gone. Blocking. OSError."""
    return [_read_first_time(disk, each.path) for each in wanted]


def _read_first_time(disk: Disk, path: str) -> int:
    with suppress(FileNotFoundError), closing(disk.open(path, read_only=True)) as file:
        head = file.pread(HEADER_BYTES, 0)
        return max(0, read_header(head).max_timestamp_ms) if len(head) == HEADER_BYTES else 0
    return 0


def last_offsets_of_producers(log: Log, high_watermark: int) -> dict[int, int]:
    """Producer id → last offset of its last batch below the high watermark, of the producers that the log remembers.

    What stands above may be cut off yet, and then that batch holds the producer's last sequence. `EVERY_BATCH` where
    it is not remembered: more batches came since, or the producer has a new epoch."""
    found: dict[int, int] = {}
    states = log.producers.states
    for producer_id in states:
        producer = states.get(producer_id)
        if producer is not None and producer.batches:
            committed = (batch.last_offset for batch in producer.batches if batch.last_offset < high_watermark)
            found[producer_id] = max(committed, default=EVERY_BATCH)
    return found
