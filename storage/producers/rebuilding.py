"""The producer states of a log from its files: the newest snapshot that is true, then the headers behind it.

1. Snapshots above the log end, or above what is known to be durable (after an unclean stop: the recovery point), go:
   their removal or the log's may have got lost. What a flush vouches for has its folder synced, names included.
2. The newest readable snapshot is taken; a damaged one is kept aside and reported, and the one before it is tried.
3. It holds one batch per producer. The others of the last five are read from the headers of the megabyte before it: a
   producer that has batches on its way wrote lately. (Kafka knows one batch after a start; so does this log of a
   producer whose last batches lie further back, and a repetition of an earlier one is out of order, never appended.)
   Headers that go on where the snapshot ends prove that it is not what its name says: it counts as damaged. That its
   last batch is not there proves it, too, unless compaction took it: then no batch holds that offset.
4. The headers from the snapshot to the log end are added; without any snapshot those of the whole log.

After a clean stop the newest snapshot is of the log end: nothing is walked over but for step 3, and that only where
there are producers. A damaged batch in the way is reported; what follows in its segment is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.protocol.records.batch import TRANSACTIONAL_BIT, BatchHeader
from strandline.storage.disk.storage_context import StorageContext
from strandline.storage.errors import CorruptLog, TransactionalLog
from strandline.storage.producers.snapshots import ProducerSnapshots
from strandline.storage.producers.states import ProducerStates
from strandline.storage.segments import search
from strandline.storage.segments.segment import Segment
from strandline.storage.segments.segment_list import SegmentList

RECENT_BYTES = 2**20
"""Step 3. Of small batches some thousand headers (2 ms), of large ones far fewer."""
RECENT_SEGMENTS = 16


def load_states(
    context: StorageContext,
    segments: SegmentList,
    snapshots: ProducerSnapshots,
    states: ProducerStates,
    log_end_offset: int,
    trusted_end: int,
) -> None:
    """Make `states` those of the log that ends at `log_end_offset`. Snapshots above `trusted_end` are removed.

    TransactionalLog: a batch of a transaction is among those walked over. OSError from the disk."""
    states.clear()
    snapshots.remove_above(min(log_end_offset, trusted_end))
    had = len(snapshots.offsets)
    found = snapshots.read_newest(context.report)
    first = next(iter(segments))
    if found is None:
        if had or first.base_offset < segments.holding(min(log_end_offset, trusted_end)).base_offset:  # a roll left one
            context.report("producers-rebuilt", log=segments.folder, from_offset=first.base_offset)
        _note_all(states, _headers(context, segments, first, 0), segments.folder)
        return
    offset, rows = found
    states.take(rows)
    if rows:
        recent = ProducerStates()
        _note_all(
            recent, _headers(context, segments, *_before(context, segments, offset), end_offset=offset), segments.folder
        )
        if not states.complete_from(recent, lambda last: _is_compacted(context, segments, last)):
            snapshots.drop_damaged(offset, "the batches before its offset go on where it ends", context.report)
            load_states(context, segments, snapshots, states, log_end_offset, trusted_end)
            return
        _note_idle_times(context, segments, states)
    if offset < log_end_offset:
        start = max(offset, first.base_offset)
        segment = segments.holding(start)
        position = _position(context, segment, start)
        _note_all(states, _headers(context, segments, segment, position), segments.folder)


def _note_all(states: ProducerStates, headers: Iterator[BatchHeader], folder: str) -> None:
    for header in headers:
        if header.attributes & TRANSACTIONAL_BIT:
            raise TransactionalLog(folder, header.base_offset)
        if header.producer_id >= 0:
            states.note_header(header)


def _headers(
    context: StorageContext,
    segments: SegmentList,
    segment: Segment | None,
    position: int,
    end_offset: int | None = None,
) -> Iterator[BatchHeader]:
    """From a batch boundary of `segment` on, up to `end_offset` or the log end."""
    while segment is not None:
        try:
            for _, header in search.headers_from(segment, position):
                if end_offset is not None and header.base_offset >= end_offset:
                    return
                yield header
        except CorruptLog as error:
            context.report("producers-incomplete", log=segments.folder, why=str(error))
        segment, position = segments.after(segment), 0


def _before(context: StorageContext, segments: SegmentList, offset: int) -> tuple[Segment, int]:
    """A batch boundary about `RECENT_BYTES` before `offset`; at most `RECENT_SEGMENTS` back, where they are tiny."""
    segment = segments.holding(offset)
    wanted = RECENT_BYTES
    end = segment.indexes.offset.position_for_offset(offset)
    for _ in range(RECENT_SEGMENTS):
        if end >= wanted or segment.base_offset == next(iter(segments)).base_offset:
            break
        wanted -= end
        segment = segments.holding(segment.base_offset - 1)
        end = segment.size_bytes
    try:
        return segment, search.boundary_before(segment, max(0, end - wanted))
    except CorruptLog as error:
        context.report("producers-incomplete", log=segment.path, why=str(error))
        return segment, 0


def _position(context: StorageContext, segment: Segment, offset: int) -> int:
    try:
        return search.position_of(segment, offset)
    except CorruptLog as error:
        context.report("producers-incomplete", log=segment.path, why=str(error))
        return 0


def _is_compacted(context: StorageContext, segments: SegmentList, offset: int) -> bool:
    """Whether no batch holds this offset any more."""
    segment = segments.holding(offset)
    for header in _headers(context, segments, segment, _position(context, segment, offset)):
        return header.base_offset > offset
    return False


def _note_idle_times(context: StorageContext, segments: SegmentList, states: ProducerStates) -> None:
    """A producer of the snapshot wrote last when its segment was written last, or before. (Otherwise a broker that is
    restarted each night would keep all producers for ever.)"""
    now_ms = context.wall_clock.now_ms()
    for producer_id in states:
        producer = states.get(producer_id)
        assert producer is not None
        written_ms = segments.holding(producer.last_offset).created_ms
        producer.idle_ms = max(0, now_ms - written_ms) if written_ms > 0 else 0
        producer.swept_offset = producer.last_offset
