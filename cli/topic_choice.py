"""Topics by a pattern: `--include REGEX`, which a topic's whole name must match, as in Kafka's consumer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from strandline.client.metadata import TopicView

F = TypeVar("F", bound=Callable[..., Any])


def include_option(help_text: str) -> Callable[[F], F]:
    """`--include REGEX`; handed on compiled, None where it is not given. UsageError for one that is no pattern."""
    return click.option(
        "--include",
        metavar="REGEX",
        help=help_text,
        callback=lambda ctx, parameter, text: None if text is None else compiled(text),
    )


def compiled(text: str) -> re.Pattern[str]:
    """UsageError that says what is wrong with it."""
    try:
        return re.compile(text)
    except re.error as error:
        raise click.UsageError(f"--include '{text}' is no pattern: {error}") from None


def chosen(topics: Iterable[TopicView], pattern: re.Pattern[str] | None, *, internal: bool) -> list[str]:
    """The names of those that match as a whole, sorted; the brokers' own topics only with `internal`. ClickException
    where a pattern matches none."""
    offered = [topic.name for topic in topics if internal or not topic.is_internal]
    found = sorted(name for name in offered if pattern is None or pattern.fullmatch(name))
    if pattern is not None and not found:
        raise click.ClickException(
            f"no topic's whole name matches '{pattern.pattern}'; strandline topics list shows what there is"
        )
    return found
