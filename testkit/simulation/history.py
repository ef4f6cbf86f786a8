"""What clients did and what they were told, in the order of the common time: the black box's view of a run.

An operation begins, and ends *ok*, *failed* (it had no effect, for sure) or *unknown* (it may have had, or may still
have). Nothing here looks into a broker. `anomalies` holds it against what the logs have in the end.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.protocol.messages import NO_GENERATION
from strandline.protocol.types import NO_BROKER, TopicPartition

NEVER_S = float("inf")


class Outcome(enum.Enum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Stream(NamedTuple):
    """One partition of one life of a topic: what is created anew under an old name is another one."""

    tp: TopicPartition
    life: int

    def __str__(self) -> str:
        return f"{self.tp}, life {self.life}" if self.life > 1 else str(self.tp)


@dataclass(slots=True)
class Write:
    """One record. Its value is sent once in a run, by one process."""

    process: str
    stream: Stream
    value: bytes
    acks: int
    began_s: float
    ended_s: float = NEVER_S
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1
    """Where it was said to stand; −1 where nothing was said."""
    may_repeat: bool = False
    """It may have been sent more than once, by a producer that is not idempotent."""
    why: str = ""
    told_by: int = NO_BROKER
    """Which broker acknowledged it, where the client knows."""
    key: bytes = b""
    """Of what a log that is compacted keeps the newest of."""


@dataclass(slots=True)
class Poll:
    """Records that one consumer got of one stream in one go. reading: the number of its uninterrupted reading, which
    begins anew with each assignment, seek or reset. group: for which it read, if for one."""

    process: str
    stream: Stream
    reading: int
    at_s: float
    records: list[tuple[int, bytes]]
    group: str = ""


@dataclass(slots=True)
class EndOffset:
    """Up to where a stream was said to be committed: by the leader of the highest epoch that the process knew of.
    is_bound: it ends there at the latest, and may end before."""

    process: str
    stream: Stream
    offset: int
    began_s: float
    ended_s: float
    is_bound: bool = False


@dataclass(slots=True)
class Commit:
    """Of one group for one stream, by a member of that generation. A client repeats a commit by itself, so one that is
    refused may have been carried out before: it is unknown."""

    process: str
    group: str
    stream: Stream
    offset: int
    began_s: float
    ended_s: float = NEVER_S
    outcome: Outcome = Outcome.UNKNOWN
    generation: int = NO_GENERATION


@dataclass(slots=True)
class Committed:
    """What a group's committed offset was said to be; −1: there is none."""

    process: str
    group: str
    stream: Stream
    offset: int
    began_s: float
    ended_s: float


@dataclass(slots=True)
class Ownership:
    """A member had the partition in that generation: from when the assignment was told to it until it gave it up, knew
    that it was out, or was told of the next generation (then there is another one of these, if it kept it)."""

    process: str
    group: str
    tp: TopicPartition
    generation: int
    began_s: float
    ended_s: float = NEVER_S


@dataclass
class History:
    writes: list[Write] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    end_offsets: list[EndOffset] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    ownerships: list[Ownership] = field(default_factory=list)

    def all(self) -> Iterator[Write | Poll | EndOffset | Commit | Committed | Ownership]:
        """Each list in its order."""
        yield from self.writes
        yield from self.polls
        yield from self.end_offsets
        yield from self.commits
        yield from self.committed
        yield from self.ownerships
