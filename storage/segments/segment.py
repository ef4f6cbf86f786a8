"""One segment of a log: a .log file of whole batches and its two indexes, named by the segment's base offset.

`<base offset, 20 digits>.log` holds record batches (magic 2), one after another, byte for byte as produced; only base
offset and leader epoch were patched. Beside it `.index` (`offset_index`) and `.timeindex` (`time_index`).

Rules: the last segment of a log is *active*: only it is appended to, and its indexes are pinned in memory and written
in waves. The others are *sealed*: immutable but for truncation, with indexes loaded on use. Nothing here checks a batch
or knows an epoch: that is the log's business.
"""

from __future__ import annotations

from strandline.runtime.disk import remove_files
from strandline.storage.disk.storage_context import LogConfig, PooledFile, StorageContext
from strandline.storage.segments.index_bounds import room
from strandline.storage.segments.indexes import SegmentIndexes
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.reserving import give_back
from strandline.storage.segments.time_index import NO_TIMESTAMP, TimeIndex

LOG_SUFFIX = ".log"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
"""Kafka's index of aborted transactions: goes with its segment, and is not touched otherwise."""
COMPANION_SUFFIXES = (TRANSACTION_INDEX_SUFFIX,)
"""Files that a segment may have besides. (Producer snapshots are the log's: `log_producers`.)"""


class Segment:
    """One segment. The log appends to `file` and the indexes itself: that is its hot path."""

    __slots__ = (
        "_context",
        "base_offset",
        "created_ms",
        "file",
        "first_timestamp_ms",
        "index_interval_bytes",
        "indexes",
        "is_reserved",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "path",
        "roll_jitter_ms",
        "sealed_timestamp_ms",
        "size_bytes",
        "unindexed_bytes",
        "written_back_bytes",
    )

    def __init__(
        self, context: StorageContext, folder: str, base_offset: int, index_interval_bytes: int, max_index_bytes: int
    ) -> None:
        self._context = context
        self.base_offset = base_offset
        self.path = f"{folder}/{base_offset:020d}"
        """Of the three files, without suffix."""
        self.index_interval_bytes = index_interval_bytes
        self.file = PooledFile(context, self.path + LOG_SUFFIX)
        self.indexes = SegmentIndexes(context, self.path, self, max_index_bytes)
        self.size_bytes = 0
        self.created_ms = 0
        self.roll_jitter_ms = 0
        self.first_timestamp_ms = NO_TIMESTAMP
        """Largest timestamp of the first batch: `segment.ms` counts from it."""
        self.max_timestamp_ms = NO_TIMESTAMP
        """Valid while the segment is active; see `largest_timestamp_ms`."""
        self.max_timestamp_offset = base_offset
        """Last offset of the batch that brought `max_timestamp_ms`."""
        self.sealed_timestamp_ms: int | None = None
        """Largest timestamp of a sealed segment (−1: no record has one), where that is known without its time index."""
        self.unindexed_bytes = 0
        """Bytes appended since the last index entry."""
        self.written_back_bytes = 0
        """Up to where background write-back was started."""
        self.is_reserved = False
        """Space is kept behind its end (`reserving`)."""

    @classmethod
    def begin(
        cls, context: StorageContext, folder: str, base_offset: int, config: LogConfig, roll_jitter_ms: int
    ) -> Segment:
        """A new, empty, active segment, without its file."""
        segment = cls(context, folder, base_offset, config.index_interval_bytes, config.segment_index_bytes)
        segment.created_ms = context.wall_clock.now_ms()
        segment.roll_jitter_ms = roll_jitter_ms
        segment.indexes.begin()
        return segment

    def file_paths(self) -> tuple[str, str, str]:
        """The .log file and both indexes."""
        return self.path + LOG_SUFFIX, self.path + OffsetIndex.SUFFIX, self.path + TimeIndex.SUFFIX

    def note_final_timestamp(self) -> None:
        """Give the largest timestamp its entry, as the end of a sealed or closed segment has it."""
        self.indexes.time.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)

    def index(self, last_offset: int, position: int) -> bool:
        """Note the batch at `position`, which ends at `last_offset`, in both indexes, unless one is full. Returns
        whether there is room for another."""
        indexes = self.indexes
        offset, time = indexes.offset, indexes.time
        left = room(offset, time, indexes.max_bytes)
        if left > 0:
            offset.append(last_offset, position)
            time.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
        return left > 1

    def start_writeback(self) -> None:
        """Have what was appended since the last time written out in the background, and the index tails written."""
        self.file.get().start_writeback(self.written_back_bytes, self.size_bytes - self.written_back_bytes)
        self.written_back_bytes = self.size_bytes
        self.indexes.flush()

    def take_back(self, next_offset: int) -> None:
        """Undo an append that failed before it counted: file and indexes end at `size_bytes`, before `next_offset`."""
        self.indexes.offset.truncate_to_position(self.size_bytes)
        self.indexes.time.truncate_to_offset(next_offset)
        self.file.get().truncate(self.size_bytes)

    def finish(self) -> None:
        """No more appends: write the indexes, give back what is reserved. Idempotent. OSError from the disk."""
        if not self.file.is_made:  # there was no room for it
            self.file.create()
        self.note_final_timestamp()
        self.indexes.flush()
        if self.is_reserved:
            give_back(self._context.disk, self.file.get())
            self.is_reserved = False

    def seal(self) -> None:
        """It is not the active one any more: finish it and let the indexes be evicted. OSError from the disk."""
        self.finish()
        self.indexes.unpin()
        self.sealed_timestamp_ms = self.max_timestamp_ms

    def largest_timestamp_ms(self, is_active: bool) -> int:
        """−1 where no record has a timestamp. IndexLost; CorruptLog."""
        if is_active:
            return self.max_timestamp_ms
        if self.sealed_timestamp_ms is None:
            self.sealed_timestamp_ms = self.indexes.last_timestamp_ms()
        return self.sealed_timestamp_ms

    def delete(self, *, stale: bool) -> None:
        """Remove the files. `stale`: what was read from them must not be served any more (truncation), so readers that
        still hold the file find it empty. OSError from the disk."""
        file = self.file.live()
        if stale and file is not None:
            file.truncate(0)
        self.release()
        remove_files(self._context.disk, [*self.file_paths(), self.path + TRANSACTION_INDEX_SUFFIX])

    def put_aside(self, delay_ms: int, *, companions: bool = True) -> None:
        """The segment leaves its log: its files are renamed now and unlinked `delay_ms` later. Whoever still sends from
        one of them may finish. companions: those of other kinds, too. OSError from the disk."""
        self.release()
        others = [self.path + suffix for suffix in COMPANION_SUFFIXES] if companions else []
        self._context.removals.put_aside(self._context.disk, [*self.file_paths(), *others], delay_ms)

    def release(self) -> None:
        """Drop descriptors and memory; the files stay."""
        self.file.release()
        self.indexes.release()
