"""A life of a broker or a term of a controller begins or ends between two steps of somebody else."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.types import NO_BROKER
from strandline.protocol.znodes import CONTROLLER_EPOCH_PATH, IsrChangeNotificationZnode
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import read_all
from strandline.testkit.scenario import T0, cluster_with_topic, numbered


def die(cluster: MemoryCluster, *brokers: int) -> None:
    """Their sessions end with them."""
    for broker in brokers:
        cluster.crash(broker)
    for broker in brokers:
        cluster.expire_session(broker)


async def test_a_leader_hears_of_the_epoch_that_a_lossy_broker_wrote_before_it_registered(
    autojump_clock: MockClock,
) -> None:
    """In between the controller reads the state for another reason, and finds the new epoch in it already."""
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("all have it", 4))
        operator = cluster.zookeeper.client()
        await operator.start()
        cluster.nodes[2].disk_delay_s = 0.5  # it takes long between the two
        cluster.lose_power(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.start_broker, 2)
            await cluster.until(lambda: cluster.isr(T0) == [1, 3], "broker 2 has renounced")
            changed = IsrChangeNotificationZnode((T0,)).encode()
            await operator.create(IsrChangeNotificationZnode.SEQUENCE_PATH, changed, sequence=True)
        cluster.nodes[2].disk_delay_s = 0.0
        with trio.move_on_after(120):
            await ledger.produce(producer, T0, numbered("after", 4))
        assert len(ledger.acked[T0]) == 8, f"{cluster.state(T0)} {cluster.partition(1, T0).leadership}"
        await operator.close()


@pytest.mark.parametrize("end", ["the new controller dies", "the answer to its election is lost"])
async def test_eligible_replicas_are_known_after_a_fail_over_that_was_cut_short(
    end: str, autojump_clock: MockClock
) -> None:
    async with cluster_with_topic([3, 1, 2], brokers=4) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("all have it", 4))
        die(cluster, 1, 2)
        await cluster.until(lambda: sorted(cluster.state(T0).elr) == [1, 2], "eligible")
        await cluster.until(lambda: cluster.controller_id in (3, 4), "a controller")
        await trio.sleep(1)
        die(cluster, 3)  # for good
        await cluster.until(lambda: cluster.controller_id == 4 and cluster.leader(T0) == NO_BROKER, "4 is controller")
        await trio.sleep(1)
        die(cluster, 4)

        def elections() -> int:
            return cluster.zookeeper.tree.get(CONTROLLER_EPOCH_PATH).stat.version

        before = elections()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.start_broker, 4)
            while elections() == before:
                await trio.sleep(0.0005)
            if end == "the new controller dies":
                await cluster.until(lambda: cluster.nodes[4].is_up, "it runs")
                die(cluster, 4)
                await cluster.start_broker(4)
            else:
                cluster.cut_from_zookeeper(4)
                await trio.sleep(0.2)
                cluster.heal_zookeeper(4)
        await cluster.until(lambda: cluster.controller_id == 4, "4 is controller")
        await cluster.start_broker(1)
        await cluster.start_broker(2)
        await cluster.until(lambda: cluster.leader(T0) in (1, 2), "a whole copy leads", within_s=60)


async def test_a_recovery_does_not_believe_what_an_earlier_life_said(autojump_clock: MockClock) -> None:
    """All lost power, brokers 1 and 2 are whole all the same. While broker 3 is waited for, the disk of broker 1, which
    has answered, is replaced."""
    async with cluster_with_topic([1, 2, 3], brokers=4) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("m", 20))
        for broker in (1, 2):
            cluster.nodes[broker].disk.sync_everything()
        for broker in (1, 2, 3):
            cluster.lose_power(broker)
        for broker in (1, 2, 3):
            cluster.expire_session(broker)
        await cluster.until(lambda: cluster.controller_id == 4 and cluster.leader(T0) == NO_BROKER, "4 is controller")
        cluster.cut_both(4, 3)
        for broker in (2, 3, 1):
            await cluster.start_broker(broker)
        await trio.sleep(3)
        assert cluster.leader(T0) == NO_BROKER, "broker 3 has not answered"
        die(cluster, 1)
        cluster.replace_disk(1)
        await cluster.start_broker(1)
        await trio.sleep(1)
        cluster.heal(4, 3)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "all are back", within_s=60)
        async with cluster.consumer() as consumer:
            ledger.assert_kept(T0, await read_all(consumer, T0))
