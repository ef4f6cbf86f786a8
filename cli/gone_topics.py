"""How `strandline consume` notices topics that go away while it reads, and the lines that tell of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import click

from strandline.cli.waits import MOST_NAMED

if TYPE_CHECKING:
    from strandline import Consumer

GONE_AFTER_S = 10.0
"""A broker that has just started knows no topic yet: one that nobody knows for so long was deleted."""

T = TypeVar("T")

Known = Mapping[str, Sequence[int]]
"""Topic → its partitions, none for one that brokers do not know; without those of which nothing could be learnt."""


class Missing(Generic[T]):
    """Since when what is read has been missing."""

    def __init__(self) -> None:
        self._since: dict[T, float] = {}

    def gone(self, missing: Iterable[T], now: float) -> list[T]:
        """Those that are missing now, and have been for so long that they have gone. now: in seconds."""
        self._since = {each: self._since.get(each, now) for each in missing}
        return [each for each, since in self._since.items() if now - since >= GONE_AFTER_S]


def numbers_of(consumer: Consumer, topics: Iterable[str], deadline: float, monotonic: Callable[[], float]) -> Known:
    """As brokers know them now, or by the deadline."""
    from strandline.client.errors import ClientError, UnknownTopic

    found: dict[str, Sequence[int]] = {}
    for name in topics:
        left_ms = max(0.0, (deadline - monotonic()) * 1000)  # what is known is told at once all the same
        try:
            found[name] = consumer.partitions_for_topic(name, timeout_ms=left_ms)
        except UnknownTopic:
            found[name] = ()
        except ClientError:
            continue
    return found


def tell_gone(kind: str, names: Sequence[str]) -> None:
    """That these topics, or partitions, have gone, while others are read on."""
    for name in names[:MOST_NAMED]:
        click.echo(f"strandline: {kind} {name} has gone, and is read no more", err=True)
    if (left_out := len(names) - MOST_NAMED) > 0:
        click.echo(f"strandline: {left_out} more have gone, too", err=True)


def nothing_left(names: Sequence[str]) -> click.ClickException:
    """All that was to be read has gone."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    verb = "has" if len(names) == 1 else "have"
    return click.ClickException(f"nothing is left to read: {', '.join(names[:MOST_NAMED])}{more} {verb} gone")
