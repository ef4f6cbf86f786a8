"""What an orderly stop leaves in a log directory, and what the next start may conclude from it.

```
.kafka_cleanshutdown        Kafka's: where it stands, a Kafka recovers no log of the directory, whatever its name
.strandline_cleanshutdown   ours, the same content: it speaks for the logs in the list of segments only
```
Kafka's name is used only where every folder is vouched for: where each is a log that was recovered and stopped in
order, or waits for its removal. A log that was refused, a move that a Kafka had begun (`-future`), a folder that was
put aside (`-stray`), a link, or one that nobody knows has not been recovered by us: then only our own file is left,
and a Kafka checks all. A Kafka takes its marker away when it starts, and leaves ours. So the next start of ours finds

    .kafka_cleanshutdown      .strandline_cleanshutdown
    with our checksum         any                        nobody was here since our orderly stop
    without                   any                        a Kafka stopped in order
    none                      says that both were left   a Kafka was here, and did not stop in order
    none                      says that it is alone      our orderly stop, if checkpoints and segments are as it says
    none                      none                       no orderly stop; a Kafka was here where the high watermarks
                                                         are not ours (`checkpoint_files`)

Order: Kafka's is written first and removed last. A crash in between leaves it alone, with our checksum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import Disk, read_file
from strandline.storage.disk.checkpoints import Report, write_atomically
from strandline.storage.disk.removal import is_doomed_folder
from strandline.storage.manager.checkpoint_files import are_watermarks_ours, checksum
from strandline.storage.manager.segment_manifest import (
    MANIFEST,
    ListedLog,
    OrderlyStop,
    SegmentSizes,
    decode_marker,
    read_manifest,
)
from strandline.storage.segments.segment import LOG_SUFFIX

CLEAN_MARKER = ".kafka_cleanshutdown"
OUR_MARKER = ".strandline_cleanshutdown"


@dataclass(frozen=True, slots=True)
class LastStop:
    """Of the directory, before this start."""

    was_clean: bool = False
    """Whoever had it last stopped in order."""
    was_kafkas: bool = False
    """A Kafka had it last."""
    listed: Mapping[TopicPartition, ListedLog] = field(default_factory=dict)
    """The logs of an orderly stop of ours."""
    checkpoints: Mapping[str, int | None] | None = None
    """Their checksums then; None where nobody wrote them down."""
    speaks_for_unlisted: bool = False
    """For logs that stand in no list, too: a Kafka's, or one of ours whose list is damaged."""

    def vouches_for(self, tp: TopicPartition) -> bool:
        """Whether the log stopped in order. One that stands in no list of ours was put there since."""
        return self.was_clean and (self.speaks_for_unlisted or tp in self.listed)


def read_last_stop(disk: Disk, path: str, report: Report) -> LastStop:
    """Of the directory at `path`. Blocking. OSError from the disk."""
    if disk.exists(f"{path}/{CLEAN_MARKER}"):
        stop = _read(disk, f"{path}/{CLEAN_MARKER}")
        if stop is None:
            return LastStop(was_clean=True, was_kafkas=True, speaks_for_unlisted=True)
        listed = read_manifest(disk, f"{path}/{MANIFEST}", stop.segments_crc, report)
        return LastStop(True, False, listed or {}, stop.checkpoints, speaks_for_unlisted=listed is None)
    stop = _read(disk, f"{path}/{OUR_MARKER}") if disk.exists(f"{path}/{OUR_MARKER}") else None
    if stop is None:
        was_here = not are_watermarks_ours(disk, path)
        if was_here:
            report("log-dir-used-by-another", path=path)
        return LastStop(was_kafkas=was_here)
    listed = read_manifest(disk, f"{path}/{MANIFEST}", stop.segments_crc, report)
    if stop.is_for_all or listed is None or _is_changed(disk, path, stop, listed):
        report("log-dir-used-by-another", path=path)
        return LastStop(was_kafkas=True)
    return LastStop(True, False, listed, stop.checkpoints)


def take_markers(disk: Disk, path: str) -> None:
    """Remove them, durably. Blocking. OSError from the disk."""
    found = [name for name in (OUR_MARKER, CLEAN_MARKER) if disk.exists(f"{path}/{name}")]
    for name in found:
        disk.unlink(f"{path}/{name}")
    if found:
        disk.fsync_dir(path)


def leave_markers(disk: Disk, path: str, content: bytes, *, for_kafka: bool) -> None:
    """After everything else was written, durably. Blocking. OSError from the disk."""
    for name in (CLEAN_MARKER, OUR_MARKER) if for_kafka else (OUR_MARKER,):
        write_atomically(disk, f"{path}/{name}", content)


def unvouched_folders(disk: Disk, path: str, vouched: Collection[TopicPartition]) -> list[str]:
    """The folders of the directory for which nobody can speak. vouched: the logs that were recovered and stopped in
    order. Blocking. OSError from the disk."""
    known = {str(tp) for tp in vouched}
    found = [entry for entry in disk.scandir(path) if entry.is_dir or entry.is_link]  # a Kafka follows links
    return [entry.name for entry in found if entry.is_link or not (entry.name in known or is_doomed_folder(entry.name))]


def _read(disk: Disk, path: str) -> OrderlyStop | None:
    try:
        return decode_marker(read_file(disk, path))
    except ValueError:  # absurdly large
        return None


def _is_changed(disk: Disk, path: str, stop: OrderlyStop, listed: Mapping[TopicPartition, ListedLog]) -> bool:
    """Whether somebody changed a checkpoint or a log since."""
    if not stop.checkpoints or any(checksum(disk, f"{path}/{name}") != crc for name, crc in stop.checkpoints.items()):
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
