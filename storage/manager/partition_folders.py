"""Folders of partitions that get out of a log's way: to be removed in a while (`removal`), or kept for an operator.

Kept is what nobody asked to delete. A log whose topic id is not its topic's may be of a topic that was deleted while
this broker was away, or a bit of its `partition.metadata` flipped: that cannot be told from here, and it may be the
last copy. So its folder becomes `<topic>-<partition>.<unique>-stray`, which no start loads or removes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition
from strandline.runtime.disk import Disk, FolderEntry
from strandline.storage.disk.checkpoints import PARTITION_METADATA, Report, encode_topic_id, write_partition_metadata
from strandline.storage.disk.log_health import LogHealth
from strandline.storage.disk.removal import Removals, delete_folder_name, partition_of_folder, stray_folder_name
from strandline.storage.errors import LogStorageError, NotALog, StrayLog
from strandline.storage.log.log import Log
from strandline.storage.manager.found_folders import NO_FOLDER
from strandline.storage.manager.log_directories import META_FAILED
from strandline.storage.manager.log_directory import LogDirectory
from strandline.storage.recovery.interrupted_changes import SEGMENT_FILE, is_leftover

if TYPE_CHECKING:
    import random


class PartitionFolders:
    """Of all directories of a broker. Used on the event loop; LogStorageError from the disk."""

    def __init__(self, disk: Disk, removals: Removals, stream: random.Random, report: Report) -> None:
        self._disk = disk
        self._removals = removals
        self._random = stream
        self._report = report

    def doom(self, directory: LogDirectory, tp: TopicPartition, delay_ms: int) -> None:
        """Rename a partition's folder to one that is removed in a while, or after the next start."""
        target = f"{directory.path}/{delete_folder_name(tp, self._unique())}"
        try:
            self._removals.put_aside_folder(self._disk, directory.folder_of(tp), target, delay_ms)
        except OSError as error:
            raise self.failed(directory, tp, "renaming its folder for deletion failed", error) from error

    def keep(self, directory: LogDirectory, tp: TopicPartition) -> str:
        """Rename a partition's folder, durably, to one that is left alone; returns its path."""
        kept_in = f"{directory.path}/{stray_folder_name(tp, self._unique())}"
        try:
            self._disk.rename(directory.folder_of(tp), kept_in)
            self._disk.fsync_dir(directory.path)
        except OSError as error:
            raise self.failed(directory, tp, "renaming its folder failed", error) from error
        return kept_in

    def keep_stray(self, directory: LogDirectory, log: Log, topic_id: TopicId, *, is_credited: bool) -> StrayLog:
        """Close a log that is not of this topic, and keep it; see `LogManager.set_aside`."""
        tp = log.topic_partition
        if is_credited:  # first: once the folder has another name nothing else tells of the loss
            try:
                directory.note_late_loss()
            except OSError as error:
                raise self.failed(directory, tp, META_FAILED, error) from error
        log.close()
        kept_in = self.keep(directory, tp)
        found, expected = encode_topic_id(log.topic_id or NO_TOPIC_ID), encode_topic_id(topic_id)
        return StrayLog(directory.folder_of(tp), found, expected, kept_in, is_credited=is_credited)

    def make_way(self, directory: LogDirectory, tp: TopicPartition, *, was_begun: bool) -> None:
        """A log is to be created where a folder may stand that is none of ours any more: its records must not become
        the new topic's. was_begun: an attempt to create it may have left the folder, which is used again then, so that
        attempts without room leave no more than one. NotALog; OSError from the disk."""
        folder = directory.folder_of(tp)
        if not self._disk.exists(folder):
            return
        if not self._disk.is_dir(folder):
            raise NotALog(folder, NO_FOLDER)
        entries = self._disk.scandir(folder)
        if was_begun and all(map(_is_of_an_attempt, entries)):
            for entry in entries:
                self._disk.unlink(f"{folder}/{entry.name}")
        else:  # somebody put it there
            self._report("log-stray", log=folder, kept_in=self.keep(directory, tp))

    def remove_begun(self, directory: LogDirectory, tp: TopicPartition) -> None:
        """What attempts to create a log have left; what somebody put there is kept aside."""
        folder = directory.folder_of(tp)
        try:
            self.make_way(directory, tp, was_begun=True)
            if self._disk.exists(folder):
                self._disk.rmdir(folder)
        except OSError as error:
            raise self.failed(directory, tp, "removing a folder that was begun failed", error) from error

    def make(self, directory: LogDirectory, tp: TopicPartition, topic_id: TopicId) -> str:
        """The folder of a new log; returns its path. OSError from the disk."""
        folder = directory.folder_of(tp)
        self._disk.makedirs(folder)
        if topic_id != NO_TOPIC_ID:
            self.write_topic_id(directory, tp, topic_id)
        return folder

    def write_topic_id(self, directory: LogDirectory, tp: TopicPartition, topic_id: TopicId) -> None:
        """Replace the `partition.metadata` of a log. OSError from the disk."""
        write_partition_metadata(self._disk, f"{directory.folder_of(tp)}/{PARTITION_METADATA}", topic_id)

    def failed(self, directory: LogDirectory, tp: TopicPartition, what: str, error: OSError) -> LogStorageError:
        """Outside any log the disk failed: the error to raise."""
        return LogHealth(str(tp), self._report, directory.health).fail(what, error)

    def _unique(self) -> str:
        return self._random.randbytes(16).hex()


def _is_of_an_attempt(entry: FolderEntry) -> bool:
    """Whether a creation that failed may have left this file, which says nothing."""
    is_unfinished = is_leftover(entry.name) and entry.name.startswith(PARTITION_METADATA)
    is_empty = entry.size_bytes == 0 and SEGMENT_FILE.fullmatch(entry.name) is not None
    return (entry.name == PARTITION_METADATA or is_unfinished or is_empty) and entry.is_file


def topics_in(disk: Disk, paths: Sequence[str]) -> list[str]:
    """Topics whose logs lie in these log directories, which need not be open. Blocking. Of one that cannot be read none
    are known."""
    topics: set[str] = set()
    for path in paths:
        try:
            topics |= {tp.topic for tp in map(partition_of_folder, disk.listdir(path)) if tp is not None}
        except OSError:  # opening it tells
            continue
    return sorted(topics)
