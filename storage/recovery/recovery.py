"""Loading one log from its folder: after a clean stop by a glance, after a crash by checking what may be torn.

Steps (001, LogManager; the numbers are in the code):
0. what has the name of a file of the log has to be one (`interrupted_changes`). A log that another program may have
   written is looked through (`foreign`), and refused where it holds what is not served. What is checked batch by batch
   in step 4 is refused for the same, before anything is cut;
1. leftovers are looked for (`interrupted_changes`): from here on the log is what it will be when they are resolved;
2. the segments are listed, and index files without a .log;
3. segments have to join. After a clean stop they do where they are the ones that were listed then (`directory_state`);
   else the end of each is looked at. Segments that are missing, or that overlap, make the log refused (`DamagedLog`):
   nothing is deleted, an operator must act. Compaction leaves gaps, but then inside of segments, too, or segments that
   are empty;
4. after an unclean stop every batch from the recovery point's segment on is checked (length, magic, CRC, offsets and
   epochs that do not fall). At the first that fails the log ends, or it makes the log refused;
5. now the log is not refused any more, and its folder may be changed: leftovers are resolved; after an unclean stop
   what was reserved for a segment is given back (`reserving`); index files without a .log go, and indexes that are
   missing or have no possible length are built anew (the content is checked when it is loaded), as those of all that
   was checked; what stands behind the end of 4 is cut: that segment there, younger segments entirely;
6. of the last segment the end is looked at, by headers (after a clean stop little more is read, in step 8);
7. the log start is at least the first segment's base offset; nothing readable left: an empty segment at the log start.
   Its checkpoint is held against the log's end, that of the cleaner against the sealed segments (`believed_offsets`);
8. the epochs are those that the orderly stop wrote down, or agree with the batches on both sides of each boundary
   (`stored_epochs`), or are built anew from all headers;
9. producer states are loaded (`producers/rebuilding`). A batch of a transaction that is met here, in a log that nobody
   else can have written, makes it refused after all.

`verdicts` decides what is dropped, what is kept beside the log as `<name>.damaged` and is a loss of this replica
(`on_loss`), and what makes the log refused. Nobody knows the bounds of what counted where a checkpoint is damaged, or
has no entry for the log.

Loading changes nothing that a second loading would change again, and never raises the recovery point. What is cut
or built anew is reported with offset and bytes: `log-truncated`, `index-rebuilt`.

Loading is a generator (`load_steps`), because checking whole segments is computing: it hands the tasks out, and goes on
with what they found. A new log is not loaded (`log/new_log`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from strandline.protocol.types import TopicId, TopicPartition
from strandline.runtime.disk import FolderEntry
from strandline.storage.disk.storage_context import LogConfig, PooledFile, StorageContext
from strandline.storage.log.leader_epochs import LeaderEpochCache
from strandline.storage.log.log import Log
from strandline.storage.producers.log_producers import LogProducers
from strandline.storage.producers.snapshots import ProducerSnapshots, list_snapshots
from strandline.storage.recovery.believed_offsets import believed_compacted, believed_log_start
from strandline.storage.recovery.damage import Cut, cut_file, drop_all, drop_segments, judged_cut
from strandline.storage.recovery.foreign import look_through, refuse_unread, refuse_unserved
from strandline.storage.recovery.interrupted_changes import (
    SEGMENT_FILE,
    SWAP_SUFFIX,
    Leftovers,
    find_leftovers,
    refuse_no_log,
)
from strandline.storage.recovery.known_state import KnownState
from strandline.storage.recovery.segment_joins import check_joins, check_listed, gap_is_compaction, trust_cleaner
from strandline.storage.recovery.stored_epochs import disbelieve, read_stored, true_epochs
from strandline.storage.recovery.topic_ids import read_topic_id, remove_torn
from strandline.storage.recovery.verdicts import Fault, Verdict
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.reserving import give_back_unused
from strandline.storage.segments.scan import ScannedSegment, ScanTask
from strandline.storage.segments.segment import LOG_SUFFIX, Segment
from strandline.storage.segments.segment_list import SegmentList, create_segment
from strandline.storage.segments.tail import activate
from strandline.storage.segments.time_index import TimeIndex

if TYPE_CHECKING:
    import random

LoadSteps = Generator[list[ScanTask], Sequence[ScannedSegment], Log]


def load_steps(
    context: StorageContext,
    folder: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    known: KnownState,
    *,
    random: random.Random,
    checkpoint_now: Callable[[Log], None],
) -> LoadSteps:
    """The log in `folder`: yields segments to be looked through or checked, some at a time, and is sent what
    `scan_segments` found. Blocking. DamagedLog, NotALog, OccupiedName, TieredLog, TransactionalLog, OldFormat,
    UnreadableTopicId: for an operator. OSError."""
    entries = context.disk.scandir(folder)
    refuse_no_log(folder, entries)
    unread = yield from look_through(context.disk, folder, entries, known, is_tiered=config.is_tiered)
    topic_id = read_topic_id(context, folder, power_failed=known.may_have_lost_data)
    left = find_leftovers(context, folder, entries)
    segments, orphans = _find_segments(context, folder, config, left)
    size_bytes = sum(segment.size_bytes for segment in segments)
    first_unsafe = len(segments) if known.clean else _holding(segments, known.recovery_point)
    refuse_unread(folder, segments, first_unsafe, unread, known)
    known = trust_cleaner(segments, known, is_compacted="compact" in config.cleanup_policy)
    is_as_listed = known.listed is not None and check_listed(context, folder, known.listed, segments, known.on_loss)
    if not is_as_listed:
        first_unsafe = check_joins(context, folder, segments, first_unsafe, known)
    stored_epochs = read_stored(context, folder, known.epochs_crc)
    scanned: Sequence[ScannedSegment] = ()
    end = _End(len(segments))
    if first_unsafe < len(segments):
        scanned = yield _scan_tasks(segments, first_unsafe, known)
        refuse_unserved(folder, scanned)
        end = _find_end(folder, segments, first_unsafe, scanned, stored_epochs.cache, known)
    # 5. Up to here nothing in the folder was changed.
    _resolve(context, folder, left, segments, topic_id, known)
    sealed_safe = segments[: min(first_unsafe, len(segments) - 1)]  # those of the last one are loaded when it is opened
    _mend_indexes(context, sealed_safe, orphans, left.entries)
    segments = _take_scans(context, segments, first_unsafe, scanned, end)
    if is_new := not segments:
        segments = [create_segment(context, folder, known.log_start_offset, config, random)]
        stored_epochs.cache.clear()
    listed = SegmentList(context, folder, segments, random)
    log_end_offset = _open_end(context, folder, listed.active, known)
    was_cut = listed.size_bytes < size_bytes
    log_start_offset = believed_log_start(context, listed, known, log_end_offset, was_cut=was_cut)
    if log_end_offset < log_start_offset:  # 7. everything was deleted up to a point that the crash took
        drop_all(context, listed, log_start_offset, log_end_offset, known.on_loss, was_cut=was_cut)
        segments = [create_segment(context, folder, log_start_offset, config, random)]
        listed = SegmentList(context, folder, segments, random)
        stored_epochs.cache.clear()
        log_end_offset, is_new = log_start_offset, True
    bounds = log_start_offset, log_end_offset
    epochs = true_epochs(context, listed, stored_epochs, bounds, is_as_listed=is_as_listed)
    snapshots = ProducerSnapshots(context.disk, folder, list_snapshots(entry.name for entry in left.entries))
    producers = LogProducers(context, listed, snapshots)
    listed.compacted_below = believed_compacted(context, listed, known.compacted_below)
    producers.load(log_end_offset, log_end_offset if known.clean else known.recovery_point, is_new=is_new)
    return Log(
        context,
        topic_partition,
        topic_id,
        config,
        listed,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        recovery_point=min(known.recovery_point, log_end_offset),
        durable_log_start_offset=min(known.log_start_offset, log_start_offset),
        epochs=epochs,
        producers=producers,
        checkpoint_now=checkpoint_now,
    )


# --- 2. segments and their indexes ------------------------------------------------------------------------------------


def _find_segments(
    context: StorageContext, folder: str, config: LogConfig, left: Leftovers
) -> tuple[list[Segment], list[str]]:
    """And the paths of index files without a .log."""
    segments: list[Segment] = []
    orphans: list[str] = []
    logs = {entry.name[:20] for entry in left.entries if entry.name.endswith(LOG_SUFFIX)}
    for entry in left.entries:
        parts = SEGMENT_FILE.fullmatch(entry.name)
        if parts is None or parts[3]:
            continue
        if parts[2] == LOG_SUFFIX:
            segment = Segment(context, folder, int(parts[1]), config.index_interval_bytes, config.segment_index_bytes)
            segment.size_bytes = entry.size_bytes
            segment.created_ms = entry.mtime_ms
            if entry.name in left.swaps:
                segment.file = PooledFile(context, segment.path + LOG_SUFFIX + SWAP_SUFFIX)
            segments.append(segment)
        elif parts[1] not in logs:
            orphans.append(f"{folder}/{entry.name}")
    return segments, orphans


def _resolve(
    context: StorageContext,
    folder: str,
    left: Leftovers,
    segments: Sequence[Segment],
    topic_id: TopicId | None,
    known: KnownState,
) -> None:
    left.resolve(context, folder)
    for segment in segments:
        if segment.file.path.endswith(SWAP_SUFFIX):
            segment.file.release()
            segment.file = PooledFile(context, segment.path + LOG_SUFFIX)
    if topic_id is None:
        remove_torn(context, folder)
    if not known.clean:
        give_back_unused(context.disk, folder, left.entries)


def _mend_indexes(
    context: StorageContext, segments: Sequence[Segment], orphans: Sequence[str], entries: Sequence[FolderEntry]
) -> None:
    for path in orphans:
        context.disk.unlink(path)
        context.report("index-orphan-removed", path=path)
    sizes = {entry.name: entry.size_bytes for entry in entries}
    for segment in segments:
        name = segment.path.rpartition("/")[2]
        segment.indexes.check_sizes(sizes.get(name + OffsetIndex.SUFFIX), sizes.get(name + TimeIndex.SUFFIX))


def _holding(segments: list[Segment], offset: int) -> int:
    """The number of the segment whose range `offset` falls into; 0 for anything below."""
    return max(0, sum(segment.base_offset <= offset for segment in segments) - 1)


# --- 4. after an unclean stop -----------------------------------------------------------------------------------------


def _scan_tasks(segments: Sequence[Segment], first: int, known: KnownState) -> list[ScanTask]:
    doubts_jumps = known.judge(Fault.JUMP, segments[-1].base_offset) is not Verdict.SERVE
    return [
        ScanTask(
            segment.file.path,
            segment.base_offset,
            segment.size_bytes,
            segment.index_interval_bytes,
            segment is segments[-1] and doubts_jumps,
            (known.recovery_point, known.high_watermark),
        )
        for segment in segments[first:]
    ]


class _End(NamedTuple):
    """Where the log ends by what was found in its segments."""

    place: int
    """So many segments are taken whole."""
    cut: Cut | None = None
    """What follows is cut; None where nothing does."""
    found: ScannedSegment | None = None
    """What is taken of the next segment; None where nothing is."""


def _find_end(
    folder: str,
    segments: Sequence[Segment],
    first: int,
    scanned: Sequence[ScannedSegment],
    epochs: LeaderEpochCache,
    known: KnownState,
) -> _End:
    """scanned: what was found in the segments from number `first` on, whose epochs are learnt. DamagedLog where the log
    may not be cut. Changes nothing on the disk. OSError from it."""
    noted = epochs.starts(segments[0].base_offset)
    epochs.truncate_to(segments[first].base_offset)
    disbelieve(epochs, segments[:first], scanned)
    previous: ScannedSegment | None = None
    for place, (segment, found) in enumerate(zip(segments[first:], scanned, strict=True), first):
        if previous is not None and segment.base_offset != previous.next_offset:
            gap = segment.base_offset > previous.next_offset
            before = segments[place - 1]
            if not (gap and gap_is_compaction(before, previous, found, segment.base_offset, known.compacted_below)):
                why = f"the segment begins at {segment.base_offset}, the one before ends at {previous.next_offset}"
                return _End(place, judged_cut(folder, known, Fault.HOLE, previous.next_offset, why))
        if found.epochs and found.epochs[0][0] < epochs.latest_epoch:
            why = f"leader epoch {found.epochs[0][0]} stands after {epochs.latest_epoch}"
            found = ScannedSegment(0, segment.base_offset, why, b"", b"", [], -1, False, is_followed=True)
        for epoch, least, most in found.epochs:
            epochs.learn(epoch, least, most, noted)
        if found.fault:
            is_tail = segment is segments[-1] and not found.is_followed
            fault = Fault.JUMP if found.is_doubt else Fault.TAIL if is_tail else Fault.INSIDE
            return _End(place, judged_cut(folder, known, fault, found.next_offset, found.fault), found)
        previous = found
    return _End(len(segments))


def _take_scans(
    context: StorageContext, segments: list[Segment], first: int, scanned: Sequence[ScannedSegment], end: _End
) -> list[Segment]:
    """Go by what was found in the segments from number `first` on. Returns the segments that remain."""
    _take_indexes(zip(segments[first : end.place], scanned, strict=False))
    if end.cut is None:
        return segments
    if end.found is None:
        drop_segments(context, segments[end.place :], end.cut)
        return segments[: end.place]
    segment = segments[end.place]
    _take_indexes([(segment, end.found)])
    # The fault goes last: until then the next start, after a crash, comes to the same. A segment that ends well before
    # younger ones that are still there would be a log with a hole.
    drop_segments(context, segments[end.place + 1 :], end.cut)
    cut_file(context, segment, end.found.end_position, end.cut)
    return segments[: end.place + 1]


def _take_indexes(checked: Iterable[tuple[Segment, ScannedSegment]]) -> None:
    for segment, found in checked:
        segment.indexes.replace(
            OffsetIndex.decode(segment.base_offset, found.offset_index, segment.size_bytes),
            TimeIndex.decode(segment.base_offset, found.time_index),
        )


# --- 6. the end -------------------------------------------------------------------------------------------------------


def _open_end(context: StorageContext, folder: str, active: Segment, known: KnownState) -> int:
    """Ready the last segment for appends; returns the log end offset."""
    size_bytes = active.size_bytes
    end_offset = activate(context, active)
    if active.size_bytes < size_bytes:  # torn although the stop was clean: somebody edited the file
        position, active.size_bytes = active.size_bytes, size_bytes
        is_more = (active.base_offset, position) in (known.listed or ())
        fault = Fault.BEHIND_LISTED if is_more else Fault.TAIL
        cut = judged_cut(folder, known, fault, end_offset, "no whole batch stands there")
        cut_file(context, active, position, cut)
    return end_offset
