"""The segments of one log, oldest first, the last one active; and the changes to them that touch the disk as a whole.

Order of removals, so that a crash in between leaves a log without holes: at the end newest first, at the head oldest
first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from strandline.protocol.records.batch import BatchHeader
from strandline.runtime.disk import Disk
from strandline.storage.disk.storage_context import LogConfig, StorageContext
from strandline.storage.segments import search
from strandline.storage.segments.offset_index import MAX_RELATIVE_OFFSET
from strandline.storage.segments.reserving import reserve
from strandline.storage.segments.segment import Segment
from strandline.storage.segments.tail import activate

if TYPE_CHECKING:
    import random


class SegmentList:
    """At least one segment, always. Every OSError of the disk passes through: the log maps it."""

    def __init__(self, context: StorageContext, folder: str, segments: list[Segment], stream: random.Random) -> None:
        self.folder = folder
        self.active = segments[-1]
        self.compacted_below = 0
        """A cleaning knows the keys of what stands below."""
        self.cuts = 0
        """How often something was dropped at the end: what stands there now may be other records of the same size."""
        self._context = context
        self._random = stream
        self._segments = segments
        self._sealed_bytes = sum(segment.size_bytes for segment in segments[:-1])

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def size_bytes(self) -> int:
        """Of all .log files together."""
        return self._sealed_bytes + self.active.size_bytes

    def holding(self, offset: int) -> Segment:
        """The segment whose range `offset` falls into; the first one for anything below."""
        return self._segments[max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)]

    def after(self, segment: Segment) -> Segment | None:
        """The next younger one; None after the active one."""
        following = bisect_right(self._segments, segment.base_offset, key=_base_offset)
        return self._segments[following] if following < len(self._segments) else None

    def file_paths(self, offset: int) -> list[str]:
        """Of the segment that holds `offset` and all younger ones."""
        first = max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)
        return [path for segment in self._segments[first:] for path in segment.file_paths()]

    def roll(self, base_offset: int, config: LogConfig, batch: BatchHeader | None = None) -> bool:
        """Seal the active segment and begin another, unless it is empty and has that base offset (its name would be the
        same). Where that one cannot hold `batch`, which comes next, yet another is begun there. Whether any was."""
        rolls = self.active.base_offset != base_offset
        if rolls:
            self._begin(base_offset, config)
        if batch is not None and batch.last_offset - base_offset > MAX_RELATIVE_OFFSET:
            self._begin(batch.base_offset, config)
            return True
        return rolls

    def _begin(self, base_offset: int, config: LogConfig) -> None:
        self.active.seal()
        try:
            following = create_segment(self._context, self.folder, base_offset, config, self._random)
        except OSError:  # it stays the active one where the caller may try again
            self.active.indexes.pin()
            raise
        self._sealed_bytes += self.active.size_bytes
        self._segments.append(following)
        self.active = following

    def drop_head(self, offset: int, delay_ms: int, at_most: int) -> list[Segment]:
        """Put aside, oldest first, up to `at_most` of the sealed segments that end at or below `offset`; they are
        unlinked `delay_ms` later."""
        dropped: list[Segment] = []
        while len(dropped) < at_most and len(self._segments) > 1 and self._segments[1].base_offset <= offset:
            segment = self._segments[0]
            segment.put_aside(delay_ms)
            del self._segments[0]
            self._sealed_bytes -= segment.size_bytes
            dropped.append(segment)
        return dropped

    @property
    def disk(self) -> Disk:
        return self._context.disk

    def put_aside(self, replaced: Sequence[Segment], delay_ms: int) -> None:
        """Put the files of these segments aside, oldest first; `replace` has to follow. What belongs to a base offset
        and not to its records stays with the first of them."""
        for place, segment in enumerate(replaced):
            segment.put_aside(delay_ms, companions=place > 0)

    def replace(self, replaced: Sequence[Segment], size_bytes: int, largest_timestamp_ms: int) -> None:
        """The files named as the first of these sealed neighbours are now what all of them became."""
        first = replaced[0]
        segment = Segment(
            self._context,
            self.folder,
            first.base_offset,
            first.index_interval_bytes,
            first.indexes.max_bytes,
        )
        segment.size_bytes = size_bytes
        segment.sealed_timestamp_ms = largest_timestamp_ms
        segment.created_ms = replaced[-1].created_ms
        segment.first_timestamp_ms = first.first_timestamp_ms
        place = self._segments.index(first)
        self._segments[place : place + len(replaced)] = [segment]
        self._sealed_bytes += size_bytes - sum(each.size_bytes for each in replaced)

    def will_be_cut(self, offset: int) -> bool:
        """What stands from `offset` on is about to be dropped. Returns whether some of it was compacted, so that what
        the disk says is wrong now: no cleaning would know the keys that come next, but their tombstones would go. The
        segment that will be the active one counts as not compacted at all: so that a start can tell
        (`recovery/believed_offsets`)."""
        self.cuts += 1
        was_compacted = offset < self.compacted_below
        if was_compacted:
            self.compacted_below = self.holding(offset).base_offset
        return was_compacted

    def locate_cut(self, offset: int) -> tuple[Segment, int, int]:
        """(segment, position, end offset) where the log ends once everything from `offset` on is dropped, the batch
        that holds it included."""
        segment = self.holding(offset)
        return segment, *search.cut_at(segment, offset)

    def cut(self, segment: Segment, position: int, end_offset: int) -> int:
        """Drop what `locate_cut` said. Returns the new log end offset."""
        while self._segments[-1] is not segment:
            self._segments.pop().delete(stale=True)
        segment.file.get().truncate(position)
        segment.size_bytes = position
        segment.indexes.truncate(position, end_offset)
        self._sealed_bytes = sum(sealed.size_bytes for sealed in self._segments[:-1])
        self.active = segment
        return activate(self._context, segment)

    def start_at(self, offset: int, config: LogConfig) -> None:
        """Drop everything and begin with an empty segment at `offset`; `make_active` gives it its file."""
        for segment in reversed(self._segments):
            segment.delete(stale=True)
        self.active = _begin_segment(self._context, self.folder, offset, config, self._random)
        self._segments = [self.active]
        self._sealed_bytes = 0

    def make_active(self, config: LogConfig) -> None:
        """Make the file of the active segment that `start_at` began."""
        _make(self._context, self.active, config)

    def release(self) -> None:
        """Drop descriptors and memory; the files stay."""
        for segment in self._segments:
            segment.release()


def create_segment(
    context: StorageContext, folder: str, base_offset: int, config: LogConfig, stream: random.Random
) -> Segment:
    """A new active segment and its file."""
    segment = _begin_segment(context, folder, base_offset, config, stream)
    _make(context, segment, config)
    return segment


def _begin_segment(
    context: StorageContext, folder: str, base_offset: int, config: LogConfig, stream: random.Random
) -> Segment:
    """Its age limit is shortened by up to `segment.jitter.ms`, so that logs that were created together do not all roll
    together."""
    jitter_ms = stream.randrange(config.segment_jitter_ms + 1) if config.segment_jitter_ms > 0 else 0
    jitter_ms = min(jitter_ms, config.segment_ms)
    return Segment.begin(context, folder, base_offset, config, jitter_ms)


def _make(context: StorageContext, segment: Segment, config: LogConfig) -> None:
    """With its space where `preallocate` says so."""
    segment.file.create()
    if config.preallocate:
        try:
            segment.is_reserved = reserve(context, segment.file.get(), config.segment_bytes)
        except OSError:  # it is not to be used
            segment.release()
            raise


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
