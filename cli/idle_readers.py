"""How a command ends that was interrupted while nobody reads what it writes: a pager that waits for a key, a process
that is stopped.

Rules: a write blocks then until it is interrupted, and would block again. Whoever reads has a moment after the
interrupt; what it does not take by then is not out, and does not count as printed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import IO, TextIO

from strandline.runtime.processes.interrupts import interrupted_after

GIVE_UP_S = 0.5
"""The moment."""

Speaking = Callable[[], contextlib.AbstractContextManager[None]]
"""What is said, is said within it: `in_passing`, or `nullcontext` for as long as nobody has interrupted."""


def bring_out(out: IO[bytes], when_out: Callable[[], None]) -> None:
    """Flush it; `when_out` is called once it is certain that all is out. KeyboardInterrupt, also where it came at the
    very end of this, when somebody has read all lines already; OSError: the output is closed or full."""
    if not isinstance(sys.exception(), KeyboardInterrupt):
        try:
            out.flush()
            when_out()
            return
        except KeyboardInterrupt:
            _bring_out_soon(out, when_out)
            raise
    _bring_out_soon(out, when_out)


def _bring_out_soon(out: IO[bytes], when_out: Callable[[], None]) -> None:
    with a_moment():
        out.flush()
    when_out()


def a_moment() -> contextlib.AbstractContextManager[None]:
    """For whoever reads what is written in it; KeyboardInterrupt when it is over."""
    return interrupted_after(GIVE_UP_S)


@contextlib.contextmanager
def in_passing() -> Iterator[None]:
    """What a command says in it that was interrupted: whoever stands still does not hear it."""
    with contextlib.suppress(KeyboardInterrupt), a_moment():
        yield


def abandon(streams: list[TextIO]) -> None:
    """The last thing that an interrupted command does with what it has written. What nobody takes goes to the null
    device, since the interpreter flushes once more when it ends."""
    for stream in streams:
        try:
            with a_moment():
                stream.flush()
        except (KeyboardInterrupt, OSError, ValueError):
            redirect_to_null(stream)


def redirect_to_null(stream: TextIO) -> None:
    """What is in its buffer goes there, too; nothing else of the process or of others does."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
