"""The periodic look for followers that lag, at the partitions in which time alone may change something."""

from __future__ import annotations

import trio

from strandline.broker.replication.burst import Burst
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.broker.steps import PARTITIONS_PER_STEP


async def run_isr_checks(replicas: Replicas, burst: Burst) -> None:
    """Twice per replica.lag.time.max.ms, for ever."""
    while True:
        await trio.sleep(replicas.config.replica_lag_time_max_ms / 1000 / 2)
        now = trio.current_time()
        for count, partition in enumerate(list(replicas.maybe_lagging)):
            check_in_sync(replicas, burst, partition, now)
            if count % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                await trio.lowlevel.checkpoint()
        burst.end()


def check_in_sync(replicas: Replicas, burst: Burst, partition: Partition, now: float) -> None:
    """Look at one partition. If nobody lags in it, it is not looked at again before something happens to it."""
    if partition.check_in_sync(now):
        burst.changes.committed(partition)
    if partition.has_no_lag:
        replicas.maybe_lagging.pop(partition, None)
