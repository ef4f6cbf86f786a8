"""The producers of one log, kept in step with it: appends, rolls, cuts, flushes.

The log calls: `note_header` for each batch of a producer, `capture` at each roll (at the new segment's base offset) and
before the final flush, `cut` and `clear` when its tail goes. Rows are captured on the event loop; a flush plan encodes,
writes and syncs them elsewhere; `publish` names the file.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.storage.disk.storage_context import StorageContext
from strandline.storage.producers.rebuilding import load_states
from strandline.storage.producers.snapshots import ProducerSnapshots
from strandline.storage.producers.states import ProducerRow, ProducerStates
from strandline.storage.segments.segment_list import SegmentList


class LogProducers:
    """Made when the log is loaded."""

    __slots__ = ("_context", "_segments", "note_header", "snapshots", "states")

    def __init__(self, context: StorageContext, segments: SegmentList, snapshots: ProducerSnapshots) -> None:
        self.states = ProducerStates()
        self.note_header = self.states.note_header
        """A batch of a producer is taken over from the leader, who has checked it."""
        self.snapshots = snapshots
        self._context = context
        self._segments = segments

    def load(self, log_end_offset: int, trusted_end: int, *, is_new: bool = False) -> None:
        """The states of the log up to its end. trusted_end: later snapshots are not believed. is_new: none is of this
        log. OSError, TransactionalLog."""
        if is_new:
            self.clear()
        load_states(self._context, self._segments, self.snapshots, self.states, log_end_offset, trusted_end)

    def capture(self, end_offset: int) -> None:
        """The log ends at `end_offset`: have that written by the next flush. Nothing where it is written already."""
        if end_offset > 0 and not self.snapshots.has(end_offset):
            self.snapshots.capture(end_offset, self.states.rows())

    def publish(self, written: Sequence[tuple[int, Sequence[ProducerRow], str]]) -> None:
        """A flush plan wrote these: (offset, rows, temporary file). OSError from the disk."""
        for offset, rows, temporary in written:
            self.snapshots.publish(offset, rows, temporary)

    def cut(self, end_offset: int) -> None:
        """The log was cut: it ends at `end_offset`. Mostly what is known of the last batches suffices; else the states
        are loaded anew, from the snapshot before (some headers of one segment). OSError from the disk."""
        self.snapshots.remove_above(end_offset)
        if not self.states.cut(end_offset):
            with self._context.rebuilds.here():
                self.load(end_offset, end_offset)

    def drop_head(self, delay_ms: int) -> None:
        """The log's first segments were put aside: so are the snapshots that only they needed. What producers have
        appended stays known, although it is gone. OSError from the disk."""
        paths = self.snapshots.forget_below(next(iter(self._segments)).base_offset)
        self._context.removals.put_aside(self._context.disk, paths, delay_ms)

    def clear(self) -> None:
        """The log lost everything. OSError from the disk."""
        self.states.clear()
        self.snapshots.clear()
