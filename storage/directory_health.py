"""Whether a log directory may still be used: the first error of its disk takes the whole directory offline.

Rules (S10, safety.md 24): any OSError on any file of a directory fails it, and with it every log that lives there; it
stays so until the broker starts again. Errors that are about this process and not about the disk (`is_about_process`:
no descriptor left) fail nothing.

A disk that is full refuses what is new and keeps what it took. Any other error, and every error of an fsync, makes the
page cache *suspect*: after a failed fsync Linux calls the pages clean that it could not write, so reading them back
proves nothing about the disk (ATC'20). `log_directory` remembers that beyond this process.
"""

from __future__ import annotations

import errno

from strandline.runtime.disk import NO_SPACE
from strandline.storage.checkpoints import Report, no_report
from strandline.storage.errors import LogStorageError

_PROCESS = frozenset({errno.EMFILE, errno.ENFILE})


def is_about_process(error: BaseException | None) -> bool:
    """This process (or machine) has no descriptor left: the disk is as good as before."""
    return isinstance(error, OSError) and error.errno in _PROCESS


def is_about_space(number: int | None) -> bool:
    """This errno says that a disk (or quota) is full: it keeps what it has."""
    return number in NO_SPACE


class DirectoryHealth:
    """Of one log directory. `fail` may be called from any thread: it sets attributes, once."""

    __slots__ = ("_report", "failure", "is_suspect", "path")

    def __init__(self, path: str = "", report: Report = no_report) -> None:
        self.path = path
        self.failure: LogStorageError | None = None
        """Why the directory is offline."""
        self.is_suspect = False
        """What was written to it may have reached the page cache only, although nothing says so any more."""
        self._report = report

    def fail(self, what: str, cause: OSError, *, syncing: bool = False) -> None:
        """The disk failed. syncing: while data was made durable. The first reason stays."""
        if is_about_process(cause):
            return
        self.is_suspect = self.is_suspect or syncing or not is_about_space(cause.errno)
        if self.failure is None:
            self.failure = LogStorageError(self.path, what, cause)
            self._report("log-dir-offline", path=self.path, why=f"{what}: {cause}")
