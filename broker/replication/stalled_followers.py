"""Followers that cannot get past an offset although data was sent: is it this leader's own disk that is wrong?

A follower checks each batch before it appends it and asks again for one that is damaged, for ever if need be. So a
fetch that comes back for the same offset again and again makes the leader look at what it sends
(`storage/log/served_damage`; once at the 4th such fetch, then the 8th, 16th …, since a follower may also be slow, or
starved by its other partitions). What is found damaged is not served any more: the log goes offline as failed, which
the controller is told, so another in-sync replica leads. The recovery point is put back to the damage: the next start
checks the log from there, keeps aside what it cuts, counts as one that lost data, and fetches the rest again from the
new leader."""

from __future__ import annotations

from strandline.broker.replication.burst import Burst
from strandline.broker.replication.checkpoint_schedule import CheckpointSchedule
from strandline.broker.replication.leadership import FollowerProgress
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.runtime.environment import Blocking
from strandline.storage.errors import LogStorageError, OffsetOutOfRange
from strandline.storage.log.served_damage import find_damage
from strandline.storage.manager.log_manager import LogManager

FIRST_LOOK = 4
"""Fetches for one offset, with data before each of them."""


def is_look_due(progress: FollowerProgress) -> bool:
    """Whether this many fetches for one offset are a reason to look."""
    count = progress.stalled_fetches
    return count >= FIRST_LOOK and count & (count - 1) == 0


class StalledFollowers:
    """Looks at what is sent to such followers."""

    def __init__(
        self, logs: LogManager, replicas: Replicas, checkpoints: CheckpointSchedule, burst: Burst, blocking: Blocking
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._checkpoints = checkpoints
        self._burst = burst
        self._blocking = blocking

    async def look(self, partition: Partition, offset: int) -> None:
        """At what a follower gets that asks for `offset`; in a handler task."""
        log = partition.log
        try:
            region = log.read(offset, self._replicas.config.replica_fetch_max_bytes, log.log_end_offset)
            if region is None:
                return
            path = partition.log_dir
            damage = await self._blocking.run_in(path, find_damage, region, offset, log.epochs.entries)
            if damage is None or partition.failed:
                return
            if not log.truncation_guard.prepare(damage.offset):
                await self._checkpoints.write(path, self._logs.checkpoints.write_cuts, path)
            error = log.condemn(damage.offset, damage.position, damage.why)
        except OffsetOutOfRange:  # retention was faster
            return
        except (LogStorageError, OSError) as failure:
            error = failure if isinstance(failure, LogStorageError) else log.fail("reading failed", failure)
        self._replicas.partition_failed(partition, error)
        self._burst.end()
