"""How far `produce` and `consume` are, in a `Bar`.

Rules: it is drawn where stderr is a terminal and nothing else goes to it, never in a pipe; not before records come, nor
for what is done at once.
"""

from __future__ import annotations

import collections
import contextlib
import os
import stat
import sys
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, NamedTuple

from strandline.cli.bar import Bar

if TYPE_CHECKING:
    from rich.console import Console

NOT_BEFORE_S = 0.5
EVERY_S = 0.1
RATE_OVER_S = 3.0


class Done(NamedTuple):
    """How far it is. `fraction`: of all that there is to do, None where nobody knows that."""

    records: int
    bytes_done: int
    fraction: float | None = None
    acked: int | None = None
    failed: int = 0


class ProgressLine:
    """look: asked whenever it is drawn. console: of stderr, made when it is needed."""

    def __init__(
        self, look: Callable[[], Done], monotonic: Callable[[], float], console: Callable[[], Console] | None = None
    ) -> None:
        self._look = look
        self._monotonic = monotonic
        self._bar = Bar(console)
        self._due_at = monotonic() + NOT_BEFORE_S
        self._marks: collections.deque[tuple[float, int]] = collections.deque()

    def show(self) -> None:
        """Cheap, unless it is time."""
        now = self._monotonic()
        if now < self._due_at:
            return
        self._due_at = now + EVERY_S
        done = self._look()
        self._marks.append((now, done.bytes_done))
        while len(self._marks) > 2 and now - self._marks[0][0] > RATE_OVER_S:
            self._marks.popleft()
        if done.records:
            self._bar.draw(progress_text(done, self._rate()), done.fraction)

    def _rate(self) -> float:
        """Bytes per second, of late."""
        (since, bytes_before), (now, bytes_now) = self._marks[0], self._marks[-1]
        return (bytes_now - bytes_before) / (now - since) if now > since else 0.0

    def stop(self) -> None:
        """Take the line away. Idempotent."""
        self._bar.stop()


def progress_text(done: Done, bytes_per_second: float) -> str:
    parts = [f"{done.records:,} records", f"{bytes_per_second / 1e6:.1f} MB/s"]
    if done.acked is not None:
        parts += [f"{done.acked:,} acked", f"{done.failed:,} failed"]
    if done.fraction is not None:
        parts.append(f"{int(done.fraction * 100)} %")
    return "  ".join(parts)


def is_terminal_for_progress(*, is_output_shown: bool) -> bool:
    """stderr is a terminal, and if something is printed on stdout that goes elsewhere."""
    return sys.stderr.isatty() and not (is_output_shown and sys.stdout.isatty())


def fraction_read(source: IO[bytes]) -> float | None:
    """Of a file, how much of it; None of what has no size."""
    with contextlib.suppress(OSError):
        status = os.fstat(source.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size:
            return min(1.0, os.lseek(source.fileno(), 0, os.SEEK_CUR) / status.st_size)
    return None
