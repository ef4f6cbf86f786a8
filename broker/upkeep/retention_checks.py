"""Retention, every `log.retention.check.interval.ms`: which logs have a head that may go, and taking it off.

Leader and follower do it alike, each for its own copy, never above its own high watermark (invariant 19). A check of
one log costs some µs on the event loop; it yields every few logs, and after each slice of renames. What is not known
without the disk (the time of segments of an earlier life) is read in a thread, and the log is looked at anew
afterwards.

Each log directory has rounds of its own: a disk that does not answer holds up its own logs only.

The renames themselves are done on the loop (`storage/disk/removal.py` says why), twenty segments at a time.
"""

from __future__ import annotations

import structlog
import trio

from strandline.broker.replication.burst import Burst
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.broker.upkeep.trusted_clock import TrustedClock
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.environment import Environment
from strandline.storage.errors import LogStorageError
from strandline.storage.log import log_start, segment_times
from strandline.storage.log.retention import Decision
from strandline.storage.manager.log_manager import LogManager

LOGS_PER_STEP = 100


class RetentionChecks:
    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        logs: LogManager,
        replicas: Replicas,
        burst: Burst,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._config = config
        self._disk = environment.disk
        self._blocking = environment.blocking
        self._clock = TrustedClock(environment.wall_clock, log, "retention by time")
        self._logs = logs
        self._replicas = replicas
        self._burst = burst
        self._log = log
        self._told_of_future: dict[Partition, int] = {}

    async def run(self) -> None:
        self._clock.now_ms()
        async with trio.open_nursery() as nursery:
            for directory in self._logs.directories:
                nursery.start_soon(self._run_in, directory.path)

    async def _run_in(self, directory: str) -> None:
        while True:
            await trio.sleep(self._config.log_retention_check_interval_ms / 1000)
            await self.check_all(directory)

    async def check_all(self, only: str | None = None) -> None:
        """One round over all partitions (only: of this log directory)."""
        for count, partition in enumerate(list(self._replicas.partitions.values()), 1):
            if not partition.failed and only in (None, partition.log_dir):
                await self._check(partition)
            if count % LOGS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        self._told_of_future = {p: at for p, at in self._told_of_future.items() if self._is_hosted(p)}
        self._burst.end()

    def _is_hosted(self, partition: Partition) -> bool:
        """Still this broker's, and not failed: true before an await says nothing afterwards."""
        return self._replicas.partitions.get(partition.topic_partition) is partition and not partition.failed

    async def _check(self, partition: Partition) -> None:
        try:
            while self._is_hosted(partition):
                now_ms = self._clock.now_ms()  # of now: what came while others were checked is not in the future
                decision = log_start.check_retention(partition.log, self._disk, partition.high_watermark, now_ms)
                self._tell_of_future(partition, decision)
                if decision.removed:
                    if not self._take_off(partition, decision):
                        return  # all but the active segment has gone, and its disk is too full for another one
                    await trio.lowlevel.checkpoint()
                elif decision.needs_time_of is not None:
                    await self._learn_times(partition, decision.needs_time_of)
                else:
                    return
        except LogStorageError as error:
            if self._is_hosted(partition):
                self._replicas.partition_failed(partition, error)

    def _take_off(self, partition: Partition, decision: Decision) -> bool:
        """Whether anything went."""
        log = partition.log
        before = log.log_start_offset
        dropped = log_start.take_off_head(log, decision, partition.high_watermark)
        if not dropped and log.log_start_offset == before:
            return False
        partition.log_start_moved()
        self._log.info(
            "old segments removed",
            partition=str(partition.topic_partition),
            segments=len(dropped),
            bytes=sum(segment.size_bytes for segment in dropped),
            why=sorted({removed.reason.value for removed in decision.removed[: len(dropped)]}),
            log_start_offset=log.log_start_offset,
            before=before,
        )
        return True

    async def _learn_times(self, partition: Partition, base_offset: int) -> None:
        """Afterwards the time of that segment is known, or it is another one that is asked for."""
        log = partition.log
        wanted = segment_times.times_wanted(log, base_offset)
        try:
            times = await self._blocking.run_in(partition.log_dir, segment_times.read_times, self._disk, wanted)
        except OSError as error:
            if log.failure is None:
                raise log.fail("reading a segment's age failed", error) from error
            return
        if log.failure is None:
            segment_times.note_times(log, wanted, times)

    def _tell_of_future(self, partition: Partition, decision: Decision) -> None:
        """Once per segment: it keeps everything younger, too."""
        future = decision.future
        if future is None or self._told_of_future.get(partition) == future.base_offset:
            return
        self._told_of_future[partition] = future.base_offset
        self._log.warning(
            "a segment has a timestamp in the future: retention by time waits for it; bound timestamps with "
            "message.timestamp.after.max.ms",
            partition=str(partition.topic_partition),
            base_offset=future.base_offset,
            timestamp_ms=future.timestamp_ms,
        )
