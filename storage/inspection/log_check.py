"""What a start would do with a stopped broker's data folders, without doing it, and what it would not even see.

The real loading runs over an `OverlayDisk`, so it says by itself what it would repair, cut or refuse; what storage
reports becomes a finding. Then, unless told not to, every batch of every log is checked, and every index entry by them
(as `dump-log --verify-index-only` does): damage below the recovery point, which a start takes on trust, shows only so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strandline.runtime.disk import Disk, read_file
from strandline.runtime.environment import WallClock
from strandline.storage.disk.checkpoints import no_report
from strandline.storage.disk.properties import parse_properties
from strandline.storage.disk.removal import partition_of_folder
from strandline.storage.disk.storage_context import LogConfig
from strandline.storage.errors import LogDirLocked, StorageError
from strandline.storage.inspection.dump import DumpOptions, dump_file
from strandline.storage.inspection.overlay_disk import OverlayDisk
from strandline.storage.log.log import Log
from strandline.storage.manager.identity import META_PROPERTIES
from strandline.storage.manager.loading import LoadProgress
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.manager.orderly_stops import read_last_stop
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import ScanTask, scan_segment
from strandline.storage.segments.segment import LOG_SUFFIX, Segment
from strandline.storage.segments.time_index import TimeIndex

if TYPE_CHECKING:
    import random

REFUSE, LOSE, REPAIR, NOTE = "refuse", "lose", "repair", "note"
"""A start would refuse this; records that counted are damaged or gone; it would be repaired without a loss; nothing
would be done."""

_SEVERITIES = {
    "log-refused": REFUSE,
    "log-dir-offline": REFUSE,
    "log-shortened": LOSE,
    "log-segment-shorter": LOSE,
    "log-missing": LOSE,
    "log-dir-missing": LOSE,
    "log-bounds-unknown": LOSE,
    "index-ends-at-damage": LOSE,
    "log-truncated": REPAIR,
    "log-segment-dropped": REPAIR,
    "log-dir-unknown-folder": NOTE,
    "log-dir-used-by-another": NOTE,
    "log-unknown-file": NOTE,
}
_FETCHED_AGAIN = "; the broker would leave the ISRs and fetch again what is lacking"
_TEXTS_KEPT = {
    "log-truncated": "would be cut at offset {offset} (byte {position}), keeping {dropped_bytes} bytes aside: {why}",
    "log-segment-dropped": "segment {base_offset} ({dropped_bytes} bytes) would be taken out and kept aside: {why}",
}
_TEXTS = {
    "log-truncated": "would be cut at offset {offset} (byte {position}), dropping {dropped_bytes} bytes: {why}",
    "log-segment-dropped": "segment {base_offset} ({dropped_bytes} bytes) would be dropped: {why}",
    "log-segment-shorter": "has {size_bytes} bytes, {listed_bytes} when the broker stopped" + _FETCHED_AGAIN,
    "log-missing": "the list of the orderly stop or a checkpoint names it, and it is gone" + _FETCHED_AGAIN,
    "log-dir-missing": "the broker had other directories, too: those of the ids {directory_ids} are gone"
    + _FETCHED_AGAIN,
    "log-bounds-unknown": "a checkpoint is damaged or missing: nobody knows how far {logs} logs went" + _FETCHED_AGAIN,
    "log-refused": "would not be loaded: {why}",
    "log-dir-offline": "no log of it would be served: {why}",
    "log-shortened": "ends at {end_offset}, but everything below {protected_below} was durable or committed",
    "log-restarted": "ends at {end_offset}, below its start: it would begin anew, empty, at {log_start_offset}",
    "log-start-disbelieved": "its checkpoint lets it begin at {log_start_offset}, behind its end at {end_offset}: "
    "{taken} would be taken",
    "compacted-offset-disbelieved": "its checkpoint says that it is compacted up to {compacted_below}, but its sealed "
    "segments end at {sealed_below}: it would count as not compacted",
    "log-segment-damaged": "would be checked batch by batch: {why}",
    "log-swap-finished": "a compaction that was interrupted would be finished",
    "index-rebuilt": "index would be rebuilt: {why}",
    "index-ends-at-damage": "index cannot be rebuilt ({why}): {error}",
    "index-orphan-removed": "index without a .log would be removed",
    "epochs-rebuilt": "leader-epoch-checkpoint would be rebuilt from the batches",
    "topic-id-torn": "was torn when the power failed: would be removed, the topic's own id counts",
    "producer-snapshot-damaged": "would be put aside as *.damaged, one before it or the batches would be taken: {why}",
    "producers-rebuilt": "producer states would be rebuilt from the batches",
    "checkpoint-not-as-written": "is not what the broker left when it stopped: would be put aside as *.damaged, and "
    "count as missing",
    "checkpoint-not-understood": "does not begin with version 0: would be put aside as *.damaged, and count as missing",
    "checkpoint-bad-line": "a line cannot be read, it would be left out: {line}",
    "checkpoint-two-lines": "has two lines for one log, the lower offset would be taken: {line}",
    "checkpoint-bad-count": "announces {announced} entries and has {found}: those would be taken",
    "checkpoint-bad-version": "begins with '{version}' instead of version 0: would be taken as empty",
    "checkpoint-unreadable": "would be taken as empty: {why}",
    "log-unknown-file": "not a file of a log: would be left alone",
    "log-dir-unknown-folder": "not a log: would be left alone",
    "log-dir-used-by-another": "another program used it after the broker had stopped: every header would be looked at",
}


@dataclass(frozen=True, slots=True)
class Finding:
    severity: str
    where: str
    """Path of a log's folder or of a file; the log's name where no path was told."""
    what: str
    """One line."""
    event: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Collector:
    """Takes the place of the broker's log."""

    findings: list[Finding] = field(default_factory=list)

    def warning(self, event: str, **fields: Any) -> None:
        place = next((str(fields[key]) for key in ("log", "segment", "path") if key in fields), "")
        told: dict[str, Any] = _Lenient(fields)
        if event == "log-refused":  # of a log its name only; most reasons begin with its folder
            folder, name, why = str(fields["why"]).partition(f"/{place} ")
            if name:
                place, told["why"] = f"{folder}/{place}", why.removeprefix("was not loaded: ")
        severity = _SEVERITIES.get(event, REPAIR)
        if fields.get("is_loss"):
            severity = LOSE
        text = _TEXTS.get(event)
        if fields.get("kept_aside"):
            text = _TEXTS_KEPT[event] + (_FETCHED_AGAIN if fields.get("is_loss") else "")
        what = text.format_map(told) if text else " ".join([event, *(f"{k}={v}" for k, v in fields.items())])
        self.findings.append(Finding(severity, place, " ".join(what.split()), event, fields))


