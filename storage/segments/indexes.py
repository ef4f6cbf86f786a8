"""Both indexes of one segment: pinned in memory while it is active, loaded on use afterwards; and their files.

The files may lag behind, be missing or wrong: what is built from the .log replaces them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress

from strandline.runtime.disk import File, remove_files, write_whole
from strandline.storage.disk.directory_health import is_full
from strandline.storage.disk.storage_context import StorageContext
from strandline.storage.errors import CorruptIndex, CorruptLog, LogStorageError
from strandline.storage.segments.index_bounds import room, thin_out
from strandline.storage.segments.index_check import Indexed, check_end, tolerated_bytes
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import IndexBuilder, build_indexes
from strandline.storage.segments.sparse_index import SparseIndex, read_entries
from strandline.storage.segments.time_index import TimeIndex

SLICE_BYTES = 64 * 2**10
"""So much of a .log is walked over in 0.1 ms, or 1 where all batches are tiny."""

MAX_FORGOTTEN = 8
"""Wrong entries that are forgotten one by one, each by writing the file again: more of them are no flipped bits, but
the index of another segment, and one search might meet them all."""


class IndexLost(LogStorageError):
    """The indexes of a segment are missing or wrong, and it is too large to build them anew on the event loop at once
    (`build_in_slices`). What needed them was not done, and nothing of the log was changed: the same may be tried again
    once they are built. Whether the .log itself is whole nobody knows yet: building them shows it."""

    def __init__(self, segment: Indexed, why: Exception) -> None:
        text = f"the indexes of {segment.path} have to be built anew: {why}; retry in some seconds"
        super().__init__(segment.path, text)
        self.base_offset = segment.base_offset


class SegmentIndexes:
    """Both indexes of one segment: pinned while the segment is active, loaded on use afterwards."""

    __slots__ = (
        "_context",
        "_forgotten",
        "_is_lost",
        "_loaded",
        "_path",
        "_pinned",
        "_segment",
        "are_built",
        "damaged_at",
        "max_bytes",
        "used",
    )

    def __init__(self, context: StorageContext, path: str, segment: Indexed, max_bytes: int) -> None:
        """`path` without suffix; no file gets longer than `max_bytes`."""
        self.max_bytes = max_bytes
        self._context = context
        self._path = path
        self._segment = segment
        self._loaded: tuple[OffsetIndex, TimeIndex] | None = None
        self._pinned = False
        self._forgotten = 0
        self._is_lost = False  # pinned ones: in memory they are wrong, and have no files
        self.used = False
        self.are_built = False
        """Those in memory were made by this process, from the .log: no entry has to be proven."""
        self.damaged_at: int | None = None
        """Set when those that were handed out last were built from a damaged .log: they end at this byte. Such indexes
        are not kept."""

    @property
    def offset(self) -> OffsetIndex:
        """The offset index, loaded (or rebuilt, where its file is damaged) if need be. IndexLost."""
        self.used = True
        return (self._loaded or self._load())[0]

    @property
    def time(self) -> TimeIndex:
        """The time index, loaded (or rebuilt) if need be. IndexLost."""
        self.used = True
        return (self._loaded or self._load())[1]

    @property
    def room(self) -> int:
        """How many entries both may still get; 0 or less where one is full."""
        return room(self.offset, self.time, self.max_bytes)

    def limit(self, max_bytes: int) -> None:
        """Pinned ones may get so long from now on: those that are longer are thinned out, their files when they are
        written next."""
        self.max_bytes = max_bytes
        self._thin_out()

    def begin(self) -> None:
        """The segment is new: it has no entries yet, and no files."""
        self._loaded = OffsetIndex(self._segment.base_offset), TimeIndex(self._segment.base_offset)
        self.are_built = True
        self.pin()

    def pin(self) -> None:
        """Keep the indexes in memory: the segment is active. IndexLost."""
        was_pinned, self._pinned = self._pinned, True  # at once: what stands behind its last whole batch is cut next
        try:
            self._loaded = self._loaded or self._load()
        except BaseException:
            self._pinned, self._is_lost = was_pinned, False
            raise
        self._context.loaded_indexes.remove(self)

    def unpin(self) -> None:
        """The segment was sealed: the indexes may be evicted from now on. Call `flush` before."""
        self._pinned = False
        self._admit()

    def replace(self, offset: OffsetIndex, time: TimeIndex) -> None:
        """The files may be missing or wrong: take these, and write the ones that differ from their file (a file that is
        emptied and written again costs milliseconds when it is closed: ext4 then writes it out at once)."""
        self._loaded = offset, time
        self._thin_out()
        self.are_built = True
        self._forgotten, self._is_lost, self.damaged_at = 0, False, None
        are_written = [self._has(index) for index in self._loaded]
        for index, is_written in zip(self._loaded, are_written, strict=True):
            index.written = len(index) if is_written else 0
        if not all(are_written):
            self._write_or_remove()
        if not self._pinned:
            self._admit()

    def check_sizes(self, offset_index_bytes: int | None, time_index_bytes: int | None) -> None:
        """At a start: build the indexes anew where a file is missing (None) or has a length that cannot be true. Their
        content is checked when they are loaded. OSError from the disk."""
        if offset_index_bytes is None or time_index_bytes is None:
            self.replace_lost(FileNotFoundError("there is no such file"))
        elif offset_index_bytes % OffsetIndex.ENTRY_BYTES or time_index_bytes % TimeIndex.ENTRY_BYTES:
            self.replace_lost(CorruptIndex("its length is no whole number of entries"))
        elif not offset_index_bytes and self._segment.size_bytes > tolerated_bytes(self._segment, 0):
            self._load()

    def flush(self) -> None:
        """Write what the files lack; makes the files where there are none. Not synced. OSError from the disk."""
        if self._loaded is not None and not self._is_lost:
            for index in self._loaded:
                self._write(index)

    def truncate(self, position: int, next_offset: int) -> None:
        """The segment ends at `position`, before `next_offset`: forget the batches behind, in the files too. Those get
        shorter only, which takes no room; what they lack besides is written with the next flush."""
        offset, time = self.offset, self.time
        offset.truncate_to_position(position)
        time.truncate_to_offset(next_offset)
        for index in (offset, time):
            self._shorten(index)

    def evict(self) -> None:
        if not self._pinned:
            self._loaded = None
            self.are_built = False

    def release(self) -> None:
        """The segment is gone."""
        self._pinned = False
        self.evict()
        self._context.loaded_indexes.remove(self)

    def _thin_out(self) -> None:
        if self._loaded is not None:
            is_final = self._segment.max_timestamp_ms <= self._loaded[1].last_timestamp_ms
            thin_out(*self._loaded, self.max_bytes, is_final=is_final)

    def _write(self, index: SparseIndex) -> None:
        with closing(self._context.open(self._path + index.SUFFIX, create=True)) as file:
            _cut(file, index)
            write_whole(file, index.encode(index.written), index.written * index.ENTRY_BYTES)
        index.written = len(index)

    def _shorten(self, index: SparseIndex) -> None:
        with suppress(FileNotFoundError), closing(self._context.open(self._path + index.SUFFIX)) as file:
            _cut(file, index)

    def _write_or_remove(self) -> None:
        """Write both files, or have none where the disk is full: whoever misses them builds them anew."""
        try:
            self.flush()
        except OSError as error:
            if not is_full(error):
                raise
            self._remove()

    def _remove(self) -> None:
        for index in self._loaded or ():
            index.written = 0
        remove_files(self._context.disk, [self._path + OffsetIndex.SUFFIX, self._path + TimeIndex.SUFFIX])

    def _load(self) -> tuple[OffsetIndex, TimeIndex]:
        segment = self._segment
        try:
            offset = OffsetIndex.decode(segment.base_offset, self._read(OffsetIndex.SUFFIX), segment.size_bytes)
            time = TimeIndex.decode(segment.base_offset, self._read(TimeIndex.SUFFIX))
            check_end(segment, offset, time)
        except (CorruptIndex, FileNotFoundError) as error:
            return self.replace_lost(error)
        offset.written, time.written = len(offset), len(time)
        self._loaded, self.damaged_at = (offset, time), None
        if not self._pinned:
            self._admit()
        return self._loaded

    def replace_lost(self, why: Exception) -> tuple[OffsetIndex, TimeIndex]:
        """Build them on the spot; but IndexLost where that would hold up an event loop. Then there are no files until
        they are built: whoever loads the log before builds those that are missing, a Kafka, too. CorruptLog."""
        segment = self._segment
        if self._context.rebuilds.is_here(segment.size_bytes):
            return self._build(why)
        if not (self._is_lost or isinstance(why, FileNotFoundError)):
            self._context.report("index-lost", segment=self._path, why=str(why))
        self._remove()
        self._is_lost = self._pinned
        if not self._pinned:
            self.release()
        raise IndexLost(segment, why)

    def forget(self, index: OffsetIndex | TimeIndex, entry: int, why: str) -> tuple[int, int]:
        """An entry is wrong: go on without it, here and in the file. Returns the offsets of its neighbours. IndexLost
        where it is one of many, or the last one, which says more than others (how old the segment is); CorruptLog where
        it was just made of the damaged .log; OSError from the disk."""
        if self.damaged_at is not None:
            raise _damaged(self._segment, self.damaged_at)
        self._forgotten += 1
        is_last = entry == len(index) - 1
        if is_last or self._forgotten > MAX_FORGOTTEN:
            which = "the last entry" if is_last else "one entry after the other"
            self.replace_lost(CorruptIndex(f"{which} is wrong: {why}"))
            return index.base_offset, index.base_offset
        self._context.report("index-entry-forgotten", segment=self._path, why=why)
        before = index.relative_offsets[entry - 1] if entry else 0
        after = index.relative_offsets[entry + 1]
        index.forget(entry)
        if not self._pinned:
            self._write_or_remove()
        return index.base_offset + before, index.base_offset + after

    def build_in_slices(self) -> Iterator[int]:
        """Build both anew: yields where each of the slices begins that it walks over, before it does. CorruptLog where
        the .log is not whole; OSError from the disk."""
        segment = self._segment
        builder = IndexBuilder(segment.base_offset, segment.index_interval_bytes)
        while builder.end_position < segment.size_bytes:
            start = builder.end_position
            yield start
            builder.add_all(segment.file.get(), segment.size_bytes, SLICE_BYTES)
            if builder.end_position == start:
                raise _damaged(segment, start)
        self._context.report("index-rebuilt", segment=self._path, why="its file was lost")
        self._take(builder)

    def _build(self, why: Exception) -> tuple[OffsetIndex, TimeIndex]:
        """Build both from the whole .log. If that is damaged they end there, and retention would delete the batches
        behind the damage, since the segment seems older than it is. So damage is CorruptLog while the log is served; at
        a start they are handed out, but neither kept nor written."""
        segment = self._segment
        builder = build_indexes(
            segment.file.get(), segment.base_offset, segment.size_bytes, segment.index_interval_bytes
        )
        if builder.end_position == segment.size_bytes or self._pinned:
            self._take(builder)
            self._context.report("index-rebuilt", segment=self._path, why=str(why))
            return builder.offset_index, builder.time_index
        self.release()
        error = _damaged(segment, builder.end_position)
        if self._context.rebuilds.is_elsewhere:
            raise error
        if self.damaged_at is None:
            self._context.report("index-ends-at-damage", segment=self._path, why=str(why), error=str(error))
        self.damaged_at = builder.end_position
        self._remove()
        return builder.offset_index, builder.time_index

    def _take(self, builder: IndexBuilder) -> None:
        """These were built anew, of all batches that the .log has. OSError from the disk."""
        segment = self._segment
        if not self._pinned:
            builder.finish()
        self.replace(builder.offset_index, builder.time_index)
        segment.unindexed_bytes = builder.unindexed_bytes
        if segment.sealed_timestamp_ms is not None and builder.end_position == segment.size_bytes:
            segment.sealed_timestamp_ms = builder.time_index.last_timestamp_ms

    def _has(self, index: SparseIndex) -> bool:
        """Whether its file holds just this."""
        try:
            return self._read(index.SUFFIX) == index.encode()
        except (CorruptIndex, FileNotFoundError):
            return False

    def _read(self, suffix: str) -> bytes:
        with closing(self._context.open(self._path + suffix, read_only=True)) as file:
            return read_entries(file)

    def last_timestamp_ms(self) -> int:
        """The largest of the segment, −1 where no record has one. IndexLost; CorruptLog where the .log is damaged."""
        time = self.time
        if self.damaged_at is not None:
            raise _damaged(self._segment, self.damaged_at)
        return time.last_timestamp_ms

    def _admit(self) -> None:
        if self._loaded is not None:
            weight = sum(len(index) * index.ENTRY_BYTES for index in self._loaded)
            self._context.loaded_indexes.admit(self, weight + 200)


def _damaged(segment: Indexed, position: int) -> CorruptLog:
    return CorruptLog(segment.path, position, "no whole batch of the offsets that follow stands there")


def _cut(file: File, index: SparseIndex) -> None:
    """What stands behind the entries that are written goes."""
    size_bytes = index.written * index.ENTRY_BYTES
    if file.size() > size_bytes:
        file.truncate(size_bytes)
