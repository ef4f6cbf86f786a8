"""Whether a log may still be changed: the first failure of its disk ends that, for good.

After a failed write or fsync nobody knows what the page cache holds, so nothing is retried as if it were clean
(safety.md 24): the log goes on answering reads and refuses changes until the broker starts again.
"""

from __future__ import annotations

from strandline.storage.checkpoints import Report
from strandline.storage.errors import LogClosed, LogStorageError


class LogHealth:
    """Of one log."""

    __slots__ = ("_log", "_report", "failure")

    def __init__(self, log: str, report: Report) -> None:
        """`log`: its name, for texts."""
        self.failure: LogStorageError | None = None
        """Why the log is offline."""
        self._log = log
        self._report = report

    def check(self) -> None:
        """LogStorageError unless the log may be changed."""
        if self.failure is not None:
            raise LogStorageError(self._log, str(self.failure))

    def fail(self, what: str, cause: BaseException) -> LogStorageError:
        """The disk failed under this log: it goes offline; returns the error to raise."""
        failure = LogStorageError(self._log, what, cause)
        self.take(failure)
        return failure

    def take(self, failure: LogStorageError) -> None:
        """The first reason stays. Also called from a flush plan's thread: one attribute, set once."""
        if self.failure is None:
            self.failure = failure
            self._report("log-offline", log=self._log, why=str(failure))

    def close(self) -> None:
        """The log was closed on purpose."""
        self.failure = LogClosed(self._log)
