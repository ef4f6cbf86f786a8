"""Which log is to be cleaned next, and up to where: pure.

```
  log start      first dirty                    first uncleanable
     |   clean      |     dirty, cleanable             |   not yet     | active segment
```
* The first dirty offset is where the last cleaning ended (`cleaner-offset-checkpoint`), or the segment begins that
  was cut since. Outside of the log, or of its sealed segments at a start, it says nothing: all of the log is dirty.
* Cleanable are whole sealed segments below the high watermark and the recovery point (so that the epochs whose batches
  compaction takes are in their checkpoint), the first offset that no cleaning could read, and the first dirty segment
  with a record younger than `min.compaction.lag.ms`.
* Dirty ratio: dirty cleanable bytes by clean and dirty cleanable bytes. A log is chosen above (as in Kafka not at)
  `min.cleanable.dirty.ratio`, so that at 1 none ever is for it, or when its oldest dirty record waits longer than
  `max.compaction.lag.ms`; the dirtiest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class SealedSegment(NamedTuple):
    """What the choice needs to know of a segment; times −1 where unknown."""

    base_offset: int
    end_offset: int
    """Base offset of the next one."""
    size_bytes: int
    first_timestamp_ms: int
    largest_timestamp_ms: int


class Bounds(NamedTuple):
    """Of one log."""

    log_start_offset: int
    log_end_offset: int
    durable_high_watermark: int
    """The high watermark, or the recovery point where that is lower."""
    uncleanable_offset: int
    """No cleaning could read what stands there; the log end or more where there is no such place."""


class Lag(NamedTuple):
    """A topic's configuration."""

    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int


class Candidate(NamedTuple):
    """How much of a log could be cleaned."""

    first_dirty_offset: int
    end_offset: int
    """Segments that end at or below it may be rewritten."""
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """For how long its oldest dirty record has waited longer than `max.compaction.lag.ms`."""

    @property
    def is_overdue(self) -> bool:
        return self.overdue_ms > 0

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_worthwhile(self, lag: Lag) -> bool:
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > lag.min_cleanable_dirty_ratio)


def first_dirty_offset(compacted_below: int, bounds: Bounds) -> int:
    """Where cleaning goes on."""
    if not bounds.log_start_offset <= compacted_below <= bounds.log_end_offset:
        return bounds.log_start_offset
    return compacted_below


def examine(sealed: Sequence[SealedSegment], bounds: Bounds, lag: Lag, compacted_below: int, now_ms: int) -> Candidate:
    """sealed: oldest first, all but the active one. now_ms: wall clock."""
    first_dirty = first_dirty_offset(compacted_below, bounds)
    limit = min(bounds.durable_high_watermark, bounds.uncleanable_offset)
    youngest_ms = now_ms - lag.min_compaction_lag_ms
    end = bounds.log_start_offset
    clean = dirty = 0
    oldest_ms: int | None = None
    for segment in sealed:
        is_dirty = segment.end_offset > first_dirty
        is_young = is_dirty and lag.min_compaction_lag_ms > 0 and segment.largest_timestamp_ms > youngest_ms
        if segment.end_offset > limit or is_young:
            break
        end = segment.end_offset
        if not is_dirty:
            clean += segment.size_bytes
            continue
        dirty += segment.size_bytes
        if segment.first_timestamp_ms > 0 and (oldest_ms is None or segment.first_timestamp_ms < oldest_ms):
            oldest_ms = segment.first_timestamp_ms
    overdue_ms = 0 if oldest_ms is None else max(now_ms - oldest_ms - lag.max_compaction_lag_ms, 0)
    return Candidate(first_dirty, end, clean, dirty, overdue_ms)


def dirtiest(candidates: Iterable[tuple[str, Candidate]]) -> str | None:
    """The name of the log to clean first: overdue ones before others, then by ratio, then as they come."""
    best: tuple[str, Candidate] | None = None
    for name, candidate in candidates:
        if best is None or (candidate.is_overdue, candidate.dirty_ratio) > (best[1].is_overdue, best[1].dirty_ratio):
            best = name, candidate
    return best[0] if best else None
