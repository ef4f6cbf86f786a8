"""The small files beside the segments, in Kafka's formats, each replaced atomically.

Writing (invariant 23): write `<name>.<n>.tmp`, fsync it, rename it over the old file, fsync the folder. So a crash
leaves the old or the new content. Reading: a damaged line is dropped and reported, the others count; a file that is
missing or unreadable is as if it were empty. Every reader treats "no entry" as a safe lower bound (HW: log start;
recovery point: 0, so everything is checked). So of two lines for one log the lower offset counts. Only what they
protect from being cut in silence is not known then (`read_bounds`).

Offset checkpoints, text: `0` (version), number of entries, then `topic partition offset` per line. One file per log
directory for each of: `replication-offset-checkpoint` (high watermarks), `recovery-point-offset-checkpoint`,
`log-start-offset-checkpoint` (above 0; Kafka leaves out those that are the first segment's base offset, and takes the
larger of the two), `cleaner-offset-checkpoint` (below which the log was compacted).

`leader-epoch-checkpoint`: see `leader_epochs`. `partition.metadata`: see `topic_ids`; an id is URL-safe base64 of 16
bytes, without padding.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import crc32c

from strandline.protocol.types import TopicId, TopicPartition
from strandline.runtime.disk import Disk, read_file, write_whole

HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
COMPACTED_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

Report = Callable[..., None]
"""Takes what a structured log line takes: an event name and fields. `report("index-rebuilt", log=…, why=…)`."""


class WarningLog(Protocol):
    """A structured logger, as far as storage needs one: its `warning` is a `Report`."""

    def warning(self, event: str, **fields: Any) -> Any: ...


TEMPORARY_SUFFIX = ".tmp"
MAX_OFFSET = 2**63 - 2**32
"""Twenty digits can say more than the 64 bits of an offset hold, and the segment that begins there needs room, too."""
_temporary_numbers = itertools.count()


def no_report(event: str, **fields: object) -> None:
    """For callers that do not care."""


def write_atomically(disk: Disk, path: str, content: bytes, sync: bool = True) -> None:
    """Replace the file at `path`. Blocking while it syncs; `sync=False` only where the caller needs no durability."""
    temporary = write_temporary(disk, path, content, sync)
    try:
        disk.rename(temporary, path)
    except OSError:
        remove_temporary(disk, temporary)
        raise
    if sync:
        disk.fsync_dir(path.rpartition("/")[0])


def write_temporary(disk: Disk, path: str, content: bytes, sync: bool = True) -> str:
    """Write the new content of `path` beside it; returns where, for the caller to rename. A start removes what is left
    of such files."""
    temporary = f"{path}.{next(_temporary_numbers)}{TEMPORARY_SUFFIX}"  # two threads may write the same checkpoint
    file = disk.open(temporary, create=True)
    try:
        if file.size():  # left over from another life; emptied, even a new one is written out at once when it is closed
            file.truncate(0)
        write_whole(file, content, 0)
        if sync:
            file.fsync()
    except OSError:  # where the disk is full it would be tried again and again
        remove_temporary(disk, temporary)
        raise
    finally:
        file.close()
    return temporary


def remove_temporary(disk: Disk, temporary: str) -> None:
    """Nobody will rename it any more. A start removes what cannot be removed now."""
    with suppress(OSError):
        disk.unlink(temporary)


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The bytes of an offset checkpoint."""
    lines = ["0", str(len(offsets)), *(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def read_offsets(disk: Disk, path: str, report: Report = no_report) -> dict[TopicPartition, int]:
    """The entries of an offset checkpoint; what cannot be read is reported and left out."""
    return _decode_offsets(read_checkpoint(disk, path, report), path, report)


def read_bounds(disk: Disk, path: str, report: Report = no_report) -> tuple[dict[TopicPartition, int], bool]:
    """As `read_offsets`, and whether that is all that was written: False where the file is damaged, empty or missing,
    so that nobody knows what else stood in it."""
    faults: list[str] = []

    def note(event: str, **fields: object) -> None:
        faults.append(event)
        report(event, **fields)

    content = read_checkpoint(disk, path, note)
    offsets = _decode_offsets(content, path, note)
    return offsets, content.endswith(b"\n") and not faults


def _decode_offsets(content: bytes, path: str, report: Report) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for line in entry_lines(content, path, report):
        parts = line.split()
        are_numbers = len(parts) == 3 and all(text.isdecimal() and len(text) < 20 for text in parts[1:])
        if not are_numbers or int(parts[2]) > MAX_OFFSET:
            report("checkpoint-bad-line", path=path, line=line[:200])
            continue
        tp = TopicPartition(parts[0], int(parts[1]))
        offset = int(parts[2])
        if tp in offsets:  # one of the two lines was another log's, and nobody knows which
            report("checkpoint-two-lines", path=path, line=line[:200])
            offset = min(offset, offsets[tp])
        offsets[tp] = offset
    return offsets


def read_checkpoint(disk: Disk, path: str, report: Report) -> bytes:
    """The content of a text checkpoint; empty where it is missing, or absurdly large, which is reported."""
    try:
        return read_file(disk, path)
    except FileNotFoundError:
        return b""
    except ValueError as error:
        report("checkpoint-unreadable", path=path, why=str(error))
        return b""


def entry_lines(content: bytes, path: str, report: Report) -> list[str]:
    """The lines of a text checkpoint after version and count; what is wrong with it is reported. path: for that."""
    try:
        lines = content.decode("ascii").splitlines()
    except ValueError as error:
        report("checkpoint-unreadable", path=path, why=str(error))
        return []
    if not lines:
        return []
    if lines[0].strip() != "0":
        report("checkpoint-bad-version", path=path, version=lines[0][:20])
        return []
    entries = [line for line in lines[2:] if line.strip()]
    if len(lines) < 2 or lines[1].strip() != str(len(entries)):
        report("checkpoint-bad-count", path=path, announced=lines[1][:20] if len(lines) > 1 else "", found=len(entries))
    return entries


Checksums = Sequence[int | None]
"""CRC-32C of each content of one file that is ours; None: there may be no such file."""
_UNREADABLE = 2**32
"""In the place of a checksum; none is so large."""


class FoundCheckpoint(NamedTuple):
    """A text checkpoint as it stands there."""

    content: bytes
    """Empty where there is none."""
    crc: int | None
    """CRC-32C of it; None where there is no file."""
    is_believed: bool
    """It is one of those that are ours, and of a version that is understood."""


def read_guarded(disk: Disk, path: str, ours: Checksums | None, report: Report = no_report) -> FoundCheckpoint:
    """Why it is not to be believed is reported. ours: None where nobody wrote down what is. OSError from the disk."""
    content, crc = b"", None
    try:
        content = read_file(disk, path)
        crc = int(crc32c.crc32c(content))
    except FileNotFoundError:
        pass
    except ValueError:  # absurdly large
        crc = _UNREADABLE
    if ours is not None and crc not in ours:
        report("checkpoint-not-as-written", path=path, is_missing=crc is None)
    elif crc == _UNREADABLE or (content and content.splitlines()[0].strip() != b"0"):
        report("checkpoint-not-understood", path=path)
    else:
        return FoundCheckpoint(content, crc, True)
    return FoundCheckpoint(content, crc, False)


class EpochEntry(NamedTuple):
    """From `start_offset` on (until the next entry) the batches carry `epoch`."""

    epoch: int
    start_offset: int


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """The bytes of `leader-epoch-checkpoint`."""
    lines = [f"{entry.epoch} {entry.start_offset}" for entry in entries]
    return ("\n".join(["0", str(len(lines)), *lines]) + "\n").encode()


def read_epochs(disk: Disk, path: str, report: Report = no_report) -> list[EpochEntry]:
    """The entries of `leader-epoch-checkpoint`; what cannot be read is reported and left out."""
    return decode_epochs(read_checkpoint(disk, path, report), path, report)


def decode_epochs(content: bytes, path: str, report: Report = no_report) -> list[EpochEntry]:
    """The same from the bytes of the file; path: for reports."""
    entries: list[EpochEntry] = []
    for line in entry_lines(content, path, report):
        try:
            epoch, start_offset = map(int, line.split())
        except ValueError:
            report("checkpoint-bad-line", path=path, line=line[:200])
            continue
        if epoch >= 0 and start_offset >= 0:
            entries.append(EpochEntry(epoch, start_offset))
    return entries


def encode_topic_id(topic_id: TopicId) -> str:
    """A 16-byte id as Kafka prints it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def decode_topic_id(text: str) -> TopicId:
    """ValueError where `text` is no id."""
    try:
        topic_id = base64.urlsafe_b64decode(text + "==")
    except binascii.Error as error:
        raise ValueError(f"{text!r} is no base64: {error}") from error
    if len(topic_id) != 16:
        raise ValueError(f"{text!r} is not 16 bytes")
    return topic_id


def write_partition_metadata(disk: Disk, path: str, topic_id: TopicId) -> None:
    """Write `partition.metadata`. Not synced: a power failure that loses it makes the broker one that may have lost
    data anyway, and the controller tells the id again."""
    write_atomically(disk, path, f"version: 0\ntopic_id: {encode_topic_id(topic_id)}\n".encode(), sync=False)
