"""Who leads a partition: the elections, each a few lines and pure.

A clean election picks only from ISR ∩ able replicas, then from eligible ∩ able ones, in the order of the assignment
(invariant 34). `able`: the replicas that live and stay, in that order. None: nobody can lead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from strandline.protocol.types import NO_BROKER, TopicPartition


class LogEnd(NamedTuple):
    """Where a replica's log ends; compares by epoch, then offset."""

    epoch: int
    end_offset: int


LogEnds = dict[TopicPartition, dict[int, LogEnd]]
"""Of each partition, by broker."""


def offline_election(able: Sequence[int], isr: Sequence[int], elr: Sequence[int]) -> int | None:
    """The leader is gone: the first able replica that is in sync, else the first able one that is eligible
    (KIP-966)."""
    return next((replica for members in (isr, elr) for replica in able if replica in members), None)


def controlled_shutdown_election(able: Sequence[int], isr: Sequence[int]) -> int | None:
    """The leader is about to leave, so it is not able any more: the first able replica that is in sync."""
    return next((replica for replica in able if replica in isr), None)


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
