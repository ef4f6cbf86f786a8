"""How far a reassignment is: what each new replica has of its leader's log, how fast it comes, and when it is done.

All of it is made of what brokers say at one look (metadata, sizes of logs) or at two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from strandline.client.metadata import PartitionView
from strandline.client.reassignments import OngoingReassignment
from strandline.protocol.types import NO_BROKER, TopicPartition

Sizes = Mapping[int, Mapping[TopicPartition, int]]
"""Broker → partition → bytes of its log there."""


class CopyProgress(NamedTuple):
    """One replica that is being added. `bytes_there` never exceeds `bytes_in_all`: where logs are compacted, a copy may
    be larger than what it is a copy of."""

    partition: TopicPartition
    broker_id: int
    bytes_there: int
    bytes_in_all: int
    is_in_sync: bool


class Pace(NamedTuple):
    """`left_s` None: at this rate it never ends."""

    bytes_per_s: float
    left_s: float | None


def copies(
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    views: Mapping[TopicPartition, PartitionView],
    sizes: Sizes,
) -> list[CopyProgress]:
    """Of each partition that is under way, in the order of `ongoing`: who is being filled and how far that is."""
    found = []
    for tp, moving in ongoing.items():
        view = views.get(tp)
        whole = copy_bytes(tp, view, sizes)
        for broker_id in moving.adding:
            in_sync = view is not None and broker_id in view.in_sync_replicas
            there = whole if in_sync else min(whole, sizes.get(broker_id, {}).get(tp, 0))
            found.append(CopyProgress(tp, broker_id, there, whole, in_sync))
    return found


def copy_bytes(tp: TopicPartition, view: PartitionView | None, sizes: Sizes) -> int:
    """How large one copy is: the leader's log; where that is not known, the largest of those in sync, or of any."""
    if view is not None and view.leader != NO_BROKER and tp in sizes.get(view.leader, {}):
        return sizes[view.leader][tp]
    known = {broker_id: there[tp] for broker_id, there in sizes.items() if tp in there}
    in_sync = [size for broker_id, size in known.items() if view is not None and broker_id in view.in_sync_replicas]
    return max(in_sync or known.values(), default=0)


def pace(bytes_before: int, bytes_now: int, elapsed_s: float, bytes_left: int) -> Pace:
    """Between two looks."""
    came = max(0, bytes_now - bytes_before)
    rate = came / elapsed_s if elapsed_s > 0 else 0.0
    if bytes_left <= 0:
        return Pace(rate, 0.0)
    return Pace(rate, bytes_left / rate if rate > 0 else None)
