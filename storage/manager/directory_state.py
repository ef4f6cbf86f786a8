"""What we wrote last in a log directory: so that whatever differs from it was changed by somebody else.

`.strandline_state`, JSON, says it at any time:
* `checkpoints`: of each checkpoint by its name the CRC-32C of the contents that are ours, null where the file may be
  missing. While the broker runs and after a kill that is of the high watermarks alone (`guarded_checkpoints`), after an
  orderly stop of all;
* `segments_crc`: after an orderly stop the CRC-32C of the list of segments, else null;
* `is_for_all`: whether that stop speaks for everything in the directory, and was told to a Kafka, too.

Around these stands what a Kafka writes into its clean-shutdown marker, `{"version":0,"brokerEpoch":-1}`: that marker
gets the same content (`orderly_stops`), and a Kafka ignores the field `strandline`. A marker without it was written by
a Kafka: it had the folder after us, so the list of our own last stop is not true any more.

`.strandline_segments`, JSON, is written at an orderly stop before the state, and counts only where that has its
checksum: per log its topic, its partition, the CRC-32C of its `leader-epoch-checkpoint`, and base offset and size of
each of its segments, oldest first. So the next start sees at a glance that nothing is missing or changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import crc32c
import msgspec

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import Disk, read_file
from strandline.storage.disk.checkpoints import Checksums, Report, encode_epochs, read_checkpoint, write_atomically

if TYPE_CHECKING:
    from strandline.storage.log.log import Log

STATE = ".strandline_state"
SEGMENTS_LIST = ".strandline_segments"

SegmentSizes = Sequence[tuple[int, int]]
"""(base offset, size in bytes) of each segment, oldest first."""


class DirectoryState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    checkpoints: Mapping[str, Checksums]
    segments_crc: int | None
    is_for_all: bool


class _Content(msgspec.Struct):
    version: int = 0
    brokerEpoch: int = -1
    strandline: DirectoryState | None = None


class ListedLog(NamedTuple):
    """One log at the stop."""

    segments: SegmentSizes
    epochs_crc: int
    """CRC-32C of its epoch file."""


def encode_state(state: DirectoryState) -> bytes:
    return msgspec.json.encode(_Content(strandline=state))


def decode_state(content: bytes) -> DirectoryState | None:
    """None where it is none of ours, or damaged."""
    try:
        return msgspec.json.decode(content, type=_Content).strandline
    except ValueError:  # a Kafka's, before 3.7, is empty
        return None


def read_state(disk: Disk, path: str) -> DirectoryState | None:
    """The same of a file. Blocking. OSError from the disk."""
    try:
        return decode_state(read_file(disk, path))
    except ValueError:  # absurdly large
        return None


def list_logs(logs: Iterable[Log]) -> dict[TopicPartition, ListedLog]:
    """Of logs that were flushed for the last time. The epochs are those in memory: their file ought to say the same."""
    return {
        log.topic_partition: ListedLog(
            [(segment.base_offset, segment.size_bytes) for segment in log.segments],
            crc32c.crc32c(encode_epochs(log.epochs.entries)),
        )
        for log in logs
    }


def write_list(disk: Disk, path: str, logs: Mapping[TopicPartition, ListedLog]) -> int:
    """Replace the list of segments; returns its CRC-32C. Blocking. OSError from the disk."""
    content = msgspec.json.encode([(*tp, listed.epochs_crc, listed.segments) for tp, listed in logs.items()])
    write_atomically(disk, path, content)
    return int(crc32c.crc32c(content))


def decode_list(content: bytes) -> dict[TopicPartition, ListedLog]:
    """ValueError where it is damaged."""
    rows = msgspec.json.decode(content, type=list[tuple[str, int, int, list[tuple[int, int]]]])
    return {TopicPartition(topic, partition): ListedLog(sizes, crc) for topic, partition, crc, sizes in rows}


def read_list(
    disk: Disk, path: str, segments_crc: int | None, report: Report
) -> dict[TopicPartition, ListedLog] | None:
    """What it says; None where it is not the one with this checksum: then the logs are looked at more closely."""
    content = read_checkpoint(disk, path, report)
    if crc32c.crc32c(content) != segments_crc:
        report("segment-list-not-usable", path=path)
        return None
    return decode_list(content)
