"""What checkpoints claim of a log, held against its segments: a wrong digit must not cost a record.

After an orderly stop of ours the state file has their checksums, and one that was changed since counts as missing
(`manager/guarded_checkpoints`). After any other stop they carry none (they are Kafka's files), so a damaged number
looks like any other. It is proven wrong only by what cannot be:

* a log start above the log end. It is checkpointed at or below the high watermark, and lowered before a log is cut
  below it (`truncation_guard`). So only a machine that lost the tail, or a fault that was just cut off, leaves that;
  and a kill while a log begins anew and its segments go, newest first. Then the log is empty, or what is left of it is
  taken for the log, shorter, for which its follower has to fetch again in any case: nothing is removed for a number's
  sake;
* a compacted offset behind the last sealed segment: the cleaner touches sealed ones only, and a cut takes it down to
  the beginning of the segment that is cut. Nothing counts as compacted then, and the next cleaning reads everything.

What cannot be told from the truth then: a log start that is too high but within the log hides records (and retention
takes them), one that is too low shows deleted ones again, and a compacted offset that is too high but below the active
segment leaves old values of keys below it where they are until the key is written again. No deletion is forgotten for
it, though: the cleaner drops a tombstone only where a cleaning that mapped its key gave it a horizon (of this log or of
the leader's: `cleaning.rewrite`). A cleaning may end anywhere, since its map may be full: nothing marks the place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.storage.disk.storage_context import StorageContext
from strandline.storage.segments.segment_list import SegmentList

if TYPE_CHECKING:
    from strandline.storage.recovery.known_state import KnownState


def believed_log_start(
    context: StorageContext, segments: SegmentList, known: KnownState, log_end_offset: int, *, was_cut: bool
) -> int:
    """Where the log starts; above its end where everything is to go. was_cut: this start cut something off."""
    least = segments.holding(0).base_offset
    explained = known.may_have_lost_data or was_cut or not segments.size_bytes
    if known.log_start_offset <= max(least, log_end_offset) or explained:
        return max(known.log_start_offset, least)
    context.report(
        "log-start-disbelieved",
        log=segments.folder,
        log_start_offset=known.log_start_offset,
        end_offset=log_end_offset,
        taken=least,
    )
    return least


def believed_compacted(context: StorageContext, segments: SegmentList, compacted_below: int) -> int:
    """Up to where the cleaner knows the keys."""
    if compacted_below <= segments.active.base_offset:
        return compacted_below
    context.report(
        "compacted-offset-disbelieved",
        log=segments.folder,
        compacted_below=compacted_below,
        sealed_below=segments.active.base_offset,
    )
    return 0
