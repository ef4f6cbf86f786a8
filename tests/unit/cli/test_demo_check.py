"""The demo's check lets a whole retried batch stand twice and nothing else pass."""

from __future__ import annotations

import pytest

from strandline.cli.demo_check import Acknowledged, Consumed, DemoFailed, check
from strandline.cli.demo_source import SINGLE_MODULES, SourceFile, standard_library

FILES = [
    SourceFile(b"a.py", b"one\ntwo\r\n\xff\n"),
    SourceFile(b"empty.py", b""),
    SourceFile(b"pkg/b.py", b"x\nx\ny"),
]


def log_of(*files: SourceFile) -> list[Consumed]:
    pairs = [(file.key, line) for file in files for line in file.lines]
    return [Consumed(offset, key, value) for offset, (key, value) in enumerate(pairs)]


def one_batch(log: list[Consumed], retried: bool = False) -> list[Acknowledged]:
    return [Acknowledged(0, len(log), retried)]


def failure(files: list[SourceFile], log: list[Consumed], acknowledged: list[Acknowledged]) -> str:
    with pytest.raises(DemoFailed) as caught:
        check(files, {0: log}, {0: acknowledged})
    return str(caught.value)


def test_files_that_came_back_whole_pass() -> None:
    first, second = log_of(FILES[0], FILES[1]), log_of(FILES[2])
    findings = check(FILES, {0: first, 1: second}, {0: one_batch(first), 1: one_batch(second)})
    assert (findings.files, findings.records, findings.doubled_batches) == (3, 8, 0)


def test_a_missing_acknowledged_record_is_named() -> None:
    log = log_of(*FILES)
    assert failure(FILES, log[:2] + log[3:], one_batch(log)) == (
        "partition 0: the acknowledged record at offset 2 is missing"
    )


def test_an_altered_line_is_named_with_its_file() -> None:
    log = log_of(*FILES)
    log[1] = Consumed(1, b"a.py", b"twO\r")
    assert failure(FILES, log, one_batch(log)) == r"a.py: line 2 is b'twO\r' instead of b'two\r'"


def test_lines_out_of_order_fail() -> None:
    log = log_of(*FILES)
    log[0], log[1] = Consumed(0, *log[1][1:]), Consumed(1, *log[0][1:])
    assert failure(FILES, log, one_batch(log)).startswith("a.py: line 1 is")


def test_a_file_that_never_came_is_named() -> None:
    log = log_of(FILES[0], FILES[2])
    assert failure(FILES, log, one_batch(log)) == "empty.py is missing"


def test_a_file_in_two_partitions_fails() -> None:
    log = log_of(FILES[0])
    with pytest.raises(DemoFailed, match=r"a\.py is in partition 0 and in partition 1"):
        check(FILES[:1], {0: log, 1: log}, {0: one_batch(log), 1: one_batch(log)})


def twice(log: list[Consumed], start: int, count: int) -> list[Consumed]:
    """The log with `count` records from `start` on appended a second time right behind."""
    pairs = [record[1:] for record in log]
    pairs[start + count : start + count] = pairs[start : start + count]
    return [Consumed(offset, *pair) for offset, pair in enumerate(pairs)]


def test_a_whole_retried_batch_may_stand_twice_and_is_counted() -> None:
    log = log_of(*FILES)
    acknowledged = [Acknowledged(0, 2, False), Acknowledged(4, 2, True), Acknowledged(6, len(log) - 4, False)]
    findings = check(FILES, {0: twice(log, 2, 2)}, {0: acknowledged})
    assert (findings.doubled_batches, [record.offset for record in findings.doubled]) == (1, [2, 3])


def test_several_retried_batches_may_stand_twice_in_a_row() -> None:
    log = log_of(*FILES)
    acknowledged = [Acknowledged(4, 2, True), Acknowledged(6, 2, True), Acknowledged(8, len(log) - 4, False)]
    assert check(FILES, {0: twice(log, 0, 4)}, {0: acknowledged}).doubled_batches == 2


def test_a_doubled_batch_that_was_not_retried_fails() -> None:
    log = log_of(*FILES)
    acknowledged = [Acknowledged(0, 2, False), Acknowledged(4, 2, False), Acknowledged(6, len(log) - 4, False)]
    assert failure(FILES, twice(log, 2, 2), acknowledged) == (
        "partition 0, offset 2: a record of a.py that nobody acknowledged and no retry explains"
    )


def test_half_a_retried_batch_fails() -> None:
    log = log_of(*FILES)
    acknowledged = [Acknowledged(0, 2, False), Acknowledged(3, 2, True), Acknowledged(5, len(log) - 4, False)]
    assert "no retry explains" in failure(FILES, twice(log, 2, 1), acknowledged)


def test_the_standard_library_is_found_without_what_others_installed() -> None:
    files = standard_library()
    names = {file.name for file in files}
    assert {"os.py", "json/decoder.py"} <= names
    assert not [name for name in names if "site-packages" in name]
    assert all(len(file.lines) == file.lines_count and b"\n".join(file.lines) == file.content for file in files[:50])
    assert {file.package for file in files if file.name in ("os.py", "json/decoder.py")} == {SINGLE_MODULES, "json"}
