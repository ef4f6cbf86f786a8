"""What a fetcher asks for while its broker throttles what it is filled with (`throttles`): pure but for what it keeps.

    not throttled here, or has all that is committed    as always: its fetch is what producers wait for
    throttled and behind, the rate has something free   for no more than that; one of them is named first, so that one
                                                        batch of it comes however large it is, and they take turns
    throttled and behind, nothing free                  left out until there is
    throttled, and its leader has not answered yet      asked for a batch in any case, since it may be in sync

Who is in sync knows of nothing committed that it lacks, so the high watermark in an answer tells who is behind. All
fetchers share the rate: what was asked for counts at once, and is set right by what came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from strandline.broker.replication.deadlines import NEVER
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replication_quota import ReplicationQuota
from strandline.broker.replication.throttles import is_throttled_here
from strandline.protocol.types import NO_EPOCH

LEAST_BYTES = 1
"""Brings one batch if it is the first of an answer, and else none; with it comes the high watermark."""


class FetchPlan(NamedTuple):
    """asked: partitions in the order of the request; of those that are behind it begins with `first`, whose turn it is.
    max_bytes: of those that get less than others. reserved_bytes: the sum of what the rate counts. resume_at: when what
    was left out may be asked for, by the loop's clock; NEVER: nothing was."""

    asked: Sequence[Partition]
    first: Sequence[Partition] = ()
    max_bytes: Mapping[Partition, int] = {}
    reserved_bytes: int = 0
    resume_at: float = NEVER


class HeldFetches:
    """Those of one fetcher."""

    def __init__(self, quota: ReplicationQuota) -> None:
        """quota: of the broker."""
        self._quota = quota
        self._heard: dict[Partition, tuple[int, bool]] = {}
        """Leader epoch of the last answer, and whether more was committed there than this replica had after it."""
        self._arrived_bytes = 0

    @property
    def is_on(self) -> bool:
        return self._quota.is_limited

    def forget(self, partition: Partition) -> None:
        """It is not fetched any more, or anew."""
        self._heard.pop(partition, None)

    def plan(self, partitions: Sequence[Partition], most_bytes: int, now: float) -> FetchPlan:
        """most_bytes: what one partition may bring at once."""
        self._arrived_bytes = 0
        behind: list[Partition] = []
        max_bytes: dict[Partition, int] = {}
        for partition in partitions:
            if is_throttled_here(partition):
                epoch, is_behind = self._heard.get(partition, (NO_EPOCH, False))
                if epoch != partition.leader_epoch:
                    max_bytes[partition] = LEAST_BYTES
                elif is_behind:
                    behind.append(partition)
        if not behind:
            return FetchPlan(partitions, max_bytes=max_bytes)
        room_bytes = free_bytes = self._quota.room_bytes(self, now)
        served = 0
        for partition in behind:
            if free_bytes:
                served += 1
                max_bytes[partition] = min(free_bytes, most_bytes)
                free_bytes -= max_bytes[partition]
        self._quota.take(room_bytes - free_bytes, now)
        first, left_out = behind[: min(served, 1)], set(behind[served:])
        asked = first + [each for each in partitions if each not in left_out and each not in first]
        resume_at = self._quota.ready_at(now) if left_out else NEVER
        return FetchPlan(asked, first, max_bytes, room_bytes - free_bytes, resume_at)

    def answered(self, partition: Partition, offset: int, high_watermark: int, count: int) -> None:
        """So many bytes came for a fetch from this offset, and are in the log where they are good. high_watermark: of
        the leader."""
        if is_throttled_here(partition):
            self._heard[partition] = (partition.leader_epoch, high_watermark > partition.log.log_end_offset)
            if high_watermark > offset:
                self._arrived_bytes += count

    def settle(self, plan: FetchPlan, now: float) -> None:
        """The fetch is over, whatever became of it."""
        if self._arrived_bytes != plan.reserved_bytes:
            self._quota.take(self._arrived_bytes - plan.reserved_bytes, now)
