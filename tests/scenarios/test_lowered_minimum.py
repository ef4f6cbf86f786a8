"""The minimum is lowered while eligible replicas are listed: whoever leads releases them before it commits alone, else
one of them could lead without what was committed since. Broker 1 is controller and no replica."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.types import NO_BROKER
from strandline.protocol.znodes import CONFIG_CHANGES_PATH, TOPICS_PATH, ConfigChangeZnode, ConfigZnode
from strandline.runtime.coordination import NodeExists
from strandline.testkit.cluster import MemoryCluster
from support.scenario import T0, check_at_the_end, cluster_with_topic, die, numbered

REPLICAS = [2, 3, 4]


async def set_minimum(cluster: MemoryCluster, minimum: int) -> None:
    """As `kafka-configs --alter` does."""
    operator = cluster.zookeeper.client()
    await operator.start()
    await operator.set(ConfigZnode.path("t"), ConfigZnode({"min.insync.replicas": str(minimum)}).encode(), -1)
    with suppress(NodeExists):
        await operator.create(CONFIG_CHANGES_PATH, parents=True)
    await operator.create(ConfigChangeZnode.SEQUENCE_PATH, ConfigChangeZnode("topics/t").encode(), sequence=True)
    await operator.close()


async def test_a_new_leadership_knows_who_was_eligible_before_it(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(REPLICAS, brokers=4) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("all have it", 6))
        die(cluster, 4)
        await cluster.until(lambda: cluster.isr(T0) == [2, 3], "4 is out")
        die(cluster, 3)
        await cluster.until(lambda: cluster.isr(T0) == [2], "3 is out")
        epoch = cluster.state(T0).leader_epoch
        cluster.expire_session(2)
        await cluster.until(lambda: cluster.leader(T0) == 2 and cluster.state(T0).leader_epoch > epoch + 1, "led anew")
        await trio.sleep(1)
        assert cluster.state(T0).elr == [3]
        await set_minimum(cluster, 1)
        await ledger.produce(producer, T0, numbered("2 alone has it", 6))
        assert cluster.state(T0).elr == []
        die(cluster, 2)
        await cluster.start_broker(3)
        await trio.sleep(3)
        assert cluster.leader(T0) == NO_BROKER
        for broker_id in (2, 4):
            await cluster.start_broker(broker_id)
        await check_at_the_end(cluster, ledger, REPLICAS)


@pytest.mark.parametrize("lost", ["nothing", "the request", "the answer"])
async def test_a_leader_knows_who_became_eligible_by_what_it_wrote_itself(lost: str, autojump_clock: MockClock) -> None:
    async with cluster_with_topic(REPLICAS, brokers=4) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("all have it", 6))
        for follower in (3, 4):
            cluster.cut_both(2, follower)
        async with cluster.producer(acks=1, linger_ms=0) as hasty:
            await hasty.send("t", b"not committed yet", partition=0)
            if lost == "the request":
                cluster.zookeeper.drop_next_request(TOPICS_PATH)
            elif lost == "the answer":
                cluster.zookeeper.drop_next_reply(TOPICS_PATH)
            await cluster.until(lambda: cluster.isr(T0) == [2], "2 is alone")
        await trio.sleep(2)
        assert cluster.state(T0).elr == [3, 4]
        await set_minimum(cluster, 1)
        await ledger.produce(producer, T0, numbered("2 alone has it", 6))
        assert cluster.state(T0).elr == []
        die(cluster, 2)
        await trio.sleep(3)
        assert cluster.leader(T0) == NO_BROKER
        for follower in (3, 4):
            cluster.heal(2, follower)
        await cluster.start_broker(2)
        await check_at_the_end(cluster, ledger, REPLICAS)
