"""What an earlier life left half-done in the folder of a log: understood before the log is judged, resolved afterwards.

`.deleted`, `.cleaned` and `.tmp` go, by full names only; a finished `.swap` replaces the segments it was made from. A
log that is refused keeps all of it: what an operator misses may be there (a `.deleted` has only lost its name). So
`find_leftovers` only reads, and says what the folder is once they are resolved; whoever loads the log judges that, and
then resolves them.

Before that the log is refused where a folder, a link, a pipe, a socket or a device has the name of one of its files:
links are not followed, a Kafka follows them, and nobody knows what any of them is there for. So it is where a file is
named by an offset that no record can have: by its name the log would end there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from strandline.protocol.records.batch import BatchHeader
from strandline.runtime.disk import FolderEntry, remove_files
from strandline.storage.disk.checkpoints import MAX_OFFSET
from strandline.storage.disk.storage_context import StorageContext
from strandline.storage.errors import DamagedLog, NotALog, OccupiedName
from strandline.storage.segments.offset_index import MAX_RELATIVE_OFFSET
from strandline.storage.segments.scan import CheckedPrefix, check_batches, walk_headers
from strandline.storage.segments.segment import LOG_SUFFIX

SWAP_SUFFIX = ".swap"
SEGMENT_FILE = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex)(\.swap)?")
_LEFTOVER = re.compile(
    r"[0-9]{20}\.(log|index|timeindex|txnindex|snapshot)\.(deleted|cleaned)"
    r"|(leader-epoch-checkpoint|partition\.metadata|[0-9]{20}\.snapshot)(\.[0-9]+)?\.tmp"
)
_NAMED = re.compile(
    r"[0-9]{20}\.(log|index|timeindex|txnindex|snapshot)|leader-epoch-checkpoint|partition\.metadata", re.ASCII
)
_TAKEN = re.compile(rf"({_NAMED.pattern})(\.swap)?", re.ASCII)
"""A folder called `.swap` is in nobody's way; a link would take a segment's place, and a pipe."""
_OF_A_LOG = re.compile(r"[0-9]{20}\.|leader-epoch-checkpoint|partition\.metadata")
_LEFTOVER_SUFFIXES = (".deleted", ".cleaned", ".tmp", SWAP_SUFFIX)


def refuse_no_log(folder: str, entries: Sequence[FolderEntry]) -> None:
    """NotALog: somebody's folder that only sounds like a log's (an empty one is a log that was begun). OccupiedName.
    DamagedLog: a file whose name says an impossible offset."""
    if entries and not any(_OF_A_LOG.match(entry.name) for entry in entries):
        raise NotALog(folder, "a folder without any file of a log")
    for entry in entries:
        if not entry.is_file and (_NAMED if entry.is_dir else _TAKEN).fullmatch(entry.name):
            raise OccupiedName(f"{folder}/{entry.name}", _what_it_is(entry))
        if (parts := SEGMENT_FILE.fullmatch(entry.name)) and int(parts[1]) > MAX_OFFSET:
            raise DamagedLog(folder, f"no record can have the offset by which {entry.name} is named")


def _what_it_is(entry: FolderEntry) -> str:
    if entry.is_link:
        return "this is a link, and links are not followed"
    return "this is a folder" if entry.is_dir else "this is a pipe, a socket or a device"


def is_leftover(name: str) -> bool:
    """Whether we or a Kafka name so what is to go; what else somebody keeps in the folder stays."""
    return _LEFTOVER.fullmatch(name) is not None


class Leftovers(NamedTuple):
    """Of one log's folder."""

    entries: Sequence[FolderEntry]
    """What is in the folder once they are resolved."""
    swaps: Mapping[str, Sequence[str]] = {}
    """`<base>.log`, which still has `.swap` behind its name, in the order of offsets -> the files that it replaces."""
    unneeded: Sequence[str] = ()
    """Files to remove, in this order."""

    def resolve(self, context: StorageContext, folder: str) -> None:
        """Do it. A start that is ended in between finds what is left of them, and comes to the same. Blocking. OSError
        from the disk."""
        for name, replaced in self.swaps.items():
            remove_files(context.disk, [f"{folder}/{other}" for other in replaced])
            context.disk.rename(f"{folder}/{name}{SWAP_SUFFIX}", f"{folder}/{name}")
            context.report("log-swap-finished", path=f"{folder}/{name}{SWAP_SUFFIX}")
        remove_files(context.disk, [f"{folder}/{name}" for name in self.unneeded])


