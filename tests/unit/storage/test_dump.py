"""What `dump-log` finds in segment files, sound and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.protocol.records import assign_offset, build_batch
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.dump import DumpOptions, Entry, NotASegmentFile, dump_file
from strandline.storage.offset_index import OffsetIndex
from strandline.storage.time_index import TimeIndex

DEEP = DumpOptions(deep=True, contents=True)
FIRST_MS = 1_700_000_000_000


class Files:
    """One segment of three batches, with both indexes."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "00000000000000000100.log"
        self.index = self.log.with_suffix(".index")
        self.timeindex = self.log.with_suffix(".timeindex")
        offsets, times = OffsetIndex(100), TimeIndex(100)
        data = b""
        for number, count in enumerate((1, 2, 3)):
            batch = bytearray(build_batch([(FIRST_MS + number, b"k", b"value %d" % number)] * count, "none"))
            base_offset = 100 + sum(range(number + 1))
            assign_offset(batch, base_offset, 7)
            if number:
                offsets.append(base_offset + count - 1, len(data))
            times.maybe_append(FIRST_MS + number, base_offset + count - 1)
            data += batch
        self.log.write_bytes(data)
        self.index.write_bytes(offsets.encode())
        self.timeindex.write_bytes(times.encode())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def dump(path: Path, options: DumpOptions = DEEP) -> list[Entry]:
    return list(dump_file(PosixDisk(), str(path), options))


def damage(path: Path, options: DumpOptions = DEEP) -> list[str]:
    return [entry.line for entry in dump(path, options) if entry.is_damage]


def test_a_log_is_shown_in_the_lines_of_kafkas_tool(files: Files) -> None:
    lines = [entry.line for entry in dump(files.log)]
    assert lines[:2] == [f"Dumping {files.log}", "Log starting offset: 100"]
    assert lines[4].startswith(
        "baseOffset: 101 lastOffset: 102 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 7 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        "position: 76 CreateTime: 1700000000001 size: "
    )
    assert lines[4].endswith(" isvalid: true")
    assert lines[5] == (
        "| offset: 101 CreateTime: 1700000000001 keySize: 1 valueSize: 7 sequence: -1 headerKeys: [] "
        "key: k payload: value 1"
    )
    assert [entry.kind for entry in dump(files.log)].count("record") == 6
    assert damage(files.log) == []


def test_records_are_shown_only_when_asked_for(files: Files) -> None:
    assert "record" not in {entry.kind for entry in dump(files.log, DumpOptions())}
    shown = [entry for entry in dump(files.log, DumpOptions(deep=True)) if entry.kind == "record"]
    assert len(shown) == 6
    assert "payload" not in shown[0].line


@pytest.mark.parametrize("garbage", [b"\0", b"\0" * 100, b"x" * 200])
def test_a_torn_tail_is_counted(files: Files, garbage: bytes) -> None:
    with files.log.open("ab") as log:
        log.write(garbage)
    assert damage(files.log) == [f"Found {len(garbage)} invalid bytes at the end of {files.log.name}"]


def test_a_batch_with_a_wrong_checksum_is_damage_and_the_next_ones_are_shown(files: Files) -> None:
    data = bytearray(files.log.read_bytes())
    data[70] ^= 1
    files.log.write_bytes(data)
    found = [entry for entry in dump(files.log) if entry.kind == "batch"]
    assert [entry.fields["isvalid"] for entry in found] == [False, True, True]
    assert found[0].is_damage


def test_indexes_agree_with_their_log(files: Files) -> None:
    shown = [entry.line for entry in dump(files.index)]
    assert shown[1:2] == ["offset: 102 position: 76"]
    assert [entry.line for entry in dump(files.timeindex)][1:] == [
        f"timestamp: {FIRST_MS} offset: 100",
        f"timestamp: {FIRST_MS + 1} offset: 102",
        f"timestamp: {FIRST_MS + 2} offset: 105",
    ]
    for path in (files.index, files.timeindex):
        assert len(dump(path, DumpOptions(verify_only=True))) == 1
        assert dump(path, DumpOptions(sanity_check_only=True))[1].line == f"{path} passed sanity check."


def test_an_index_that_does_not_agree_is_damage(files: Files) -> None:
    index = bytearray(files.index.read_bytes())
    index[7] += 1
    files.index.write_bytes(index)
    assert len(damage(files.index, DumpOptions(verify_only=True))) == 1
    times = bytearray(files.timeindex.read_bytes())
    times[7] ^= 255
    files.timeindex.write_bytes(times)
    assert damage(files.timeindex, DumpOptions(verify_only=True))
    files.timeindex.write_bytes(b"odd")
    assert "failed sanity check" in damage(files.timeindex, DumpOptions(sanity_check_only=True))[0]


def test_what_preallocation_left_is_no_entry(files: Files) -> None:
    files.index.write_bytes(files.index.read_bytes() + bytes(80))
    files.timeindex.write_bytes(files.timeindex.read_bytes() + bytes(120))
    assert damage(files.index) == damage(files.timeindex) == []


@pytest.mark.parametrize("name", ["passwd", "x.log", "00000000000000000000.txt", "²0000000000000000000.log"])
def test_other_files_are_refused_by_their_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotASegmentFile):
        dump(tmp_path / name)
