"""Logs whose folders somebody moved to another log directory while no broker ran.

Checkpoints are a directory's, so they stayed behind. A high watermark and a recovery point that are missing are safe
bounds; a log start is not: what was answered as deleted would be back. So it is taken over from the directory that
still has it. Only a log that its own directory knows nothing of was moved: of another one the line is of a past life,
as of a topic that was deleted while that directory was away, and would hide what this log has. One beyond the log's end
is of something else, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping

from strandline.protocol.types import TopicPartition
from strandline.storage.disk.checkpoints import LOG_START_OFFSETS
from strandline.storage.log.log import Log
from strandline.storage.log.log_start import raise_log_start
from strandline.storage.manager.log_directory import LogDirectory
from strandline.storage.manager.losses import named_in


def take_over_log_starts(
    directories: Iterable[LogDirectory],
    logs: Mapping[TopicPartition, Log],
    owners: Mapping[TopicPartition, LogDirectory],
    high_watermarks: MutableMapping[TopicPartition, int],
) -> set[LogDirectory]:
    """Once all logs are loaded. Returns the directories with such logs: their checkpoints have to tell it before those
    of others are written again, which forget it."""
    directories = list(directories)
    own = {directory: named_in(directory) for directory in directories}
    reached: set[LogDirectory] = set()
    for former in directories:
        for tp, start in former.stored[LOG_START_OFFSETS].items():
            log = logs.get(tp)
            if log is None or tp in own.get(owners[tp], ()) or start > log.log_end_offset:
                continue
            high_watermarks[tp] = max(high_watermarks[tp], start)
            if raise_log_start(log, start, high_watermarks[tp]):
                reached.add(owners[tp])
    return reached
