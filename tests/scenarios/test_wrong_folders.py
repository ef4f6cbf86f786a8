"""Brokers that are started where they should not be: against another cluster's ZooKeeper, or with a copy of a folder
whose broker runs. They are refused, and neither they nor whom they were taken for have lost anything by it."""

from __future__ import annotations

import pytest

from strandline.protocol.znodes import BrokerIdZnode, BrokerIncarnationZnode
from strandline.testkit.cluster import BrokerNode, StartFailed
from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered


@pytest.mark.parametrize("lives", [1, 4], ids=["fewer starts than there", "more"])
async def test_a_broker_of_another_cluster_changes_nothing_here_or_at_home(lives: int, autojump_clock) -> None:
    async with cluster_with_topic([1, 2, 3], seed=2) as (there, producer, ledger):
        await ledger.produce(producer, T0, numbered("there", 5))
        await there.stop(1)
        await there.start_broker(1)
        await there.until(lambda: there.isr(T0) == [1, 2, 3], "whole")
        for broker_id in (3, 2, 1):
            await there.stop(broker_id)
        async with cluster_with_topic([1, 2, 3], seed=1) as (home, producer, ledger):
            await ledger.produce(producer, T0, numbered("home", 5))
            for _ in range(lives - 1):
                await home.stop(1)
                await home.start_broker(1)
                await home.until(lambda: home.isr(T0) == [1, 2, 3], "whole")
            for broker_id in (3, 2, 1):
                await home.stop(broker_id)
            stray, rightful = home.nodes[1].disk.copy(), there.nodes[1].disk.copy()
            starts = BrokerIncarnationZnode.path(1)
            before = stray.content(), there.state(T0), there.zookeeper.tree.get(starts).stat.version
            there.replace_disk(1, stray)
            with pytest.raises(StartFailed, match=r"cluster\.id"):
                await there.start_broker(1)
            assert any("cluster.id" in line and "ended" in line for line in there.history)
            disk = there.nodes[1].disk
            assert (disk.content(), there.state(T0), there.zookeeper.tree.get(starts).stat.version) == before
            for cluster, folder in ((there, rightful), (home, disk)):
                cluster.replace_disk(1, folder)
                await cluster.start_broker(1)
                assert not cluster.broker(1).log_manager.may_have_lost_data
                await cluster.until(lambda cluster=cluster: cluster.leader(T0) == 1, "led as before")


class Elsewhere(BrokerNode):
    """The same broker on another machine."""

    @property
    def name(self) -> str:
        return f"clone-{self.broker_id}"


@pytest.mark.parametrize("restarts", [False, True], ids=["its machine ran on", "its image was booted"])
async def test_a_copy_of_a_running_brokers_folder_does_not_take_its_id(restarts: bool, autojump_clock) -> None:
    async with cluster_with_topic([1], min_insync_replicas=1) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("old", 5))
        image = cluster.nodes[1].disk.copy()
        image.boot += restarts
        await ledger.produce(producer, T0, numbered("since", 20))
        original, cluster.nodes[1] = cluster.nodes[1], Elsewhere(1, disk=image)
        cluster.network.node("clone-1")
        epoch = original.broker.registration.broker_epoch
        with pytest.raises(StartFailed, match="registered by another"):
            await cluster.start_broker(1)
        assert any("registered by another broker" in line for line in cluster.history)
        cluster.nodes[1] = original
        assert cluster.zookeeper.tree.get(BrokerIdZnode.path(1)).stat.czxid == epoch
        await ledger.produce(producer, T0, numbered("after", 5))
        await check_at_the_end(cluster, ledger, replicas=[1])
