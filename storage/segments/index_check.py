"""Whether indexes that were read from their files may be those of their segment: what a look at the end can tell.

All other entries are proven when they are used (`search`).
"""

from __future__ import annotations

from typing import Protocol

from strandline.runtime.disk import File
from strandline.storage.disk.storage_context import PooledFile
from strandline.storage.errors import CorruptIndex
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import walk_headers
from strandline.storage.segments.time_index import TimeIndex

_LACKING_GAPS = 8
"""So many times the widest gap of an index behind its last entry, and it counts as cut short."""
_LACKING_BYTES = 4 * 2**20
"""But so much may always follow the last entry: the topic may have a larger interval than is known when its log is
loaded, and going through the headers of so much takes 2 ms, or 20 where batches are small."""


class Indexed(Protocol):
    """A segment, as far as its indexes need it (`segment`)."""

    path: str
    base_offset: int
    file: PooledFile
    size_bytes: int
    index_interval_bytes: int
    unindexed_bytes: int
    max_timestamp_ms: int
    sealed_timestamp_ms: int | None


def tolerated_bytes(segment: Indexed, widest_gap_bytes: int) -> int:
    """So many may follow the last entry of a sound index."""
    gap_bytes = max(segment.index_interval_bytes, widest_gap_bytes)
    return max(_LACKING_GAPS * gap_bytes, _LACKING_BYTES)


def check_end(segment: Indexed, offset: OffsetIndex, time: TimeIndex) -> None:
    """CorruptIndex unless the last entry may be of the batch that stands there, few bytes follow without an entry
    (a file that was cut at an entry would be right, but slow), none of them is younger than the time index knows, and
    the last entry of that one is true. OSError from the disk."""
    unindexed = 0
    tolerated = tolerated_bytes(segment, offset.widest_gap_bytes)
    position = offset.last_position
    for found, header in walk_headers(segment.file.get(), position, segment.size_bytes):
        fault = offset.refutes(len(offset) - 1, header) if found == position and len(offset) else ""
        if fault:
            raise CorruptIndex(fault)
        if unindexed > tolerated:
            raise CorruptIndex(f"{unindexed} bytes and more follow the last entry")
        if header.max_timestamp_ms > time.last_timestamp_ms:
            raise CorruptIndex(f"timestamp {header.max_timestamp_ms} at byte {found} is missing in the time index")
        unindexed += header.size_bytes
    if len(time) and not is_newest_true(segment.file.get(), segment.size_bytes, offset, time):
        raise CorruptIndex(f"no batch at offset {time.last_offset} brought timestamp {time.last_timestamp_ms}")


def is_newest_true(log: File, size_bytes: int, offset: OffsetIndex, time: TimeIndex) -> bool:
    """Whether the last entry of a time index is, by its batch in a .log of that size. OSError from the disk."""
    for _, header in walk_headers(log, offset.position_for_offset(time.last_offset), size_bytes):
        if header.last_offset >= time.last_offset:
            return time.newest_is_of(header)
    return False
