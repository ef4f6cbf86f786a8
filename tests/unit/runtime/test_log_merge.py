"""Change logs of several brokers read as one stream: rolled and packed files, damaged lines, files that go away."""

from __future__ import annotations

import gzip
import json

import pytest

from strandline.runtime import log_merge
from strandline.runtime.log_merge import LogMerge
from strandline.testkit.disk import MemoryDisk


def line(second: int, broker_id: int) -> bytes:
    moment = f"1970-01-01T00:00:{second:02}Z"
    return json.dumps({"event": "broker alive", "timestamp": moment, "broker_id": broker_id}).encode() + b"\n"


def disk_of(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    for name, data in files.items():
        folder = name.rpartition("/")[0] or "/"
        if not disk.exists(folder):
            disk.makedirs(folder)
        disk.open(name, create=True).pwritev([data], 0)
    return disk


FILES = {
    "/1/state-change.log.2.gz": gzip.compress(line(1, 1) + line(5, 1)),
    "/1/state-change.log.1": line(8, 1),
    "/1/state-change.log": line(12, 1) + b"{damaged\n" + line(14, 1) + b"{cut",
    "/2/state-change.log": line(2, 2) + line(9, 2) + line(6, 2) + line(13, 2),
}


def seconds(merge: LogMerge) -> list[tuple[int, int]]:
    return [(told.line.time_ms // 1000, told.line.broker_id) for told in merge]


def test_lines_come_by_time_and_those_of_one_log_in_its_order_though_its_clock_went_back() -> None:
    merge = LogMerge(disk_of(FILES), FILES)
    assert seconds(merge) == [
        *((1, 1), (2, 2), (5, 1), (8, 1)),
        *((9, 2), (6, 2), (12, 1), (13, 2), (14, 1)),
    ]
    assert (merge.lines, merge.cut_files, merge.failed, merge.lines_too_long) == (9, [], {}, 0)


def test_each_line_tells_where_it_stands_and_damaged_ones_are_named_so() -> None:
    merge = LogMerge(disk_of(FILES), FILES)
    places = [(told.file, told.number) for told in merge if told.line.broker_id == 1]
    assert places == [
        *(("/1/state-change.log.2.gz", 1), ("/1/state-change.log.2.gz", 2), ("/1/state-change.log.1", 1)),
        *(("/1/state-change.log", 1), ("/1/state-change.log", 3)),
    ]
    assert [each[:2] for each in merge.damaged] == [("/1/state-change.log", 2), ("/1/state-change.log", 4)]
    assert merge.damaged_lines == 2


def test_very_many_damaged_lines_are_counted_and_the_first_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_merge, "MOST_DAMAGED", 3)
    merge = LogMerge(disk_of({"/a": b"?\n" * 10 + line(1, 1)}), ["/a"])
    assert len(list(merge)) == 1
    assert (merge.damaged_lines, [each.number for each in merge.damaged]) == (10, [1, 2, 3])


def test_a_file_that_is_cut_and_one_that_went_away_are_named_and_the_rest_is_read() -> None:
    packed = FILES["/1/state-change.log.2.gz"]
    disk = disk_of({**FILES, "/1/state-change.log.2.gz": packed[:-9]})
    disk.unlink("/1/state-change.log.1")
    merge = LogMerge(disk, FILES)
    assert [second for second, broker in seconds(merge) if broker == 1][-2:] == [12, 14]
    assert merge.cut_files == ["/1/state-change.log.2.gz"]
    assert list(merge.failed) == ["/1/state-change.log.1"]


def test_a_file_is_opened_when_its_turn_comes_and_read_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that neither many files nor long ones take memory."""
    monkeypatch.setattr(log_merge, "CHUNK_BYTES", 200)
    long = {"/1/state-change.log.1": line(1, 1) * 500, "/1/state-change.log": line(2, 1)}
    disk = disk_of(long)
    seen: list[tuple[str, str]] = []
    disk.on_operation = lambda operation, path: seen.append((operation, path))
    lines = iter(LogMerge(disk, long))
    for _ in range(250):
        next(lines)
    assert 50 < sum(operation == "pread" for operation, _ in seen) < 150
    assert not any(path == "/1/state-change.log" for _, path in seen)
    assert len(list(lines)) == 251
