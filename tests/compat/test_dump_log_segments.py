"""`kafka.tools.DumpLogSegments` of a real Kafka reads what our log writes, without a complaint."""

from __future__ import annotations

import re
import shutil
import zlib
from pathlib import Path

import pytest

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.dump import DumpOptions, dump_file
from strandline.storage.log import Log
from strandline.storage.log_manager import LogManager
from strandline.testkit.storage_site import (
    TOPIC_ID,
    SmallLogConfig,
    StorageSite,
    fill,
    produced,
    raw,
    records,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIG = SmallLogConfig(segment_bytes=20_000, index_interval_bytes=500, segment_ms=10_000_000)
MAIN = "kafka.tools.DumpLogSegments"
COMPLAINTS = re.compile(
    r"isvalid: false|invalid bytes|Non-consecutive|mismatch|out of order|not found in the log|Exception|corrupt",
    re.IGNORECASE,
)


class Written:
    """Folders that our storage wrote, and what is in their logs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.contents: dict[str, list[tuple[int, int, bytes | None, bytes | None]]] = {}
        site = StorageSite(disk=PosixDisk(), config=CONFIG, dirs=(str(path),))  # type: ignore[arg-type]
        manager = site.start()
        logs = self._fill_all(manager)
        manager.close(clean=True)
        manager = site.start()
        for name, log in logs.items():
            tp = log.topic_partition
            self.contents[name] = [tuple(record)[:2] + tuple(record)[3:5] for record in records(manager.logs[tp])]
        manager.close(clean=True)

    def _fill_all(self, manager: LogManager) -> dict[str, Log]:
        return {
            str(log.topic_partition): log
            for log in (
                self._codecs(manager),
                self._truncated(manager),
                self._reopened(manager),
                self._follower(manager),
                self._odd_times(manager),
            )
        }

    def _create(self, manager: LogManager, topic: str) -> Log:
        return manager.create(TopicPartition(topic, 0), TOPIC_ID)

    def _codecs(self, manager: LogManager) -> Log:
        log = self._create(manager, "codecs")
        for place in range(300):
            log.append_as_leader(
                produced(1 + place % 7, 1_600_000_000_000 + place * 100, size=place % 90, codec=CODECS[place % 5]),
                place // 50,
            )
        return log

    def _truncated(self, manager: LogManager) -> Log:
        log = self._create(manager, "truncated")
        for epoch, cut in enumerate((1000, 700, 333, 332, 90)):
            fill(log, 250, epoch=epoch, count=3, timestamp_ms=10_000 * epoch + 1000)
            log.truncate_to(cut)
        fill(log, 50, epoch=9, count=2, timestamp_ms=500)
        return log

    def _reopened(self, manager: LogManager) -> Log:
        """Index files written in several waves."""
        log = self._create(manager, "reopened")
        for _ in range(10):
            fill(log, 37, count=2, timestamp_ms=1000 + log.log_end_offset)
            log.flushed(log.flush_plan()())
        return log

    def _follower(self, manager: LogManager) -> Log:
        leader, log = StorageSite(config=CONFIG).log(), self._create(manager, "follower")
        fill(leader, 100, epoch=1, count=4)
        fill(leader, 100, epoch=3, count=2)
        while log.log_end_offset < leader.log_end_offset:
            region = leader.read(log.log_end_offset, 7000, leader.log_end_offset)
            assert region is not None
            log.append_as_follower(memoryview(region.file.pread(region.length, region.position)), 3)
        assert raw(log) == raw(leader)
        return log

    def _odd_times(self, manager: LogManager) -> Log:
        """Timestamps that fall, stand still, and are missing."""
        log = self._create(manager, "odd-times")
        for place in range(200):
            timestamp_ms = -1 if place % 5 == 0 else 1000 + zlib.crc32(b"%d" % place) % 400 + place
            log.append_as_leader(produced(1, timestamp_ms, size=60), 0)
        return log

    def files(self, *suffixes: str) -> list[str]:
        return sorted(str(path) for path in self.path.glob("*/*") if path.name.endswith(suffixes))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("logs"))


def test_there_is_something_to_read(written: Written) -> None:
    assert len(written.files(".log")) >= 10 and len(written.files(".index")) == len(written.files(".log"))
    assert sum(map(len, written.contents.values())) > 2500


def test_every_batch_and_record_is_read(written: Written, run_kafka) -> None:
    output = run_kafka(MAIN, "--deep-iteration", "--print-data-log", "--files", ",".join(written.files(".log")))
    assert not COMPLAINTS.search(output), COMPLAINTS.search(output)
    seen: dict[str, list[tuple[int, int, str, str]]] = {}
    name = ""
    for line in output.splitlines():
        if line.startswith("Dumping "):
            name = Path(line.removeprefix("Dumping ")).parent.name
        found = re.match(
            r"\| offset: (\d+) CreateTime: (-?\d+) keySize: \d+ valueSize: \d+ sequence: -1 headerKeys: \[\] "
            r"key: (\S*) payload: (\S*)",
            line,
        )
        if found:
            seen.setdefault(name, []).append((int(found[1]), int(found[2]), found[3], found[4]))
    ours = {
        name: [(offset, time, (key or b"").decode(), (value or b"").decode()) for offset, time, key, value in content]
        for name, content in written.contents.items()
    }
    assert seen == ours


@pytest.mark.parametrize("flag", ["--verify-index-only", "--index-sanity-check"])
def test_every_index_entry_is_as_kafka_expects_it(written: Written, run_kafka, flag: str) -> None:
    files = written.files(".index", ".timeindex")
    output = run_kafka(MAIN, flag, "--files", ",".join(files))
    assert not COMPLAINTS.search(output), output
    if flag == "--index-sanity-check":
        empty = sum(path.endswith(".index") and not Path(path).stat().st_size for path in files)
        assert output.count("passed sanity check") + output.count("is empty") == len(files)
        assert output.count("is empty") == empty


def test_the_indexes_have_entries_to_be_judged(written: Written, run_kafka) -> None:
    output = run_kafka(MAIN, "--files", ",".join(written.files(".index", ".timeindex")))
    assert not COMPLAINTS.search(output), output
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
        assert ours == [line for line in theirs if not line.startswith("log4j:")]
