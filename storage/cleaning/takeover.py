"""What a log does with a cleaning: lend its segments, later take the results over. Plain functions, on the event loop.

Nobody is locked out meanwhile: retention, truncation and deletion go on. So a result counts only if each segment that
it was made from is still in the log, nothing was cut off meanwhile, and the topic's configuration is what it was, when
it is to be taken over; otherwise it is thrown away. (A segment that was cut and filled again may have the same offsets
and size as before.)

Taking over, with a crash possible between any two steps (`recovery` finishes what has reached step 2):
1. the result's files are renamed from `.cleaned` to `.swap`, the .log last: its new name says that all is there;
2. the segments it replaces are put aside (renamed to `.deleted`), oldest first, and unlinked later;
3. the result's files lose `.swap`, the .log last.
Before step 1 is complete a start finds the old segments, afterwards the new one, never a mixture: what is left of the
old ones lies within the offsets that the new .log covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from strandline.storage.cleaning.grouping import Source
from strandline.storage.cleaning.output import CLEANED_SUFFIX, SUFFIXES
from strandline.storage.cleaning.plan import Result
from strandline.storage.log.log import Log
from strandline.storage.recovery.interrupted_changes import SWAP_SUFFIX
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.segment import Segment
from strandline.storage.segments.time_index import TimeIndex

_BATCH_MIN_BYTES = 61


class Superseded(Exception):
    """The log changed while it was cleaned: the result is worth nothing."""


class LentSegments:
    """The segments that a cleaning works on, as they were when it began."""

    def __init__(self, log: Log, end_offset: int) -> None:
        """All sealed segments of the log that end at or below `end_offset`."""
        self._log = log
        self._config = log.config
        self._cuts = log.segments.cuts
        self._segments: list[Segment] = []
        self.sources: list[Source] = []
        """The same, as a `Plan` has them."""
        for segment, following in pairwise(log.segments):
            if following.base_offset > end_offset:
                break
            self._segments.append(segment)
            self.sources.append(
                Source(segment.base_offset, following.base_offset, segment.size_bytes, _index_bytes(segment))
            )

    def check(self, base_offsets: Sequence[int]) -> list[Segment]:
        """The segments of these base offsets. Superseded where one is not in the log any more, or the log was cut."""
        if self._log.failure is not None:
            raise Superseded(str(self._log.failure))
        if self._log.segments.cuts != self._cuts:
            raise Superseded(f"{self._log} was cut while it was cleaned")
        if self._log.config != self._config:  # perhaps it is not to be compacted any more
            raise Superseded(f"the configuration of {self._log} changed while it was cleaned")
        wanted = set(base_offsets)
        lent = [segment for segment in self._segments if segment.base_offset in wanted]
        present = {segment.base_offset: segment for segment in self._log.segments}
        for segment in lent:
            if present.get(segment.base_offset) is not segment:
                raise Superseded(f"segment {segment.base_offset} of {self._log} was removed while it was cleaned")
        return lent

    def check_rest(self) -> None:
        """Superseded where not everything that is not taken over yet is as it was."""
        self.check([segment.base_offset for segment in self._segments])

    def cleaned(self, end_offset: int) -> None:
        """All was taken over, durably: the log is compacted up to there. Superseded where it was cut since."""
        self.check(())
        self._log.segments.compacted_below = end_offset

    def take_over(self, result: Result) -> None:
        """Put the result where its sources were. Superseded; LogStorageError: the disk failed, the log is offline."""
        log = self._log
        replaced = self.check(result.sources)
        try:
            _rename(log, replaced[0].path, CLEANED_SUFFIX, SWAP_SUFFIX)
            log.segments.put_aside(replaced, log.config.file_delete_delay_ms)
            _rename(log, replaced[0].path, SWAP_SUFFIX, "")
        except OSError as error:
            raise log.health.fail("taking over a compacted segment failed", error, repeatable=False) from error
        log.segments.replace(replaced, result.size_bytes, result.largest_timestamp_ms)
        log.segments_replaced()
        self._segments = [segment for segment in self._segments if segment not in replaced]


def _rename(log: Log, path: str, suffix: str, new_suffix: str) -> None:
    for kind in SUFFIXES:
        log.segments.disk.rename(path + kind + suffix, path + kind + new_suffix)


def _index_bytes(segment: Segment) -> int:
    """An upper bound of either index, without reading it: entries are more than an interval apart."""
    entries = segment.size_bytes // max(segment.index_interval_bytes, _BATCH_MIN_BYTES) + 1
    return entries * max(OffsetIndex.ENTRY_BYTES, TimeIndex.ENTRY_BYTES)
