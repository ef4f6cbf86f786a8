"""What partitions wait for, told on stderr by the commands that read or write for long and are patient meanwhile.

Rules: an election takes some seconds and is nobody's concern, so a wait is told once it has lasted `TELL_AFTER_S`, and
a new reason once it has stood for as long; when the partition goes on, that is told at once. Partitions with the same
reason share a line, and what is said at one moment has few lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Protocol

import click

from strandline.protocol.types import TopicPartition

TELL_AFTER_S = 10.0
"""How long a person should wait to learn what keeps records back: most of it mends itself."""

LOOK_EVERY_S = 1.0
MOST_NAMED = 5
"""So many partitions a line names, and so many lines of reasons come at one moment."""


@dataclass(slots=True)
class _Wait:
    """Of one partition; times in seconds."""

    since: float
    why: str
    why_since: float
    told: str | None = None

    def to_tell(self, now: float) -> bool:
        began = self.since if self.told is None else self.why_since
        return self.why != self.told and now - began >= TELL_AFTER_S


class WaitLines:
    """Decides what is told."""

    def __init__(self) -> None:
        self._waits: dict[TopicPartition, _Wait] = {}

    def next_lines(
        self, waiting: Mapping[TopicPartition, Exception], now: float, left_out: Set[TopicPartition] = frozenset()
    ) -> list[str]:
        """What is to be said now that these partitions wait, and why; of those that are left out nothing."""
        for partition in left_out:
            self._waits.pop(partition, None)
        waiting = {partition: why for partition, why in waiting.items() if partition not in left_out}
        ended = [partition for partition in self._waits if partition not in waiting]
        gone_on = [partition for partition in ended if self._waits.pop(partition).told is not None]
        new: dict[str, list[TopicPartition]] = {}
        for partition, error in waiting.items():
            why = str(error)
            wait = self._waits.setdefault(partition, _Wait(now, why, now))
            if why != wait.why:
                wait.why, wait.why_since = why, now
            if wait.to_tell(now):
                wait.told = why
                new.setdefault(why, []).append(partition)
        return ([f"{_named(gone_on)} {_verb('go', gone_on)} on"] if gone_on else []) + _of_reasons(new)


def _of_reasons(new: Mapping[str, list[TopicPartition]]) -> list[str]:
    lines = [f"{_named(partitions)} {_verb('wait', partitions)}: {why}" for why, partitions in new.items()]
    left_out = [partition for partitions in list(new.values())[MOST_NAMED:] for partition in partitions]
    return lines[:MOST_NAMED] + ([f"{_named(left_out)} {_verb('wait', left_out)}, too"] if left_out else [])


def _named(partitions: Iterable[TopicPartition]) -> str:
    ordered = sorted(partitions)
    names = ", ".join(map(str, ordered[:MOST_NAMED]))
    return names if len(ordered) <= MOST_NAMED else f"{names} and {len(ordered) - MOST_NAMED} more"


def _verb(verb: str, partitions: list[TopicPartition]) -> str:
    return verb if len(partitions) > 1 else {"go": "goes", "wait": "waits"}[verb]


class Client(Protocol):
    """A producer or a consumer."""

    def waiting(self) -> dict[TopicPartition, Exception]: ...


class Waits:
    """Asks a client each `LOOK_EVERY_S` what it waits for, and tells it."""

    def __init__(self, client: Client, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._lines = WaitLines()
        self._next_look = 0.0
        self.also: Callable[[], None] = lambda: None
        """Called with each look: for what else is to be seen while time passes."""
        self.left_out: Set[TopicPartition] = frozenset()
        """Of these somebody else tells."""

    def look(self) -> None:
        """Cheap, unless it is time."""
        self.also()
        now = self._monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY_S
            for line in self._lines.next_lines(self._client.waiting(), now, self.left_out):
                click.echo(f"strandline: {line}", err=True)
