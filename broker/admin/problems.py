"""What an operator must act on, as one line each: what, where, since when, and what to do. Nothing waits here.

`Problem` is what somebody found just now; `Tracker` remembers since when. Beats decide what the log tells: that a
problem began, once two in a row have found it, and that it has ended, once one has not. So what lasts for less than the
time between them is not told, whether or not one of them meets it. One that goes and comes back between two beats is
the same one all along: a broker that flaps is not told of twice a second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

MOST_NAMED = 3
"""So many partitions are named in a line; the others are counted."""
LEADERLESS = "leaderless"
UNDER_MIN_ISR, UNDER_REPLICATED = OF_MISSING_BROKERS = "under min ISR", "under-replicated"
"""Kinds; each is a problem for each broker that is missing."""


class Level(StrEnum):
    """WARNING: everything is served still. ERROR: something is not."""

    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Problem:
    """One line. `kind` and `subject` say whether it is the same one as before; the other texts may change meanwhile."""

    level: Level
    kind: str
    what: str
    where: str
    remedy: str
    subject: str = ""
    """Which one of its kind; empty where there is one at most."""
    led: tuple[str, ...] = ()
    """The partitions that it is about, where each leader tells of its own: others may tell the same of more."""

    @property
    def identity(self) -> tuple[str, str]:
        return self.kind, self.subject


def named(names: Collection[str], count: int | None = None) -> str:
    """The first few, and how many more. count: of all, where names has only the first ones."""
    first = sorted(names)[:MOST_NAMED]
    more = (len(names) if count is None else count) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")


def partitions_are(count: int) -> str:
    """What such a problem begins with."""
    return "1 partition is" if count == 1 else f"{count} partitions are"


def gone(broker_id: int) -> str:
    """The subject of what a broker that does not run brings about."""
    return f"broker {broker_id} is gone"


def moment(time_ms: int) -> str:
    """In a line, as the log and `strandline status` have it: `2026-03-01 14:05:09 UTC`."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


class Known(NamedTuple):
    problem: Problem
    since_ms: int
    """Its first sight, of whoever looked."""

    def as_json(self) -> dict[str, object]:
        """For `/status`."""
        found = self.problem
        return {
            "level": str(found.level),
            "kind": found.kind,
            "subject": found.subject,
            "what": found.what,
            "where": found.where,
            "since_ms": self.since_ms,
            "remedy": found.remedy,
            "led": {"count": len(found.led), "first": sorted(found.led)[:MOST_NAMED]},
        }


class Changes(NamedTuple):
    """What the log is to say after a beat."""

    begun: list[Known]
    ended: list[Known]


class Tracker:
    """Remembers what was found, from its first sight until a beat finds it gone."""

    def __init__(self) -> None:
        self._since_ms: dict[tuple[str, str], int] = {}
        self._at_last_beat: set[tuple[str, str]] = set()
        self._told: dict[tuple[str, str], Known] = {}
        """What the log says to go on."""

    def look(self, found: Iterable[Problem], now_ms: int) -> list[Known]:
        """What is wrong now, the worst first, then the oldest. Between two beats nothing is forgotten."""
        known = [Known(each, self._since_ms.setdefault(each.identity, now_ms)) for each in found]
        return sorted(known, key=lambda each: (each.problem.level != Level.ERROR, each.since_ms))

    def beat(self, found: Iterable[Problem], now_ms: int, *, is_whole: bool = True) -> Changes:
        """is_whole: not where a look was broken off: what it did not come to may go on."""
        known = {each.problem.identity: each for each in self.look(found, now_ms)}
        begun = [known[each] for each in known if each in self._at_last_beat and each not in self._told]
        ended = [each for identity, each in self._told.items() if identity not in known] if is_whole else []
        for gone in ended:
            del self._told[gone.problem.identity]
        self._told |= {each.problem.identity: each for each in begun}
        self._told |= {identity: known[identity] for identity in self._told if identity in known}
        self._at_last_beat = set(known)
        if is_whole:
            self._since_ms = {identity: each.since_ms for identity, each in known.items()}
        return Changes(begun, ended)
