"""What a cleaning is told, and what it tells: the words between a broker and the worker that cleans.

A broker never computes on records itself, so neither this file nor what a broker imports of this package needs numpy:
14 MB and 70 ms of a start (a house test sees to it).
"""

from __future__ import annotations

import msgspec

from strandline.storage.cleaning.grouping import Source

EVERY_BATCH = -1
"""Of a producer: which of its batches has the last sequence is not known, so each of them is kept, empty if need be."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be cleaned, and by which rules. Times are wall clock."""

    folder: str
    sources: list[Source]
    """All segments below the first that may not be touched, oldest first."""
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    map_load_factor: float
    max_decompressed_bytes: int
    chunk_bytes: int
    hash_seed: int
    last_of_producer: dict[int, int]
    """Producer id → last offset of the batch with its last committed sequence, or `EVERY_BATCH`."""


class Result(msgspec.Struct, frozen=True):
    """A group is done: `<base offset>.log.cleaned` and its indexes stand there."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    sources: list[int]
    """Base offsets of what it is made from."""


class Done(msgspec.Struct, frozen=True):
    """The cleaning has ended."""

    end_offset: int
    """What stands below is clean now."""
    records_read: int
    records_kept: int
    unreadable_offset: int
    """From the segment that holds it on nothing can be cleaned; −1: nothing was in the way."""
    why: str
    map_used: float
    """Which share of the memory for keys they took."""


class Step(msgspec.Struct, frozen=True):
    """What happened since the one before."""

    bytes_read: int
    bytes_written: int
    result: Result | None = None
    done: Done | None = None


class Unreadable(Exception):
    """A batch that the cleaner cannot look into. It stays as it is, and so does everything behind it."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"the batch at offset {offset}: {why}")
        self.offset = offset
        self.why = why
