"""How far something is: one line at the bottom of the terminal, on stderr, gone when it ends.

Rules: it is drawn by whoever does the work, when there is time: no thread, and nothing of rich is imported until then.
What is said on stderr meanwhile comes above it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class Bar:
    """console: of stderr, made when it is needed."""

    def __init__(self, console: Callable[[], Console] | None = None) -> None:
        self._console = console or stderr_console
        self._shown: tuple[Progress, TaskID] | None = None

    def draw(self, text: str, fraction: float | None) -> None:
        """A text, and a bar where it is known the first time how much of all is done."""
        from rich.progress import BarColumn, Progress, TextColumn

        if self._shown is None:
            columns = [TextColumn("{task.description}", markup=False), BarColumn(bar_width=20)]
            progress = Progress(
                *(columns if fraction is not None else columns[:1]),
                console=self._console(),
                transient=True,
                auto_refresh=False,
                redirect_stdout=False,
            )
            self._shown = progress, progress.add_task("", total=1.0)
            progress.start()
        progress, task = self._shown
        progress.update(task, description=text, completed=fraction or 0)
        progress.refresh()

    def line(self, text: str) -> None:
        """One on stdout; above the bar where both are on the same screen."""
        if self._shown is not None and sys.stdout.isatty():
            self._shown[0].console.print(text, soft_wrap=True, markup=False, highlight=False)
        else:
            click.echo(text)

    def stop(self) -> None:
        """Take it away. Idempotent."""
        if self._shown is not None:
            self._shown[0].stop()
            self._shown = None


def stderr_console() -> Console:
    """That of people who look at stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)
