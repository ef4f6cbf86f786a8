"""Which faults `make soak-history` has, and the script of a run: drawn from its seed, without an end.

The numbers F… are those of the faults in the table that it shows in the end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from strandline.testkit.simulation.script import Fault


class Kind(NamedTuple):
    """target: `broker`, `small disk` or `long session` (the broker that has one), `way` (1>3), `link` (1-3), or what
    stands in the script itself. seconds: until it is undone, from and to."""

    name: str
    number: str
    target: str
    seconds: tuple[float, float]
    what: str


KINDS = (
    Kind("kill", "F1", "broker", (0.5, 10), "SIGKILL, and a start"),
    Kind("kill all", "F1", "all", (0.5, 3), "of all brokers at once"),
    Kind("stop", "F4", "broker", (0.5, 6), "SIGTERM, and a start"),
    Kind("stop starting", "F4", "broker", (0.2, 3), "SIGTERM so long after the process was started"),
    Kind("stop moving", "F4 F27", "broker", (0.5, 4), "SIGTERM while all partitions are moved"),
    Kind("pause", "F5", "broker", (1, 4), "SIGSTOP for less than a session of 6 s"),
    Kind("pause long", "F5", "broker", (8, 14), "SIGSTOP for more than a session of 6 s"),
    Kind("isolate", "F6", "broker", (3, 12), "nothing passes to or from brokers, ZooKeeper, clients"),
    Kind("cut both", "F7", "link", (3, 12), "nothing passes between two brokers"),
    Kind("cut controller", "F7", "controller", (3, 12), "nothing passes between the controller and other brokers"),
    Kind("zookeeper silent", "F7", "broker", (2, 12), "nothing passes between a broker and ZooKeeper"),
    Kind("cut", "F8", "way", (3, 12), "nothing passes in one direction between two brokers"),
    Kind("zookeeper deaf", "F8", "broker", (3, 12), "nothing passes from ZooKeeper to a broker"),
    Kind("slow link", "F9", "link", (3, 10), "each piece between two brokers is late by 50 ms"),
    Kind("drop", "F9", "link", (1, 5), "connections between two brokers break, again and again"),
    Kind("expire", "F11", "broker", (0, 0), "its session is closed by somebody else"),
    Kind("expire twice", "F11", "broker", (0, 0), "and the next one at once"),
    Kind("zookeeper reply", "F12", "broker", (0.5, 2), "ZooKeeper's answers are lost, then the connection"),
    Kind("zookeeper request", "F12", "broker", (0.5, 2), "requests to ZooKeeper are lost, then the connection"),
    Kind("zookeeper down", "F13", "", (30, 30), "the server is stopped"),
    Kind("zookeeper slow", "F13", "broker", (5, 10), "each answer of ZooKeeper is late by 1.5 s"),
    Kind("zookeeper late", "F13", "long session", (10, 20), "each answer of ZooKeeper is late by 5 s"),
    Kind("pause controller", "F14", "controller", (8, 12), "the same of the controller"),
    Kind("slow disk", "F16", "broker", (4, 10), "each fsync takes 2 s longer"),
    Kind("stuck disk", "F16", "broker", (11, 30), "no fsync returns"),
    Kind("disk full", "F17", "small disk", (3, 8), "no space is left"),
    Kind("read errors", "F18", "broker", (3, 8), "EIO in one log directory, then a start"),
    Kind("write errors", "F18", "broker", (3, 8), "the same of writes"),
    Kind("fsync errors", "F18", "broker", (3, 8), "the same of fsyncs"),
    Kind("rename errors", "F18", "broker", (6, 10), "the same of renames"),
    Kind("dead disks", "F18", "broker", (3, 8), "EIO of all these in all log directories, then a start"),
    Kind("file limit", "F19", "broker", (2, 5), "RLIMIT_FSIZE: files grow by 4 kB at most"),
    Kind("descriptor limit", "F19", "broker", (3, 8), "RLIMIT_NOFILE: three more at most"),
    Kind("roll", "F26", "all", (0, 0), "each broker is stopped and started in turn"),
    Kind("roll versions", "F26", "all", (0, 0), "the same with an older version, then with this one again"),
    Kind("topics", "F27", "", (3, 8), "topics are created, altered, grown and deleted"),
    Kind("moves", "F27", "", (3, 8), "partitions are moved, moves cancelled, leaders elected"),
    Kind("slow readers", "F28", "broker", (6, 12), "1000 connections, 10,000 requests of one; little memory"),
)
BROKERS_OF = {"broker": 1, "small disk": 1, "long session": 1, "way": 2, "link": 2}
"""How many are drawn for such a target."""
KIND_OF = {kind.name: kind for kind in KINDS}

FIRST_S = 3.0
GAP_S = 5.0
"""On average, from the beginning of a fault to that of the next one: now and then several last at one time."""
RETURN_S = 8.0
"""Within this time after a fault a broker serves again, as a rule."""


def draw(seed: int, brokers: Sequence[int], single: Mapping[str, int]) -> Iterator[Fault]:
    """single: the one broker that such a target means. Without an end; every kind comes once before any comes again.
    Whom nothing is done to is drawn for it, else the next one who is left alone: who is struck would be passed over."""
    drawing = random.Random(f"faults {seed}")
    at_s = FIRST_S
    free_s = dict.fromkeys(brokers, at_s)
    while True:
        for kind in drawing.sample(KINDS, len(KINDS)):
            allowed = [single[kind.target]] if kind.target in single else list(brokers)
            count = len(brokers) if kind.target == "all" else BROKERS_OF.get(kind.target, 0)
            if count:
                at_s = max(at_s, sorted(free_s[each] for each in allowed)[count - 1])
            chosen = drawing.sample([each for each in allowed if free_s[each] <= at_s], count)
            fault = Fault(round(at_s, 3), kind.name, _target(kind, chosen), round(drawing.uniform(*kind.seconds), 1))
            yield fault
            back_s = RETURN_S * (count if kind.target == "all" else 1)  # one after the other, where they are rolled
            free_s.update(dict.fromkeys(chosen, at_s + fault.seconds + back_s))
            at_s += drawing.expovariate(1 / GAP_S)


def _target(kind: Kind, chosen: Sequence[int]) -> str:
    if kind.target in BROKERS_OF:
        return (">" if kind.target == "way" else "-").join(map(str, chosen))
    return kind.target
