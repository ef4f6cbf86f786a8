"""Who leads a partition: the elections, each a few lines and pure.

A clean election picks only from ISR ∩ able replicas, then from eligible ∩ able ones, in the order of the assignment
(invariant 34). `able(replica)` says whether a replica lives, stays and kept its data. None: nobody can lead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from strandline.protocol.types import NO_BROKER, TopicPartition

Able = Callable[[int], bool]


class LogEnd(NamedTuple):
    """Where a replica's log ends; compares by epoch, then offset."""

    epoch: int
    end_offset: int


LogEnds = dict[TopicPartition, dict[int, LogEnd]]
"""Of each partition, by broker."""


def offline_election(replicas: Sequence[int], isr: Sequence[int], elr: Sequence[int], able: Able) -> int | None:
    """The leader is gone: the first able replica that is in sync, else the first able one that is eligible
    (KIP-966)."""
    for members in (isr, elr):
        for replica in replicas:
            if replica in members and able(replica):
                return replica
    return None


def controlled_shutdown_election(replicas: Sequence[int], isr: Sequence[int], able: Able, leaving: int) -> int | None:
    """The leader is about to leave: the first other able replica that is in sync."""
    return next((replica for replica in replicas if replica != leaving and replica in isr and able(replica)), None)


def preferred_election(replicas: Sequence[int], isr: Sequence[int], able: Able) -> int | None:
    """The first of the assignment, if it is in sync and able."""
    return replicas[0] if replicas and replicas[0] in isr and able(replicas[0]) else None


def recovery_election(
    replicas: Sequence[int], log_ends: Mapping[int, LogEnd], last_known_leader: int = NO_BROKER
) -> int | None:
    """Nobody is known to have everything: the longest log of all who answered (KIP-966); among equals who led last,
    then the first in the assignment. Works since `max` keeps the first of equal candidates."""
    return max(
        (replica for replica in replicas if replica in log_ends),
        key=lambda replica: (log_ends[replica], replica == last_known_leader),
        default=None,
    )
