"""Compaction in the background: `log.cleaner.threads` cleaners, each with one log at a time (KIP-58, KIP-354).

    choose (pure, `cleaning.choice`)  ──>  lend segments  ──>  worker process: index, rewrite a group, wait
      ^                                                              |
      └── checkpoint, figures  <──  done  <──  take the group over on the event loop, or throw the work away

Nothing is computed or waited for here but some µs per log and the renames of a group. Between two steps of a bounded
number of bytes a cleaner keeps to `log.cleaner.io.max.bytes.per.second`. Leaders and followers clean alike, each its
own copy below its own high watermark, when it comes to it: replicas agree in what they have, not in what is gone.

Survives anything that one log does: a log that cannot be read is reported and left alone from there on, one that
changed under a cleaning is cleaned another time, a disk error takes its log (and folder) offline as any other does.
Only a full disk does not, where a worker met it: nothing but `.cleaned` files were being written, which are thrown
away, so nothing that counts is in doubt (Kafka gives the folder up); and what the cleaner took for itself must not end
the service of a disk that has room without it. They go at once, and nothing in that directory is cleaned for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import structlog
import trio

from strandline.broker.replication.checkpoint_schedule import CheckpointSchedule
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.broker.upkeep.cleaner_counts import CleanerCounts, LastCleaning
from strandline.broker.upkeep.task_count import keep_running
from strandline.broker.upkeep.throttle import ByteRate
from strandline.broker.upkeep.trusted_clock import TrustedClock
from strandline.protocol.types import TopicPartition
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.environment import NO_WORKER, ComputingFailed, ComputingSession, Environment
from strandline.storage.cleaning import facts, jobs
from strandline.storage.cleaning.choice import Bounds, Candidate, Lag, dirtiest, examine, first_dirty_offset
from strandline.storage.cleaning.output import remove_unfinished
from strandline.storage.cleaning.plan import Done, Plan, Result
from strandline.storage.cleaning.takeover import LentSegments, Superseded
from strandline.storage.disk.directory_health import is_about_space
from strandline.storage.errors import LogStorageError
from strandline.storage.log import segment_times
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager

WORKER_IDLE_S = 60.0
"""A worker that has nothing to do stays for so long: a start costs 0.3 s of a core (numpy, the codec)."""
STEP_BYTES = 16 * 2**20
STEP_S = 0.5
CHUNK_BYTES_MIN = 64 * 2**10
LOGS_PER_STEP = 100
NEVER_MS = NO_LIMIT = 2**63 - 1
FULL_PAUSE_S = 300.0
"""Between two cleanings in a directory whose disk was full: each takes what is left of it for a moment."""
LEARN_WAIT_S = 10.0
"""For the times of the next few segments of a log: some reads."""
STUCK_PAUSE_S = 60.0
"""A directory whose disk did not answer within that is left out for so long."""
ATTEMPTS_MAX = 3
"""Workers that may die over one log before it is left alone."""


@dataclass(slots=True)
class Trouble:
    """Why a log is not (wholly) cleaned. It counts for this log only, not for one that is created anew."""

    log: Log
    offset: int
    """Nothing from here on is touched."""
    attempts: int = 0
    not_before_s: float = 0.0


class Chosen(NamedTuple):
    partition: Partition
    candidate: Candidate
    now_ms: int
    """When it was chosen, by a clock that was believed then."""


@dataclass(slots=True)
class Figures:
    """Of one cleaning."""

    cleaner: int
    started_s: float
    read: int = 0
    written: int = 0


class Cleaning:
    def __init__(
        self,
        environment: Environment,
        logs: LogManager,
        replicas: Replicas,
        checkpoints: CheckpointSchedule,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._environment = environment
        self._logs = logs
        self._replicas = replicas
        self._checkpoints = checkpoints
        self._log = log
        self._rate = ByteRate(replicas.config.log_cleaner_io_max_bytes_per_second)
        self._clock = TrustedClock(environment.wall_clock, log, "compaction")
        self._random = environment.random("cleaner")
        self._busy: dict[TopicPartition, Log] = {}
        self._troubles: dict[TopicPartition, Trouble] = {}
        self._rests_until_s: dict[str, float] = {}
        """Log directory that was full or did not answer → when it is tried again."""
        self._pace_changed = trio.Event()
        self.counts = CleanerCounts()

    def left_alone(self) -> list[Partition]:
        """Those of which a cleaner touches nothing from some offset on, since it cannot be read."""
        partitions = map(self._replicas.partitions.get, self._troubles)
        return [each for each in partitions if each is not None and self._is_left_alone(each)]

    def left_alone_bytes(self, partition: Partition) -> int:
        """How much of one of these will never be cleaned: its sealed segments from there on."""
        trouble = self._trouble(partition)
        offset = NO_LIMIT if trouble is None else trouble.offset
        return sum(each.size_bytes for each in facts.sealed_segments(partition.log) if each.end_offset > offset)

    def _is_left_alone(self, partition: Partition) -> bool:
        trouble = self._trouble(partition)
        return trouble is not None and trouble.offset != NO_LIMIT

    @property
    def _config(self) -> BrokerConfig:
        """As it is now: the cleaners' keys are dynamic."""
        return self._replicas.config

    def change_pace(self) -> None:
        """Another rate or back-off counts now: nobody waits any longer by the former one, be it set by mistake."""
        self._rate = ByteRate(self._config.log_cleaner_io_max_bytes_per_second)
        self._pace_changed.set()
        self._pace_changed = trio.Event()

    async def _wait(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._pace_changed.wait()

    async def run(self) -> None:
        if self._config.log_cleaner_enable:
            self._clock.now_ms()
            await keep_running(lambda: self._config.log_cleaner_threads, self._run_cleaner)

    async def _run_cleaner(self, number: int) -> None:
        """Ends after its cleaning where there are too many."""
        while number < self._config.log_cleaner_threads:
            await self._wait(self._config.log_cleaner_backoff_ms / 1000 or 0.001)
            if await self._choose(claim=False) is not None:
                async with self._environment.computing.session() as session:
                    busy_s = trio.current_time()
                    while trio.current_time() < busy_s + WORKER_IDLE_S and number < self._config.log_cleaner_threads:
                        chosen = await self._choose()
                        if chosen is None:
                            await self._wait(self._config.log_cleaner_backoff_ms / 1000 or 0.001)
                            continue
                        try:
                            await self._clean(number, session, *chosen)
                        finally:
                            del self._busy[chosen.partition.topic_partition]
                        busy_s = trio.current_time()
        self.counts.ended(number)

    # --- choice ------------------------------------------------------------------------------------------------------

    async def _choose(self, *, claim: bool = True) -> Chosen | None:
        """The dirtiest log; nobody else gets it while it is claimed. None while there is none, or the clock that
        tombstones and lags are judged by jumped."""
        now_ms = self._clock.now_ms()
        self.counts.looked()
        if now_ms is None:
            return None
        found: dict[str, tuple[Partition, Candidate]] = {}
        overdue_ms = 0
        for count, partition in enumerate(list(self._replicas.partitions.values()), 1):
            if count % LOGS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
            if self._may_clean(partition):
                try:
                    await self._learn_times_in_time(partition)
                except LogStorageError as error:
                    self._replicas.partition_failed(partition, error)
                    continue
                if self._may_clean(partition):
                    candidate = self._examine(partition, now_ms)
                    overdue_ms = max(overdue_ms, candidate.overdue_ms)
                    if candidate.is_worthwhile(_lag(partition)):
                        found[str(partition.topic_partition)] = partition, candidate
        self.counts.overdue_s = overdue_ms / 1000
        # Some may have gone while the others were looked at.
        name = dirtiest((name, candidate) for name, (each, candidate) in found.items() if self._may_clean(each))
        if name is None:
            return None
        partition = found[name][0]
        if claim:
            self._busy[partition.topic_partition] = partition.log
        return Chosen(partition, self._examine(partition, now_ms), now_ms)

    def _may_clean(self, partition: Partition) -> bool:
        if not partition.config.is_compacted or not self._is_hosted(partition):
            return False
        if partition.topic_partition in self._busy:
            return False
        if self._rests_until_s.get(partition.log_dir, 0.0) > trio.current_time():
            return False
        trouble = self._trouble(partition)
        return trouble is None or trouble.not_before_s <= trio.current_time()

    def _is_hosted(self, partition: Partition) -> bool:
        hosted = self._replicas.partitions.get(partition.topic_partition)
        return hosted is partition and not partition.failed and partition.log.failure is None

    def _trouble(self, partition: Partition) -> Trouble | None:
        trouble = self._troubles.get(partition.topic_partition)
        return trouble if trouble is not None and trouble.log is partition.log else None

    def _examine(self, partition: Partition, now_ms: int) -> Candidate:
        log = partition.log
        sealed, compacted_below = facts.sealed_segments(log), log.segments.compacted_below
        return examine(sealed, self._bounds(partition), _lag(partition), compacted_below, now_ms)

    def _bounds(self, partition: Partition) -> Bounds:
        log, trouble = partition.log, self._trouble(partition)
        uncleanable = log.log_end_offset if trouble is None else trouble.offset
        durable_high_watermark = min(partition.high_watermark, log.recovery_point)
        return Bounds(log.log_start_offset, log.log_end_offset, durable_high_watermark, uncleanable)

    async def _learn_times_in_time(self, partition: Partition) -> None:
        """As `_learn_times`, but a disk that does not answer keeps the logs of the others from nothing."""
        with trio.move_on_after(LEARN_WAIT_S) as waiting:
            await self._learn_times(partition)
        if waiting.cancelled_caught:
            path = partition.log_dir
            self._rests_until_s[path] = trio.current_time() + STUCK_PAUSE_S
            self._log.warning("nothing is compacted where the disk does not answer", path=path, pause_s=STUCK_PAUSE_S)

    async def _learn_times(self, partition: Partition) -> None:
        """What the lags rest on, of segments of an earlier life; LogStorageError."""
        log, lag = partition.log, _lag(partition)
        first_dirty = first_dirty_offset(log.segments.compacted_below, self._bounds(partition))
        try:
            while lag.min_compaction_lag_ms > 0 and (wanted := segment_times.times_wanted(log, first_dirty)):
                times = await self._environment.blocking.run_in(
                    partition.log_dir, segment_times.read_times, self._environment.disk, wanted, abandon=True
                )
                if not self._is_hosted(partition):
                    return
                segment_times.note_times(log, wanted, times)
            while lag.max_compaction_lag_ms < NEVER_MS and (firsts := facts.first_times_wanted(log, first_dirty)):
                cuts = log.segments.cuts
                read = await self._environment.blocking.run_in(
                    partition.log_dir, facts.read_first_times, self._environment.disk, firsts, abandon=True
                )
                if not self._is_hosted(partition) or log.segments.cuts != cuts:
                    return
                for each, time_ms in zip(firsts, read, strict=True):
                    each.segment.first_timestamp_ms = time_ms
        except OSError as error:
            if self._is_hosted(partition):
                raise log.fail("reading a segment's age failed", error) from error

    # --- one cleaning ------------------------------------------------------------------------------------------------

    async def _clean(
        self, number: int, session: ComputingSession, partition: Partition, candidate: Candidate, now_ms: int
    ) -> None:
        lent = LentSegments(partition.log, candidate.end_offset)
        figures = Figures(number, trio.current_time())
        try:
            await session.run(jobs.begin, msgspec.to_builtins(self._plan(partition, candidate, lent, now_ms)))
            done = await self._advance(session, partition, lent, figures)
            if done is not None:
                await self._finish(partition, candidate, lent, done, figures)
                return
        except Superseded as error:
            self._log.info("cleaning given up", partition=str(partition.topic_partition), why=str(error))
        except ComputingFailed as error:
            self._job_failed(partition, lent, error)
        except LogStorageError as error:
            if self._replicas.partitions.get(partition.topic_partition) is partition:
                self._replicas.partition_failed(partition, error)
        await self._tidy(partition)

    def _plan(self, partition: Partition, candidate: Candidate, lent: LentSegments, now_ms: int) -> Plan:
        config, log, cleaners = partition.config, partition.log, max(1, self._config.log_cleaner_threads)
        return Plan(
            folder=log.segments.folder,
            sources=lent.sources,
            first_dirty_offset=candidate.first_dirty_offset,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            map_bytes=self._config.log_cleaner_dedupe_buffer_size // cleaners,
            map_load_factor=self._config.log_cleaner_io_buffer_load_factor,
            max_decompressed_bytes=self._config.max_decompressed_message_bytes,
            chunk_bytes=max(CHUNK_BYTES_MIN, self._config.log_cleaner_io_buffer_size // cleaners),
            hash_seed=self._random.getrandbits(32),
            last_of_producer=facts.last_offsets_of_producers(log, partition.high_watermark),
        )

    async def _advance(
        self, session: ComputingSession, partition: Partition, lent: LentSegments, figures: Figures
    ) -> Done | None:
        """Step by step to the end; None where the log cannot be cleaned."""
        while True:
            step_bytes = self._rate.step_bytes(STEP_S, CHUNK_BYTES_MIN, STEP_BYTES)
            step: dict[str, Any] = await session.run(jobs.advance, step_bytes)
            moved = step["bytes_read"] + step["bytes_written"]
            figures.read += step["bytes_read"]
            figures.written += step["bytes_written"]
            if "failure" in step:
                self._require_unchanged(partition, lent)
                offset, why = step["failure"]
                self._leave_alone(partition, 0, f"at offset {offset}: {why}")
                return None
            if step["result"] is not None:
                lent.take_over(msgspec.convert(step["result"], Result))
            if step["done"] is not None:
                return msgspec.convert(step["done"], Done)
            await self._wait(self._rate.pause_s(moved, trio.current_time()))

    async def _finish(
        self, partition: Partition, candidate: Candidate, lent: LentSegments, done: Done, figures: Figures
    ) -> None:
        log, name = partition.log, partition.topic_partition
        if done.unreadable_offset >= 0:
            self._require_unchanged(partition, lent)
            self._leave_alone(partition, done.unreadable_offset, f"at offset {done.unreadable_offset}: {done.why}")
        try:
            await self._environment.blocking.run_in(
                partition.log_dir, self._environment.disk.fsync_dir, log.segments.folder
            )
            lent.cleaned(done.end_offset)
            await self._checkpoints.write(partition.log_dir, self._logs.checkpoints.write_compacted, name)
        except OSError as error:
            self._not_for_a_while(partition)  # it is as dirty as before; without a descriptor it does not fail
            if self._is_hosted(partition):
                self._replicas.partition_failed(partition, log.fail("checkpointing a cleaning failed", error))
            return
        seconds = max(trio.current_time() - figures.started_s, 1e-6)
        cleaning = LastCleaning(seconds, figures.read, figures.written, done.map_used)
        self.counts.finished(figures.cleaner, cleaning, candidate.dirty_ratio)
        self._log.info(
            "log cleaned",
            partition=str(name),
            from_offset=candidate.first_dirty_offset,
            to_offset=done.end_offset,
            dirty_ratio=round(candidate.dirty_ratio, 3),
            bytes_read=figures.read,
            bytes_written=figures.written,
            records_read=done.records_read,
            records_kept=done.records_kept,
            records_dropped=done.records_read - done.records_kept,
            seconds=round(seconds, 3),
            mb_per_s=round((figures.read + figures.written) / seconds / 1e6, 1),
        )

    # --- what goes wrong ---------------------------------------------------------------------------------------------

    def _require_unchanged(self, partition: Partition, lent: LentSegments) -> None:
        """Superseded where the log was deleted, perhaps created anew, or changed under the cleaning: what went wrong
        says nothing about it then."""
        if not self._is_hosted(partition):
            raise Superseded(f"{partition.log} was taken out of service while it was cleaned")
        lent.check_rest()

    def _leave_alone(self, partition: Partition, offset: int, why: str) -> None:
        self._troubles[partition.topic_partition] = Trouble(partition.log, offset)
        self._log.error(
            "log cannot be compacted from there on; it stays as it is, raise max.decompressed.message.bytes or replace"
            " this replica, then restart the broker",
            partition=str(partition.topic_partition),
            why=why,
        )

    def _job_failed(self, partition: Partition, lent: LentSegments, error: ComputingFailed) -> None:
        try:
            self._require_unchanged(partition, lent)
        except Superseded as superseded:  # then no wonder
            self._log.info("cleaning given up", partition=str(partition.topic_partition), why=str(superseded))
            return
        if is_about_space(error.errno):
            self._rests_until_s[partition.log_dir] = trio.current_time() + FULL_PAUSE_S
            self._log.warning(
                "no space to compact a log; it stays as it is for now, free or add some",
                partition=str(partition.topic_partition),
                error=str(error),
                pause_s=FULL_PAUSE_S,
            )
            return
        if error.errno is not None:
            failure = partition.log.fail("compacting failed", OSError(error.errno, str(error)))
            if partition.log.failure is not None:
                self._replicas.partition_failed(partition, failure)
                return
        trouble = self._trouble(partition) or Trouble(partition.log, NO_LIMIT)
        trouble.attempts += error.kind != NO_WORKER
        if trouble.attempts >= ATTEMPTS_MAX and error.errno is None:
            self._leave_alone(partition, 0, str(error))
            return
        self._not_for_a_while(partition, trouble)
        self._log.warning("cleaning failed", partition=str(partition.topic_partition), error=str(error))

    def _not_for_a_while(self, partition: Partition, trouble: Trouble | None = None) -> None:
        trouble = trouble or self._trouble(partition) or Trouble(partition.log, NO_LIMIT)
        trouble.not_before_s = trio.current_time() + self._config.log_cleaner_backoff_ms / 1000
        self._troubles[partition.topic_partition] = trouble

    async def _tidy(self, partition: Partition) -> None:
        """What was written for nothing takes no space."""
        try:
            await self._environment.blocking.run_in(
                partition.log_dir, remove_unfinished, self._environment.disk, partition.log.segments.folder
            )
        except OSError as error:  # the folder was deleted; or the next cleaning or start does it
            self._log.info("leftovers of a cleaning not removed", error=str(error))


def _lag(partition: Partition) -> Lag:
    config = partition.config
    return Lag(config.min_cleanable_dirty_ratio, config.min_compaction_lag_ms, config.max_compaction_lag_ms)
