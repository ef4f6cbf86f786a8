"""Which segments each log had at an orderly stop: so that the next start sees at a glance that none is missing.

Format of `.strandline_segments`, text: `0` (version), the number of logs, then per log a line
`topic partition base_offset:size_bytes …`, its segments oldest first. It is written before the clean-shutdown marker
and counts only together with it.

Format of the marker, `.kafka_cleanshutdown`: Kafka's JSON, `{"version":0,"brokerEpoch":-1}`, and in it a field that
Kafka ignores: `strandlineSegments`, the CRC-32C of the list. A marker without it was written by Kafka: it had the
folder after us, so the list of our own last stop, which may still lie there, is not true any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import crc32c
import msgspec

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import Disk, read_file
from strandline.storage.checkpoints import Report, entry_lines, no_report, write_atomically

MANIFEST = ".strandline_segments"

SegmentSizes = Sequence[tuple[int, int]]
"""(base offset, size in bytes) of each segment, oldest first."""


class _Marker(msgspec.Struct):
    version: int = 0
    brokerEpoch: int = -1
    strandlineSegments: int | None = None


def encode_marker(segments_crc: int | None) -> bytes:
    """The content of the clean-shutdown marker; segments_crc: what `write_manifest` returned."""
    return msgspec.json.encode(_Marker(strandlineSegments=segments_crc))


def decode_marker(content: bytes) -> int | None:
    """The checksum of the list that this marker vouches for; None where it is not one of ours."""
    try:
        return msgspec.json.decode(content, type=_Marker).strandlineSegments
    except ValueError:  # Kafka's, before 3.7, is empty
        return None


def write_manifest(disk: Disk, path: str, logs: Mapping[TopicPartition, SegmentSizes]) -> int:
    """Replace the file; returns its CRC-32C. Blocking. OSError from the disk."""
    lines = ["0", str(len(logs))]
    for tp, segments in logs.items():
        lines.append(" ".join([tp.topic, str(tp.partition), *(f"{base}:{size}" for base, size in segments)]))
    content = ("\n".join(lines) + "\n").encode()
    write_atomically(disk, path, content)
    return int(crc32c.crc32c(content))


def read_manifest(
    disk: Disk, path: str, segments_crc: int, report: Report = no_report
) -> dict[TopicPartition, SegmentSizes]:
    """What it says; nothing where it is not the one with this checksum: then the logs are looked at more closely."""
    logs: dict[TopicPartition, SegmentSizes] = {}
    try:
        found_crc = crc32c.crc32c(read_file(disk, path))
    except (FileNotFoundError, ValueError):  # gone, or absurdly large
        found_crc = None
    if found_crc != segments_crc:
        report("segment-list-not-usable", path=path)
        return logs
    for line in entry_lines(disk, path, report):
        try:
            topic, partition, *pairs = line.split()
            segments = [(int(base), int(size)) for base, _, size in (pair.partition(":") for pair in pairs)]
            logs[TopicPartition(topic, int(partition))] = segments
        except ValueError:
            report("checkpoint-bad-line", path=path, line=line[:200])
    return logs
