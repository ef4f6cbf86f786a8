"""What gets past a fence is told, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from trio.testing import MockClock

from strandline.broker.handlers.fetch_reads import FetchReads
from strandline.broker.handlers.orders import OrderHandlers
from strandline.broker.network.request import RequestInHand
from strandline.broker.replication.follower import Fetcher
from strandline.protocol.messages import UpdateMetadataRequest
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.simulation.fences import Fences
from strandline.testkit.simulation.options import draw_options
from strandline.testkit.simulation.world import World

TP = TopicPartition("t", 0)


@pytest.fixture
async def world(autojump_clock: MockClock) -> AsyncIterator[World]:
    """Two brokers that are watched, a partition that both have."""
    cluster = MemoryCluster(2)
    made = World(draw_options(1, {}, []), cluster, cluster.admin())
    with Fences(made).watching():
        async with cluster.running(), made.admin:
            await made.admin.create_topic("t", assignments={0: [1, 2]})
            await cluster.until(lambda: cluster.leads(1, TP) and cluster.isr(TP) == [1, 2], "in sync")
            yield made


def orders_of(world: World, broker: int) -> OrderHandlers:
    return world.cluster.broker(broker).orders


async def tell(world: World, *, later_broker: int = 0, later_controller: int = 0) -> None:
    """Broker 2 nothing new, in other epochs."""
    orders = orders_of(world, 2)
    epochs = orders._registration.broker_epoch + later_broker, orders._replicas.controller_epoch + later_controller
    message = UpdateMetadataRequest(1, epochs[1], epochs[0], [], [])
    await orders.update_metadata(cast(RequestInHand[Any], SimpleNamespace(message=message)))


async def test_orders_that_are_refused_or_right_are_no_finding(world: World, autojump_clock: MockClock) -> None:
    cluster = world.cluster
    cluster.crash(2)
    await cluster.start_broker(2)
    await cluster.until(lambda: cluster.isr(TP) == [1, 2], "in sync again")
    await tell(world, later_broker=1)
    await tell(world, later_controller=-1)
    assert world.violations == []


async def test_an_order_to_another_life_that_is_obeyed_is_told(
    world: World, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OrderHandlers, "_is_stale", lambda *_: False)
    await tell(world, later_broker=-1)
    assert "invariant 27: " in world.violations[0] and "obeys an order to its life" in world.violations[0]


async def test_an_order_of_a_former_controller_that_is_obeyed_is_told(
    world: World, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OrderHandlers, "_refusal", lambda *_: 0)
    await tell(world, later_controller=-1)
    assert "invariant 27: " in world.violations[0] and "obeys controller 0, and knows of 1" in world.violations[0]


async def test_a_fetch_of_another_epoch_that_is_served_is_told(
    world: World, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = world.cluster
    monkeypatch.setattr(FetchReads, "fence", lambda *_: None)
    cluster.partition(1, TP).leader_epoch += 1
    async with cluster.producer(linger_ms=0, acks=1) as producer:
        await (await producer.send("t", b"1", partition=0))
    await cluster.until(lambda: bool(world.violations), "told")
    assert "invariant 13: broker-1: serves a fetch of epoch 0 of 2 in epoch 1" in world.violations[0]


async def test_an_answer_of_another_epoch_that_is_taken_is_told(
    world: World, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = world.cluster
    take = Fetcher._process_partition

    def taken_late(fetcher: Fetcher, partition: Any, *rest: Any) -> None:
        partition.leader_epoch += 1
        take(fetcher, partition, *rest)

    with monkeypatch.context() as patched:  # it is undone before what watches that method
        patched.setattr(Fetcher, "_process_partition", taken_late)
        async with cluster.producer(linger_ms=0, acks=1) as producer:
            await (await producer.send("t", b"1", partition=0))
        await cluster.until(lambda: bool(world.violations), "told")
    assert "invariant 14: broker-2: takes an answer to what it asked in epoch 0 in 1" in world.violations[0]
