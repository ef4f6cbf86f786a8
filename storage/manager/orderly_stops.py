"""What an orderly stop leaves in a log directory, and what the next start may conclude from it.

```
.kafka_cleanshutdown   Kafka's: where it stands, a Kafka recovers no log of the directory, whatever its name
.strandline_state      ours (`directory_state`), the same content: it speaks for the logs in the list of segments only
```
Kafka's name is used only where every folder is vouched for: where each is a log that was recovered and stopped in
order, or waits for its removal. A log that was refused, a move that a Kafka had begun (`-future`), a folder that was
put aside (`-stray`), a link, or one that nobody knows has not been recovered by us: then only our own file is left,
and a Kafka checks all. A Kafka takes its marker away when it starts, and leaves ours. So the next start of ours finds

    .kafka_cleanshutdown   .strandline_state
    with our state         any                          nobody was here since our orderly stop
    without                any                          a Kafka stopped in order
    none                   of a stop, told to a Kafka   a Kafka was here, and did not stop in order
    none                   of a stop, told to nobody    our orderly stop, if checkpoints and segments are as it says
    none                   of a life                    no orderly stop; a Kafka was here where the high watermarks
                                                        are not ours (`guarded_checkpoints`)

Order: Kafka's is written first and removed last. A crash in between leaves it, with our state in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import Disk
from strandline.storage.disk.checkpoints import Checksums, Report, read_guarded, write_atomically
from strandline.storage.disk.removal import is_doomed_folder
from strandline.storage.manager.directory_state import (
    SEGMENTS_LIST,
    STATE,
    DirectoryState,
    ListedLog,
    SegmentSizes,
    encode_state,
    read_list,
    read_state,
)
from strandline.storage.segments.segment import LOG_SUFFIX

CLEAN_MARKER = ".kafka_cleanshutdown"


@dataclass(frozen=True, slots=True)
class LastStop:
    """Of the directory, before this start."""

    was_clean: bool = False
    """Whoever had it last stopped in order."""
    was_kafkas: bool = False
    """A Kafka had it last."""
    listed: Mapping[TopicPartition, ListedLog] = field(default_factory=dict)
    """The logs of an orderly stop of ours."""
    checkpoints: Mapping[str, Checksums] = field(default_factory=dict)
    """What of them is ours, as far as somebody wrote that down."""
    speaks_for_unlisted: bool = False
    """For logs that stand in no list, too: a Kafka's, or one of ours whose list is damaged."""

    def vouches_for(self, tp: TopicPartition) -> bool:
        """Whether the log stopped in order. One that stands in no list of ours was put there since."""
        return self.was_clean and (self.speaks_for_unlisted or tp in self.listed)


def read_last_stop(disk: Disk, path: str, report: Report) -> LastStop:
    """Of the directory at `path`. Blocking. OSError from the disk."""
    if disk.exists(f"{path}/{CLEAN_MARKER}"):
        state = read_state(disk, f"{path}/{CLEAN_MARKER}")
        if state is None:
            return LastStop(was_clean=True, was_kafkas=True, speaks_for_unlisted=True)
        listed = read_list(disk, f"{path}/{SEGMENTS_LIST}", state.segments_crc, report)
        return LastStop(True, False, listed or {}, state.checkpoints, speaks_for_unlisted=listed is None)
    if not disk.exists(f"{path}/{STATE}"):
        return LastStop()
    state, listed = read_state(disk, f"{path}/{STATE}"), {}
    if state is not None and (was_clean := state.segments_crc is not None):
        listed = read_list(disk, f"{path}/{SEGMENTS_LIST}", state.segments_crc, report)
    if state is None or state.is_for_all or listed is None or _is_changed(disk, path, state, listed):
        report("log-dir-used-by-another", path=path)
        return LastStop(was_kafkas=True)
    return LastStop(was_clean, False, listed, state.checkpoints)


def take_marker(disk: Disk, path: str) -> None:
    """Remove Kafka's, durably. Blocking. OSError from the disk."""
    if disk.exists(f"{path}/{CLEAN_MARKER}"):
        disk.unlink(f"{path}/{CLEAN_MARKER}")
        disk.fsync_dir(path)


def leave_markers(disk: Disk, path: str, state: DirectoryState) -> None:
    """After everything else was written, durably. Blocking. OSError from the disk."""
    for name in (CLEAN_MARKER, STATE) if state.is_for_all else (STATE,):
        write_atomically(disk, f"{path}/{name}", encode_state(state))


def unvouched_folders(disk: Disk, path: str, vouched: Collection[TopicPartition]) -> list[str]:
    """The folders of the directory for which nobody can speak. vouched: the logs that were recovered and stopped in
    order. Blocking. OSError from the disk."""
    known = {str(tp) for tp in vouched}
    found = [entry for entry in disk.scandir(path) if entry.is_dir or entry.is_link]  # a Kafka follows links
    return [entry.name for entry in found if entry.is_link or not (entry.name in known or is_doomed_folder(entry.name))]


def _is_changed(disk: Disk, path: str, state: DirectoryState, listed: Mapping[TopicPartition, ListedLog]) -> bool:
    """Whether somebody changed a checkpoint or a log since."""
    if not all(read_guarded(disk, f"{path}/{name}", ours).is_believed for name, ours in state.checkpoints.items()):
        return True
    return any(_sizes(disk, f"{path}/{tp}") != list(log.segments) for tp, log in listed.items())


def _sizes(disk: Disk, folder: str) -> SegmentSizes:
    if not disk.is_dir(folder):
        return []
    try:
        entries = disk.scandir(folder)
    except PermissionError:  # nobody can say that it is as it was
        return []
    sizes = {entry.name.removesuffix(LOG_SUFFIX): entry.size_bytes for entry in entries}
    return sorted((int(stem), size_bytes) for stem, size_bytes in sizes.items() if stem.isdecimal())
