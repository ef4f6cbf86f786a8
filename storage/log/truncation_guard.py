"""Before something is cut off: what the checkpoints on the disk say must be true of what will be left.

A checkpoint that vouches for more than the log has would have the next start count as one that lost data; once other
records stand there, it would keep them from being checked. So the order is

    1 prepare      in memory, on the event loop: recovery point, compacted offset and log start are not above the cut
    2 checkpoint   durable, in a thread: `Checkpoints.write_cuts`
    3 cut          on the event loop, if nothing was raised above it meanwhile (a flush, a cleaning); else from 1 again
    4 append

A crash after 1 or 2 leaves the log as it was, with more to be checked than need be; so does a cut that is given up. A
log start that is to come down (a log that begins anew below) is only written as such (`log_start_floor`): in memory it
stays until the cut, and on the disk it may always come back lower, down to the first segment (`log_start`).

A log that begins anew loses its segments one after the other, newest first, and a kill may come between any two. So its
recovery point comes down to the base offset of its first segment, which may lie below the log start. The checkpointed
high watermark stays: after such a kill the log may end below it, and the start notes that this broker lost data. That
costs no record, since all of them were to go, and no more than the copy from the leader that had to be made anyway.

What needs room comes first (the checkpoint; an index that is built anew to find the place): a full disk refuses it
there, nothing was cut, and it may be tried again. The cut itself only shortens files and removes some. The one file
that a log needs which begins anew is made last, or with its first append.

`Log.truncate_to` and `truncate_fully_and_start_at` go through all of this by themselves and wait for the disk, where
nobody asked `may_truncate_to` or `may_start_at` before.
"""

from __future__ import annotations

from strandline.storage.log.flush import Flushes
from strandline.storage.segments.segment_list import SegmentList

NO_FLOOR = 2**63 - 1


class CheckpointFirst(Exception):
    """Nothing was cut yet: `Checkpoints.write_cuts` has to run first, then the same may be tried again."""


class TruncationGuard:
    """How far the cuts of one log are prepared."""

    __slots__ = ("_flushes", "_segments", "log_start_floor", "lowered", "written")

    def __init__(self, segments: SegmentList, flushes: Flushes) -> None:
        self.lowered = 0
        """How often something that a checkpoint may say was lowered."""
        self.written = 0
        """The same, as far as it is durable. Set by whoever wrote the checkpoints, in any thread."""
        self.log_start_floor = NO_FLOOR
        """The log start is not checkpointed above this."""
        self._segments = segments
        self._flushes = flushes

    def prepare(self, offset: int) -> bool:
        """What stands from `offset` on is about to be dropped. Whether what the disk says allows that."""
        was_compacted = self._segments.will_be_cut(offset)
        if self._flushes.cut(offset) or was_compacted:
            self.lowered += 1
        return self.written == self.lowered

    def prepare_start(self, offset: int, log_start_offset: int) -> bool:
        """The log is about to begin anew at `offset`: segment after segment goes. Whether what the disk says allows
        that."""
        if offset < min(log_start_offset, self.log_start_floor):
            self.log_start_floor = offset
            self.lowered += 1
        return self.prepare(min(offset, self._segments.holding(0).base_offset))

    def end(self) -> None:
        """The log was cut, or it is sure that it will not be."""
        self.log_start_floor = NO_FLOOR
