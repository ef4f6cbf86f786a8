"""Writing the offset checkpoints of all log directories of a broker; which logs they tell of.

Threads write them while the event loop changes the logs. What must not stand on the disk any more (a cut is about to be
made, a log is gone, or made anew under a name that a file has) is counted in `_outdated`: whoever is writing sees the
count, and writes again. What the loop writes itself is counted when it begins and when it ends. While the count is even
and does not change, each checkpoint has one writer, which skips it where the file would say the same: idle logs cost no
fsync. A directory whose disk fails meanwhile is offline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from strandline.protocol.types import TopicPartition
from strandline.storage.disk.checkpoints import HIGH_WATERMARKS
from strandline.storage.log.log import Log
from strandline.storage.manager.guarded_checkpoints import NAMES
from strandline.storage.manager.log_directories import CHECKPOINT_FAILED, LogDirectories
from strandline.storage.manager.log_directory import LogDirectory


class Checkpoints:
    """Of one broker. Its methods block, and may be called in any thread."""

    def __init__(
        self,
        directories: LogDirectories,
        logs: Mapping[TopicPartition, Log],
        owners: Mapping[TopicPartition, LogDirectory],
    ) -> None:
        """logs: all of the broker. owners: of every log its directory. The log manager changes both."""
        self._directories = directories
        self._logs = logs
        self._owners = owners
        self._outdated = 0

    def write_high_watermarks(
        self,
        marks: Mapping[TopicPartition, int],
        only: str | None = None,
        of: Mapping[TopicPartition, Log] | None = None,
    ) -> bool:
        """For the logs that exist (of: that are still these), in all directories (only: in the one at this path).
        Returns whether they stand on the disk of any."""
        written: list[LogDirectory] = []
        write = partial(self._write_high_watermarks, marks, self._logs if of is None else of, written)
        self._directories.each_online(CHECKPOINT_FAILED, write, only)
        return bool(written)

    def _write_high_watermarks(
        self,
        marks: Mapping[TopicPartition, int],
        of: Mapping[TopicPartition, Log],
        written: list[LogDirectory],
        directory: LogDirectory,
    ) -> None:
        outdated = -1
        while outdated != self._outdated:  # a log of that name may be created anew while this is written
            outdated = self._outdated
            logs = [log for log in self.logs_in(directory) if of.get(log.topic_partition) is log]
            known = {tp: marks[tp] for log in logs if (tp := log.topic_partition) in marks}
            directory.write_high_watermarks(known, outdated)
        written.append(directory)

    def write_recovery_points(self, only: str | None = None) -> None:
        """Of all logs (only: of this directory)."""
        self._directories.each_online(CHECKPOINT_FAILED, partial(self.write, log_starts=False), only)

    def write_log_starts(self, only: str | None = None) -> None:
        """Where all logs begin that do not begin with a segment (only: those of this directory)."""
        self._directories.each_online(CHECKPOINT_FAILED, partial(self.write, recovery_points=False), only)

    def write_compacted(self, tp: TopicPartition) -> None:
        """Up to where this log is compacted, and all beside it. OSError: the directory is offline."""
        directory = self._owners.get(tp)
        if directory is not None and directory.health.failure is None:
            self.write(directory, recovery_points=False, log_starts=False)

    def write_cuts(self, path: str, *, recovery_points: bool = True) -> None:
        """What prepared cuts in this directory wait for (`truncation_guard`); without recovery points, those at the
        head. OSError: it was not written; unless only descriptors are lacking, the directory is offline.

        Nobody else may be writing these checkpoints of this directory: of two writers the later one may have looked at
        the logs before they were prepared."""
        for directory in self._directories.online():
            if directory.path == path:
                self.write(directory, recovery_points=recovery_points)

    def write_now(self, log: Log) -> None:
        """This log is about to be cut, and nobody prepared that."""
        with self._at_once():
            self.write(self._owners[log.topic_partition])

    def note_gone(self) -> None:
        """A log was taken out of service. A thread may just be writing its name, which another log may get."""
        self._outdated += 2

    def forget(self, tp: TopicPartition, home: LogDirectory) -> None:
        """A log is to be made in `home`: those that name a deleted one of that name would vouch for records that it
        lacks. OSError of that directory; another one that cannot be written is offline or full by itself, and on a mere
        doubt nothing is written there."""
        if not (home.unsure or any(each.names(tp) for each in self._directories)):
            return  # many are made at once: each that is counted would have all of them written anew
        with self._at_once():
            for directory in self._directories.online():
                named = {name for name in NAMES if tp in directory.stored[name]}
                if directory is home:
                    named |= directory.unsure
                try:
                    if named - {HIGH_WATERMARKS}:
                        self.write(directory)
                    if HIGH_WATERMARKS in named:
                        directory.forget_mark(tp)
                except OSError:
                    if directory is home:
                        raise

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        """The event loop writes checkpoints, perhaps beside a thread."""
        self._outdated += 1
        try:
            yield
        finally:
            self._outdated += 1

    def write(self, directory: LogDirectory, *, recovery_points: bool = True, log_starts: bool = True) -> None:
        """Those of one directory, but for the high watermarks. OSError as in `write_cuts`."""
        outdated = -1
        while outdated != self._outdated:
            outdated = self._outdated
            # While the loop writes at once (the count is odd) nobody knows whose file is renamed last.
            in_round = None if outdated % 2 else outdated
            logs = self.logs_in(directory)
            lowered = [log.truncation_guard.lowered for log in logs]
            if recovery_points:
                directory.write_recovery_points(logs, in_round)
            if log_starts:
                directory.write_log_start_offsets(logs, in_round)
            directory.write_compacted_offsets(logs)
            if recovery_points and log_starts:
                for log, count in zip(logs, lowered, strict=True):
                    log.truncation_guard.written = max(log.truncation_guard.written, count)

    def logs_in(self, directory: LogDirectory) -> list[Log]:
        """The logs of one directory."""
        owners = dict(self._owners)  # copies: a log may be created or deleted meanwhile
        return [log for tp, log in dict(self._logs).items() if owners.get(tp) is directory]
