"""A folder comes back from a backup that was made before the broker's first life: by a Kafka that stopped in order."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from strandline.testkit.cluster import LOG_DIR
from strandline.testkit.disk import MemoryDisk
from support.foreign import kafka_stops
from support.scenario import T0, check_at_the_end, cluster_with_topic, die, numbered


def make_it_kafkas(disk: MemoryDisk) -> None:
    """As if none of ours had ever had the folder."""
    path = f"{LOG_DIR}/meta.properties"
    lines = disk.read(path).splitlines(keepends=True)
    disk.write(path, b"".join(line for line in lines if not line.startswith(b"strandline.")))
    for name in disk.listdir(LOG_DIR):
        if name.startswith(".strandline"):
            disk.unlink(f"{LOG_DIR}/{name}")
    kafka_stops(disk, LOG_DIR)


@pytest.mark.parametrize("last", [1, 2], ids=["it is eligible", "it is the last in sync"])
async def test_a_backup_from_before_the_first_life_is_one_that_lost_data(last: int, autojump_clock: MockClock) -> None:
    async with cluster_with_topic([1, 2, 3], brokers=4) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("old", 5))
        await cluster.stop(2)
        backup = cluster.nodes[2].disk.copy()
        make_it_kafkas(backup)
        cluster.replace_disk(2, backup)
        await cluster.start_broker(2)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "whole")
        await ledger.produce(producer, T0, numbered("new", 5))
        die(cluster, 3)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "3 is out")
        await ledger.produce(producer, T0, numbered("newer", 5))
        die(cluster, 3 - last)
        await cluster.until(lambda: cluster.isr(T0) == [last], "one is left")
        die(cluster, last)
        cluster.replace_disk(2, backup)
        for broker_id in (2, 1, 3):
            await cluster.start_broker(broker_id)
        await check_at_the_end(cluster, ledger)
