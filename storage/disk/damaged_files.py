"""Files that are damaged are kept, as `<name>.damaged`: they may be all that is left. An operator removes them."""

from __future__ import annotations

from itertools import chain, count

from strandline.runtime.disk import Disk

DAMAGED_SUFFIX = ".damaged"


def name_for_damaged(disk: Disk, path: str) -> str:
    """What to keep the file at `path`, or a part of it, as: with a number where something was kept before. OSError."""
    names = (f"{path}{again}{DAMAGED_SUFFIX}" for again in chain([""], (f"-{number}" for number in count(2))))
    return next(name for name in names if not disk.exists(name))


def put_aside(disk: Disk, path: str) -> None:
    """Keep the whole file at `path` so; another one may take its place. Durable when it returns. OSError."""
    disk.rename(path, name_for_damaged(disk, path))
    disk.fsync_dir(path.rpartition("/")[0])
