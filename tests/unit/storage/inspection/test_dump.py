"""What `dump-log` prints: Kafka's lines, fields for programs, and every kind of damage named."""

from __future__ import annotations

import struct

import pytest

from strandline.storage.inspection.dump import DumpOptions, NotASegmentFile, dump_file
from strandline.storage.inspection.dump_entry import DumpEntry
from support.storage_site import FOLDER, TP, StorageSite, fill, produced

LOG = f"{FOLDER}/{0:020d}.log"
INDEX = f"{FOLDER}/{0:020d}.index"
TIME_INDEX = f"{FOLDER}/{0:020d}.timeindex"
EPOCHS = f"{FOLDER}/leader-epoch-checkpoint"


@pytest.fixture
def written(site: StorageSite) -> StorageSite:
    log = site.log(segment_bytes=10**6, index_interval_bytes=100)
    fill(log, 5, epoch=2, count=2)
    log.append_as_leader(produced(3, codec="gzip", size=500), 4)
    log.flushed(log.flush_plan(final=True)())
    return site


def dump(site: StorageSite, path: str, **options: bool) -> list[DumpEntry]:
    return list(dump_file(site.disk, path, DumpOptions(**options)))


def lines(site: StorageSite, path: str, **options: bool) -> list[str]:
    return [entry.line for entry in dump(site, path, **options)]


def damage(site: StorageSite, path: str, **options: bool) -> list[str]:
    return [entry.line for entry in dump(site, path, **options) if entry.is_damage]


def test_a_log_is_printed_batch_by_batch(written: StorageSite) -> None:
    first, second, third = lines(written, LOG)[:3]
    assert (first, second) == (f"Dumping {LOG}", "Log starting offset: 0")
    assert third.startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 2 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        "position: 0 CreateTime: 1001 size: 119 magic: 2 compresscodec: none crc: "
    )
    assert third.endswith(" isvalid: true")
    last = dump(written, LOG)[-1]
    assert last.kind == "batch" and last.fields["codec"] == "gzip" and last.fields["leader_epoch"] == 4
    assert last.fields["base_offset"] == 10 and last.fields["is_valid"] is True


def test_records_are_printed_when_asked_for(written: StorageSite) -> None:
    deep = lines(written, LOG, deep_iteration=True)
    assert deep[3] == "| offset: 0 CreateTime: 1000 keySize: 2 valueSize: 20 sequence: -1 headerKeys: []"
    full = lines(written, LOG, print_data_log=True)
    assert full[4].endswith(f"sequence: -1 headerKeys: [] key: k1 payload: {'v' * 20}")
    records = [entry for entry in dump(written, LOG, print_data_log=True) if entry.kind == "record"]
    assert [entry.fields["offset"] for entry in records] == list(range(13))
    assert records[-1].fields["value"] == b"v" * 500


def test_indexes_are_printed_entry_by_entry(written: StorageSite) -> None:
    assert lines(written, INDEX) == [
        f"Dumping {INDEX}",
        *(f"offset: {offset} position: {119 * (offset // 2)}" for offset in (3, 5, 7, 9)),
        "offset: 12 position: 595",
    ]
    assert lines(written, TIME_INDEX)[1:] == [f"timestamp: {1000 + offset} offset: {offset}" for offset in (3, 5, 7, 9)]
    assert lines(written, INDEX, verify_index_only=True) == [f"Dumping {INDEX}"]
    assert lines(written, INDEX, index_sanity_check=True)[1] == f"{INDEX} passed sanity check."
    assert lines(written, TIME_INDEX, index_sanity_check=True)[1] == f"{TIME_INDEX} passed sanity check."


def test_epochs_are_printed(written: StorageSite) -> None:
    assert lines(written, EPOCHS) == [f"Dumping {EPOCHS}", "epoch: 2 startOffset: 0", "epoch: 4 startOffset: 10"]
    written.disk.write(EPOCHS, b"0\n2\n2 0\nx y\n")
    assert damage(written, EPOCHS) == [f"{EPOCHS}: checkpoint-bad-line x y"]


