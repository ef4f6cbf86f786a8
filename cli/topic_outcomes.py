"""What became of each topic that a command was to change or show: one that fails does not keep the others from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import click

from strandline.cli.item_errors import error_name
from strandline.cli.options import show_json

if TYPE_CHECKING:
    from strandline.protocol.errors import ErrorCode


class Outcome(NamedTuple):
    """What became of one topic; `error` is empty where it worked."""

    topic: str
    message: str = ""
    error: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.error)


def change_each(
    names: Iterable[str], change: Callable[[str], None], done: str, fine: ErrorCode | None, why_fine: str
) -> list[Outcome]:
    """Change one topic after the other. fine: an error that counts as none, of which `why_fine` is said."""
    outcomes = []
    for name in names:
        try:
            change(name)
        except Exception as error:
            code = code_of(error)
            if code is None:
                raise
            if code == fine:
                outcomes.append(Outcome(name, why_fine.format(name)))
            else:
                outcomes.append(Outcome(name, str(error), error_name(error)))
        else:
            outcomes.append(Outcome(name, done.format(name)))
    return outcomes


def code_of(error: Exception) -> int | None:
    """The broker's error code that a client exception carries; None where there was no answer about this topic."""
    code = getattr(error, "code", None)
    return code if isinstance(code, int) else None


def report(action: str, outcomes: list[Outcome], *, as_json: bool) -> int:
    """Show what became of each topic; 1 if any failed."""
    failed = any(outcome.failed for outcome in outcomes)
    if as_json:
        rows = [{"topic": each.topic, "error": each.error or None, "message": each.message} for each in outcomes]
        show_json(f"topics.{action}", topics=rows)
    else:
        for outcome in outcomes:
            click.echo(f"strandline: {outcome.message}" if outcome.failed else outcome.message, err=outcome.failed)
    return 1 if failed else 0
