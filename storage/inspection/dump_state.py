"""What the small files of a data folder hold, for `dump-log`: what is no segment and no index.

`<offset>.snapshot`: a line per producer, as Kafka's DumpLogSegments prints it. `leader-epoch-checkpoint`: a line per
epoch. `*-offset-checkpoint`: a line per partition. `.strandline_segments`: a line per log. `meta.properties`,
`partition.metadata`: a line per property.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator

from strandline.runtime.disk import Disk, read_file
from strandline.storage.disk.checkpoints import (
    COMPACTED_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    decode_topic_id,
    read_epochs,
    read_offsets,
)
from strandline.storage.disk.properties import parse_properties
from strandline.storage.errors import CorruptSnapshot
from strandline.storage.inspection.dump_entry import DumpEntry, damage
from strandline.storage.manager.directory_state import SEGMENTS_LIST, decode_list
from strandline.storage.manager.identity import META_PROPERTIES
from strandline.storage.producers.snapshots import SNAPSHOT_SUFFIX, decode_snapshot
from strandline.storage.producers.states import ProducerRow

MAX_BYTES_READ = 256 * 2**20
_MAX_SEQUENCE = 2**31 - 1


def dump_state(disk: Disk, path: str) -> Iterator[DumpEntry] | None:
    """The lines of one small file; None where its name is that of none. OSError from the disk."""
    name = posixpath.basename(path)
    dump = _dump_snapshot if name.endswith(SNAPSHOT_SUFFIX) else _DUMPS.get(name)
    return _dumped(disk, path, dump) if dump is not None else None


def _dumped(disk: Disk, path: str, dump: Callable[[Disk, str], Iterator[DumpEntry]]) -> Iterator[DumpEntry]:
    try:
        yield from dump(disk, path)
    except (CorruptSnapshot, ValueError) as error:
        yield damage(f"{path} cannot be read: {error}", path=path)


def is_state_file(name: str) -> bool:
    return name in _DUMPS or name.endswith(SNAPSHOT_SUFFIX)


def _dump_snapshot(disk: Disk, path: str) -> Iterator[DumpEntry]:
    for row in decode_snapshot(read_file(disk, path, MAX_BYTES_READ)):
        yield _producer(row)


def _producer(row: ProducerRow) -> DumpEntry:
    transaction = f"OptionalLong[{row.transaction_start}]" if row.transaction_start >= 0 else "OptionalLong.empty"
    line = (
        f"producerId: {row.producer_id} producerEpoch: {row.epoch} coordinatorEpoch: {row.coordinator_epoch} "
        f"currentTxnFirstOffset: {transaction} lastTimestamp: {row.timestamp_ms} "
    )
    fields = {
        "producer_id": row.producer_id,
        "producer_epoch": row.epoch,
        "coordinator_epoch": row.coordinator_epoch,
        "transaction_start": row.transaction_start if row.transaction_start >= 0 else None,
        "last_timestamp_ms": row.timestamp_ms,
    }
    if row.last_sequence >= 0:
        first = row.last_sequence - row.offset_delta
        first += _MAX_SEQUENCE + 1 if first < 0 else 0  # sequences go round
        line += (
            f"firstSequence: {first} lastSequence: {row.last_sequence} lastOffset: {row.last_offset} "
            f"offsetDelta: {row.offset_delta} timestamp: {row.timestamp_ms}"
        )
        fields |= {
            "first_sequence": first,
            "last_sequence": row.last_sequence,
            "last_offset": row.last_offset,
            "offset_delta": row.offset_delta,
        }
    return DumpEntry("producer", line, fields)


class _Complaints:
    """Turns what a reader reports into lines."""

    def __init__(self, path: str) -> None:
        self.entries: list[DumpEntry] = []
        self._path = path

    def report(self, event: str, **fields: object) -> None:
        said = {name: str(value) for name, value in fields.items()}
        line = f"{self._path}: {event} {said.get('line', said.get('why', ''))}".rstrip()
        self.entries.append(DumpEntry("damage", line, said, is_damage=True))


def _dump_epochs(disk: Disk, path: str) -> Iterator[DumpEntry]:
    complaints = _Complaints(path)
    for entry in read_epochs(disk, path, complaints.report):
        line = f"epoch: {entry.epoch} startOffset: {entry.start_offset}"
        yield DumpEntry("epoch", line, {"epoch": entry.epoch, "start_offset": entry.start_offset})
    yield from complaints.entries


def _dump_offsets(disk: Disk, path: str) -> Iterator[DumpEntry]:
    complaints = _Complaints(path)
    for tp, offset in read_offsets(disk, path, complaints.report).items():
        line = f"topic: {tp.topic} partition: {tp.partition} offset: {offset}"
        yield DumpEntry("checkpoint", line, {"topic": tp.topic, "partition": tp.partition, "offset": offset})
    yield from complaints.entries


def _dump_list(disk: Disk, path: str) -> Iterator[DumpEntry]:
    # Whether the state vouches for it does not matter.
    for tp, listed in decode_list(read_file(disk, path, MAX_BYTES_READ)).items():
        sizes = ", ".join(f"{base} ({size} bytes)" for base, size in listed.segments)
        fields = {
            "topic": tp.topic,
            "partition": tp.partition,
            "segments": [list(pair) for pair in listed.segments],
            "epochs_crc": listed.epochs_crc,
        }
        yield DumpEntry("segments", f"topic: {tp.topic} partition: {tp.partition} segments: {sizes}", fields)


def _dump_properties(disk: Disk, path: str) -> Iterator[DumpEntry]:
    for key, value in parse_properties(read_file(disk, path, 2**20).decode()).items():
        yield DumpEntry("property", f"{key}={value}", {"key": key, "value": value})


def _dump_metadata(disk: Disk, path: str) -> Iterator[DumpEntry]:
    for line in read_file(disk, path, 2**20).decode("ascii").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        yield DumpEntry("property", f"{key}: {value}", {"key": key, "value": value})
        if key == "topic_id":
            try:
                decode_topic_id(value)
            except ValueError as error:
                yield damage(f"{path}: {error}", path=path)


_DUMPS: dict[str, Callable[[Disk, str], Iterator[DumpEntry]]] = {
    LEADER_EPOCHS: _dump_epochs,
    RECOVERY_POINTS: _dump_offsets,
    HIGH_WATERMARKS: _dump_offsets,
    LOG_START_OFFSETS: _dump_offsets,
    COMPACTED_OFFSETS: _dump_offsets,
    SEGMENTS_LIST: _dump_list,
    META_PROPERTIES: _dump_properties,
    PARTITION_METADATA: _dump_metadata,
}
