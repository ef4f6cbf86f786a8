"""`kafka.tools.DumpLogSegments` of a real Kafka reads what our log writes, without a complaint."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from compat.written import Written
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.inspection.dump import DumpOptions, dump_file

MAIN = "kafka.tools.DumpLogSegments"
COMPLAINTS = re.compile(
    r"isvalid: false|invalid bytes|Non-consecutive|mismatch|out of order|not found in the log|Exception|corrupt",
    re.IGNORECASE,
)
GAPS = re.compile(r"Non-consecutive offsets in \S*/(compacted|emptied)-0/")
"""What Kafka says of its own compacted logs, too."""
MISMATCH = re.compile(r"Found timestamp mismatch in :\S*/(compacted|emptied)-0/")
"""What Kafka says of its own compacted logs, where the index knows the largest timestamp of a batch from its header,
as Kafka's recovery takes it, but no record is left in the batch."""


def complaints(output: str) -> list[str]:
    """Also those that stand below one that is excused."""
    found, excused = [], False
    for line in output.splitlines():
        if not line.startswith("  "):
            excused = MISMATCH.search(line) is not None
        of_no_record = excused and line.endswith("log timestamp: -1")
        wrong = COMPLAINTS.search(line) and not GAPS.search(line) and not excused
        if wrong or (excused and line.startswith("  ") and not of_no_record):
            found.append(line)
    return found


def test_there_is_something_to_read(written: Written) -> None:
    assert len(written.files(".log")) >= 10 and len(written.files(".index")) == len(written.files(".log"))
    assert sum(map(len, written.contents.values())) > 2500


def test_every_batch_and_record_is_read(written: Written, run_kafka) -> None:
    output = run_kafka(MAIN, "--deep-iteration", "--print-data-log", "--files", ",".join(written.files(".log")))
    assert not complaints(output)
    seen: dict[str, list[tuple[int, int, str, str]]] = {}
    name = ""
    for line in output.splitlines():
        if line.startswith("Dumping "):
            name = Path(line.removeprefix("Dumping ")).parent.name
        found = re.match(
            r"\| offset: (\d+) CreateTime: (-?\d+) keySize: \d+ valueSize: -?\d+ sequence: -?\d+ headerKeys: \[\]"
            r"(?: key: (.*?))?(?: payload: (\S*))?$",
            line,
        )
        if found:
            seen.setdefault(name, []).append((int(found[1]), int(found[2]), found[3] or "", found[4] or ""))
    ours = {
        name: [(offset, time, (key or b"").decode(), (value or b"").decode()) for offset, time, key, value in content]
        for name, content in written.contents.items()
    }
    assert seen == ours


@pytest.mark.parametrize("flag", ["--verify-index-only", "--index-sanity-check"])
def test_every_index_entry_is_as_kafka_expects_it(written: Written, run_kafka, flag: str) -> None:
    files = written.files(".index", ".timeindex")
    output = run_kafka(MAIN, flag, "--files", ",".join(files))
    assert not complaints(output)
    if flag == "--index-sanity-check":
        empty = sum(path.endswith(".index") and not Path(path).stat().st_size for path in files)
        assert output.count("passed sanity check") + output.count("is empty") == len(files)
        assert output.count("is empty") == empty


def test_the_indexes_have_entries_to_be_judged(written: Written, run_kafka) -> None:
    output = run_kafka(MAIN, "--files", ",".join(written.files(".index", ".timeindex")))
    assert not complaints(output)
    assert output.count("position: ") > 150 and output.count("timestamp: ") > 100


def test_what_is_wrong_would_have_been_named(written: Written, run_kafka, tmp_path: Path) -> None:
    """The tests above can fail: one flipped byte in each kind of file is noticed."""
    for name, place in ((".log", -3), (".index", 3), (".timeindex", 7)):
        source = next(Path(path) for path in written.files(name) if "follower" in path)
        folder = tmp_path / name[1:]
        shutil.copytree(source.parent, folder)
        data = bytearray(source.read_bytes())
        data[place] ^= 1
        (folder / source.name).write_bytes(data)
    files = sorted(str(path) for path in tmp_path.glob("*/*") if path.suffix == f".{path.parent.name}")
    output = run_kafka(MAIN, "--deep-iteration", "--files", ",".join(files))
    assert "isvalid: false" in output
    assert "Mismatches in :" in output
    assert "Found timestamp mismatch in :" in output


def test_our_own_dump_prints_kafkas_lines(written: Written, run_kafka) -> None:
    """`strandline dump-log` can stand in for Kafka's tool: line by line the same, for every kind of file."""
    contents = DumpOptions(print_data_log=True)
    for suffix, options, flags in (
        (".log", contents, ["--deep-iteration", "--print-data-log"]),
        (".log", DumpOptions(), []),
        (".index", DumpOptions(), []),
        (".timeindex", DumpOptions(), []),
    ):
        files = written.files(suffix)
        theirs = run_kafka(MAIN, *flags, "--files", ",".join(files)).splitlines()
        ours = [entry.line for path in files for entry in dump_file(PosixDisk(), path, options)]
        theirs = [line for line in theirs if not line.startswith("log4j:")]
        assert ours == theirs[: len(ours)]
        assert not theirs[len(ours) :] or GAPS.match(theirs[len(ours)]) or MISMATCH.match(theirs[len(ours)])
