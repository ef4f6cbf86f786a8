"""How long the indexes of a segment may get: `segment.index.bytes`, entry by entry.

A Kafka that takes the folder over makes both indexes of a log's last segment just so long, rounded down to whole
entries, and does not start where one has more; nor does it where a recovery of its own finds no room. So

* an index is full at that many entries, the time index one before: the last place is for the segment's largest
  timestamp, which comes when it is sealed (Kafka's `isFull`). A segment of which one is full takes no more batches;
* where one has more (it was built anew, or loaded, and the limit or the interval was larger before) it is thinned out:
  with fewer entries the answers are the same, a little later. The last entry stays, so that appends go on behind it.

The least is one entry of the time index: below it a Kafka, which allows 4 bytes, appends one batch and fails at each
further one, since it cannot seal that segment. Here such a value is none (`runtime/config/broker`). With room for
one entry each batch has a segment of its own.
"""

from __future__ import annotations

from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.time_index import TimeIndex


def room(offset: OffsetIndex, time: TimeIndex, max_bytes: int) -> int:
    """How many entries both may still get; 0 or less where one is full."""
    offset_entries = max_bytes // OffsetIndex.ENTRY_BYTES - len(offset.positions)
    time_entries = max_bytes // TimeIndex.ENTRY_BYTES - 1 - len(time.timestamps_ms)
    return offset_entries if offset_entries < time_entries else time_entries


def thin_out(offset: OffsetIndex, time: TimeIndex, max_bytes: int, *, is_final: bool = True) -> None:
    """Let neither have more entries than it may. is_final: the largest timestamp has its entry, so no place is kept for
    it."""
    offset.thin_out(max_bytes // OffsetIndex.ENTRY_BYTES)
    time.thin_out(max_bytes // TimeIndex.ENTRY_BYTES - (0 if is_final else 1))
