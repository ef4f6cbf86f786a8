"""The logs of a start, loaded in pieces that may run beside each other.

    begin_load ──> DirectoryLoading, one per log directory
                     take ──> a few logs, each as far as it gets without checking whole segments   blocking, any thread
                     scan_groups ──> what is to be checked, in portions for worker processes        `scan.scan_segments`
                     finish ──> the same logs, loaded or failed; or once more from scan_groups on   blocking, any thread
    adopt ──> each of them: the log manager has it now                                              one after another
    end_load

Whoever starts the broker runs these steps with as many threads and workers as `num.recovery.threads.per.data.dir` says
(`broker/upkeep/loading`); `LogManager.load` runs them where it stands. A log is loaded under a context of its own, with
caches of its own, because the caches of a broker belong to one thread; it joins the others when it is adopted.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.protocol.types import TopicPartition
from strandline.storage.disk.directory_health import is_about_file
from strandline.storage.disk.storage_context import LogConfig, SecondChanceCache, StorageContext
from strandline.storage.errors import LogStorageError, UnusableFile
from strandline.storage.manager.log_directory import LogDirectory
from strandline.storage.recovery.recovery import load_steps
from strandline.storage.recovery.rewriting import write_again
from strandline.storage.segments.scan import ScannedSegment, ScanTask

if TYPE_CHECKING:
    import random

    from strandline.storage.log.log import Log

CHUNK_LOGS = 64
"""Taken at once: a thread is asked for so many, not for each."""
CHUNK_SCAN_BYTES = 64 * 2**20
"""A chunk with so much to check is full."""
GROUP_BYTES = 32 * 2**20
"""Checked in one go by one worker (a larger segment is one group)."""
OPEN_FILES = 8
INDEX_BYTES = 2**20


class LogLoading:
    """One log on its way."""

    __slots__ = ("_shared", "_steps", "context", "directory", "failure", "log", "tasks", "topic_partition")

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: LogDirectory,
        shared: StorageContext,
        config: LogConfig,
        stream: random.Random,
        checkpoint_now: Callable[[Log], None],
    ) -> None:
        """shared: the context of all logs of the directory."""
        self.topic_partition = topic_partition
        self.directory = directory
        self.context = copy.copy(shared)
        self.context.open_files = SecondChanceCache(OPEN_FILES)
        self.context.loaded_indexes = SecondChanceCache(INDEX_BYTES)
        self.tasks: Sequence[ScanTask] = ()
        """Segments that are to be checked before it goes on."""
        self.log: Log | None = None
        self.failure: LogStorageError | OSError | None = None
        """Why it cannot be loaded: its files are damaged, or the disk failed."""
        self._shared = shared
        self._steps = load_steps(
            self.context,
            f"{directory.path}/{topic_partition}",
            topic_partition,
            config,
            directory.known_state(topic_partition),
            random=stream,
            checkpoint_now=checkpoint_now,
        )

    @property
    def scan_bytes(self) -> int:
        return sum(task.size_bytes for task in self.tasks)

    def advance(self, scanned: Sequence[ScannedSegment] | None = None) -> None:
        """Go on, with what was found in `tasks`. Blocking."""
        self.tasks = ()
        try:
            tasks = next(self._steps) if scanned is None else self._steps.send(scanned)
            for task in tasks:  # what may not be opened is this log's alone, and whoever checks has those of many
                self.context.disk.open(task.path, read_only=True).close()
            self.tasks = tasks
        except StopIteration as done:
            self._loaded(done.value)
        except LogStorageError as error:
            self.failure = error
        except OSError as error:
            folder = f"{self.directory.path}/{self.topic_partition}"
            self.failure = UnusableFile(folder, "it cannot be loaded", error) if is_about_file(error) else error

    def join_others(self) -> None:
        """It is loaded: from now on the log uses the caches of all. What it has open is closed, and opened on use."""
        self.context.open_files.clear()
        self.context.loaded_indexes.clear()
        self.context.open_files, self.context.loaded_indexes = self._shared.open_files, self._shared.loaded_indexes

    def give_up(self, error: OSError) -> None:
        """Its segments could not be checked: the disk failed."""
        self.tasks = ()
        self.log, self.failure = None, self.failure or error

    def _loaded(self, log: Log) -> None:
        try:
            if self.directory.was_unsynced:
                write_again(self.context, log)
        except OSError as error:
            self.failure = error
        else:
            self.log = log


class DirectoryLoading:
    """The logs of one directory that still wait."""

    def __init__(self, path: str, logs: Iterable[LogLoading]) -> None:
        self.path = path
        self._waiting = deque(logs)
        self.total = len(self._waiting)

    def take(self) -> list[LogLoading]:
        """Begin the next few logs; none where all were taken. Blocking; several threads may be in here."""
        chunk: list[LogLoading] = []
        scan_bytes = 0
        while len(chunk) < CHUNK_LOGS and scan_bytes < CHUNK_SCAN_BYTES:
            try:
                loading = self._waiting.popleft()
            except IndexError:
                break
            loading.advance()
            scan_bytes += loading.scan_bytes
            chunk.append(loading)
        return chunk


def scan_groups(chunk: Iterable[LogLoading]) -> list[list[ScanTask]]:
    """All that these logs want checked, in their order, in groups of about `GROUP_BYTES`."""
    groups: list[list[ScanTask]] = []
    room = 0
    for loading in chunk:
        for task in loading.tasks:
            if room < task.size_bytes or not groups:
                groups.append([])
                room = GROUP_BYTES
            groups[-1].append(task)
            room -= task.size_bytes
    return groups


def finish(chunk: Iterable[LogLoading], results: Iterable[Sequence[Any]]) -> None:
    """Go on with each until it is loaded, or wants more checked. results: of `scan_groups`, in order. Blocking."""
    found: Iterator[ScannedSegment] = (ScannedSegment(*result) for result in results)
    for loading in chunk:
        if loading.tasks:
            loading.advance([next(found) for _ in loading.tasks])


@dataclass(slots=True)
class LoadProgress:
    """How far a start is, or a check of its folders; for log lines."""

    logs_total: int
    logs_loaded: int = 0
    bytes_checked: int = 0
    bytes_total: int = 0
    """To be checked, where that is known."""

    @property
    def percent(self) -> int:
        return 100 if not self.logs_total else 100 * self.logs_loaded // self.logs_total
