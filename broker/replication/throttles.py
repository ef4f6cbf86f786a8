"""Replication throttles (KIP-73): replicas that are filled may not take the bandwidth that clients need.

    leader     answers a follower that is behind, of a replica that it throttles, with no more than its rate gives
    follower   asks, for a replica that it throttles and that is behind, for no more than its rate gives: `held_fetches`

A throttle needs both: the broker's rate, and the topic's list with the replica in it. Only who is behind is held back,
and only what goes to them counts: a follower that the high watermark waits for gets everything at once, or acks=all
would wait, too. Where no rate is set nothing is looked at but `is_limited`. A change counts from the next look on, half
a second later at most.
"""

from __future__ import annotations

from functools import partial

from strandline.broker.replication.leadership import FollowerProgress
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replication_quota import ReplicationQuota
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.config.keys import attribute_of


def quota_by(config: CurrentConfig, rate: object) -> ReplicationQuota:
    """One that follows a dynamic key, named through its class (`BrokerConfig.leader_replication_throttled_rate`)."""
    name, now = attribute_of(rate), config.value
    quota = ReplicationQuota(
        getattr(now, name), now.replication_quota_window_size_seconds, now.replication_quota_window_num
    )
    config.watch(partial(_take_over, quota, config, name), rate)
    return quota


def _take_over(quota: ReplicationQuota, config: CurrentConfig, name: str) -> None:
    quota.set_rate(getattr(config.value, name))


def is_throttled_here(partition: Partition) -> bool:
    """Whether this broker, as a follower, throttles it while it is behind."""
    throttled = partition.config.throttled_followers
    return throttled is not None and throttled.has(partition.topic_partition.partition, partition.broker_id)


class Allowance:
    """What one answer to a follower may have of replicas that are throttled here.

    used_bytes: of them in the answer. held: those of which it has nothing although there is something."""

    def __init__(self, quota: ReplicationQuota, replica_id: int, now: float) -> None:
        self._quota = quota
        self._replica_id = replica_id
        self._now = now
        self._room_bytes: int | None = None
        self.used_bytes = 0
        self.held: list[Partition] = []

    def throttled(self, partition: Partition) -> FollowerProgress | None:
        """What is known of the follower, if it is throttled in this partition: nothing waits for it. The quorum has
        everybody in sync, also as proposed, and who is about to join."""
        replicas, leadership = partition.config.throttled_leaders, partition.leadership
        if replicas is None or leadership is None:
            return None
        progress = leadership.followers.get(self._replica_id)
        is_listed = replicas.has(partition.topic_partition.partition, partition.broker_id)
        return progress if is_listed and progress not in leadership.quorum else None

    def left_bytes(self) -> int:
        """Above 0: one batch may be sent however large it is."""
        if self._room_bytes is None:
            self._room_bytes = self._quota.room_bytes(self._replica_id, self._now)
        return max(self._room_bytes - self.used_bytes, 0)

    def ready_at(self) -> float:
        """When who waits for what was held back is to be looked at again, by the loop's clock."""
        return self._quota.ready_at(self._now)
