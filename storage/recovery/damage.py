"""Cutting a log where it is damaged, so that nothing which counted is gone for good.

A torn tail above what was durable or committed is the usual end of a crash: it is dropped, and reported. Else
(`verdicts`) a fault is a loss: before anything else it is noted that this broker may have lost data, and the bytes are
kept beside the log as `<name>.damaged` (of a cut file `<name>.<position>.damaged`): this replica fetches them again
from another, but where there is no other they are all that is left. An operator removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.runtime.disk import write_whole
from strandline.storage.disk.checkpoints import remove_temporary
from strandline.storage.disk.damaged_files import name_for_damaged
from strandline.storage.disk.storage_context import StorageContext
from strandline.storage.errors import DamagedLog
from strandline.storage.recovery.known_state import KnownState
from strandline.storage.recovery.verdicts import Fault, Verdict
from strandline.storage.segments.segment import LOG_SUFFIX, Segment

if TYPE_CHECKING:
    from strandline.storage.segments.segment_list import SegmentList

_CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a log ends from now on, and why."""

    folder: str
    offset: int
    verdict: Verdict
    on_loss: Callable[[], None]
    """Told before something is dropped that counted. Durable when it returns: once the log is cut, nothing else may
    tell of it."""
    why: str

    @property
    def is_loss(self) -> bool:
        return self.verdict is Verdict.LOSE

    @property
    def keeps(self) -> bool:
        return self.verdict is not Verdict.DROP


def judged_cut(folder: str, known: KnownState, fault: Fault, offset: int, why: str) -> Cut:
    """For a fault found behind `offset`. DamagedLog where nothing may be cut for it."""
    judged = known.judge(fault, offset)
    if judged is Verdict.REFUSE:
        raise DamagedLog(folder, why)
    return Cut(folder, offset, judged, known.on_loss, why)


def cut_file(context: StorageContext, segment: Segment, position: int, cut: Cut) -> None:
    """The segment ends at `position`. OSError from the disk."""
    context.report(
        "log-truncated",
        log=cut.folder,
        offset=cut.offset,
        position=position,
        dropped_bytes=segment.size_bytes - position,
        why=cut.why,
        kept_aside=cut.keeps,
        is_loss=cut.is_loss,
    )
    if cut.is_loss:
        cut.on_loss()
    if cut.keeps:
        _copy_tail(context, segment, position)
    segment.file.get().truncate(position)
    segment.size_bytes = position


def _copy_tail(context: StorageContext, segment: Segment, position: int) -> None:
    source = segment.file.get()
    path = name_for_damaged(context.disk, f"{segment.path}{LOG_SUFFIX}.{position}")
    target = context.disk.open(path, exclusive=True)
    try:
        for start in range(position, segment.size_bytes, _CHUNK_BYTES):
            data = source.pread(min(_CHUNK_BYTES, segment.size_bytes - start), start)
            write_whole(target, data, start - position)
        target.fsync()
    except OSError:  # where the disk is full each start would leave another part
        remove_temporary(context.disk, path)
        raise
    finally:
        target.close()


def drop_segments(context: StorageContext, segments: Sequence[Segment], cut: Cut) -> None:
    """Everything behind a fault goes, newest first: a log has no holes. OSError from the disk."""
    if segments and cut.is_loss:
        cut.on_loss()
    for segment in reversed(segments):
        context.report(
            "log-segment-dropped",
            log=cut.folder,
            base_offset=segment.base_offset,
            dropped_bytes=segment.size_bytes,
            why=f"the log ends at {cut.offset}: {cut.why}",
            kept_aside=cut.keeps and segment.size_bytes > 0,
            is_loss=cut.is_loss,
        )
        if cut.keeps and segment.size_bytes:
            path = segment.path + LOG_SUFFIX
            context.disk.rename(path, name_for_damaged(context.disk, path))
        segment.delete(stale=not cut.keeps)


def drop_all(
    context: StorageContext,
    segments: SegmentList,
    log_start_offset: int,
    log_end_offset: int,
    on_loss: Callable[[], None],
    *,
    was_cut: bool,
) -> None:
    """The log ends below its start: it begins anew there, and what it had is kept aside. was_cut: something was cut off
    before. The caller makes the first segment. OSError from the disk."""
    why = f"the log started at {log_start_offset} and ended at {log_end_offset}"
    is_loss = segments.size_bytes > 0 or was_cut
    context.report(
        "log-restarted",
        log=segments.folder,
        log_start_offset=log_start_offset,
        end_offset=log_end_offset,
        is_loss=is_loss,
    )
    cut = Cut(segments.folder, log_start_offset, Verdict.LOSE if is_loss else Verdict.DROP, on_loss, why)
    drop_segments(context, list(segments), cut)
