"""Which segments each log had at an orderly stop: so that the next start sees at a glance that none is missing.

Format of `.strandline_segments`, text: `0` (version), the number of logs, then per log a line
`topic partition base_offset:size_bytes …`, its segments oldest first. It is written before the clean-shutdown marker
and counts only together with it; Kafka ignores the file, and a folder that comes from Kafka has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import Disk
from strandline.storage.checkpoints import Report, entry_lines, no_report, write_atomically

MANIFEST = ".strandline_segments"

SegmentSizes = Sequence[tuple[int, int]]
"""(base offset, size in bytes) of each segment, oldest first."""


def write_manifest(disk: Disk, path: str, logs: Mapping[TopicPartition, SegmentSizes]) -> None:
    """Replace the file. Blocking. OSError from the disk."""
    lines = ["0", str(len(logs))]
    for tp, segments in logs.items():
        lines.append(" ".join([tp.topic, str(tp.partition), *(f"{base}:{size}" for base, size in segments)]))
    write_atomically(disk, path, ("\n".join(lines) + "\n").encode())


def read_manifest(disk: Disk, path: str, report: Report = no_report) -> dict[TopicPartition, SegmentSizes]:
    """What it says; a line that cannot be read is reported and left out: that log is looked at more closely."""
    logs: dict[TopicPartition, SegmentSizes] = {}
    for line in entry_lines(disk, path, report):
        try:
            topic, partition, *pairs = line.split()
            segments = [(int(base), int(size)) for base, _, size in (pair.partition(":") for pair in pairs)]
            logs[TopicPartition(topic, int(partition))] = segments
        except ValueError:
            report("checkpoint-bad-line", path=path, line=line[:200])
    return logs
