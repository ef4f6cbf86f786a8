"""Whether a log directory may still be used: the first error of its disk takes the whole directory offline.

Rules (invariant 24): any OSError on any file of a directory fails it, and with it every log that lives there; it
stays so until the broker starts again. Errors that are about this process and not about the disk (`is_about_process`:
no descriptor left) fail nothing. What stands by the name of a log's file and is none, or is not for this broker's user
to open (`is_about_file`), fails that log.

A disk that is *full* refuses what is new and keeps what it took, so nothing fails: nothing is appended until there is
room again (`has_room`), and reads, checkpoints, retention go on. Only a start counts it as a failure, and so does
whoever had changed half of something. EFBIG is none of it: no room that is made would mend that.

Any other error, and every error of an fsync, ENOSPC too (`SyncFailed`), leaves the directory *unsynced*: after a failed
fsync Linux calls the pages clean that it could not write, so reading them back proves nothing about the disk (ATC'20).
`log_directory` remembers that beyond this process.
"""

from __future__ import annotations

import errno
from contextlib import suppress

from strandline.runtime.disk import NO_SPACE, Disk, NoRegularFile, SyncFailed
from strandline.storage.disk.checkpoints import TEMPORARY_SUFFIX, Report, no_report
from strandline.storage.errors import DiskFailed, LogStorageError

ROOM_BYTES = 2**20
"""A disk that was full is used again once it takes so much: more than that, and it would be so again at once."""
_PROCESS = frozenset({errno.EMFILE, errno.ENFILE})
_FILES = frozenset({errno.EISDIR, errno.ELOOP, errno.EEXIST, errno.EACCES, errno.EPERM})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_about_process(error: BaseException | None) -> bool:
    """This process (or machine) has no descriptor left: the disk is as good as before."""
    return isinstance(error, OSError) and error.errno in _PROCESS


def is_about_file(error: BaseException | None) -> bool:
    """Something else has the name that a file was to have, or permission is denied: the disk is as good as before."""
    is_one = isinstance(error, OSError) and error.errno in _FILES and not isinstance(error, SyncFailed)
    return is_one or isinstance(error, NoRegularFile)


def is_full(error: BaseException | None) -> bool:
    """The disk, or a quota, had no room for what was to be written; what had been written is safe."""
    return isinstance(error, OSError) and error.errno in _FULL and not isinstance(error, SyncFailed)


def is_about_space(number: int | None) -> bool:
    """This errno says that a disk (or quota) is full: it keeps what it has."""
    return number in NO_SPACE


class DirectoryHealth:
    """Of one log directory. `fail` may be called from any thread: it sets attributes, once."""

    __slots__ = ("_report", "failure", "full", "is_unsynced", "path")

    def __init__(self, path: str = "", report: Report = no_report) -> None:
        self.path = path
        self.failure: LogStorageError | None = None
        """Why the directory is offline."""
        self.full: OSError | None = None
        """What was refused for want of room, from then until there is room."""
        self.is_unsynced = False
        """What was written to it may have reached the page cache only, although nothing says so any more."""
        self._report = report

    def fail(self, what: str, cause: OSError, *, syncing: bool = False, at_start: bool = False) -> None:
        """The disk failed. syncing: while data was made durable. at_start: the directory cannot be used without what
        could not be written. The first reason stays."""
        if is_about_process(cause):
            return
        if is_full(cause) and not at_start:
            if self.full is None:
                self.full = cause
                self._report("log-dir-full", path=self.path, why=f"{what}: {cause}")
            return
        self.is_unsynced = self.is_unsynced or syncing or not is_about_space(cause.errno)
        if self.failure is None:
            self.failure = DiskFailed(self.path, what, cause)
            self._report("log-dir-offline", path=self.path, why=f"{what}: {cause}")


def has_room(disk: Disk, path: str) -> bool:
    """Whether the disk of the directory at `path` takes something new. It is tried, since what says how much is free
    knows of no quota. Blocking."""
    probe = f"{path}/.room{TEMPORARY_SUFFIX}"
    try:
        if disk.space(path).free_bytes < ROOM_BYTES:
            return False
        file = disk.open(probe, create=True)
    except OSError:
        return False
    try:
        return file.pwritev([bytes(ROOM_BYTES)], 0) == ROOM_BYTES
    except OSError:
        return False
    finally:
        file.close()
        with suppress(OSError):  # a start removes what is left of such files
            disk.unlink(probe)
