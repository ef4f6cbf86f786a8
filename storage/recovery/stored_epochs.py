"""The epoch cache of a log as its file says it, and whether that is believed.

Three cases, by the checksum that an orderly stop leaves in its list (`manager/directory_state`):

* it agrees, and the segments are the listed ones: the file says what it said then;
* it does not: somebody changed the file. Nothing of it is taken, the epochs are built anew from all headers and
  written at once, since the next start may have no checksum to tell by. The file is kept aside as `.damaged`, once the
  log is not refused for anything else. So is one of a version that is not understood, after any stop;
* there is none (an unclean stop, a folder of Kafka's): the batches have to agree (`epoch_check`), else the same, but
  the file counts where the batches leave it open.

After an unclean stop the log may begin lower than when the file was written. What is lacking there is taken from the
batches; nothing was wrong then.

A log without epochs has an empty file or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import crc32c

from strandline.storage.disk.checkpoints import (
    LEADER_EPOCHS,
    decode_epochs,
    encode_epochs,
    read_guarded,
    write_atomically,
)
from strandline.storage.disk.damaged_files import put_aside
from strandline.storage.disk.storage_context import StorageContext
from strandline.storage.errors import CorruptLog
from strandline.storage.log.leader_epochs import LeaderEpochCache
from strandline.storage.recovery.epoch_check import epochs_agree, epochs_from_headers
from strandline.storage.segments.scan import ScannedSegment
from strandline.storage.segments.search import headers_from
from strandline.storage.segments.segment import Segment
from strandline.storage.segments.segment_list import SegmentList

_NO_EPOCHS = encode_epochs(())


class StoredEpochs(NamedTuple):
    cache: LeaderEpochCache
    is_as_written: bool | None
    """Whether the file is that of the orderly stop; None where nobody wrote down which that was. False, too, where it
    is of another version."""


def read_stored(context: StorageContext, folder: str, expected_crc: int | None) -> StoredEpochs:
    """Of the log in `folder`. Blocking. OSError from the disk."""
    path = f"{folder}/{LEADER_EPOCHS}"
    ours: list[int | None] | None = None if expected_crc is None else [expected_crc]
    if ours == [crc32c.crc32c(_NO_EPOCHS)]:
        ours = [*ours, None]
    found = read_guarded(context.disk, path, ours, context.report)
    if not found.is_believed:
        return StoredEpochs(LeaderEpochCache(), False)
    cache = LeaderEpochCache(decode_epochs(found.content, path, context.report))
    if encode_epochs(cache.entries) != (_NO_EPOCHS if found.crc is None else found.content):
        cache.version += 1  # the next flush writes what was understood of it
    return StoredEpochs(cache, None if expected_crc is None else True)


def disbelieve(cache: LeaderEpochCache, before: Sequence[Segment], scanned: Sequence[ScannedSegment]) -> None:
    """Forget epochs below the segments that were scanned which are later than the first one there, unless a batch
    carries them: a digit of the file may be wrong, and those segments would be cut off for it. before: the segments
    below. Blocking. OSError from the disk."""
    first_epoch = next((epoch for found in scanned for epoch, *_ in found.epochs), cache.latest_epoch)
    if cache.latest_epoch <= first_epoch:
        return
    for segment in reversed(before):
        try:
            carried = [header.partition_leader_epoch for _, header in headers_from(segment, 0)]
        except CorruptLog:
            return
        if carried:
            cache.forget_above(carried[-1])
            return
    cache.forget_above(first_epoch)


def true_epochs(
    context: StorageContext,
    segments: SegmentList,
    stored: StoredEpochs,
    bounds: tuple[int, int],
    *,
    is_as_listed: bool,
) -> LeaderEpochCache:
    """The epochs of the log: what was stored, or what the batches say. bounds: log start and end offset. is_as_listed:
    the segments are those of an orderly stop. Blocking. OSError from the disk."""
    cache = stored.cache
    log_start_offset, log_end_offset = bounds
    cache.fit(log_start_offset, log_end_offset)
    if stored.is_as_written and is_as_listed and _reaches(cache, log_start_offset, log_end_offset):
        return cache
    may_be_true = stored.is_as_written is not False
    if may_be_true:
        cache = _reaching_down(segments, cache, log_start_offset)
        if epochs_agree(segments, cache, log_start_offset, log_end_offset):
            return cache
    path = f"{segments.folder}/{LEADER_EPOCHS}"
    context.report("epochs-rebuilt", log=segments.folder, path=path)
    noted = cache.starts(segments.holding(0).base_offset) if may_be_true else ()
    cache = epochs_from_headers(segments, log_start_offset, noted)
    if stored.is_as_written is False:
        if context.disk.exists(path):
            put_aside(context.disk, path)
        write_atomically(context.disk, path, encode_epochs(cache.entries))
    cache.version += 1
    return cache


def _reaching_down(segments: SegmentList, cache: LeaderEpochCache, log_start_offset: int) -> LeaderEpochCache:
    """With what the batches say of the offsets below its first entry, where the log has some."""
    first = next(iter(cache.entries), None)
    if first is None or first.start_offset <= log_start_offset:
        return cache
    below = epochs_from_headers(segments, log_start_offset, end_offset=first.start_offset).entries
    if not below:
        return cache
    longer = LeaderEpochCache([*below, *(entry for entry in cache.entries if entry.epoch > below[-1].epoch)])
    longer.version = cache.version + 1
    return longer


def _reaches(cache: LeaderEpochCache, log_start_offset: int, log_end_offset: int) -> bool:
    """Whether every offset has its epoch: the log start may be lower now than it was (`believed_offsets`)."""
    if log_start_offset == log_end_offset:
        return True
    return bool(cache.entries) and cache.entries[0].start_offset <= log_start_offset