def find_leftovers(context: StorageContext, folder: str, entries: Sequence[FolderEntry]) -> Leftovers:
    """Among what is in the folder. Changes nothing. DamagedLog; OSError from the disk."""
    files = {entry.name: entry for entry in entries if entry.is_file}
    ending = [entry.name for entry in entries if entry.name.endswith(_LEFTOVER_SUFFIXES)]
    if not ending:
        return Leftovers(entries)
    swaps = [name for name in ending if name in files and name.endswith(SWAP_SUFFIX) and SEGMENT_FILE.fullmatch(name)]
    doomed = [name for name in ending if name in files and is_leftover(name)]
    for name in ending:  # what is no file is none of ours, whatever it is called
        if name not in swaps and name not in doomed:
            context.report("log-unknown-file", path=f"{folder}/{name}")
    # A `.cleaned` file says that what was to replace this segment and younger ones is not complete: their swaps count
    # for nothing either. Older ones do: they were taken over before it was begun, and what they replace may be gone.
    first_unfinished = min((name for name in doomed if name.endswith(".cleaned")), default="~")[:20]
    finished = [name for name in swaps if name[:20] < first_unfinished and name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    after = {entry.name: entry for entry in entries if entry.name not in {*swaps, *doomed}}
    replaced: dict[str, list[str]] = {}
    for name in finished:
        base_offset, target = int(name[:20]), name.removesuffix(SWAP_SUFFIX)
        last, fault = _last_batch(context, folder, name, base_offset)
        if fault:  # what it replaces may be all that there is
            raise DamagedLog(folder, f"{name} is damaged {fault}")
        end_offset = base_offset + 1 if last is None else last.next_offset
        replaced[target] = [
            other
            for other in after
            if (parts := SEGMENT_FILE.fullmatch(other))
            and base_offset <= int(parts[1]) < end_offset
            and not after[other].is_dir
        ]
        _refuse_a_jump(context, folder, name, last, [other for other in replaced[target] if other.endswith(LOG_SUFFIX)])
        for other in replaced[target]:
            del after[other]
        after[target] = files[name]._replace(name=target)
    for name in swaps:
        if name not in finished and name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            paths = {other: f"{folder}/{other}{SWAP_SUFFIX if other in replaced else ''}" for other in after}
            _refuse_an_only_copy(context, folder, name, paths)
    # Swaps that count for nothing go before the `.cleaned` files that say so. An index is built anew, not trusted.
    unneeded = [name for name in reversed(swaps) if name not in finished]
    return Leftovers(sorted(after.values()), replaced, [*unneeded, *doomed])


def _refuse_a_jump(
    context: StorageContext, folder: str, name: str, last: BatchHeader | None, sources: Sequence[str]
) -> None:
    """DamagedLog where the last batch of a swap stood elsewhere in its `sources`: no CRC covers its offset, which says
    how far it reaches, and the segments up to there would go. They are removed from the oldest on, so as long as there
    is one, the last of them has that batch. A cleaner keeps its offsets, and its CRC unless it took records out."""
    if last is None or not sources:
        return
    stood_elsewhere = has_place = False
    for source in sources:
        with closing(context.disk.open(f"{folder}/{source}", read_only=True)) as file:
            for _, header in walk_headers(file, 0, file.size()):
                if (header.base_offset, header.last_offset) == (last.base_offset, last.last_offset):
                    if header.crc == last.crc:
                        return
                    has_place = True
                elif header.crc == last.crc:
                    stood_elsewhere = True
    if stood_elsewhere or not has_place:
        raise DamagedLog(folder, f"the last batch of {name} does not stand at {last.base_offset} in what it replaces")


def _refuse_an_only_copy(context: StorageContext, folder: str, name: str, paths: Mapping[str, str]) -> None:
    """DamagedLog where the last batch of a swap that counts for nothing stands in no segment: what a cleaner replaces
    is there until all its swaps are. paths: of the files that stay, by their names to be."""
    last, _ = _last_batch(context, folder, name, int(name[:20]))
    if last is None:
        return
    segments = (other for other in paths if other.endswith(LOG_SUFFIX) and SEGMENT_FILE.fullmatch(other))
    source = max((other for other in segments if int(other[:20]) <= last.base_offset), default=None)
    if source is not None:
        with closing(context.disk.open(paths[source], read_only=True)) as file:
            headers = (header for _, header in walk_headers(file, 0, file.size()))
            if any(header.base_offset <= last.base_offset <= header.last_offset for header in headers):
                return
    raise DamagedLog(folder, f"the last batch of {name}, which counts for nothing, stands nowhere else")


def _last_batch(context: StorageContext, folder: str, name: str, base_offset: int) -> tuple[BatchHeader | None, str]:
    """The last sound one, and where and why the file is not sound to its end; empty where it is."""
    last: BatchHeader | None = None
    with closing(context.disk.open(f"{folder}/{name}", read_only=True)) as file:
        prefix = CheckedPrefix(0, base_offset, -1, max_offset=base_offset + MAX_RELATIVE_OFFSET)
        for _, header in check_batches(file, file.size(), prefix):
            last = header
    return last, f"at byte {prefix.end_position}: {prefix.fault}" if prefix.fault else ""
