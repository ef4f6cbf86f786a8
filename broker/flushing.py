"""Flushing in the background: fsync by flush.messages and flush.ms, recovery points to their checkpoint (S7, S6).

Nothing here waits for the disk on the event loop: a log says what to sync (`flush_plan`), a thread does it, and the
recovery point moves when it came back. A failed fsync ends that log (24).
"""

from __future__ import annotations

import structlog
import trio

from strandline.broker.replica_manager import ReplicaManager
from strandline.runtime.config import BrokerConfig
from strandline.storage.errors import LogStorageError
from strandline.storage.log_manager import LogManager

CHECK_INTERVAL_S = 1.0
"""How often logs are asked whether a flush is due, unless `log.flush.scheduler.interval.ms` is shorter."""
LOGS_PER_STEP = 500


class Flushing:
    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        replicas: ReplicaManager,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._config = config
        self._logs = logs
        self._replicas = replicas
        self._log = log

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_flushes)
            nursery.start_soon(self._run_checkpoints)

    async def _run_flushes(self) -> None:
        interval_s = min(self._config.log_flush_scheduler_interval_ms / 1000, CHECK_INTERVAL_S)
        while True:
            await trio.sleep(max(interval_s, 0.01))
            now_ms = int(trio.current_time() * 1000)
            for count, log in enumerate(list(self._logs.logs.values())):
                if log.failure is None and log.flush_due(now_ms):
                    try:
                        log.flushed(await self._replicas.run_blocking(log.flush_plan()))
                    except LogStorageError as error:
                        partition = self._replicas.partitions.get(log.topic_partition)
                        if partition is not None:
                            self._replicas.partition_failed(partition, error)
                elif count % LOGS_PER_STEP == LOGS_PER_STEP - 1:
                    await trio.lowlevel.checkpoint()

    async def _run_checkpoints(self) -> None:
        while True:
            await trio.sleep(self._config.log_flush_offset_checkpoint_interval_ms / 1000)
            try:
                await self._replicas.run_blocking(self._logs.checkpoint_recovery_points)
            except OSError as error:  # the older file is a safe lower bound (23); the next one may succeed
                self._log.error("recovery points not checkpointed", error=str(error))
