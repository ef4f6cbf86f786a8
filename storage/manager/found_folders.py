"""What lies in a log directory, by its names, as a start finds it.

A folder with a log's name is a log, or waits for its removal. What only has the name is in the way of that log, which
is refused for it: links are not followed, since they may lead to the log of any topic, and a Kafka follows them. The
metadata log of a KRaft controller lies among the others while a Kafka migrates; only that Kafka can read it.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import Disk
from strandline.storage.disk.checkpoints import Report
from strandline.storage.disk.removal import is_doomed_folder, partition_of_folder
from strandline.storage.errors import NotALog

KRAFT_METADATA = "__cluster_metadata"
NO_FOLDER = "no folder, and links are not followed"


class FoundFolders(NamedTuple):
    partitions: list[TopicPartition]
    """Whose name stands there."""
    not_logs: dict[TopicPartition, NotALog]
    """Those of them that must not be opened."""
    doomed: list[str]
    """Paths of folders that wait for their removal."""


def find_folders(disk: Disk, path: str, report: Report) -> FoundFolders:
    """In the directory at `path`. Blocking. OSError from the disk."""
    found = FoundFolders([], {}, [])
    for entry in disk.scandir(path):
        if not (entry.is_dir or entry.is_link):
            continue
        tp = partition_of_folder(entry.name)
        if tp is not None:
            found.partitions.append(tp)
            if not entry.is_dir:
                found.not_logs[tp] = NotALog(f"{path}/{entry.name}", NO_FOLDER)
            elif tp.topic == KRAFT_METADATA:
                found.not_logs[tp] = NotALog(f"{path}/{entry.name}", "the metadata log of a KRaft controller")
        elif entry.is_dir and is_doomed_folder(entry.name):
            found.doomed.append(f"{path}/{entry.name}")
        else:  # lost+found, a backup by hand, a stray log: not ours, so left alone
            report("log-dir-unknown-folder", path=f"{path}/{entry.name}")
    return found
