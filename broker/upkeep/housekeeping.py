"""The periodic work of all logs: flushes, checkpoints, retention, removals.

| what | how often |
|---|---|
| fsync by flush.messages and flush.ms | `log.flush.scheduler.interval.ms`, 1 s at most |
| recovery points to their checkpoint | `log.flush.offset.checkpoint.interval.ms`, and when logs were deleted |
| log starts to their checkpoint | `log.flush.start.offset.checkpoint.interval.ms`, and then (also: `log_starts`) |
| retention (`retention_checks`) | `log.retention.check.interval.ms` |
| idle producers are forgotten | `producer.id.expiration.ms`, 10 min at most |
| unlinking of what was put aside | each second, for what has waited `file.delete.delay.ms` |

Nothing here waits for the disk on the event loop: a log says what to sync (`flush_plan`), a thread does it, and the
recovery point moves when it came back. A failed fsync ends that log (invariant 24). Flushes and checkpoints of a log
directory have tasks and threads of their own: a disk that does not answer holds up its own logs only. An idle log
costs nothing: flushes look at logs that changed (`LogManager.changed_logs`), and at those that wait for their
`flush.ms` when the first of them is due.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from strandline.broker.replication.checkpoint_schedule import CheckpointSchedule
from strandline.broker.replication.replicas import Replicas
from strandline.runtime.beats import next_beat
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.environment import Environment
from strandline.runtime.recent_times import RecentTimes
from strandline.storage.errors import LogStorageError
from strandline.storage.log.flush import NEVER
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager

CHECK_INTERVAL_S = 1.0
"""How often logs are asked whether a flush is due, unless `log.flush.scheduler.interval.ms` is shorter."""
REMOVAL_INTERVAL_S = 1.0
LOGS_PER_STEP = 500
PRODUCER_EXPIRY_INTERVAL_S = 600.0
PRODUCERS_PER_STEP = 5000
"""0.2 µs each."""


class Housekeeping:
    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        logs: LogManager,
        replicas: Replicas,
        checkpoints: CheckpointSchedule,
    ) -> None:
        self._config = config
        self._blocking = environment.blocking
        self._logs = logs
        self._replicas = replicas
        self._checkpoints = checkpoints
        self.flush_times = RecentTimes()

    async def run(self) -> None:
        config, logs = self._config, self._logs
        recovery_point_s = config.log_flush_offset_checkpoint_interval_ms / 1000
        log_start_s = config.log_flush_start_offset_checkpoint_interval_ms / 1000
        async with trio.open_nursery() as nursery:
            for path in [directory.path for directory in logs.directories]:
                nursery.start_soon(self._run_flushes, path)
                nursery.start_soon(
                    self._run_checkpoints, path, recovery_point_s, logs.checkpoints.write_recovery_points
                )
                nursery.start_soon(self._run_checkpoints, path, log_start_s, logs.checkpoints.write_log_starts)
            nursery.start_soon(self._run_removals)
            nursery.start_soon(self._run_producer_expiry)

    async def _run_flushes(self, path: str) -> None:
        """Of the logs in one directory, of which only those are looked at that changed or wait for their `flush.ms`."""
        interval_s = min(self._config.log_flush_scheduler_interval_ms / 1000, CHECK_INTERVAL_S)
        changed = self._logs.changed_logs(path)
        since_ms: dict[Log, int] = {}  # of logs that wait: the last flush, else the last look before the log changed
        next_ms = NEVER  # when the first of those is due by its age
        now_ms = int(trio.current_time() * 1000)
        while True:
            before_ms, now_ms = now_ms, round(await next_beat(max(interval_s, 0.01)) * 1000)
            for log in changed:
                since_ms.setdefault(log, before_ms)
            is_next_due = next_ms <= now_ms
            looked_at = list(since_ms if is_next_due else changed)
            next_ms = NEVER if is_next_due else next_ms
            changed.clear()
            for count, log in enumerate(looked_at):
                due_ms = NEVER if log.failure is not None else log.flush_due_ms(since_ms[log])
                if due_ms == NEVER:
                    del since_ms[log]
                elif due_ms <= now_ms:
                    since_ms[log] = now_ms
                    changed[log] = None  # meanwhile it may be longer, or the flush may not have been possible
                    await self._flush(path, log)
                else:
                    next_ms = min(next_ms, due_ms)
                if count % LOGS_PER_STEP == LOGS_PER_STEP - 1:
                    await trio.lowlevel.checkpoint()

    async def _flush(self, path: str, log: Log) -> None:
        began_s = trio.current_time()
        try:
            log.flushed(await self._blocking.run_in(path, log.flush_plan()))
            self.flush_times.record_s(trio.current_time() - began_s)
        except LogStorageError as error:
            partition = self._replicas.partitions.get(log.topic_partition)
            if partition is not None and partition.log is log:  # a new log may have its name by now
                self._replicas.partition_failed(partition, error)

    async def _run_checkpoints(self, path: str, interval_s: float, write: Callable[[str], None]) -> None:
        await self._checkpoints.repeat(interval_s, partial(self._checkpoints.write, path, write, path))

    async def _run_producer_expiry(self) -> None:
        last_ms = int(trio.current_time() * 1000)
        while True:
            await trio.sleep(min(PRODUCER_EXPIRY_INTERVAL_S, self._replicas.config.producer_id_expiration_ms / 1000))
            now_ms = int(trio.current_time() * 1000)
            looked_at = 0
            for log in list(self._logs.logs.values()):
                looked_at += len(log.producers.states) + 1
                log.producers.states.expire(now_ms - last_ms, self._replicas.config.producer_id_expiration_ms)
                if looked_at > PRODUCERS_PER_STEP:
                    looked_at = 0
                    await trio.lowlevel.checkpoint()
            last_ms = now_ms

    async def _run_removals(self) -> None:
        while True:
            doomed = self._logs.removals.due(int(trio.current_time() * 1000))
            if doomed:
                await self._blocking.run_in("removals", self._logs.remove, doomed)
            await next_beat(REMOVAL_INTERVAL_S)
