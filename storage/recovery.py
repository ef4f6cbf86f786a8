"""Loading one log from its folder: after a clean stop by a glance, after a crash by checking what may be torn.

Steps (001, LogManager; the numbers are in the code):
1. leftovers go: `.deleted`, `.cleaned`, `.tmp`; a finished `.swap` replaces the segments it was made from;
2. index files without a .log go; an index that is missing or cannot belong to its .log is built anew;
3. after an unclean stop every batch from the recovery point's segment on is checked (length, magic, CRC, offsets and
   epochs that do not fall). At the first that fails the log is cut: that segment there, younger segments entirely.
   Indexes and epochs of what was checked are built anew;
4. of the last segment the end is looked at, by headers (after a clean stop that is all that is read);
5. the log start is at least the first segment's base offset; nothing readable left: an empty segment at the log start;
6. the epochs have to agree with the batches (`epoch_check`), or are built anew from all headers.

Loading changes nothing that a second loading would change again, and never raises the recovery point. What is cut or
built anew is reported with offset and bytes: `log-truncated`, `index-rebuilt`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.protocol.types import TopicPartition
from strandline.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    read_epochs,
    read_partition_metadata,
)
from strandline.storage.context import LogConfig, StorageContext
from strandline.storage.epoch_check import epochs_agree, epochs_from_headers
from strandline.storage.leader_epochs import LeaderEpochCache
from strandline.storage.log import Log
from strandline.storage.scan import CheckedPrefix, IndexBuilder, check_batches, walk_headers
from strandline.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment
from strandline.storage.segment_list import SegmentList, create_segment
from strandline.storage.tail import activate

if TYPE_CHECKING:
    import random

_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex)(\.swap)?")
_LEFTOVER = re.compile(r".*(\.deleted|\.cleaned|\.tmp)")


def load_log(
    context: StorageContext,
    folder: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    compacted_below: int = 0,
    random: random.Random,
    checkpoint_now: Callable[[Log], None],
) -> Log:
    """The log in `folder`. clean: the broker stopped in order. recovery_point, log_start_offset, compacted_below
    (what the cleaner went over): from the checkpoints, 0 where they say nothing. Blocking. OSError from the disk."""
    _remove_leftovers(context, folder)
    segments = _find_segments(context, folder, config)
    first_unsafe = len(segments) if clean else _holding(segments, recovery_point)
    for segment in segments[:first_unsafe]:
        segment.indexes.check_files()
    epochs = LeaderEpochCache(read_epochs(context.disk, f"{folder}/{LEADER_EPOCHS}", context.report))
    if not clean and segments:
        gaps_below = max(recovery_point, compacted_below)
        segments = _check_tail(context, folder, segments, first_unsafe, epochs, gaps_below)
    if not segments:
        segments = [create_segment(context, folder, log_start_offset, config, random)]
        epochs.clear()
    listed = SegmentList(context, folder, segments, random)
    log_end_offset = _open_end(context, folder, listed.active)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    if log_end_offset < log_start_offset:  # 5. everything was deleted up to a point that the crash took
        context.report("log-restarted", log=folder, log_start_offset=log_start_offset, end_offset=log_end_offset)
        listed.start_at(log_start_offset, config)
        log_end_offset = log_start_offset
    epochs.truncate_to(log_end_offset)
    epochs.start_at(log_start_offset)
    if not epochs_agree(listed, epochs, log_start_offset, log_end_offset, thorough=not clean):
        context.report("epochs-rebuilt", log=folder)
        epochs = epochs_from_headers(listed, log_start_offset)
    return Log(
        context,
        topic_partition,
        read_partition_metadata(context.disk, f"{folder}/{PARTITION_METADATA}", context.report),
        config,
        listed,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        recovery_point=min(recovery_point, log_end_offset),
        epochs=epochs,
        checkpoint_now=checkpoint_now,
    )


# --- 1. leftovers -----------------------------------------------------------------------------------------------------


def _remove_leftovers(context: StorageContext, folder: str) -> None:
    disk = context.disk
    names = disk.listdir(folder)
    # A `.cleaned` file says that the compaction that wrote it did not finish: its swaps count for nothing either.
    unfinished = any(name.endswith(".cleaned") for name in names)
    for name in names:
        if _LEFTOVER.fullmatch(name) or (unfinished and name.endswith(".swap")):
            disk.unlink(f"{folder}/{name}")
    if not unfinished:
        _finish_swaps(context, folder, [name for name in names if name.endswith(".swap")])


def _finish_swaps(context: StorageContext, folder: str, names: list[str]) -> None:
    """Each `<base>.log.swap` holds what the segments of its offset range become: those go, it takes its place."""
    disk = context.disk
    for name in names:
        parts = _SEGMENT_FILE.fullmatch(name)
        if parts is None:
            context.report("log-unknown-file", path=f"{folder}/{name}")
        elif parts[2] == LOG_SUFFIX:
            base_offset = int(parts[1])
            end_offset = _end_offset(context, f"{folder}/{name}", base_offset)
            for other in disk.listdir(folder):
                old = _SEGMENT_FILE.fullmatch(other)
                if old and not old[3] and base_offset <= int(old[1]) < max(end_offset, base_offset + 1):
                    disk.unlink(f"{folder}/{other}")
            disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix('.swap')}")
            context.report("log-swap-finished", path=f"{folder}/{name}")
    for name in names:  # an index is built anew sooner than trusted
        if disk.exists(f"{folder}/{name}") and not name.endswith(".log.swap"):
            disk.unlink(f"{folder}/{name}")


def _end_offset(context: StorageContext, path: str, base_offset: int) -> int:
    file = context.disk.open(path, read_only=True)
    end_offset = base_offset
    for _, header in walk_headers(file, 0, file.size()):
        end_offset = header.next_offset
    return end_offset


# --- 2. segments and their indexes ------------------------------------------------------------------------------------


def _find_segments(context: StorageContext, folder: str, config: LogConfig) -> list[Segment]:
    names = context.disk.listdir(folder)
    bases = [int(parts[1]) for name in names if (parts := _SEGMENT_FILE.fullmatch(name)) and parts[2] == LOG_SUFFIX]
    known = set(bases)
    for name in names:
        parts = _SEGMENT_FILE.fullmatch(name)
        if parts and parts[2] in (INDEX_SUFFIX, TIME_INDEX_SUFFIX) and int(parts[1]) not in known:
            context.disk.unlink(f"{folder}/{name}")
            context.report("index-orphan-removed", path=f"{folder}/{name}")
    segments = []
    for base_offset in bases:
        segment = Segment(context, folder, base_offset, config.index_interval_bytes)
        file = context.disk.open(segment.path + LOG_SUFFIX, read_only=True)
        segment.size_bytes = file.size()
        segment.created_ms = context.disk.stat_mtime_ms(segment.path + LOG_SUFFIX)
        file.close()
        segments.append(segment)
    return segments


def _holding(segments: list[Segment], offset: int) -> int:
    """The number of the segment whose range `offset` falls into; 0 for anything below."""
    return max(0, sum(segment.base_offset <= offset for segment in segments) - 1)


# --- 3. after an unclean stop -----------------------------------------------------------------------------------------


def _check_tail(
    context: StorageContext,
    folder: str,
    segments: list[Segment],
    first: int,
    epochs: LeaderEpochCache,
    gaps_below: int,
) -> list[Segment]:
    """Check the batches from segment number `first` on. Returns the segments that remain.

    Compaction leaves gaps between segments, but only below `gaps_below`; above, a gap is the lost end of a segment."""
    epochs.truncate_to(segments[first].base_offset)
    prefix = CheckedPrefix(0, segments[first].base_offset, -1)
    for place in range(first, len(segments)):
        segment = segments[place]
        overlaps = segment.base_offset < prefix.next_offset
        if overlaps or segment.base_offset > max(prefix.next_offset, gaps_below):
            prefix.fault = f"the segment begins at {segment.base_offset}, the one before ends at {prefix.next_offset}"
            _drop_from(context, folder, segments, place, prefix)
            return segments[:place]
        prefix.end_position, prefix.next_offset = 0, segment.base_offset
        _check_segment(segment, prefix, epochs)
        if prefix.fault:
            _cut_file(context, folder, segment, prefix)
            _drop_from(context, folder, segments, place + 1, prefix)
            return segments[: place + 1]
    return segments


def _check_segment(segment: Segment, prefix: CheckedPrefix, epochs: LeaderEpochCache) -> None:
    """Check one .log from its beginning and build its indexes anew, up to the first fault."""
    builder = IndexBuilder(segment.base_offset, segment.index_interval_bytes)
    for position, header in check_batches(segment.log.get(), segment.size_bytes, prefix):
        builder.add(position, header)
        if header.partition_leader_epoch > epochs.latest_epoch:
            epochs.assign(header.partition_leader_epoch, header.base_offset)
    builder.finish()
    segment.indexes.replace(builder.offset_index, builder.time_index)


def _cut_file(context: StorageContext, folder: str, segment: Segment, prefix: CheckedPrefix) -> None:
    context.report(
        "log-truncated",
        log=folder,
        offset=prefix.next_offset,
        position=prefix.end_position,
        dropped_bytes=segment.size_bytes - prefix.end_position,
        why=prefix.fault,
    )
    segment.log.get().truncate(prefix.end_position)
    segment.size_bytes = prefix.end_position


def _drop_from(
    context: StorageContext, folder: str, segments: list[Segment], place: int, prefix: CheckedPrefix
) -> None:
    """Everything behind a fault goes: a log has no holes."""
    for segment in reversed(segments[place:]):
        context.report(
            "log-segment-dropped",
            log=folder,
            base_offset=segment.base_offset,
            dropped_bytes=segment.size_bytes,
            why=f"the log ends at {prefix.next_offset}: {prefix.fault}",
        )
        segment.delete(stale=True)


# --- 4. the end -------------------------------------------------------------------------------------------------------


def _open_end(context: StorageContext, folder: str, active: Segment) -> int:
    """Ready the last segment for appends; returns the log end offset."""
    size_bytes = active.size_bytes
    end_offset = activate(context, active)
    if active.size_bytes < size_bytes:  # torn although the stop was clean: somebody edited the file
        prefix = CheckedPrefix(active.size_bytes, end_offset, -1, "no whole batch stands there")
        active.size_bytes = size_bytes
        _cut_file(context, folder, active, prefix)
    return end_offset
