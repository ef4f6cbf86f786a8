"""All logs of one broker, over its log directories: load, create, delete, checkpoint, close.

Blocking methods say so; the others may be called on the event loop. Files of a directory are described in
`log_directory`, those of a log in `recovery` and `segment`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.protocol.topic_name import check_topic_name
from strandline.protocol.types import TopicId, TopicPartition
from strandline.runtime.disk import Disk
from strandline.runtime.environment import WallClock
from strandline.storage.disk.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, WarningLog, encode_topic_id, no_report
from strandline.storage.disk.removal import Doomed, Removals, remove
from strandline.storage.disk.storage_context import DEFAULT_OPEN_FILES, LogConfig, SecondChanceCache, StorageContext
from strandline.storage.errors import (
    DuplicateLog,
    InconsistentTopicId,
    LogExists,
    LogOffline,
    LogStorageError,
    StrayLog,
)
from strandline.storage.log.log import Log
from strandline.storage.log.new_log import begin_log
from strandline.storage.manager.checkpoint_writing import Checkpoints
from strandline.storage.manager.found_folders import FoundFolders, find_folders
from strandline.storage.manager.loading import DirectoryLoading, LoadProgress, LogLoading, finish, scan_groups
from strandline.storage.manager.log_directories import CHECKPOINT_FAILED, META_FAILED, LogDirectories, owners_of
from strandline.storage.manager.log_directory import LogDirectory
from strandline.storage.manager.losses import named_without_folder, note_losses, note_missing
from strandline.storage.manager.moved_logs import take_over_log_starts
from strandline.storage.manager.partition_folders import PartitionFolders
from strandline.storage.segments.scan import scan_segments

if TYPE_CHECKING:
    import random


class BegunLog(NamedTuple):
    """A log whose folder is to lie in this directory, of the topic with this id."""

    directory: LogDirectory
    topic_id: TopicId


class LogManager:
    """Owns the logs and their directories from `load` to `close`."""

    def __init__(
        self,
        disk: Disk,
        log_dirs: Sequence[str],
        *,
        broker_id: int,
        cluster_id: str = "",
        topic_config_for: Callable[[str], LogConfig],
        wall_clock: WallClock,
        random: random.Random,
        log: WarningLog | None = None,
        max_open_files: int = DEFAULT_OPEN_FILES,
    ) -> None:
        """log_dirs: absolute paths. cluster_id: whose data they must be; empty where nobody knows. random: for ids and
        roll jitter. log: told what was repaired or lost. max_open_files: descriptors kept for segment files."""
        self.logs: dict[TopicPartition, Log] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        """As loaded, one for each log, within [log start, log end]."""
        self.refused: dict[TopicPartition, LogStorageError] = {}
        """Logs that only an operator can mend, and why: damaged, or there twice. Their files stay as they are."""
        self.removals = Removals()
        """Files and folders that were put aside; see `remove`."""
        self._disk = disk
        self._random = random
        report = self._report = log.warning if log is not None else no_report
        self._topic_config_for = topic_config_for
        self._folders = PartitionFolders(disk, self.removals, random, report)
        context = StorageContext(
            disk, wall_clock, report, open_files=SecondChanceCache(max_open_files), removals=self.removals
        )
        self.rebuilds = context.rebuilds
        self.directories = LogDirectories(disk, log_dirs, broker_id, cluster_id, report)
        self._contexts = {
            directory.path: replace(context, directory=directory.health, changed_logs={})
            for directory in self.directories
        }
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        self.begun: dict[TopicPartition, BegunLog] = {}
        """Those that could not be created yet: parts of them may lie there. See `give_up`."""
        self.checkpoints = Checkpoints(self.directories, self.logs, self._directory_of)

    # --- facts -------------------------------------------------------------------------------------------------------

    @property
    def directory_id(self) -> str:
        """22 characters: what the broker registers itself with."""
        return self.directories.directory_id

    @property
    def may_have_lost_data(self) -> bool:
        """See `LogDirectories`."""
        return self.directories.may_have_lost_data

    @property
    def was_clean(self) -> bool:
        """Whether every directory was left in order."""
        return all(directory.last_stop.was_clean for directory in self.directories)

    def get(self, tp: TopicPartition) -> Log | None:
        return self.logs.get(tp)

    def changed_logs(self, path: str) -> dict[Log, None]:
        """Of the directory at `path`, as `StorageContext` has them."""
        return self._contexts[path].changed_logs

    # --- start -------------------------------------------------------------------------------------------------------

    def load(self, on_progress: Callable[[LoadProgress], None] = lambda progress: None) -> None:
        """Open the directories and load every log in them. One whose disk cannot be read is offline, the others serve.
        Blocking; `broker/upkeep/loading` does the same with several threads.

        LogDirLocked, InconsistentMetaProperties; LogDirUnusable, NoLogDirLeft where no directory can be used; OSError
        for want of descriptors: the broker cannot start."""
        directories = self.begin_load()
        progress = LoadProgress(sum(directory.total for directory in directories))
        for directory in directories:
            while chunk := directory.take():
                try:
                    while groups := scan_groups(chunk):
                        results: list[list[Any]] = []
                        for group in groups:
                            results += scan_segments(self._disk, group)
                            progress.bytes_checked += sum(task.size_bytes for task in group)
                            on_progress(progress)
                        finish(chunk, results)
                except OSError as error:
                    for loading in chunk:
                        loading.give_up(error)
                self.adopt(chunk)
                progress.logs_loaded += len(chunk)
                on_progress(progress)
        self.end_load()

    def begin_load(self) -> list[DirectoryLoading]:
        """Open the directories and find the logs in them. Blocking. Raises as `load`."""
        self.directories.open(lambda: encode_topic_id(self._random.randbytes(16)))
        found: dict[LogDirectory, FoundFolders] = {}
        for directory in self.directories.online():
            try:
                found[directory] = find_folders(self._disk, directory.path, self._report)
            except OSError as error:
                self.directories.cannot_be_read(directory, error)
                continue
            for path in found[directory].doomed:  # an earlier life had begun to delete them
                self.removals.add_folder(path, delay_ms=0)
        for tp, owners in owners_of({each: folders.partitions for each, folders in found.items()}).items():
            self._own(tp, owners[0])
            if len(owners) > 1:  # a disk came back that could not be read when the partition was created anew elsewhere
                self._refuse(tp, DuplicateLog(str(tp), [owner.path for owner in owners]), owners)
            elif (why := found[owners[0]].not_logs.get(tp)) is not None:
                self._refuse(tp, why, owners)
        loadings = [
            DirectoryLoading(
                each.path, [self._loading(each, tp) for tp in folders.partitions if tp not in self.refused]
            )
            for each, folders in found.items()
        ]
        self.directories.each_at_start(
            META_FAILED, partial(note_missing, self._directory_of, self.removals, self._report)
        )
        return loadings

    def _refuse(self, tp: TopicPartition, why: LogStorageError, owners: Iterable[LogDirectory]) -> None:
        self._report("log-refused", log=str(tp), why=str(why))
        self.refused[tp] = why
        for directory in owners:
            directory.refused.add(tp)

    def _loading(self, directory: LogDirectory, tp: TopicPartition) -> LogLoading:
        shared, config = self._contexts[directory.path], self._topic_config_for(tp.topic)
        return LogLoading(tp, directory, shared, config, self._random, self.checkpoints.write_now)

    def adopt(self, loaded: Iterable[LogLoading]) -> None:
        """Take over logs that were loaded, or could not be. Not blocking. OSError for want of descriptors."""
        for loading in loaded:
            tp, log, directory = loading.topic_partition, loading.log, loading.directory
            if log is None:
                assert loading.failure is not None
                if isinstance(loading.failure, LogStorageError):
                    self._refuse(tp, loading.failure, [directory])
                else:
                    self.directories.cannot_be_read(directory, loading.failure)
                continue
            loading.join_others()
            self.logs[tp] = log
            mark = max(directory.stored[HIGH_WATERMARKS].get(tp, 0), log.log_start_offset)
            self.high_watermarks[tp] = min(mark, log.log_end_offset)

    def end_load(self) -> None:
        """Every log was adopted: draw the consequences where one came back shorter than its checkpoints say, and where
        a directory could not be read to its end. Blocking. NoLogDirLeft."""
        write, online = partial(self.checkpoints.write, recovery_points=False), self.directories.online()
        for directory in take_over_log_starts(online, self.logs, self._directory_of, self.high_watermarks):
            self.directories.each_at_start(CHECKPOINT_FAILED, write, directory.path)
        self.directories.each_at_start(CHECKPOINT_FAILED, self._end_load)
        for tp, log in list(self.logs.items()):
            if self._directory_of[tp].health.failure is not None:
                log.close()
                del self.logs[tp]
                self.high_watermarks.pop(tp, None)
        self.directories.loaded()

    def _end_load(self, directory: LogDirectory) -> None:
        logs = self.checkpoints.logs_in(directory)
        note_losses(directory, logs, self._report)
        shorter = any(
            log.recovery_point < directory.stored[RECOVERY_POINTS].get(log.topic_partition, 0) for log in logs
        )
        outdated = not directory.bounds_known or bool(named_without_folder(directory, self._directory_of))
        if outdated or shorter:  # what is appended next must not be vouched for by the old ones
            self.checkpoints.write(directory)
        if outdated:
            directory.write_high_watermarks({(tp := log.topic_partition): self.high_watermarks[tp] for log in logs})
        directory.write_compacted_offsets(logs)
        directory.note_loaded()

    def mark_loss_handled(self) -> None:
        """See `LogDirectories`."""
        self.directories.mark_loss_handled()

    # --- create, delete ----------------------------------------------------------------------------------------------

    def create(self, tp: TopicPartition, topic_id: TopicId, config: LogConfig | None = None) -> Log:
        """A new log in the directory with the fewest. topic_id: 16 bytes, `NO_TOPIC_ID` where unknown.

        LogExists; InconsistentTopicId: there is one, of another topic with this name; LogStorageError from the disk."""
        existing = self.logs.get(tp)
        if existing is not None:
            if existing.topic_id is not None and existing.topic_id != topic_id:
                raise InconsistentTopicId(str(tp), existing.topic_id, topic_id)
            raise LogExists(f"{tp} exists on this broker")
        if tp in self.refused:
            raise self.refused[tp]
        check_topic_name(tp.topic)
        begun = self.begun.get(tp)
        directory = (begun.directory if begun else self._directory_of.get(tp)) or self.directories.least_used()
        if directory.health.failure is not None:
            raise LogOffline(str(tp), directory.health.failure)
        try:
            self._folders.make_way(directory, tp, was_begun=begun is not None)
            self.begun[tp] = BegunLog(directory, topic_id)
            self.high_watermarks.pop(tp, None)
            self.checkpoints.forget(tp, directory)
            folder = self._folders.make(directory, tp, topic_id)
            self.removals.disown(self._disk, tp, directory.path)  # who waits no longer excuses that this one is gone
            log = begin_log(
                self._contexts[directory.path],
                folder,
                tp,
                topic_id,
                config if config is not None else self._topic_config_for(tp.topic),
                random=self._random,
                checkpoint_now=self.checkpoints.write_now,
            )
        except OSError as error:
            raise self._folders.failed(directory, tp, "creating its folder failed", error) from error
        self.logs[tp] = log
        self._own(tp, self.begun.pop(tp).directory)
        return log

    def assign_topic_id(self, tp: TopicPartition, topic_id: TopicId) -> None:
        """Record the id of a log that has none yet. InconsistentTopicId where it has another; KeyError: no such log."""
        log = self.logs[tp]
        if log.topic_id == topic_id:
            return
        if log.topic_id is not None:
            raise InconsistentTopicId(str(tp), log.topic_id, topic_id)
        try:
            self._folders.write_topic_id(self._directory_of[tp], tp, topic_id)
        except OSError as error:
            raise log.fail("writing partition.metadata failed", error) from error
        log.topic_id = topic_id

    def delete(self, tp: TopicPartition) -> None:
        """Take a log out of service: it is closed and its folder renamed, so a new one of that name may be created at
        once. Its files go `file.delete.delay.ms` later. KeyError: no such log; LogStorageError."""
        log, directory = self._in_service(tp)
        log.close()
        # First the folder: a log that is forgotten while its folder stands would come back.
        self._folders.doom(directory, tp, log.config.file_delete_delay_ms)
        self._forget(tp)

    def give_up(self, tp: TopicPartition) -> None:
        """Nobody wants the log any more that could not be created: what attempts have left of its folder goes. Nothing
        where there was none. LogStorageError."""
        begun = self.begun.get(tp)
        if begun is None:
            return
        directory = begun.directory
        if directory.health.failure is not None:
            raise LogOffline(str(tp), directory.health.failure)
        self._folders.remove_begun(directory, tp)
        del self.begun[tp]

    def set_aside(self, tp: TopicPartition, topic_id: TopicId, *, is_credited: bool) -> StrayLog:
        """Take a log that is not of this topic out of service, and keep it: its folder is renamed and never removed.
        Returns what to tell the operator. KeyError: no such log; LogStorageError from the disk.

        is_credited: others believe that this broker has the partition's records. Then they count as lost: that is noted
        durably for the next start, and the log is refused until nobody believes so any more."""
        log, directory = self._in_service(tp)
        stray = self._folders.keep_stray(directory, log, topic_id, is_credited=is_credited)
        self._forget(tp)
        if is_credited:
            self.refused[tp] = stray
        return stray

    def _in_service(self, tp: TopicPartition) -> tuple[Log, LogDirectory]:
        log, directory = self.logs[tp], self._directory_of[tp]
        if directory.health.failure is not None:
            raise LogOffline(str(tp), directory.health.failure)
        return log, directory

    def _own(self, tp: TopicPartition, directory: LogDirectory) -> None:
        if tp not in self._directory_of:
            directory.log_count += 1
        self._directory_of[tp] = directory

    def _forget(self, tp: TopicPartition) -> None:
        self._directory_of.pop(tp).log_count -= 1
        del self.logs[tp]
        self.checkpoints.note_gone()
        self.high_watermarks.pop(tp, None)

    def remove(self, doomed: Sequence[Doomed]) -> None:
        """Unlink what `removals.due` gave. Blocking."""
        remove(self._disk, doomed, self._report)

    # --- stop ---------------------------------------------------------------------------------------------------------

    def _write_last_words(self, directory: LogDirectory) -> None:
        self.checkpoints.write(directory)
        directory.write_segments(self.checkpoints.logs_in(directory))

    def flush_all(self) -> None:
        """Sync every log that is still good. Blocking, and the only user of the logs meanwhile. A log that fails is
        offline from then on; the others are flushed all the same."""
        for log in list(self.logs.values()):
            log.flush_quietly(final=False)

    def close(self, clean: bool) -> None:
        """Close every log. clean: sync them, write the checkpoints and leave the marker in each directory whose logs
        are all good. Blocking; high watermarks are checkpointed by the broker before."""
        broken: set[str] = set()
        for tp, log in self.logs.items():
            if clean and not log.flush_quietly(final=True):
                broken.add(self._directory_of[tp].path)
        if clean:
            self.directories.each_online(CHECKPOINT_FAILED, self._write_last_words)
        for log in self.logs.values():  # while the directories are locked: nobody else writes to the files
            log.close()
        self.directories.mark_unsynced()
        for directory in self.directories:
            try:
                directory.close(clean=clean and directory.path not in broken and directory.health.failure is None)
            except OSError as error:
                self._report("log-dir-close-failed", path=directory.path, error=str(error))
