"""A broker stops in order, then its log is torn and its checkpoints are unreadable: two damages, none of which tells of
the other. Before it leads again it is one that may have lost data: it fetches again what the others still have."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from strandline.storage.disk.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS
from strandline.storage.manager.directory_state import SEGMENTS_LIST
from strandline.testkit.cluster import LOG_DIR, MemoryCluster
from strandline.testkit.disk import MemoryDisk
from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered

DAMAGED = 2
LOG = f"{LOG_DIR}/{T0}/{0:020d}.log"
ACKED = 30


def tear(disk: MemoryDisk, *checkpoints: str) -> None:
    disk.write(LOG, disk.read(LOG)[:-7])
    for name in checkpoints:
        disk.write(f"{LOG_DIR}/{name}", b"\xff\xfegarbage")


async def stop_together(cluster: MemoryCluster, brokers: Sequence[int]) -> None:
    async with trio.open_nursery() as nursery:
        for broker in brokers:
            nursery.start_soon(cluster.stop, broker)


@pytest.mark.parametrize("replicas", [[DAMAGED, 3], [3, DAMAGED], [DAMAGED, 3, 1], [3, 1, DAMAGED]], ids=str)
@pytest.mark.parametrize("with_list", [True, False], ids=["list", "no-list"])
async def test_all_stop_in_order_and_one_comes_back_torn(replicas: list[int], with_list: bool, autojump_clock) -> None:
    properties = {"controlled.shutdown.enable": "false"}  # so that all stay in the ISR
    async with cluster_with_topic(replicas, min_insync_replicas=2, properties=properties) as (
        cluster,
        producer,
        ledger,
    ):
        await ledger.produce(producer, T0, numbered("acked", ACKED), one_by_one=True)
        await cluster.until(
            lambda: all(log.log_end_offset == ACKED for log in cluster.logs(T0).values()), "all have it"
        )
        await stop_together(cluster, [1, 2, 3])
        assert DAMAGED in cluster.isr(T0)
        tear(cluster.nodes[DAMAGED].disk, RECOVERY_POINTS, HIGH_WATERMARKS, *([] if with_list else [SEGMENTS_LIST]))
        for broker in (DAMAGED, 1, 3):
            await cluster.start_broker(broker)
            assert DAMAGED not in cluster.isr(T0) or cluster.logs(T0)[DAMAGED].log_end_offset == ACKED
            assert not cluster.leads(DAMAGED, T0), "it leads with the shorter log"
        await check_at_the_end(cluster, ledger, replicas)
        disk = cluster.nodes[DAMAGED].disk
        assert [name for name in disk.listdir(f"{LOG_DIR}/{T0}") if name.endswith(".damaged")]


@pytest.mark.parametrize("replicas", [[DAMAGED, 3], [DAMAGED, 3, 1]], ids=str)
async def test_it_is_killed_and_comes_back_torn_while_the_others_are_down(replicas: list[int], autojump_clock) -> None:
    async with cluster_with_topic(replicas, min_insync_replicas=2) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("acked", ACKED), one_by_one=True)
        await cluster.until(
            lambda: all(log.log_end_offset == ACKED for log in cluster.logs(T0).values()), "all have it"
        )
        for broker in (1, 2, 3):
            cluster.crash(broker)
        tear(cluster.nodes[DAMAGED].disk, RECOVERY_POINTS, HIGH_WATERMARKS)
        for broker in (DAMAGED, 1, 3):
            await cluster.start_broker(broker)
            assert not cluster.leads(DAMAGED, T0), "it leads with the shorter log"
        await check_at_the_end(cluster, ledger, replicas)
