"""Makes the disk of a broker as bad as a file says: this folder is on the broker's path, and STRANDLINE_BROKEN_DISK
names the file, which is read at each call. Where there is none, nothing is changed.

```
{"fsync_late_s": 2.0}                                 each fsync takes so many seconds longer
{"stuck": true}                                       no fsync returns while the file says so
{"errors": ["read", "fsync"], "below": ["/data"]}     these fail with EIO, in these folders
```
Errors are of `read`, `write`, `fsync` and `rename`; each is a line of a file beside that one, `….struck`: its operation
and its path. Replaced is what the broker's adapter of disks calls (`runtime/disk_posix.py`), and sendfile, which reads
the file that it sends.

Besides, `….runs` tells where `strandline` is imported from, a line for each process: its id, and the file.
"""

from __future__ import annotations

import errno
import functools
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

_FILE = os.environ["STRANDLINE_BROKEN_DISK"]
_LOOK_INTERVAL_S = 0.05

_Told = dict[str, Any]
_NOTHING: _Told = {}


def _told() -> _Told:
    if not os.path.exists(_FILE):  # takes no descriptor: a process that may have no more shall not fail here
        return _NOTHING
    try:
        with open(_FILE, "rb") as file:
            return json.loads(file.read())
    except FileNotFoundError:
        return _NOTHING


def _fail(told: _Told, operation: str, path: str) -> None:
    if any(path == folder or path.startswith(f"{folder}/") for folder in told["below"]):
        with open(f"{_FILE}.struck", "a") as struck:
            struck.write(f"{operation} {path}\n")
        raise OSError(errno.EIO, f"{os.strerror(errno.EIO)} ({operation}, which a test wanted)", path)


def _failing(function: Callable[..., Any], operation: str, argument: int) -> Callable[..., Any]:
    """argument: which one of the function's is the descriptor, or the path."""

    @functools.wraps(function)
    def broken(*arguments: Any) -> Any:
        told = _told()
        if operation in told.get("errors", ()):
            where = arguments[argument]
            _fail(told, operation, os.readlink(f"/proc/self/fd/{where}") if isinstance(where, int) else where)
        return function(*arguments)

    return broken


def _late(sync: Callable[[int], None]) -> Callable[[int], None]:
    @functools.wraps(sync)
    def late(descriptor: int) -> None:
        time.sleep(_told().get("fsync_late_s", 0.0))
        while _told().get("stuck"):
            time.sleep(_LOOK_INTERVAL_S)
        sync(descriptor)

    return late


def _of_the_disk(preadv: Callable[..., int]) -> Callable[..., int]:
    """With flags it asks what memory holds, and no disk can fail then."""
    from_disk = _failing(preadv, "read", 0)

    @functools.wraps(preadv)
    def read(*arguments: Any) -> int:
        return (from_disk if len(arguments) == 3 else preadv)(*arguments)

    return read


class _Witness:
    """Finds `strandline` as everybody does, once, and tells where."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "strandline":
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        if found is not None:
            with open(f"{_FILE}.runs", "a") as runs:
                runs.write(f"{os.getpid()} {found.origin}\n")
        return found


sys.meta_path.insert(0, _Witness())
os.fsync = _late(_failing(os.fsync, "fsync", 0))
os.pwritev = _failing(os.pwritev, "write", 0)
os.pread = _failing(os.pread, "read", 0)
os.preadv = _of_the_disk(os.preadv)
os.sendfile = _failing(os.sendfile, "read", 1)
os.replace = _failing(os.replace, "rename", 1)