class _Lenient(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


def check_directories(
    disk: Disk,
    paths: Sequence[str],
    config: LogConfig,
    wall_clock: WallClock,
    stream: random.Random,
    *,
    quick: bool = False,
    on_progress: Callable[[LoadProgress], None] = lambda progress: None,
) -> list[Finding]:
    """Findings of all folders, which belong to one broker, in the order of a start. `config`: of every topic; only its
    index interval matters. Blocking. LogDirLocked: the broker runs; OSError from the disk."""
    overlay = OverlayDisk(disk)
    collector = _Collector()
    try:
        broker_id = _broker_id(disk, paths[0])
    except ValueError as error:
        why = f"a start would refuse the folder, for its broker.id cannot be read: {error}"
        return [Finding(REFUSE, f"{paths[0]}/{META_PROPERTIES}", why, "start-refused")]
    manager = LogManager(
        overlay,
        paths,
        broker_id=broker_id,
        topic_config_for=lambda topic: config,
        wall_clock=wall_clock,
        random=stream,
        log=collector,
    )
    for path in paths:
        if not disk.exists(f"{path}/{META_PROPERTIES}"):
            what = "there is no meta.properties: a start would take the folder for a new one, whose data may be lost"
            severity = LOSE if _has_logs(disk, path) else NOTE
            collector.findings.append(Finding(severity, path, what, "new-folder"))
        elif not read_last_stop(disk, path, no_report).was_clean:
            note = "the broker was not stopped in order: what lies behind the recovery points would be checked"
            collector.findings.append(Finding(NOTE, path, note, "unclean-stop"))
    try:
        manager.load(on_progress)
        if not quick:
            collector.findings += _check_all(overlay, manager, on_progress)
        collector.findings += _leftovers(overlay, collector.findings)
    except LogDirLocked:
        raise
    except StorageError as error:
        collector.findings.append(Finding(REFUSE, ", ".join(paths), str(error), "start-refused"))
    finally:
        manager.close(clean=False)
    return collector.findings


def _has_logs(disk: Disk, path: str) -> bool:
    return any((entry.is_dir or entry.is_link) and partition_of_folder(entry.name) for entry in disk.scandir(path))


def _broker_id(disk: Disk, path: str) -> int:
    """Whose folder it is: what the start is told, so that only folders of several brokers are found wrong. ValueError
    where the folder does not tell."""
    try:
        text = parse_properties(read_file(disk, f"{path}/{META_PROPERTIES}").decode()).get("broker.id", "0")
    except FileNotFoundError:
        return 0
    if not text.isdecimal():
        raise ValueError(f"{text[:50]!r} is no number")
    return int(text)


def _check_all(disk: Disk, manager: LogManager, on_progress: Callable[[LoadProgress], None]) -> Iterator[Finding]:
    """Faults that are left after what a start would do."""
    count = len(manager.logs)
    progress = LoadProgress(count, count, bytes_total=sum(log.size_bytes for log in manager.logs.values()))
    for log in manager.logs.values():
        yield from _check_log(disk, log, manager.high_watermarks.get(log.topic_partition, 0), progress, on_progress)


def _check_log(
    disk: Disk, log: Log, high_watermark: int, progress: LoadProgress, on_progress: Callable[[LoadProgress], None]
) -> Iterator[Finding]:
    for segment in log.segments:
        path = segment.path + LOG_SUFFIX
        is_last = segment is log.segments.active
        ends = (log.recovery_point, high_watermark)
        task = ScanTask(path, segment.base_offset, segment.size_bytes, segment.index_interval_bytes, is_last, ends)
        found = scan_segment(disk, task)
        if found.fault:
            what = (
                f"damaged at offset {found.next_offset} (byte {found.end_position}): {found.fault}; a start would not "
                "see it, and a leader would serve it to clients, who refuse it"
            )
            fields = {"offset": found.next_offset, "position": found.end_position, "why": found.fault}
            yield Finding(LOSE, path, what, "batch-damaged", fields)
        yield from _check_indexes(disk, segment)
        progress.bytes_checked += segment.size_bytes
        on_progress(progress)


def _check_indexes(disk: Disk, segment: Segment) -> Iterator[Finding]:
    """Every entry, by the batches: a start proves only the last one, and the use of another one that one."""
    for suffix in (OffsetIndex.SUFFIX, TimeIndex.SUFFIX):
        path = segment.path + suffix
        try:
            disk.open(path, read_only=True).close()  # of a folder the dump would show the files in it
            wrong = [each for each in dump_file(disk, path, DumpOptions(verify_index_only=True)) if each.is_damage]
        except OSError as error:
            what = f"cannot be read, and the log would go offline when it is used: {error}"
            yield Finding(REFUSE, path, what, "index-unreadable", {"why": str(error)})
            continue
        misleading = [each for each in wrong if each.fields.get("misleads", True)]
        if misleading:
            what = (
                f"index would be rebuilt when one of its {len(misleading)} wrong entries is used: {misleading[0].line}"
            )
            yield Finding(REPAIR, path, what, "index-wrong", {"entries": len(misleading), "why": misleading[0].line})
        elif wrong:
            what = f"{len(wrong)} entries say a higher offset than their batch has: searches begin a little earlier"
            yield Finding(NOTE, path, what, "index-imprecise", {"entries": len(wrong), "why": wrong[0].line})


def _leftovers(disk: OverlayDisk, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Files that would go without another word."""
    told = {finding.where for finding in findings}
    for what, path in disk.changes:
        if what == "remove" and path.endswith((".deleted", ".cleaned", ".swap")) and path not in told:
            yield Finding(REPAIR, path, "left over by a deletion or compaction: would be removed", "leftover")
