"""Whether a log may still be changed: the first failure of its disk ends that, for good.

After a failed write or fsync nobody knows what the page cache holds, so nothing is retried as if it were clean
(invariant 24): the log goes on answering reads and refuses changes until the broker starts again. An OSError is the
directory's failure and so that of all its logs (`directory_health`); a damaged file, one that may not be opened, or a
name that something else has, is this log's alone. Where only descriptors or space are lacking nothing has failed:
`OutOfDescriptors` or `DiskFull` is raised and the same may be tried again.
"""

from __future__ import annotations

from strandline.storage.disk.checkpoints import Report
from strandline.storage.disk.directory_health import DirectoryHealth, is_about_file, is_about_process, is_full
from strandline.storage.errors import (
    DiskFailed,
    DiskFull,
    LogClosed,
    LogOffline,
    LogStorageError,
    OutOfDescriptors,
    UnusableFile,
)


class LogHealth:
    """Of one log."""

    __slots__ = ("_directory", "_log", "_own", "_report")

    def __init__(self, log: str, report: Report, directory: DirectoryHealth) -> None:
        """`log`: its name, for texts."""
        self._own: LogStorageError | None = None
        self._log = log
        self._report = report
        self._directory = directory

    @property
    def failure(self) -> LogStorageError | None:
        """Why the log is offline."""
        return self._own or self._directory.failure

    def check(self) -> None:
        """LogStorageError unless the log may be changed."""
        if self._own is not None or self._directory.failure is not None:
            raise LogOffline(self._log, self._own or self._directory.failure)

    def check_room(self) -> None:
        """The same of what makes it longer; DiskFull while its disk is full."""
        if self._own is not None or self._directory.failure is not None:
            self.check()
        if self._directory.full is not None:
            raise DiskFull(self._log, "its disk is full", self._directory.full)

    def fail(
        self, what: str, cause: BaseException, *, syncing: bool = False, repeatable: bool = True
    ) -> LogStorageError:
        """The disk failed under this log: it goes offline with its directory; returns the error to raise. Also called
        from threads: it sets attributes, once. syncing: while data was made durable. repeatable: nothing was changed
        yet, so where only descriptors or space are lacking the log stays as it is."""
        if isinstance(self._own, LogClosed):  # a thread met the folder of a deleted log, which has another name by now
            return self._own
        if repeatable and is_about_process(cause):
            return OutOfDescriptors(self._log, what, cause)
        if repeatable and isinstance(cause, OSError) and is_full(cause):
            self._directory.fail(f"{what} in {self._log}", cause)
            return DiskFull(self._log, what, cause)
        is_own = isinstance(cause, OSError) and is_about_file(cause)
        failure = UnusableFile(self._log, what, cause) if is_own else DiskFailed(self._log, what, cause)
        if self._own is None:  # the first reason stays
            self._own = failure
            self._report("log-offline", log=self._log, why=str(failure))
        if isinstance(cause, OSError) and not is_own:
            self._directory.fail(f"{what} in {self._log}", cause, syncing=syncing)
        return failure

    def close(self) -> None:
        """The log was closed on purpose."""
        self._own = LogClosed(self._log)
