"""What there was at an orderly stop: so that the next start sees at a glance that nothing is missing or changed.

Format of `.strandline_segments`, text: `0` (version), the number of logs, then per log a line
`topic partition epochs:<checksum> base_offset:size_bytes …`: the CRC-32C of its `leader-epoch-checkpoint`, then its
segments, oldest first. It is written before the clean-shutdown marker and counts only together with it.

Format of the marker, `.kafka_cleanshutdown` and `.strandline_cleanshutdown` (`orderly_stops`): Kafka's JSON,
`{"version":0,"brokerEpoch":-1}`, and in it three fields that Kafka ignores: `strandlineSegments`, the CRC-32C of the
list; `strandlineCheckpoints`, that of each of the directory's checkpoints by its name, null where there was no such
file (`checkpoint_files`); `strandlineForAll`, whether it speaks for everything in the directory. A marker without the
first was written by Kafka: it had the folder after us, so the list of our own last stop, which may still lie there, is
not true any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import crc32c
import msgspec

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import Disk, read_file
from strandline.storage.disk.checkpoints import Report, encode_epochs, entry_lines, no_report, write_atomically

if TYPE_CHECKING:
    from strandline.storage.log.log import Log

MANIFEST = ".strandline_segments"
_EPOCHS = "epochs"

SegmentSizes = Sequence[tuple[int, int]]
"""(base offset, size in bytes) of each segment, oldest first."""


class ListedLog(NamedTuple):
    """One log at the stop."""

    segments: SegmentSizes
    epochs_crc: int | None = None
    """CRC-32C of its epoch file; None where nobody wrote it down."""


class OrderlyStop(NamedTuple):
    """What a marker of ours vouches for."""

    segments_crc: int
    checkpoints: Mapping[str, int | None] | None
    """None where it does not say."""
    is_for_all: bool = True
    """It speaks for everything in the directory, and was left for a Kafka, too."""


class _Marker(msgspec.Struct):
    version: int = 0
    brokerEpoch: int = -1
    strandlineSegments: int | None = None
    strandlineCheckpoints: dict[str, int | None] | None = None
    strandlineForAll: bool = True


def encode_marker(
    segments_crc: int | None, checkpoints: Mapping[str, int | None] | None = None, *, is_for_all: bool = True
) -> bytes:
    """The content of a clean-shutdown marker; segments_crc: what `write_manifest` returned."""
    named = dict(checkpoints) if checkpoints is not None else None
    marker = _Marker(strandlineSegments=segments_crc, strandlineCheckpoints=named, strandlineForAll=is_for_all)
    return msgspec.json.encode(marker)


def decode_marker(content: bytes) -> OrderlyStop | None:
    """What this marker vouches for; None where it is not one of ours."""
    try:
        marker = msgspec.json.decode(content, type=_Marker)
    except ValueError:  # Kafka's, before 3.7, is empty
        return None
    if marker.strandlineSegments is None:
        return None
    return OrderlyStop(marker.strandlineSegments, marker.strandlineCheckpoints, marker.strandlineForAll)


def list_logs(logs: Iterable[Log]) -> dict[TopicPartition, ListedLog]:
    """Of logs that were flushed for the last time. The epochs are those in memory: their file ought to say the same."""
    return {
        log.topic_partition: ListedLog(
            [(segment.base_offset, segment.size_bytes) for segment in log.segments],
            crc32c.crc32c(encode_epochs(log.epochs.entries)),
        )
        for log in logs
    }


def write_manifest(disk: Disk, path: str, logs: Mapping[TopicPartition, ListedLog]) -> int:
    """Replace the file; returns its CRC-32C. Blocking. OSError from the disk."""
    lines = ["0", str(len(logs))]
    for tp, listed in logs.items():
        pairs = [f"{base}:{size}" for base, size in listed.segments]
        if listed.epochs_crc is not None:
            pairs.insert(0, f"{_EPOCHS}:{listed.epochs_crc}")
        lines.append(" ".join([tp.topic, str(tp.partition), *pairs]))
    content = ("\n".join(lines) + "\n").encode()
    write_atomically(disk, path, content)
    return int(crc32c.crc32c(content))


def read_manifest(
    disk: Disk, path: str, segments_crc: int, report: Report = no_report
) -> dict[TopicPartition, ListedLog] | None:
    """What it says; None where it is not the one with this checksum: then the logs are looked at more closely."""
    logs: dict[TopicPartition, ListedLog] = {}
    try:
        found_crc = crc32c.crc32c(read_file(disk, path))
    except (FileNotFoundError, ValueError):  # gone, or absurdly large
        found_crc = None
    if found_crc != segments_crc:
        report("segment-list-not-usable", path=path)
        return None
    for line in entry_lines(disk, path, report):
        try:
            topic, partition, *pairs = line.split()
            epochs_crc = None
            if pairs and pairs[0].startswith(_EPOCHS):
                epochs_crc = int(pairs.pop(0).partition(":")[2])
            segments = [(int(base), int(size)) for base, _, size in (pair.partition(":") for pair in pairs)]
            logs[TopicPartition(topic, int(partition))] = ListedLog(segments, epochs_crc)
        except ValueError:
            report("checkpoint-bad-line", path=path, line=line[:200])
    return logs
