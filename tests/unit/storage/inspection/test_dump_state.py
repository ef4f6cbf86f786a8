"""What `dump-log` prints of snapshots, checkpoints and property files; of damaged ones; and of part of a log."""

from __future__ import annotations

import pytest

from strandline.storage.disk.checkpoints import EpochEntry, encode_epochs, encode_offsets, write_atomically
from strandline.storage.inspection.dump import DumpOptions, dump_file
from strandline.storage.inspection.dump_entry import DumpEntry
from strandline.storage.producers.snapshots import encode_snapshot
from strandline.storage.producers.states import ProducerRow
from support.storage_site import FOLDER, TOPIC_ID, TP, StorageSite, fill

SNAPSHOT = f"{FOLDER}/{40:020d}.snapshot"


@pytest.fixture
def written(site: StorageSite) -> StorageSite:
    manager = site.start()
    fill(manager.create(TP, TOPIC_ID), 30, epoch=1)
    manager.close(clean=True)
    return site


def dump(site: StorageSite, path: str, **options: int) -> list[DumpEntry]:
    return list(dump_file(site.disk, path, DumpOptions(**options)))[1:]


def test_a_snapshot_is_printed_in_kafkas_line(written: StorageSite) -> None:
    rows = [ProducerRow(7, 2, 9, 39, 4, 1234, -1, -1), ProducerRow(8, 0, -1, -1, 0, -1, 5, 17)]
    rows.append(ProducerRow(9, 0, 1, 30, 3, 99, -1, -1))
    written.disk.write(SNAPSHOT, encode_snapshot(rows))
    first, second, third = dump(written, SNAPSHOT)
    assert first.line == (
        "producerId: 7 producerEpoch: 2 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty "
        "lastTimestamp: 1234 firstSequence: 5 lastSequence: 9 lastOffset: 39 offsetDelta: 4 timestamp: 1234"
    )
    assert first.fields["first_sequence"] == 5 and first.kind == "producer"
    assert second.line == (
        "producerId: 8 producerEpoch: 0 coordinatorEpoch: 5 currentTxnFirstOffset: OptionalLong[17] lastTimestamp: -1 "
    )
    assert "last_sequence" not in second.fields
    assert third.fields["first_sequence"] == 2**31 - 2  # sequences go round


@pytest.mark.parametrize("content", [b"", b"\0\1", b"x" * 50, encode_snapshot([])[:-1] + b"\1"])
def test_a_damaged_snapshot_is_told(written: StorageSite, content: bytes) -> None:
    written.disk.write(SNAPSHOT, content)
    (entry,) = dump(written, SNAPSHOT)
    assert entry.is_damage and entry.line.startswith(f"{SNAPSHOT} cannot be read: ")


@pytest.mark.parametrize("name", ["recovery-point", "replication", "log-start", "cleaner"])
def test_offset_checkpoints_are_printed_and_their_bad_lines_named(written: StorageSite, name: str) -> None:
    path = f"/logs/{name}-offset-checkpoint"
    write_atomically(written.disk, path, encode_offsets({TP: 12}))
    (entry,) = dump(written, path)
    assert entry.line == "topic: t partition: 0 offset: 12"
    assert entry.fields == {"topic": "t", "partition": 0, "offset": 12}
    written.disk.write(path, b"0\n2\nt 0 12\nt x 4\n")
    assert [entry.is_damage for entry in dump(written, path)] == [False, True]


def test_property_files_and_the_list_of_segments_are_printed(written: StorageSite) -> None:
    shown = {entry.fields["key"]: entry.fields["value"] for entry in dump(written, "/logs/meta.properties")}
    assert shown["broker.id"] == "7" and shown["cluster.id"] == "abc"
    assert [entry.line for entry in dump(written, f"{FOLDER}/partition.metadata")] == [
        "version: 0",
        "topic_id: AAECAwQFBgcICQoLDA0ODw",
    ]
    written.disk.write(f"{FOLDER}/partition.metadata", b"version: 0\ntopic_id: !\n")
    assert [entry.is_damage for entry in dump(written, f"{FOLDER}/partition.metadata")] == [False, False, True]
    (entry,) = dump(written, "/logs/.strandline_segments")
    assert entry.fields["segments"][0][0] == 0 and entry.line.startswith("topic: t partition: 0 segments: 0 (")


def test_epochs_keep_their_line(written: StorageSite) -> None:
    written.disk.write(f"{FOLDER}/leader-epoch-checkpoint", encode_epochs([EpochEntry(1, 0)]))
    (entry,) = dump(written, f"{FOLDER}/leader-epoch-checkpoint")
    assert entry.line == "epoch: 1 startOffset: 0"


def test_a_data_folder_is_dumped_as_a_whole(written: StorageSite) -> None:
    headings = [entry.line for entry in dump_file(written.disk, "/logs", DumpOptions()) if entry.kind == "file"]
    assert "Dumping /logs/meta.properties" in headings and "Dumping /logs/recovery-point-offset-checkpoint" in headings


def test_max_bytes_ends_a_dump_behind_whole_batches(written: StorageSite) -> None:
    path = f"{FOLDER}/{0:020d}.log"
    sizes = [entry.fields["size_bytes"] for entry in dump(written, path) if entry.kind == "batch"]
    for limit, count in ((0, 0), (1, 1), (sizes[0], 1), (sizes[0] + 1, 2), (10**9, len(sizes))):
        assert sum(entry.kind == "batch" for entry in dump(written, path, max_bytes=limit)) == count
