"""A disk of the soak of a history fails as the file says that is put next to the broker, there and nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BROKEN_DISK = Path(__file__).parents[2] / "support" / "broken_disk"
TRIED = """
import os, socket, sys
from strandline.runtime.disk_posix import PosixDisk

disk, (here, there) = PosixDisk(), socket.socketpair()

def send(file):
    os.sendfile(here.fileno(), file.fileno(), 0, 1)

for folder in sys.argv[1:]:
    disk.makedirs(folder)
    file = disk.open(f"{folder}/file", create=True)
    os.truncate(f"{folder}/file", 3)
    calls = {
        "pwritev": lambda: file.pwritev([b"abc"], 0),
        "pread": lambda: file.pread(3, 0),
        "pread_into": lambda: file.pread_into(bytearray(3), 0),
        "sendfile": lambda: send(file),
        "is_resident": lambda: file.is_resident(0, 3),
        "fsync": file.fsync,
        "fsync_dir": lambda: disk.fsync_dir(folder),
        "rename": lambda: disk.rename(f"{folder}/file", f"{folder}/other"),
    }
    for name, call in calls.items():
        try:
            call()
        except OSError as error:
            print(os.path.basename(folder), name, error.errno)
"""


@pytest.mark.parametrize(
    ("operation", "calls"),
    [
        ("read", ["pread", "pread_into", "sendfile"]),
        ("write", ["pwritev"]),
        ("fsync", ["fsync", "fsync_dir"]),
        ("rename", ["rename"]),
        (None, []),
    ],
)
def test_errors_strike_the_operations_and_folders_that_are_named(
    tmp_path: Path, operation: str | None, calls: list[str]
) -> None:
    told = tmp_path / "told"
    if operation is not None:
        told.write_text(json.dumps({"errors": [operation], "below": [str(tmp_path / "data")]}))
    path = os.pathsep.join([str(BROKEN_DISK), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", TRIED, str(tmp_path / "data"), str(tmp_path / "data-of-others")],
        env={**os.environ, "PYTHONPATH": path, "STRANDLINE_BROKEN_DISK": str(told)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"data {name} 5" for name in calls]
    struck = tmp_path / "told.struck"
    told_operations = [line.split()[0] for line in struck.read_text().splitlines()] if struck.exists() else []
    assert told_operations == [operation] * len(calls)


def test_each_process_tells_where_it_has_strandline_from(tmp_path: Path) -> None:
    """Also where another one would be found without PYTHONPATH."""
    module = tmp_path / "older" / "strandline" / "__init__.py"
    module.parent.mkdir(parents=True)
    module.touch()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(BROKEN_DISK), str(tmp_path / "older")]),
        "STRANDLINE_BROKEN_DISK": str(tmp_path / "told"),
    }
    with subprocess.Popen(
        [sys.executable, "-P", "-c", "import strandline; print(strandline.__file__)"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.communicate()[0] == f"{module}\n"
    assert (tmp_path / "told.runs").read_text() == f"{process.pid} {module}\n"


def test_a_process_that_may_open_no_more_files_is_left_alone(tmp_path: Path) -> None:
    """What it has open already it may go on to use."""
    tried = """
import os, resource, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
resource.setrlimit(resource.RLIMIT_NOFILE, (file + 1, file + 1))
os.pwritev(file, [b"abc"], 0)
os.fsync(file)
"""
    done = subprocess.run(
        [sys.executable, "-c", tried, str(tmp_path / "file")],
        env={**os.environ, "PYTHONPATH": str(BROKEN_DISK), "STRANDLINE_BROKEN_DISK": str(tmp_path / "told")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
