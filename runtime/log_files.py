"""Finds the change logs of brokers below folders: `state-change.log`, `controller.log`, and what they were rolled to.

`logging.py` writes them: the newest lines are in the file without a number, older ones in `.1`, `.2` and so on. Packed
ones (`.gz`) count as well.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from strandline.runtime.disk import Disk

_NAME = re.compile(r"(state-change|controller)\.log(?:\.(\d{1,6}))?(?:\.gz)?")
_BOTH = ("controller", "state-change")
_OF_LOG_DIRS = "meta.properties"
"""A folder that has it holds partitions, thousands of them perhaps, and no log of the broker."""


class FoundLogs(NamedTuple):
    """files: absolute paths, sorted. missing: what should lie beside them and does not."""

    files: tuple[str, ...]
    missing: tuple[str, ...]


def find_change_logs(disk: Disk, paths: Iterable[str]) -> FoundLogs:
    """Of each path: the file itself, whatever its name, or all change logs in the folder and below. OSError."""
    files: dict[str, None] = {}
    missing: dict[str, None] = {}
    for path in paths:
        if disk.is_dir(path):
            _look(disk, path.rstrip("/") or "/", files, missing)
        elif disk.exists(path):
            files[path] = None
        else:
            raise FileNotFoundError(2, "no such file or folder", path)
    return FoundLogs(tuple(sorted(files)), tuple(sorted(missing)))


class Log(NamedTuple):
    """What one log was rolled to, the oldest first. beats: it is a state-change log, in which a broker shows once a
    minute that it lives."""

    files: tuple[str, ...]
    beats: bool


def logs_of(files: Iterable[str]) -> list[Log]:
    """Of files by the names that they have in the folders of brokers; any other file is a log of its own."""
    by_log: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for file in files:
        folder, _, name = file.rpartition("/")
        named = _NAME.fullmatch(name)
        by_log[f"{folder}/{named[1]}" if named else file].append((int(named[2] or 0) if named else 0, file))
    return [
        Log(
            tuple(file for _, file in sorted(numbered, key=lambda each: (-each[0], each[1]))),
            log.endswith("/state-change"),
        )
        for log, numbered in by_log.items()
    ]


def _look(disk: Disk, folder: str, files: dict[str, None], missing: dict[str, None]) -> None:
    entries = disk.scandir(folder)
    if any(entry.name == _OF_LOG_DIRS for entry in entries):
        return
    numbers: dict[str, set[int]] = defaultdict(set)
    for entry in entries:
        path = f"{folder}/{entry.name}"
        named = _NAME.fullmatch(entry.name)
        if entry.is_dir:
            _look(disk, path, files, missing)
        elif named is not None and not entry.is_special:
            files[path] = None
            numbers[named[1]].add(int(named[2] or 0))
    for log in _BOTH if numbers else ():
        for number in sorted(set(range(max(numbers[log], default=0) + 1)) - numbers[log]):
            missing[f"{folder}/{log}.log" + (f".{number}" if number else "")] = None
