"""What an operator must act on, as one line each: what, where, since when, and what to do. Nothing waits here.

`Problem` is what somebody found just now; `Tracker` remembers since when. One that goes and comes back between two
beats is the same one all along: a broker that flaps is not told of twice a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


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

    @property
    def identity(self) -> tuple[str, str]:
        return self.kind, self.subject


class Known(NamedTuple):
    problem: Problem
    since_ms: int

    def as_json(self) -> dict[str, object]:
        """For `/status`."""
        found = self.problem
        return {
            "level": str(found.level),
            "kind": found.kind,
            "what": found.what,
            "where": found.where,
            "since_ms": self.since_ms,
            "remedy": found.remedy,
        }


class Changes(NamedTuple):
    """From one beat to the next."""

    begun: list[Known]
    ended: list[Known]


class Tracker:
    """Remembers what was found, from its first sight until a beat finds it gone."""

    def __init__(self) -> None:
        self._since_ms: dict[tuple[str, str], int] = {}
        self._told: dict[tuple[str, str], Known] = {}

    def look(self, found: Iterable[Problem], now_ms: int) -> list[Known]:
        """What is wrong now, the worst first, then the oldest. Between two beats nothing is forgotten."""
        known = [Known(each, self._since_ms.setdefault(each.identity, now_ms)) for each in found]
        return sorted(known, key=lambda each: (each.problem.level != Level.ERROR, each.since_ms))

    def beat(self, found: Iterable[Problem], now_ms: int) -> Changes:
        """What is new since the last beat, and what is gone."""
        known = {each.problem.identity: each for each in self.look(found, now_ms)}
        begun = [each for identity, each in known.items() if identity not in self._told]
        ended = [each for identity, each in self._told.items() if identity not in known]
        self._told = known
        self._since_ms = {identity: each.since_ms for identity, each in known.items()}
        return Changes(begun, ended)
