"""`strandline dump-log` on files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.protocol.records import build_batch


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([(5, b"k", b"\xff")]))
    return path


def test_files_are_named_either_way(shell: Any, log: Path) -> None:
    ran = shell("dump-log", "--files", f"{log},{log}", "--print-data-log")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("Log starting offset: 0\n") == 2
    assert ran.out == shell("dump-log", str(log), str(log), "--print-data-log").out


def test_json_is_one_object_a_line(shell: Any, log: Path) -> None:
    shown = [
        json.loads(line)
        for line in shell("dump-log", str(log), "--print-data-log", "--output", "json").out.splitlines()
    ]
    assert [each["kind"] for each in shown] == ["file", "start", "batch", "record"]
    assert (shown[3]["key"], shown[3]["value_base64"]) == ("k", "/w==")


def test_a_folder_stands_for_its_files(shell: Any, log: Path) -> None:
    assert shell("dump-log", str(log.parent)) == shell("dump-log", str(log))


def test_damage_is_exit_code_1(shell: Any, log: Path) -> None:
    log.write_bytes(log.read_bytes() + b"torn")
    ran = shell("dump-log", str(log))
    assert ran.code == 1
    assert "Found 4 invalid bytes" in ran.out


def test_files_that_are_missing_or_of_another_kind_are_named(shell: Any, tmp_path: Path) -> None:
    ran = shell("dump-log", str(tmp_path / "00000000000000000007.index"))
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "00000000000000000007" in ran.err
    assert "does not exist" in ran.err
    ran = shell("dump-log", str(tmp_path / "nosuch.log"))
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "nosuch.log does not exist" in ran.err
    index = tmp_path / "00000000000000000007.index"
    index.touch()
    assert "00000000000000000007.log: No such file" in shell("dump-log", str(index)).err
    ran = shell("dump-log", "/etc/passwd")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert shell("dump-log").code == 2
