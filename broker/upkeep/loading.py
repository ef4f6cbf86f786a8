"""The logs of a start, loaded beside each other: `num.recovery.threads.per.data.dir` at once in each log directory.

Waiting (folders, small files) goes to threads, a few logs at a time; checking whole segments after an unclean stop is
computing and goes to worker processes, unless there is so little of it that starting one costs more. What is loaded is
handed to the log manager here, on the event loop. `storage/manager/loading` has the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog
import trio

from strandline.runtime.environment import ComputingFailed, Environment
from strandline.runtime.exception_groups import first_cause
from strandline.storage.manager.loading import (
    DirectoryLoading,
    LoadProgress,
    finish,
    scan_groups,
)
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.segments.scan import ScanTask, scan_segments

INLINE_BYTES = 128 * 2**20
"""So much of a directory is checked by the threads that load, before workers are started: one takes about 0.3 s to
start, a thread checks 0.3 GB/s of batches of 1 KB and 2.5 GB/s of 16 KB (tests/benchmarks/startup.py)."""
PROGRESS_INTERVAL_S = 2.0
LOADING = "loading logs"
"""Stands in the lines that tell of it; the last one of a log says so as long as it is going on."""


async def load_logs(
    logs: LogManager, environment: Environment, threads_per_dir: int, log: structlog.typing.FilteringBoundLogger
) -> LoadProgress:
    """Load everything; returns what was done. Raises as `LogManager.load`."""
    started = trio.current_time()
    directories = await environment.blocking.run(logs.begin_load)
    progress = LoadProgress(sum(directory.total for directory in directories))
    if progress.logs_total:
        log.info(LOADING, logs=progress.logs_total, clean=logs.was_clean, threads_per_dir=threads_per_dir)
    async with trio.open_nursery() as telling:
        telling.start_soon(_tell, progress, log)
        async with trio.open_nursery() as nursery:
            for directory in directories:
                loader = _Loader(directory, logs, environment, threads_per_dir, progress)
                for _ in range(threads_per_dir):
                    nursery.start_soon(loader.run)
        telling.cancel_scope.cancel()
    await environment.blocking.run(logs.end_load)
    for tp, why in logs.refused.items():
        log.error("log refused", partition=str(tp), why=str(why))
    if progress.logs_total:
        log.info(
            "logs loaded",
            logs=progress.logs_loaded,
            refused=len(logs.refused),
            checked_bytes=progress.bytes_checked,
            seconds=round(trio.current_time() - started, 3),
        )
    return progress


async def _tell(progress: LoadProgress, log: structlog.typing.FilteringBoundLogger) -> None:
    """A line every few seconds while something moves, so that a long start does not look like a hang."""
    told = (0, 0)
    while True:
        await trio.sleep(PROGRESS_INTERVAL_S)
        now = (progress.logs_loaded, progress.bytes_checked)
        if now != told:
            told = now
            log.info(
                f"still {LOADING}",
                loaded=progress.logs_loaded,
                of=progress.logs_total,
                percent=progress.percent,
                checked_bytes=progress.bytes_checked,
            )


class _Loader:
    """One log directory's."""

    def __init__(
        self,
        directory: DirectoryLoading,
        logs: LogManager,
        environment: Environment,
        threads: int,
        progress: LoadProgress,
    ) -> None:
        self._directory = directory
        self._logs = logs
        self._environment = environment
        self._limiter = trio.CapacityLimiter(threads)
        self._progress = progress
        self._inline_bytes = INLINE_BYTES

    async def run(self) -> None:
        """One of several tasks: take logs until none is left."""
        blocking = self._environment.blocking
        while chunk := await blocking.run(self._directory.take):
            if any(loading.tasks for loading in chunk):
                try:
                    while groups := scan_groups(chunk):
                        await blocking.run(finish, chunk, await self._scan(groups))
                except* OSError as errors:  # of the disk: then the directory is offline, whichever of its logs it was
                    for loading in chunk:
                        loading.give_up(first_cause(errors))
            self._logs.adopt(chunk)
            self._progress.logs_loaded += len(chunk)

    async def _scan(self, groups: Sequence[Sequence[ScanTask]]) -> list[list[Any]]:
        """What was found in these segments, in order."""
        results: list[list[list[Any]]] = [[] for _ in groups]
        scan_bytes = sum(task.size_bytes for group in groups for task in group)
        in_worker = scan_bytes > self._inline_bytes
        self._inline_bytes -= scan_bytes
        async with trio.open_nursery() as nursery:
            for place, group in enumerate(groups):
                nursery.start_soon(self._scan_group, group, results, place, in_worker)
        return [result for found in results for result in found]

    async def _scan_group(
        self, group: Sequence[ScanTask], results: list[list[list[Any]]], place: int, in_worker: bool
    ) -> None:
        environment = self._environment
        tasks = [list(task) for task in group]
        async with self._limiter:
            if in_worker:
                try:
                    results[place] = await environment.computing.run(scan_segments, tasks)
                except ComputingFailed:  # it died, or the disk did: the thread sees which
                    in_worker = False
            if not in_worker:
                results[place] = await environment.blocking.run(scan_segments, environment.disk, tasks)
        self._progress.bytes_checked += sum(task.size_bytes for task in group)
