"""What chance decides of a random trial, as data; and what is noted while it runs (`random_trial`)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.protocol.types import TopicPartition

BROKERS = (1, 2, 3)
BLOWS = (
    "kill",
    "power",
    "wipe",
    "stop",
    "pause",
    "cut",
    "cut both",
    "expire",
    "zookeeper",
    "create anew",
    "delete records",
)
STREAMS: dict[str, tuple[str | int, int]] = {
    "all-2": ("all", 2),
    "all-1": ("all", 1),
    "one-1": (1, 1),
    "one-2": (1, 2),
    "anew": ("all", 2),
}
"""Topic → (acks of its producer, its minimum of in-sync replicas)."""


class Blow(NamedTuple):
    """`seconds`: until it is undone (a broker returns, a link heals). `other`: for cuts."""

    at_s: float
    kind: str
    broker: int
    other: int
    seconds: float
    topic: str


@dataclass(frozen=True)
class Plan:
    seed: int
    strategy: str
    pause_s: float
    """Between two records of a writer."""
    blows: tuple[Blow, ...]

    @staticmethod
    def draw(seed: int, *, length_s: float = 20.0) -> Plan:
        chance = random.Random(f"plan/{seed}")
        weights = [chance.choice((0, 1, 1, 3)) for _ in BLOWS]
        count = chance.randint(4, 16) if any(weights) else 0
        longest = chance.choice((2.0, 8.0, 15.0))
        blows = []
        for _ in range(count):
            broker, other = chance.sample(BROKERS, 2)
            kind = chance.choices(BLOWS, weights)[0]
            at_s, seconds = chance.uniform(0, length_s), chance.uniform(0.1, longest)
            blows.append(Blow(round(at_s, 3), kind, broker, other, round(seconds, 3), chance.choice(list(STREAMS))))
        strategy = chance.choice(("balanced", "balanced", "none"))
        return Plan(seed, strategy, chance.choice((0.1, 0.3)), tuple(sorted(blows)))

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: strategy {self.strategy}, a record every {self.pause_s} s"]
        return "\n  ".join([*lines, *map(str, self.blows)])


class Ack(NamedTuple):
    value: bytes
    at_s: float
    leader: int
    """Who leads in its own opinion and is not struck; −1 where that is not one broker."""


@dataclass
class Stream:
    """One life of a topic with one partition: what was promised about it."""

    name: str
    acks: str | int
    minimum: int
    life: int = 1
    sent: int = 0
    in_flight: int = 0
    is_open: bool = True
    acked: dict[int, Ack] = field(default_factory=dict)
    replaced: list[tuple[int, Ack]] = field(default_factory=list)
    """Acknowledged at an offset that was given out again later."""
    gone: set[int] = field(default_factory=set)
    asked_to_delete_below: int = 0
    deleted_below: int = 0
    wiped: set[int] = field(default_factory=set)
    """Brokers whose disks were replaced since that was asked for: once all were, nobody can know of it."""

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.name, 0)
