"""What the embedded cluster writes down, so that another command finds it again: `cluster.json` in its data folder.

    {"version": 1, "processes": {"zookeeper": {"pid": 1, "started": "…", "port": 1}, "broker-1": {…}, …}}

It exists from the first started process until everything was stopped. A process is recorded with the moment it
started, so a recycled pid is never taken for ours. Writes are whole or not at all; a lock file keeps two commands from
changing the same cluster at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from strandline.cli.process import ProcessId

DEFAULT_DATA_DIR = Path("strandline-data")
DATA_VARIABLE = "STRANDLINE_DATA"
STATE_FILE = "cluster.json"
LOCK_FILE = "cluster.lock"
_VERSION = 1


class StateUnreadable(Exception):
    """The state file is damaged; the text says what to do."""


class FolderRefused(ValueError):
    """A folder whose path cannot be handed to brokers and ZooKeeper; one line that names it and the remedy."""


class ClusterBusy(Exception):
    """Another command is starting or stopping the same cluster."""


@dataclass(frozen=True, slots=True)
class Member:
    """One recorded process: `name` is `zookeeper` or `broker-<id>`."""

    name: str
    process: ProcessId
    port: int


def check_folder(data_dir: Path) -> None:
    """Can a cluster live there? FolderRefused, by its path alone."""
    path = str(data_dir.resolve())
    try:
        path.encode()
    except UnicodeEncodeError:
        raise FolderRefused(
            f"--data {path!a}: the path is not UTF-8; name another folder, or set LC_ALL=C.UTF-8 if it is"
        ) from None
    if "," in path:
        raise FolderRefused(
            f"--data '{path}' has a comma in its path, where log.dirs would end; name a folder without one"
        )
    if any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in path):
        raise FolderRefused(f"--data {path!a} has a control character in its path; name a folder without one")


def brokers_with_data(data_dir: Path) -> int:
    """How many brokers a cluster had that was started there, up or not; 0: there never was one."""
    return len(list(data_dir.glob("broker-*/server.properties")))


def read_state(data_dir: Path) -> dict[str, Member] | None:
    """name → member; None when no cluster is recorded there. StateUnreadable."""
    path = data_dir / STATE_FILE
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        state = json.loads(text)
        if state["version"] != _VERSION:
            raise ValueError(f"version {state['version']}")
        return {
            name: Member(name, ProcessId(int(entry["pid"]), str(entry["started"])), int(entry["port"]))
            for name, entry in state["processes"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateUnreadable(
            f"{path} is not readable ({error}); end its processes yourself and remove the file"
        ) from error


def write_state(data_dir: Path, members: dict[str, Member]) -> None:
    """Replace the state; an empty one removes the file."""
    path = data_dir / STATE_FILE
    if not members:
        path.unlink(missing_ok=True)
        return
    processes = {
        name: {"pid": member.process.pid, "started": member.process.started, "port": member.port}
        for name, member in members.items()
    }
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({"version": _VERSION, "processes": processes}, indent=1) + "\n")
    os.replace(unfinished, path)


@contextlib.contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Hold the cluster's lock. ClusterBusy at once when another process has it."""
    with (data_dir / LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterBusy(
                f"another command is starting or stopping the cluster in {data_dir}; wait for it"
            ) from None
        yield