def test_a_folder_stands_for_its_files(written: StorageSite) -> None:
    headings = [line for line in lines(written, FOLDER) if line.startswith("Dumping")]
    snapshot = f"{FOLDER}/{13:020d}.snapshot"
    metadata = f"{FOLDER}/partition.metadata"
    assert headings == [f"Dumping {path}" for path in (INDEX, LOG, TIME_INDEX, snapshot, EPOCHS, metadata)]


@pytest.mark.parametrize("name", ["partition.meta", "x.log", "0.txt", "", "²²²²²²²²²²²²²²²²²²²².log"])
def test_other_files_are_refused(written: StorageSite, name: str) -> None:
    with pytest.raises(NotASegmentFile, match=r"no file of a log \(\.log, \.index, .*and none of a data folder"):
        dump(written, f"{FOLDER}/{name}" if name else "/nothing/here")


def test_a_missing_file_is_an_os_error(site: StorageSite) -> None:
    with pytest.raises(FileNotFoundError):
        dump(site, "/logs/t-0/00000000000000000000.log")


def test_a_torn_tail_is_named_with_its_size(written: StorageSite) -> None:
    written.disk.write(LOG, written.disk.read(LOG)[: 119 * 2 + 49])
    assert damage(written, LOG) == [f"Found 49 invalid bytes at the end of {0:020d}.log"]


def test_a_flipped_bit_is_named(written: StorageSite) -> None:
    data = bytearray(written.disk.read(LOG))
    data[100] ^= 1
    written.disk.write(LOG, bytes(data))
    (line,) = damage(written, LOG)
    assert line.startswith("baseOffset: 0 ") and line.endswith("isvalid: false")


def test_records_that_cannot_be_decoded_are_named(written: StorageSite) -> None:
    data = bytearray(written.disk.read(LOG))
    data[595 + 61 : 595 + 71] = bytes(10)
    written.disk.write(LOG, bytes(data))
    assert any("cannot be decoded" in line for line in damage(written, LOG, deep_iteration=True))


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        (INDEX, struct.pack(">iiii", 3, 119, 6, 238), "Index offset: 6, log offset: 5"),
        (INDEX, struct.pack(">iiii", 3, 119, 5, 9999), "Index offset: 5, log offset: none"),
        (INDEX, struct.pack(">ii", 3, 119) + b"x", "no whole number of 8-byte entries"),
        (TIME_INDEX, struct.pack(">qi", 1004, 3), "Index timestamp: 1004, log timestamp: 1003"),
        (TIME_INDEX, struct.pack(">qi", 1002, 2), "Indexed offset: 2 of"),
        (TIME_INDEX, struct.pack(">qiqi", 1005, 5, 1003, 3), "Found out of order timestamp"),
    ],
)
def test_an_index_that_does_not_agree_is_named(written: StorageSite, path: str, content: bytes, said: str) -> None:
    written.disk.write(path, content)
    assert any(said in line for line in damage(written, path, verify_index_only=True))


def test_space_reserved_behind_the_entries_is_no_damage(written: StorageSite) -> None:
    written.disk.write(INDEX, struct.pack(">ii", 3, 119) + bytes(80))
    assert lines(written, INDEX) == [f"Dumping {INDEX}", "offset: 3 position: 119"]
    assert "would be rebuilt" in damage(written, INDEX, index_sanity_check=True)[0]


def test_an_empty_index_says_so(site: StorageSite) -> None:
    manager = site.start()
    manager.create(TP, bytes(16))
    manager.close(clean=True)
    assert lines(site, INDEX) == [f"Dumping {INDEX}", f"{INDEX} is empty."]
    assert lines(site, INDEX, index_sanity_check=True)[1] == f"{INDEX} is empty."
