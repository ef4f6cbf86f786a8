"""Where change logs are found: below folders, rolled and packed; what should lie beside them and does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.runtime.disk_posix import PosixDisk
from strandline.runtime.log_files import Log, find_change_logs, logs_of


def put(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def test_all_change_logs_below_a_folder_are_found_and_nothing_else(tmp_path: Path) -> None:
    both = ("controller.log", "state-change.log")
    put(tmp_path / "broker-1", *both, "state-change.log.1", "state-change.log.2.gz", "broker.log", "controller.log.old")
    put(tmp_path / "far" / "below" / "broker-2", *both)
    put(tmp_path / "broker-1" / "data", "meta.properties")
    put(tmp_path / "broker-1" / "data" / "state-change.log-0", "state-change.log")
    found = find_change_logs(PosixDisk(), [str(tmp_path)])
    assert [path.removeprefix(f"{tmp_path}/") for path in found.files] == [
        "broker-1/controller.log",
        "broker-1/state-change.log",
        "broker-1/state-change.log.1",
        "broker-1/state-change.log.2.gz",
        "far/below/broker-2/controller.log",
        "far/below/broker-2/state-change.log",
    ]
    assert found.missing == ()


def test_what_was_taken_away_from_beside_them_is_told(tmp_path: Path) -> None:
    put(tmp_path, "state-change.log.2", "state-change.log")
    missing = find_change_logs(PosixDisk(), [str(tmp_path)]).missing
    assert missing == (f"{tmp_path}/controller.log", f"{tmp_path}/state-change.log.1")


def test_a_file_is_taken_whatever_its_name_and_once(tmp_path: Path) -> None:
    put(tmp_path, "of-broker-3.txt", "state-change.log", "controller.log")
    file = str(tmp_path / "of-broker-3.txt")
    found = find_change_logs(PosixDisk(), [file, file, str(tmp_path / "state-change.log"), str(tmp_path)])
    assert [Path(path).name for path in found.files] == ["controller.log", "of-broker-3.txt", "state-change.log"]
    assert find_change_logs(PosixDisk(), [file]).missing == ()


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        find_change_logs(PosixDisk(), [str(tmp_path / "nothing")])


def test_what_a_log_was_rolled_to_is_one_log_from_the_oldest_file_on() -> None:
    files = [
        "/a/controller.log",
        "/a/state-change.log",
        "/a/state-change.log.1",
        "/a/state-change.log.10.gz",
        "/b/state-change.log.2",
        "/b/state-change.log",
        "/b/merged",
    ]
    assert logs_of(files) == [
        Log(("/a/controller.log",), beats=False),
        Log(("/a/state-change.log.10.gz", "/a/state-change.log.1", "/a/state-change.log"), beats=True),
        Log(("/b/state-change.log.2", "/b/state-change.log"), beats=True),
        Log(("/b/merged",), beats=False),
    ]
