"""Indexes that are built anew while their log is served: elsewhere, since that walks over all headers of a segment.

Whoever loads or checks a log builds a damaged index where it stands, and so does everybody where the segment is small.
Where an event loop serves the logs (`RebuildPlace`) a search that needs that of a larger one raises RebuildFirst
instead, before it has changed anything, and so does each further one there. Then, while other things go on,

    1 a `Rebuild` is begun on the event loop: it notes which segment of the log that is, and how large
    2 `build` walks over the .log file, in a worker process: that computes, so a thread would hold the loop up, too
    3 `Rebuild.take_over`, on the event loop: what was appended meanwhile is added, and the segment has new indexes

and whoever was told RebuildFirst tries again. A log that was closed or cut meanwhile, or has another segment there, is
left as it is (`is_current`). (By its name a worker may then have read another file; else it was this one.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.runtime.disk import Disk
from strandline.storage.errors import CorruptLog
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import IndexBuilder
from strandline.storage.segments.time_index import TimeIndex

if TYPE_CHECKING:
    from strandline.storage.log.log import Log
    from strandline.storage.segments.segment import Segment

CATCH_UP_BYTES = 4 * 2**20
"""So much that was appended meanwhile is walked over on the event loop: in 2 ms, or up to 40 where all batches are tiny
(but then so much does not come so fast)."""


class RebuildFirst(Exception):
    """Nothing was found or changed: the indexes of a segment have to be built anew, then the same may be tried again.

    is_misled: the index seemed sound and led a search astray. Then the .log has to be whole, or it is the damaged one.
    """

    def __init__(self, segment: Segment, why: Exception, *, is_misled: bool) -> None:
        super().__init__(f"the indexes of {segment.path} have to be built anew: {why}")
        self.segment = segment
        self.why = why
        self.is_misled = is_misled


def damage(segment: Segment, why: Exception, position: int) -> CorruptLog:
    """An index is not to blame for what a search met: the .log is whole up to `position` at most."""
    return why if isinstance(why, CorruptLog) else CorruptLog(segment.path, position, str(why))


class Wanted(NamedTuple):
    """What `build` is given."""

    path: str
    """Of the .log file."""
    base_offset: int
    size_bytes: int
    index_interval_bytes: int
    goes_on: bool
    """Behind what was built last in this worker's memory, if anything was."""


class Built(NamedTuple):
    """What it returns, as a list of plain values."""

    end_position: int
    """Behind the last batch that may stand there, as the next one."""
    next_offset: int
    offset_index: bytes
    time_index: bytes
    """Without the last entry of a segment that takes no more appends."""
    max_timestamp_ms: int
    max_timestamp_offset: int
    unindexed_bytes: int

    def builder(self, wanted: Wanted) -> IndexBuilder:
        """As it was when it had taken the last batch."""
        builder = IndexBuilder(wanted.base_offset, wanted.index_interval_bytes)
        builder.offset_index = OffsetIndex.restore(wanted.base_offset, self.offset_index)
        builder.time_index = TimeIndex.restore(wanted.base_offset, self.time_index)
        builder.end_position = self.end_position
        builder.next_offset = self.next_offset
        builder.max_timestamp_ms = self.max_timestamp_ms
        builder.max_timestamp_offset = self.max_timestamp_offset
        builder.unindexed_bytes = self.unindexed_bytes
        return builder


def build(disk: Disk, memory: dict[str, Any], wanted: list[Any]) -> list[Any]:
    """Both indexes of the first `size_bytes` of a .log file, by its headers. A job for a worker: `wanted` is a Wanted,
    what it returns a Built, checked. OSError from the disk; CorruptIndex where no index can be made of the file."""
    path, base_offset, size_bytes, index_interval_bytes, goes_on = wanted
    last: IndexBuilder | None = memory.pop("builder", None)
    builder = last if goes_on and last is not None else IndexBuilder(base_offset, index_interval_bytes)
    file = disk.open(path, read_only=True)
    try:
        builder.add_all(file, size_bytes)
    finally:
        file.close()
    builder.offset_index.check(size_bytes)
    builder.time_index.check()
    memory["builder"] = builder
    return [
        builder.end_position,
        builder.next_offset,
        builder.offset_index.encode(),
        builder.time_index.encode(),
        builder.max_timestamp_ms,
        builder.max_timestamp_offset,
        builder.unindexed_bytes,
    ]


class Rebuild:
    """One, from its beginning to its end. On the event loop."""

    def __init__(self, log: Log, first: RebuildFirst) -> None:
        self._log = log
        self._first = first
        self._cuts = log.segments.cuts
        self._has_begun = False

    @property
    def is_current(self) -> bool:
        """Whether the segment is still its log's, uncut, and the log in service."""
        log, segment = self._log, self._first.segment
        is_held = log.failure is None and log.segments.holding(segment.base_offset) is segment
        return is_held and log.segments.cuts == self._cuts

    def wanted(self) -> Wanted:
        """All that the segment holds by now."""
        segment = self._first.segment
        log_path = segment.file_paths()[0]
        goes_on, self._has_begun = self._has_begun, True
        return Wanted(log_path, segment.base_offset, segment.size_bytes, segment.index_interval_bytes, goes_on)

    def take_over(self, wanted: Wanted, result: list[Any]) -> bool:
        """Let the segment have what `build` made of `wanted`. False: so much was appended since that it has to be
        called once more. Nothing happens where this is not current. LogStorageError: the log is damaged, or the disk
        failed, and the log is offline."""
        if not self.is_current:
            return True
        log, first, built = self._log, self._first, Built(*result)
        segment = first.segment
        is_whole = built.end_position == wanted.size_bytes
        if first.is_misled and not is_whole:
            raise log.fail("reading failed", damage(segment, first.why, built.end_position)) from first.why
        if is_whole and segment.size_bytes - built.end_position > CATCH_UP_BYTES:
            return False
        builder = built.builder(wanted)
        try:
            if is_whole:
                builder.add_all(segment.log.get(), segment.size_bytes)
            if segment is not log.segments.active:
                builder.finish()
            segment.indexes.take(builder, first.why)
        except OSError as error:
            raise log.fail("building an index anew failed", error) from error
        return True
