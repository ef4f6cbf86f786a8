"""What a start concludes about data that this broker may have lost, beside the cuts that loading makes (`damage`).

Each is noted durably before a checkpoint is written again, because then nothing else tells of it:
* a log that stood in the list of the orderly stop (`directory_state`), or in the recovery points or high watermarks,
  and whose folder is gone. One that was deleted stands there, too, until they are written again, which its deletion
  asks for; its folder still waits for its removal then;
* a log that ends below what the checkpoints vouch for;
* a directory with logs whose recovery points or high watermarks are damaged or missing. Every life writes both before
  it makes its first log, so a missing file is no sign of a young folder. Nobody knows how far the logs went then; only
  the list of an orderly stop proves them whole. A log that is refused was not held against it: once an operator has
  mended that, neither the list nor a hole in the checkpoints tells of it any more.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from strandline.protocol.types import TopicPartition
from strandline.storage.disk.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, Report
from strandline.storage.disk.removal import Removals
from strandline.storage.manager.log_directory import LogDirectory

if TYPE_CHECKING:
    from strandline.storage.log.log import Log


def note_missing(found: Container[TopicPartition], removals: Removals, report: Report, directory: LogDirectory) -> None:
    """found: the logs of all directories; removals: what an earlier life had begun to delete. Blocking. OSError from
    the disk."""
    for tp in named_without_folder(directory, found):
        if tp in directory.last_stop.listed or not removals.holds_folder_of(tp, directory.path):
            directory.note_loss()
            report("log-missing", log=f"{directory.path}/{tp}")


def named_in(directory: LogDirectory) -> dict[TopicPartition, object]:
    """Logs that an earlier life had there, or has deleted since."""
    return {**directory.last_stop.listed, **directory.stored[RECOVERY_POINTS], **directory.stored[HIGH_WATERMARKS]}


def named_without_folder(directory: LogDirectory, found: Container[TopicPartition]) -> list[TopicPartition]:
    """Of which logs the directory tells although none of the `found` is one."""
    return [tp for tp in named_in(directory) if tp not in found]


def note_losses(directory: LogDirectory, logs: Sequence[Log], report: Report) -> None:
    """logs: those of the directory, all loaded. Blocking. OSError from the disk."""
    for log in logs:
        vouched_below = directory.known_state(log.topic_partition).vouched_below
        if log.log_end_offset < vouched_below:
            report(
                "log-shortened",
                log=log.segments.folder,
                end_offset=log.log_end_offset,
                protected_below=vouched_below,
            )
            directory.note_loss()
    # A log start that was not believed would be, once enough is appended; then it would hide records.
    if any(log.log_start_offset < directory.stored[LOG_START_OFFSETS].get(log.topic_partition, 0) for log in logs):
        directory.write_log_start_offsets(logs)
    listed = directory.last_stop.listed
    unproven = len(directory.refused) + sum(log.topic_partition not in listed for log in logs)
    if unproven and not directory.bounds_known:
        report("log-bounds-unknown", path=directory.path, logs=unproven)
        directory.note_loss()
