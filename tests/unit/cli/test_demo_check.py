"""The demo's check lets nothing pass that is not exactly what was produced."""

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


def one_batch(log: list[Consumed]) -> list[Acknowledged]:
    return [Acknowledged(0, len(log))]


def failure(files: list[SourceFile], log: list[Consumed], acknowledged: list[Acknowledged]) -> str:
    with pytest.raises(DemoFailed) as caught:
        check(files, {0: log}, {0: acknowledged})
    return str(caught.value)


def test_files_that_came_back_whole_pass() -> None:
    first, second = log_of(FILES[0], FILES[1]), log_of(FILES[2])
    findings = check(FILES, {0: first, 1: second}, {0: one_batch(first), 1: one_batch(second)})
    assert (findings.files, findings.records) == (3, 8)


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


def test_a_record_that_stands_twice_fails() -> None:
    log = log_of(*FILES)
    again = Consumed(len(log), *log[-1][1:])
    assert failure(FILES, [*log, again], one_batch(log)) == (
        f"partition 0, offset {len(log)}: a record of pkg/b.py that nobody acknowledged"
    )


def test_offsets_that_are_acknowledged_or_read_twice_fail() -> None:
    log = log_of(*FILES)
    assert "offset 1 was acknowledged twice" in failure(FILES, log, [*one_batch(log), Acknowledged(1, 1)])
    assert "offset 0 was read after 0" in failure(FILES, [log[0], *log], one_batch(log))


def test_the_standard_library_is_found_without_what_others_installed() -> None:
    files = standard_library()
    names = {file.name for file in files}
    assert {"os.py", "json/decoder.py"} <= names
    assert not [name for name in names if "site-packages" in name]
    assert all(len(file.lines) == file.lines_count and b"\n".join(file.lines) == file.content for file in files[:50])
    assert {file.package for file in files if file.name in ("os.py", "json/decoder.py")} == {SINGLE_MODULES, "json"}
