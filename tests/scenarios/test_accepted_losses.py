"""What an accepted loss covers: this election, and nobody who could be asked. Broker 1 is controller and no replica."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from strandline.client import TrioProducer
from strandline.protocol.types import NO_BROKER
from strandline.protocol.znodes import ConfigZnode
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import Ledger
from support.scenario import T0, cluster_with_topic, die, numbered

REPLICAS = [2, 3, 4]
ALLOWS_UNCLEAN = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}


@asynccontextmanager
async def led_by_none(
    *, minimum: int, second_has: int = 0
) -> AsyncIterator[tuple[MemoryCluster, TrioProducer, Ledger]]:
    """All had four records, brokers 2 and 3 `second_has` more, broker 2 was the last in sync; only broker 4 is back."""
    async with cluster_with_topic(REPLICAS, brokers=4, min_insync_replicas=minimum) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("all have it", 4))
        die(cluster, 4)
        await cluster.until(lambda: cluster.isr(T0) == [2, 3], "4 is out")
        if second_has:
            await ledger.produce(producer, T0, numbered("4 lacks it", second_has))
        die(cluster, 3)
        await cluster.until(lambda: cluster.isr(T0) == [2], "2 is alone")
        die(cluster, 2)
        await cluster.start_broker(4)
        await trio.sleep(2)
        assert (cluster.leader(T0), cluster.controller_id) == (NO_BROKER, 1)
        yield cluster, producer, ledger


@pytest.mark.parametrize("minimum", [1, 2])
@pytest.mark.parametrize("is_answered", [True, False], ids=["", "ZooKeeper's answer was lost"])
async def test_an_accepted_loss_ends_with_its_election(
    is_answered: bool, minimum: int, autojump_clock: MockClock
) -> None:
    async with led_by_none(minimum=minimum) as (cluster, producer, ledger):
        if not is_answered:
            cluster.zookeeper.drop_next_reply("/controller_epoch")
        async with cluster.admin() as admin:
            await admin.recover(T0, accept_loss=True)
        assert cluster.leader(T0) == 4
        assert sum('"unclean election' in line for line in cluster.history) == 1
        # 2 is back in sync; 3 is back, but hears nobody.
        await cluster.start_broker(2)
        await cluster.until(lambda: cluster.isr(T0) == [2, 4], "2 is in sync")
        cluster.cut_both(3, 4)
        cluster.cut_both(3, 2)
        await cluster.start_broker(3)
        await ledger.produce(producer, T0, numbered("3 lacks it", 5))
        die(cluster, 2, 4)
        cluster.heal(3, 4)
        cluster.heal(3, 2)
        await trio.sleep(10)
        assert cluster.leader(T0) == NO_BROKER, "nobody accepted this one"


@pytest.mark.parametrize("by_topic", [True, False], ids=["by the topic", "by an operator"])
async def test_the_longest_log_leads_of_those_who_live_when_the_answers_are_in(
    by_topic: bool, autojump_clock: MockClock
) -> None:
    async with led_by_none(minimum=1, second_has=5) as (cluster, _, __):
        term = cluster.broker(1).controller.term
        assert term is not None
        async with cluster.admin() as admin, trio.open_nursery() as nursery:
            if by_topic:
                cluster.cut_both(1, 4)
                operator = cluster.zookeeper.client()
                await operator.start()
                await operator.set(ConfigZnode.path(T0.topic), ConfigZnode(ALLOWS_UNCLEAN).encode(), -1)
            else:
                nursery.start_soon(lambda: admin.recover(T0, accept_loss=True))
                while not term.context.accepted_losses:
                    await trio.sleep(0.0002)
                cluster.cut_both(1, 4)
            await cluster.until(lambda: bool(term.duties.recovery._in_hand), "4 is being asked", within_s=60)
            await cluster.start_broker(3)
            await trio.sleep(1)
            assert cluster.leader(T0) == NO_BROKER
            cluster.heal(1, 4)
        await cluster.until(lambda: cluster.leader(T0) != NO_BROKER, "somebody leads")
        assert cluster.leader(T0) == 3
