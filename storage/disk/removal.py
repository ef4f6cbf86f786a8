"""What is to be removed from the disk: out of the way at once, unlinked `file.delete.delay.ms` later in a thread.

    put_aside(files of a segment)  ──rename──>  <name>.deleted           ┐ due(now_ms): the delay is over ──> remove
    put_aside_folder(partition)    ──rename──>  <partition>.<id>-delete  ┘
    (a log of another topic)       ──rename──>  <partition>.<id>-stray   an operator's: never removed, nor read again

From the rename on, what was put aside counts for nothing: a start removes the `.deleted` files of each log that it does
not refuse (`recovery/interrupted_changes`), and `-delete` folders are queued again. Who still sends from an open file
may finish. The delay leaves an operator time to take back what a wrong configuration removed, and spreads the unlinking
of large files.
Order, so that a crash between any two renames leaves a log without holes:
* Of one segment the .log goes first, since it is what makes a segment: indexes without it are removed at a start.
* Of a log's head the oldest segment goes first: what is left begins at a higher first base offset, which is a lower
  bound of the log start whatever the checkpoint says. (Tails are cut newest first: `segment_list`.)

The renames happen on the event loop, where a log is changed: done in a thread, one could meet a new file of the same
name (a log that was truncated fully, a partition that was deleted and created again) and take that away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from strandline.protocol.topic_name import InvalidTopicName, check_topic_name
from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import Disk
from strandline.storage.disk.checkpoints import Report, no_report

DELETED_SUFFIX = ".deleted"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
DISOWNED = "~"
"""Behind the topic in the name of a `-delete` folder: no topic's name has it."""
MAX_NAME_BYTES = 255
_PARTITION_FOLDER = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})", re.ASCII)
_DOOMED = re.compile(r".+-[0-9]+\.[0-9a-f]{32}" + DELETE_SUFFIX)
_TEMPORARY = re.compile(
    r"((replication|recovery-point|log-start|cleaner)-offset-checkpoint|meta\.properties|\.room|\.strandline_(segments|state)|\.kafka_cleanshutdown)"
    r"(\.[0-9]+)?\.tmp"
)


@dataclass(slots=True)
class Doomed:
    """A file or folder that waits."""

    path: str
    is_folder: bool
    delay_ms: int
    due_ms: int | None = None
    """By the clock of `due`, from when it was first asked: nothing here reads a clock."""


class Removals:
    """What waits for its removal, over all logs of a broker. Changed on the event loop only."""

    def __init__(self) -> None:
        self._doomed: list[Doomed] = []

    def __len__(self) -> int:
        return len(self._doomed)

    def put_aside(self, disk: Disk, paths: Iterable[str], delay_ms: int) -> None:
        """Rename these files, in this order; one that is not there is passed over. OSError from the disk."""
        for path in paths:
            try:
                disk.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue
            self._doomed.append(Doomed(path + DELETED_SUFFIX, False, delay_ms))

    def put_aside_folder(self, disk: Disk, path: str, target: str, delay_ms: int) -> None:
        """Rename a partition's folder. OSError from the disk."""
        disk.rename(path, target)
        self.add_folder(target, delay_ms)

    def add_folder(self, path: str, delay_ms: int) -> None:
        """One that has its name already: an earlier life put it aside."""
        self._doomed.append(Doomed(path, True, delay_ms))

    def holds_folder_of(self, tp: TopicPartition, directory: str) -> bool:
        """Whether a folder that was this partition's, in the log directory at this path, waits here."""
        folders = (doomed.path.rpartition("/") for doomed in self._doomed if doomed.is_folder)
        return any(name == _doomed_name(tp, name) for path, _, name in folders if path == directory)

    def disown(self, disk: Disk, tp: TopicPartition, directory: str) -> None:
        """Another log is made in the place of this partition's: if its folder vanishes, those that wait here are no
        reason for that. So they get a name that is no partition's. OSError from the disk."""
        for doomed in self._doomed:
            path, _, name = doomed.path.rpartition("/")
            if doomed.is_folder and path == directory and name == _doomed_name(tp, name):
                target = f"{path}/{_doomed_name(tp, name, DISOWNED)}"
                disk.rename(doomed.path, target)
                doomed.path = target

    def due(self, now_ms: int) -> list[Doomed]:
        """What has waited long enough, taken off the list; `remove` it. now_ms: of any clock that does not go back."""
        ripe: list[Doomed] = []
        waiting: list[Doomed] = []
        for doomed in self._doomed:
            if doomed.due_ms is None:
                doomed.due_ms = now_ms + doomed.delay_ms
            (ripe if doomed.due_ms <= now_ms else waiting).append(doomed)
        self._doomed = waiting
        return ripe


def remove(disk: Disk, doomed: Iterable[Doomed], report: Report = no_report) -> None:
    """Unlink what `Removals.due` gave. Blocking. What cannot be unlinked is reported: it goes at the next start."""
    for each in doomed:
        try:
            if each.is_folder:
                _remove_folder(disk, each.path)
            else:
                disk.unlink(each.path)
        except FileNotFoundError:  # its folder was deleted meanwhile, or the log restarted at the same offset
            continue
        except OSError as error:
            report("removal-failed", path=each.path, error=str(error))


def _remove_folder(disk: Disk, path: str) -> None:
    for name in disk.listdir(path):
        disk.unlink(f"{path}/{name}")
    disk.rmdir(path)


def partition_of_folder(name: str) -> TopicPartition | None:
    """Whose log lies in a folder of this name; None for one of any other name: nothing of ours, or put aside."""
    parts = _PARTITION_FOLDER.fullmatch(name)
    if parts is None or int(parts[2]) >= 2**31:
        return None
    try:
        check_topic_name(parts[1])
    except InvalidTopicName:
        return None
    return TopicPartition(parts[1], int(parts[2]))


def is_doomed_folder(name: str) -> bool:
    """Whether a folder was renamed for its removal, by us or a Kafka, and not by somebody who likes the word."""
    return _DOOMED.fullmatch(name) is not None


def is_temporary(name: str) -> bool:
    """Whether a crash, ours or a Kafka's, left this file of a log directory before it got its name."""
    return _TEMPORARY.fullmatch(name) is not None


def delete_folder_name(tp: TopicPartition, unique_hex: str) -> str:
    """What a log's folder is called until it is removed: `<topic>-<partition>.<unique>-delete`."""
    return _folder_name(tp, unique_hex, DELETE_SUFFIX)


def _doomed_name(tp: TopicPartition, like: str, mark: str = "") -> str:
    """The same with the unique part of that name."""
    return _folder_name(tp, like.removesuffix(DELETE_SUFFIX).rpartition(".")[2], DELETE_SUFFIX, mark)


def stray_folder_name(tp: TopicPartition, unique_hex: str) -> str:
    """What a folder is called that is kept aside: `<topic>-<partition>.<unique>-stray`, as newer Kafka does."""
    return _folder_name(tp, unique_hex, STRAY_SUFFIX)


def _folder_name(tp: TopicPartition, unique_hex: str, suffix: str, mark: str = "") -> str:
    """The topic's name is cut so that the whole stays within a file system's 255 bytes."""
    ending = f"{mark}-{tp.partition}.{unique_hex}{suffix}"
    return tp.topic[: MAX_NAME_BYTES - len(ending)] + ending
