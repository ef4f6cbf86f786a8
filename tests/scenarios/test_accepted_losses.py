"""What an accepted loss covers: this election, and nobody who could be asked. Broker 4 is controller and no replica."""

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
from strandline.testkit.scenario import T0, numbered

ALLOWS_UNCLEAN = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}


@asynccontextmanager
async def led_by_none(
    *, minimum: int, second_has: int = 0
) -> AsyncIterator[tuple[MemoryCluster, TrioProducer, Ledger]]:
    """All had four records, brokers 1 and 2 `second_has` more, broker 1 was the last in sync; only broker 3 is back."""
    config = {"replica.lag.time.max.ms": "2000", "min.insync.replicas": str(minimum)}
    async with (
        MemoryCluster(4, config=config).running(start=False) as cluster,
        cluster.producer(linger_ms=0, request_timeout_ms=2000) as producer,
    ):
        for broker_id in (4, 1, 2, 3):
            await cluster.start_broker(broker_id)
        async with cluster.admin() as admin:
            await admin.create_topic(T0.topic, assignments={0: [1, 2, 3]})
        await cluster.until(lambda: all(cluster.hosts(replica, T0) for replica in (1, 2, 3)), "hosted")
        ledger = Ledger()
        await ledger.produce(producer, T0, numbered("all have it", 4))
        await lose(cluster, 3)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "3 is out")
        if second_has:
            await ledger.produce(producer, T0, numbered("3 lacks it", second_has))
        await lose(cluster, 2)
        await cluster.until(lambda: cluster.isr(T0) == [1], "1 is alone")
        await lose(cluster, 1)
        await cluster.start_broker(3)
        await trio.sleep(2)
        assert (cluster.leader(T0), cluster.controller_id) == (NO_BROKER, 4)
        yield cluster, producer, ledger


async def lose(cluster: MemoryCluster, *broker_ids: int) -> None:
    """SIGKILL, and the end of their sessions."""
    for broker_id in broker_ids:
        cluster.crash(broker_id)
        cluster.expire_session(broker_id)
    await trio.sleep(0.1)


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
        assert cluster.leader(T0) == 3
        assert sum('"unclean election' in line for line in cluster.history) == 1
        # 1 is back in sync; 2 is back, but hears nobody.
        await cluster.start_broker(1)
        await cluster.until(lambda: cluster.isr(T0) == [1, 3], "1 is in sync")
        cluster.cut_both(2, 3)
        cluster.cut_both(2, 1)
        await cluster.start_broker(2)
        await ledger.produce(producer, T0, numbered("2 lacks it", 5))
        await lose(cluster, 1, 3)
        cluster.heal(2, 3)
        cluster.heal(2, 1)
        await trio.sleep(10)
        assert cluster.leader(T0) == NO_BROKER, "nobody accepted this one"


@pytest.mark.parametrize("by_topic", [True, False], ids=["by the topic", "by an operator"])
async def test_the_longest_log_leads_of_those_who_live_when_the_answers_are_in(
    by_topic: bool, autojump_clock: MockClock
) -> None:
    async with led_by_none(minimum=1, second_has=5) as (cluster, _, __):
        term = cluster.broker(4).controller.term
        assert term is not None
        async with cluster.admin() as admin, trio.open_nursery() as nursery:
            if by_topic:
                cluster.cut_both(4, 3)
                operator = cluster.zookeeper.client()
                await operator.start()
                await operator.set(ConfigZnode.path(T0.topic), ConfigZnode(ALLOWS_UNCLEAN).encode(), -1)
            else:
                nursery.start_soon(lambda: admin.recover(T0, accept_loss=True))
                while not term.recovery.accepted:
                    await trio.sleep(0.0002)
                cluster.cut_both(4, 3)
            await cluster.until(lambda: bool(term.recovery._in_hand), "3 is being asked", within_s=60)
            await cluster.start_broker(2)
            await trio.sleep(1)
            assert cluster.leader(T0) == NO_BROKER
            cluster.heal(4, 3)
        await cluster.until(lambda: cluster.leader(T0) != NO_BROKER, "somebody leads")
        assert cluster.leader(T0) == 2
