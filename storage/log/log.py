"""One partition replica's log: append at the end, read from anywhere, cut the end off, say what is to be flushed.

```
 log_start_offset            recovery_point              log_end_offset (next offset to be written)
        |  sealed segment  |  sealed segment |  active segment  |
        ^ first readable            ^ below: synced, with epochs and indexes on disk
```
Rules: plain functions, one owner at a time (the event loop); nothing here waits but for the page cache. Offsets are
half open. What a reader may see (the high watermark) is the broker's knowledge and comes as `end_offset`. A failed
write or fsync ends the log's life (`failure`): it is rolled back to its last good position, goes on answering reads and
refuses changes, because nobody knows any more what the page cache holds. A full disk ends nothing (`DiskFull`).

The two append loops are the hot path: about 1 µs per batch, no call per record. They are written out twice since a
shared body would have to be called per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records.batch import LENGTH_PREFIX_BYTES, BatchHeader, InvalidBatch, assign_offset
from strandline.protocol.records.validation import ProducedBatch, validate_fetched
from strandline.protocol.types import TopicId, TopicPartition
from strandline.runtime.disk import FileRegion, write_whole
from strandline.storage.disk.directory_health import is_about_process, is_full
from strandline.storage.disk.log_health import LogHealth
from strandline.storage.disk.storage_context import LogConfig, StorageContext
from strandline.storage.errors import CorruptLog, LogStorageError, OffsetOutOfRange
from strandline.storage.log.boundaries import Boundaries
from strandline.storage.log.flush import Flushes, FlushPlan
from strandline.storage.log.leader_epochs import EpochEnd, LeaderEpochCache
from strandline.storage.log.reading import read_anywhere, read_tail
from strandline.storage.log.truncation_guard import TruncationGuard
from strandline.storage.producers.log_producers import LogProducers
from strandline.storage.segments.roll import FULL, index_interval_bytes, may_fill_an_index, must_roll, roll_limits
from strandline.storage.segments.segment_list import SegmentList
from strandline.storage.segments.tail import activate

WRITEBACK_BYTES = 64 * 2**20
"""How much is appended before the kernel is asked to begin writing it out and index tails go to their files."""
MAX_EPOCH = 2**31 - 1


class Log:
    """Made by the log manager (`create`, `load`), which also owns the checkpoint files of its directory."""

    def __init__(
        self,
        context: StorageContext,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        segments: SegmentList,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        durable_log_start_offset: int,
        epochs: LeaderEpochCache,
        producers: LogProducers,
        checkpoint_now: Callable[[Log], None],
    ) -> None:
        """`checkpoint_now(log)` is called before a cut that nobody prepared (`truncation_guard`): it writes the
        checkpoints to the disk at once."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.segments = segments
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.durable_log_start_offset = durable_log_start_offset
        """Below this nothing comes back, whatever happens to the machine. Set by whoever wrote the checkpoint."""
        self.epochs = epochs
        self.health = LogHealth(str(topic_partition), context.report, context.directory)
        self._context = context
        self._changed_logs = context.changed_logs
        self._checkpoint_now = checkpoint_now
        self._boundaries = Boundaries()
        self._active = segments.active
        self._flushes = Flushes(context, self.health, str(self), segments, epochs, producers, recovery_point)
        self.truncation_guard = TruncationGuard(segments, self._flushes)
        self.config = config

    # --- facts -------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._active.index_interval_bytes = index_interval_bytes(self._active, config)
        self._active.indexes.limit(config.segment_index_bytes)
        self._limits = roll_limits(self._active, config)
        self._changed_logs[self] = None

    @property
    def failure(self) -> LogStorageError | None:
        """Why the log is offline; it stays so until the broker starts again."""
        return self.health.failure

    @property
    def recovery_point(self) -> int:
        """First offset not known to be durable; never above the log end offset."""
        return self._flushes.recovery_point

    @property
    def size_bytes(self) -> int:
        """Of all .log files together."""
        return self.segments.size_bytes

    @property
    def last_epoch(self) -> int:
        """The latest leader epoch known, −1 if none."""
        return self.epochs.latest_epoch

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        """The largest known epoch ≤ `epoch` and the offset where it ends; (−1, −1) where none is known. An epoch older
        than all that are known ends where the first known one starts."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def __str__(self) -> str:
        return str(self.topic_partition)

    # --- append ------------------------------------------------------------------------------------------------------

    def append_as_leader(self, batches: Sequence[ProducedBatch], leader_epoch: int) -> int:
        """Append checked batches, giving them the next offsets and `leader_epoch` (patched in their own memory).

        Batches of idempotent producers come through `append_checked` instead, or stand alone before `producers.note`.
        Returns the offset of the first record. LogStorageError: nothing more can be appended to this log (when a roll
        fell into the wave, what stands before it may have been appended)."""
        self.ready()
        if leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, self.log_end_offset)
        first_offset = offset = self.log_end_offset
        (limit_bytes, limit_ms, limit_offset), segment = self._limits, self._active
        offsets, positions = self._boundaries.offsets, self._boundaries.positions
        start = position = segment.size_bytes
        unindexed, interval = segment.unindexed_bytes, segment.index_interval_bytes
        views: list[memoryview] = []
        for batch in batches:
            size = batch.size_bytes
            timestamp = batch.max_timestamp_ms
            last = offset + batch.records_count - 1
            if (position + size > limit_bytes or timestamp > limit_ms or last > limit_offset) and self._must_roll(
                position, size, timestamp, last
            ):
                self._write(views, start, position, offset, unindexed)
                self.roll(timestamp)
                (limit_bytes, limit_ms, limit_offset), segment, views = self._limits, self._active, []
                interval = segment.index_interval_bytes
                start = position = unindexed = 0
            view = batch.view
            assign_offset(view, offset, leader_epoch)
            views.append(view)
            offsets.append(offset)
            positions.append(position)
            if timestamp > segment.max_timestamp_ms:
                segment.max_timestamp_ms = timestamp
                segment.max_timestamp_offset = last
            if unindexed > interval:
                if not segment.index(last, position):
                    limit_bytes, limit_ms, limit_offset = self._limits = FULL
                unindexed = 0
            unindexed += size
            position += size
            offset = last + 1
        self._write(views, start, position, offset, unindexed)
        return first_offset

    def append_as_follower(self, records: memoryview, max_epoch: int = MAX_EPOCH) -> int:
        """Append what a leader sent, offsets and epochs as they are: whole batches from the log end offset on (gaps are
        what compaction leaves) whose epochs are at most `max_epoch` (the leader epoch of the fetch). Returns the new
        log end offset.

        InvalidBatch: something is wrong with a batch, nothing was appended. LogStorageError: as for a leader."""
        self.ready()
        headers = validate_fetched(records, self.log_end_offset, max_epoch)
        first_epoch = BatchHeader(*headers[0]).partition_leader_epoch if headers else MAX_EPOCH
        if first_epoch < self.epochs.latest_epoch:
            raise InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE,
                f"{self}: a batch of epoch {first_epoch} after one of {self.epochs.latest_epoch}",
            )
        (limit_bytes, limit_ms, limit_offset), segment, epochs = self._limits, self._active, self.epochs
        boundaries, latest_epoch = self._boundaries, epochs.latest_epoch
        offsets, positions = boundaries.offsets, boundaries.positions
        start = position = segment.size_bytes
        unindexed, interval = segment.unindexed_bytes, segment.index_interval_bytes
        taken = done = 0  # bytes of `records`: written, walked over
        offset = self.log_end_offset
        for header in headers:
            base_offset, length, epoch, _, _, _, last_delta, _, timestamp, producer_id, _, _, _ = header
            size = length + LENGTH_PREFIX_BYTES
            last = base_offset + last_delta
            if (position + size > limit_bytes or timestamp > limit_ms or last > limit_offset) and self._must_roll(
                position, size, timestamp, last
            ):
                self._write([records[taken:done]], start, position, offset, unindexed)
                self.roll(timestamp, BatchHeader(*header))
                (limit_bytes, limit_ms, limit_offset), segment, taken = self._limits, self._active, done
                interval = segment.index_interval_bytes
                start = position = unindexed = 0
            if base_offset != offset:  # a gap, in which a read must not find the batch before it
                boundaries.start_segment()
            if epoch != latest_epoch:
                epochs.assign(epoch, offset)
                latest_epoch = epoch
            if producer_id >= 0:
                self.producers.note_header(BatchHeader(*header))
            offsets.append(base_offset)
            positions.append(position)
            if timestamp > segment.max_timestamp_ms:
                segment.max_timestamp_ms = timestamp
                segment.max_timestamp_offset = last
            if unindexed > interval:
                if not segment.index(last, position):
                    limit_bytes, limit_ms, limit_offset = self._limits = FULL
                unindexed = 0
            unindexed += size
            position += size
            done += size
            offset = last + 1
        self._write([records[taken:done]], start, position, offset, unindexed)
        return offset

    def _write(self, views: Sequence[memoryview], start: int, end: int, next_offset: int, unindexed: int) -> None:
        """Write one wave to the active segment and take it over; on failure put everything back as it was."""
        if start == end:
            return
        segment = self._active
        try:
            file = segment.file.get()
            written = file.pwritev(views, start)
            if written != end - start:  # short: the disk is nearly full, or a signal came
                write_whole(file, memoryview(b"".join(views))[written:], start + written)
        except OSError as error:
            raise self._roll_back(error) from error
        segment.size_bytes = end
        segment.unindexed_bytes = unindexed
        self.log_end_offset = next_offset
        self._changed_logs[self] = None
        self._boundaries.trim()
        if start == 0:
            self._limits = roll_limits(segment, self._config)
        if end - segment.written_back_bytes >= WRITEBACK_BYTES:
            try:
                segment.start_writeback()
            except OSError as error:
                if not (is_about_process(error) or is_full(error)):  # then the next flush writes it
                    raise self.fail("writing an index failed", error) from error

    def _roll_back(self, error: OSError) -> LogStorageError:
        """A write failed: back to the last whole wave. The epoch that begins there stays, a leader has it before its
        first record."""
        failure = self._take_back(self.fail("append failed", error))
        self._boundaries.forget()
        self.epochs.truncate_to(self.log_end_offset + 1)
        self._use_active()
        return failure

    def _take_back(self, failure: LogStorageError) -> LogStorageError:
        """Take the wave that could not be written out of the file, the indexes, the counters and the producers: they
        end at the log end again, which was not raised yet. No checkpoint says more than that, so none has to be
        written first, and nothing here needs room, since the disk may be full. Returns the error to raise: `failure`,
        or the error of this if it fails, too. Then a part of the wave may stand behind the log end in the file, where
        the next start finds it."""
        try:
            self._active.take_back(self.log_end_offset)
            activate(self._context, self._active)
            self.producers.cut(self.log_end_offset)
        except (OSError, CorruptLog) as error:
            self._context.report("log-rollback-failed", log=str(self), error=str(error))
            return self.health.fail("append failed", error, repeatable=is_about_process(error))
        return failure

    def _must_roll(self, position: int, size_bytes: int, timestamp_ms: int, last_offset: int) -> bool:
        """The exact rule, asked once the cheap comparison of the loops says "perhaps"."""
        segment = self._active
        if position == 0:
            segment.first_timestamp_ms = timestamp_ms
        now_ms = self._context.wall_clock.now_ms() if segment.first_timestamp_ms < 0 or timestamp_ms < 0 else 0
        return must_roll(segment, self._config, position, size_bytes, timestamp_ms, last_offset, now_ms)

    def may_roll(self, size_bytes: int, max_timestamp_ms: int, last_offset: int) -> bool:
        """Whether batches of `size_bytes` together, up to that timestamp and offset, may need another segment."""
        active = self._active
        is_exceeded = self._limits.may_be_exceeded(active.size_bytes + size_bytes, max_timestamp_ms, last_offset)
        return is_exceeded or may_fill_an_index(active, size_bytes)

    def ready(self) -> None:
        """LogStorageError unless an append may begin. What it notes of producers goes before its write, so its file is
        opened first: lacking a descriptor fails no log, and nothing may have been noted then."""
        self.health.check_room()
        try:
            self._active.file.get()
        except OSError as error:
            raise self.fail("opening the active segment failed", error) from error

    def roll(self, first_timestamp_ms: int = -1, batch: BatchHeader | None = None) -> None:
        """Seal the active segment and begin another at the log end offset (at the batch that comes next, where the gap
        before it is huge); nothing when the active one is empty. first_timestamp_ms: of that batch. LogStorageError."""
        self.health.check()
        try:
            if not self.segments.roll(self.log_end_offset, self._config, batch):
                return
        except OSError as error:
            self._use_active()  # one of two may have been begun
            raise self.fail("rolling to a new segment failed", error) from error
        self._use_active()
        self._active.first_timestamp_ms = first_timestamp_ms
        self._changed_logs[self] = None
        self.producers.capture(self.log_end_offset)

    def _use_active(self) -> None:
        self._active = self.segments.active
        self._active.indexes.limit(self._config.segment_index_bytes)
        self._boundaries.start_segment()
        self._limits = roll_limits(self._active, self._config)

    # --- read --------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, end_offset: int) -> FileRegion | None:
        """Whole batches from the one that holds `offset` on, up to the last batch boundary ≤ `end_offset` and at most
        `max_bytes`, but the first batch always whole; never more than one segment's.

        None: nothing there yet (`end_offset` ≤ `offset` ≤ log end). OffsetOutOfRange: below the log's start or above
        its end. LogStorageError from the disk; IndexLost."""
        if offset >= end_offset or offset < self.log_start_offset or offset >= self.log_end_offset:
            if self.log_start_offset <= offset <= self.log_end_offset:
                return None
            raise OffsetOutOfRange(str(self), offset, self.log_start_offset, self.log_end_offset)
        segment = self._active
        found = read_tail(self._boundaries, segment, offset, max_bytes, end_offset, self.log_end_offset)
        try:
            if found is not None:
                start, end = found
                return FileRegion(segment.file.get(), start, end - start) if end > start else None
            return read_anywhere(self.segments, self._boundaries, offset, max_bytes, end_offset)
        except (OSError, CorruptLog) as error:
            raise self.fail("reading failed", error) from error

    def segments_replaced(self) -> None:
        """Sealed segments are other files now: what was remembered of places in them counts no more."""
        self._boundaries.visited.clear()

    # --- truncate ----------------------------------------------------------------------------------------------------

    def may_truncate_to(self, offset: int) -> bool:
        """Whether `truncate_to(offset)` waits for no disk; otherwise it is prepared. LogStorageError, IndexLost."""
        self.health.check()
        self._changed_logs[self] = None
        if offset >= self.log_end_offset:
            return True
        if offset < self.log_start_offset:
            return self.may_start_at(offset)
        try:
            return self.truncation_guard.prepare(self.segments.locate_cut(offset)[2])
        except (OSError, CorruptLog) as error:
            raise self.fail("truncating failed", error) from error

    def may_start_at(self, offset: int) -> bool:
        """The same of `truncate_fully_and_start_at(offset)`."""
        self.health.check()
        self._changed_logs[self] = None
        return self.truncation_guard.prepare_start(offset, self.log_start_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the tail from `offset` on; a batch that holds `offset` goes whole, so the log may end before it. At or
        above the log end only epochs without records are dropped. Below the log start everything goes, and the log
        starts anew at `offset`. Regions that were read before become stale. LogStorageError from the disk."""
        self.health.check()
        if offset >= self.log_end_offset:
            self.epochs.truncate_to(self.log_end_offset)
            return
        if offset < self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        try:
            segment, position, end_offset = self.segments.locate_cut(offset)
            if not self.truncation_guard.prepare(end_offset):
                self._checkpoint_now(self)
        except (OSError, CorruptLog) as error:
            raise self.fail("truncating failed", error) from error
        try:
            self.log_end_offset = max(self.segments.cut(segment, position, end_offset), self.log_start_offset)
            self.producers.cut(self.log_end_offset)
        except (OSError, CorruptLog) as error:
            raise self.health.fail("truncating failed", error, repeatable=False) from error
        self._after_cutting()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins and ends at `offset`. LogStorageError from the disk."""
        self.health.check()
        try:
            if not self.truncation_guard.prepare_start(offset, self.log_start_offset):
                self._checkpoint_now(self)
        except OSError as error:
            raise self.fail("truncating failed", error) from error
        try:
            self.log_start_offset = offset
            self.producers.clear()  # first: its snapshots would be believed of the log that starts here
            self.segments.start_at(offset, self._config)
        except OSError as error:
            raise self.health.fail("truncating failed", error, repeatable=False) from error
        self.log_end_offset = offset
        self.epochs.clear()
        self._after_cutting()
        try:
            self.segments.make_active(self._config)
        except OSError as error:  # where only room is lacking the first append makes the file
            failure = self.fail("beginning anew failed", error)
            if self.failure is not None:
                raise failure from error

    def _after_cutting(self) -> None:
        self.truncation_guard.end()
        self.epochs.truncate_to(self.log_end_offset)
        self._boundaries.forget()
        self._use_active()
        assert self.recovery_point <= self.log_end_offset or self.recovery_point <= self.log_start_offset

    # --- flush, close ------------------------------------------------------------------------------------------------

    def flush_due_ms(self, since_ms: int) -> float:
        """When `flush_plan` should be run; see `Flushes.due_ms`."""
        return self._flushes.due_ms(since_ms, self.log_end_offset, self._config)

    def flush_plan(self, *, final: bool = False) -> FlushPlan:
        """What makes everything up to the log end durable, to be called off the event loop; `flushed` takes its result.
        final: no append follows, so the last time entry is written. LogStorageError, here and from the plan."""
        return self._flushes.plan(self.log_end_offset, final=final)

    def flushed(self, offset: int) -> None:
        """A plan returned `offset`: everything below is durable (but for what was cut off and written anew since)."""
        self._flushes.completed(offset, self.log_end_offset)

    def flush_quietly(self, *, final: bool) -> bool:
        """Flush it where it stands. Whether all of it is durable; a log that is not has reported why. Blocking."""
        if self.failure is not None:
            return False
        try:
            self.flushed(self.flush_plan(final=final)())
        except LogStorageError:
            return False
        return True

    def close(self) -> None:
        """Write index tails (not synced), release descriptors, memory and reserved space. Idempotent; OSError is
        reported only, since an index is rebuilt from its log."""
        try:
            if self.failure is None:
                self._active.finish()
        except OSError as error:
            self.fail("finishing its last segment failed", error)
        self.health.close()
        self._changed_logs[self] = None
        self.segments.release()
        self._boundaries.forget()

    def condemn(self, offset: int, position: int, why: str) -> LogStorageError:
        """What stands from `offset` on, at byte `position` of its segment, is damaged: the log goes offline. Once it
        was prepared and checkpointed, the next start checks it from there on. Returns the error to raise."""
        return self.fail("reading failed", CorruptLog(self.segments.holding(offset).path, position, why))

    def fail(self, what: str, cause: BaseException) -> LogStorageError:
        """The disk failed under this log: it goes offline; returns the error to raise."""
        return self.health.fail(what, cause)
