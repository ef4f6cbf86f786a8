"""A log that another program may have written: looked through before anything in its folder is changed.

Every header of every segment is read, also of those that wait for their name (`.swap`), up to the first that makes the
log refused: for what is not served (`unserved`), for a format that came later, or for offsets or epochs that cannot be
where they stand although their batch is whole. (Where an operator deletes a partition's state, Kafka's epochs begin at
0 again; Kafkas before 1.1 let segments span more offsets than an index can tell.) Where the headers of a segment cannot
be followed to its end, nobody knows what stands behind: refused, too, but for a torn end of the log, which is
recovery's (`verdicts`).

A log whose topic has a remote tier is refused unseen: its log start and its first epochs are of records that lie there,
and a Kafka that finds the one raised deletes them.

A Kafka that was killed left its hand in each log that it had open: the indexes of the last segment have their full size
then, with zeros behind the entries. Ours end with an entry.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from strandline.runtime.disk import Disk, FolderEntry
from strandline.storage.errors import (
    ContradictoryLog,
    DamagedLog,
    OldFormat,
    TieredLog,
    TransactionalLog,
)
from strandline.storage.recovery.verdicts import Fault, Origin, Verdict
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import ScannedSegment, ScanTask
from strandline.storage.segments.segment import LOG_SUFFIX, Segment
from strandline.storage.segments.time_index import TimeIndex
from strandline.storage.segments.unserved import TRANSACTION

if TYPE_CHECKING:
    from strandline.storage.recovery.known_state import KnownState

_SEGMENT = re.compile(r"[0-9]{20}\.log(\.swap)?")


def look_through(
    disk: Disk, folder: str, entries: Sequence[FolderEntry], known: KnownState, *, is_tiered: bool
) -> Generator[list[ScanTask], Sequence[ScannedSegment], dict[str, str]]:
    """Part of `recovery.load_steps`. Returns path -> fault of each .log that could not be followed to its end; nothing
    where no other program can have written here. TieredLog, TransactionalLog, OldFormat,
    ContradictoryLog; OSError from the disk."""
    if is_tiered:
        raise TieredLog(folder)
    is_foreign = known.origin is not Origin.OURS or (known.listed is None and bears_kafkas_hand(disk, folder, entries))
    tasks = [
        ScanTask(f"{folder}/{entry.name}", int(entry.name[:20]), entry.size_bytes, 0, False, headers_only=True)
        for entry in entries
        if is_foreign and not entry.is_dir and _SEGMENT.fullmatch(entry.name)
    ]
    unread: dict[str, str] = {}
    epoch, done = -1, 0
    while done < len(tasks):
        # Ever more at once: of a log that is refused for its first segment the others are not read.
        some = tasks[done : 2 * done + 1]
        for task, found in zip(some, (yield some), strict=True):
            refuse_unserved(folder, [found])
            if task.path.endswith(LOG_SUFFIX) and known.judge(Fault.CONTRADICTION, 0) is Verdict.REFUSE:
                epoch = _rising(folder, task, found, epoch)
            if found.fault:
                unread[task.path] = found.fault
        done += len(some)
    return unread


def _rising(folder: str, task: ScanTask, found: ScannedSegment, epoch: int) -> int:
    """The epoch of the last batch. epoch: of the one before this segment. ContradictoryLog."""
    why = found.contradiction
    if not why and found.epochs and found.epochs[0][0] < epoch:
        why = f"leader epoch {found.epochs[0][0]} stands after {epoch}"
    if why:
        raise ContradictoryLog(folder, f"in {task.path} {why}")
    return found.last_epoch if found.epochs else epoch


def bears_kafkas_hand(disk: Disk, folder: str, entries: Sequence[FolderEntry]) -> bool:
    """Whether a Kafka was killed while it had this log. OSError from the disk."""
    logs = (entry.name for entry in entries if entry.name.endswith(LOG_SUFFIX) and _SEGMENT.fullmatch(entry.name))
    last = max(logs, default="")
    sizes = {entry.name: entry.size_bytes for entry in entries}
    for index in (OffsetIndex, TimeIndex):
        name = last.removesuffix(LOG_SUFFIX) + index.SUFFIX
        if sizes.get(name, 0) >= index.ENTRY_BYTES:
            with closing(disk.open(f"{folder}/{name}", read_only=True)) as file:
                if not any(file.pread(index.ENTRY_BYTES, file.size() - index.ENTRY_BYTES)):
                    return True
    return False


def refuse_unserved(folder: str, found: Iterable[ScannedSegment]) -> None:
    """TransactionalLog, OldFormat."""
    for each in found:
        if each.unserved:
            magic, offset = each.unserved
            raise TransactionalLog(folder, offset) if magic == TRANSACTION else OldFormat(folder, offset, magic)


def refuse_unread(
    folder: str, segments: Sequence[Segment], first_unsafe: int, unread: Mapping[str, str], known: KnownState
) -> None:
    """DamagedLog where a segment was not followed to its end that nobody checks, or that may not be cut. Those from
    number `first_unsafe` on are checked, and so is the end of the last one in any case. unread: of `look_through`."""
    unchecked = min(first_unsafe, len(segments) - 1)
    for place, segment in enumerate(segments):
        path = segment.file.path
        if path in unread:
            fault = Fault.TAIL if segment is segments[-1] else Fault.INSIDE
            if place < unchecked or known.judge(fault, segment.base_offset) is Verdict.REFUSE:
                raise DamagedLog(folder, f"another program may have written {path}, and {unread[path]}")
