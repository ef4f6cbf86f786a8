"""The question before something is gone for good. An answer other than yes is no interruption: nothing is done, and the
exit code is 1. Ctrl-C stays what it is everywhere (130), and where nobody can answer, the remedy is named.
"""

from __future__ import annotations

import sys

import click


def ask_first(question: str, loss: str, *, yes: bool, declined: str = "not deleted") -> None:
    """Return once somebody has agreed; `yes`: they have already, by --yes.

    loss: what goes, for those who cannot be asked ("this deletes … for good"). declined: what an answer of no leads to.
    UsageError: there is no terminal. ClickException: the answer was no, or the input ended. Abort: Ctrl-C.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{loss}; add --yes")
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort as abort:
        if not isinstance(abort.__context__, EOFError):  # click has one exception for both
            raise
        click.echo(err=True)  # the line of the question is open
        raise click.ClickException(f"{declined}: the input ended before an answer; --yes answers beforehand") from None
    if not agreed:
        raise click.ClickException(declined)
