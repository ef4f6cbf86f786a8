"""What an earlier life left half-done in the folder of a log: removed or finished before the log is loaded.

`.deleted`, `.cleaned` and `.tmp` go, by full names only; a finished `.swap` replaces the segments it was made from.

Before that the log is refused where a folder or a link has the name of one of its files: links are not followed, a
Kafka follows them, and nobody knows what either is there for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from strandline.runtime.disk import FolderEntry
from strandline.storage.context import StorageContext
from strandline.storage.errors import DamagedLog, OccupiedName
from strandline.storage.offset_index import MAX_RELATIVE_OFFSET
from strandline.storage.scan import CheckedPrefix, check_batches
from strandline.storage.segment import LOG_SUFFIX

SEGMENT_FILE = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex)(\.swap)?")
_LEFTOVER = re.compile(
    r"[0-9]{20}\.(log|index|timeindex|txnindex|snapshot)\.(deleted|cleaned)"
    r"|(leader-epoch-checkpoint|partition\.metadata|[0-9]{20}\.snapshot)(\.[0-9]+)?\.tmp"
)
_NAMED = re.compile(
    r"[0-9]{20}\.(log|index|timeindex|txnindex|snapshot)|leader-epoch-checkpoint|partition\.metadata", re.ASCII
)
_LINKED = re.compile(rf"({_NAMED.pattern})(\.swap)?", re.ASCII)
"""A folder called `.swap` is in nobody's way; a link would take a segment's place."""
_LEFTOVER_SUFFIXES = (".deleted", ".cleaned", ".tmp", ".swap")


def refuse_other_than_files(folder: str, entries: Iterable[FolderEntry]) -> None:
    """OccupiedName."""
    for entry in entries:
        if (entry.is_dir and _NAMED.fullmatch(entry.name)) or (entry.is_link and _LINKED.fullmatch(entry.name)):
            what = "this is a folder" if entry.is_dir else "this is a link, and links are not followed"
            raise OccupiedName(f"{folder}/{entry.name}", what)


def is_leftover(name: str) -> bool:
    """Whether we or a Kafka name so what is to go; what else somebody keeps in the folder stays."""
    return _LEFTOVER.fullmatch(name) is not None


def tidy(context: StorageContext, folder: str, entries: list[FolderEntry]) -> list[FolderEntry]:
    """What is in the folder once the leftovers are gone."""
    ending = [entry for entry in entries if entry.name.endswith(_LEFTOVER_SUFFIXES)]
    if not ending:
        return entries
    for entry in ending:
        if entry.is_dir:  # none of ours, whatever it is called
            context.report("log-unknown-file", path=f"{folder}/{entry.name}")
    _remove_leftovers(context, folder, [entry.name for entry in entries if not entry.is_dir])
    return context.disk.scandir(folder)


def _remove_leftovers(context: StorageContext, folder: str, names: Sequence[str]) -> None:
    disk = context.disk
    # A `.cleaned` file says that what was to replace this segment and younger ones is not complete: their swaps count
    # for nothing either. Older ones do: they were taken over before it was begun, and what they replace may be gone.
    cleaned = (name for name in names if name.endswith(".cleaned") and is_leftover(name))
    first_unfinished = min(cleaned, default="~")[:20]
    swaps = {name: parts for name in names if (parts := SEGMENT_FILE.fullmatch(name)) and parts[3]}
    unfinished = [name for name in swaps if name[:20] >= first_unfinished]
    ends = {
        name: _end_offset(context, folder, name, int(parts[1]))
        for name, parts in swaps.items()
        if parts[2] == LOG_SUFFIX and name not in unfinished
    }
    for name in names:
        if is_leftover(name) or name in unfinished:
            disk.unlink(f"{folder}/{name}")
        elif name.endswith(_LEFTOVER_SUFFIXES) and name not in swaps:
            context.report("log-unknown-file", path=f"{folder}/{name}")
    _finish_swaps(context, folder, [name for name in swaps if name not in unfinished], ends)


def _finish_swaps(context: StorageContext, folder: str, names: Iterable[str], ends: Mapping[str, int]) -> None:
    """Each `<base>.log.swap` holds what the segments of its offset range become: those go, it takes its place. ends: of
    each the log end offset."""
    disk = context.disk
    for name in names:
        if name in ends:
            base_offset, end_offset = int(name[:20]), ends[name]
            for other in disk.listdir(folder):
                old = SEGMENT_FILE.fullmatch(other)
                if old and not old[3] and base_offset <= int(old[1]) < max(end_offset, base_offset + 1):
                    disk.unlink(f"{folder}/{other}")
            disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix('.swap')}")
            context.report("log-swap-finished", path=f"{folder}/{name}")
    for name in names:  # an index is built anew sooner than trusted
        if disk.exists(f"{folder}/{name}") and not name.endswith(".log.swap"):
            disk.unlink(f"{folder}/{name}")


def _end_offset(context: StorageContext, folder: str, name: str, base_offset: int) -> int:
    """DamagedLog where the file is not sound to its end: what it replaces may be all that there is."""
    file = context.disk.open(f"{folder}/{name}", read_only=True)
    try:
        prefix = CheckedPrefix(0, base_offset, -1, max_offset=base_offset + MAX_RELATIVE_OFFSET)
        for _ in check_batches(file, file.size(), prefix):
            pass
    finally:
        file.close()
    if prefix.fault:
        raise DamagedLog(folder, f"{name} is damaged at byte {prefix.end_position}: {prefix.fault}")
    return prefix.next_offset
