"""That a command waits for an answer, and for how long it has: one line at the bottom of the terminal, gone when it is
there. Nothing is said of what is answered soon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from strandline.cli.bar import stderr_console
from strandline.cli.progress import is_terminal_for_progress

if TYPE_CHECKING:
    from rich.console import Console

NOT_BEFORE_S = 2.0


@contextmanager
def shown_waiting(
    text: Callable[[], str], monotonic: Callable[[], float], console: Callable[[], Console] = stderr_console
) -> Iterator[None]:
    """While the block runs, which prints nothing. text: what there is to say now; called by another thread."""
    if not is_terminal_for_progress(is_output_shown=False):
        yield
        return
    from rich.live import Live
    from rich.text import Text

    began_s = monotonic()
    with Live(
        get_renderable=lambda: Text(waiting_text(text, monotonic() - began_s)),
        console=console(),
        transient=True,
        refresh_per_second=2,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield


def waiting_text(text: Callable[[], str], elapsed_s: float) -> str:
    return f"{text()} ({elapsed_s:.0f} s)" if elapsed_s >= NOT_BEFORE_S else ""
