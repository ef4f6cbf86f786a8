"""What brokers do by their high watermark, and tell of it: whatever is wrong is found when it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.replication.partition import Partition
from strandline.protocol.types import TopicPartition
from strandline.storage.log import log_start
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.simulation.god_view import GodView
from strandline.testkit.simulation.options import draw_options
from strandline.testkit.simulation.watermarks import Watermarks
from strandline.testkit.simulation.world import World

TP = TopicPartition("t", 0)
RECORDS = 5


@pytest.fixture
def acknowledges_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that goes by the end of its log."""

    def complete(partition: Partition) -> None:
        partition.waiters.complete_up_to(partition.log.log_end_offset, partition.log.log_start_offset)

    monkeypatch.setattr(Partition, "complete_waiters", complete)


@pytest.fixture
def god_view() -> GodView:
    cluster = MemoryCluster(3)
    return GodView(World(draw_options(1, {}, ()), cluster, cluster.admin()))


@pytest.fixture
async def world(god_view: GodView, autojump_clock: MockClock) -> AsyncIterator[World]:
    """Three brokers that are watched, and a topic that the first one leads: what it has is committed."""
    world, cluster = god_view.world, god_view.world.cluster
    with god_view.watching(), Watermarks(world, god_view).watching():
        async with cluster.running(), world.admin:
            await world.admin.create_topic("t", assignments={0: [1, 2, 3]}, configs={"min.insync.replicas": "2"})
            await cluster.until(lambda: cluster.leads(1, TP), "it leads")
            await produce(cluster, RECORDS)
            await cluster.until(
                lambda: all(cluster.partition(n, TP).high_watermark == RECORDS for n in (1, 2, 3)), "known"
            )
            yield world


async def produce(cluster: MemoryCluster, count: int, *, acks: int = -1) -> None:
    async with cluster.producer(linger_ms=0, acks=acks) as producer:
        for number in range(count):
            await (await producer.send("t", b"%d" % number, partition=0))


async def latest_offset(cluster: MemoryCluster) -> int:
    async with cluster.consumer() as consumer:
        return (await consumer.end_offsets([TP]))[TP]


async def poll(cluster: MemoryCluster) -> None:
    async with cluster.consumer() as consumer:
        await consumer.assign([TP])
        consumer.seek(TP, 0)
        await consumer.poll(timeout_ms=500)


async def on_node(cluster: MemoryCluster, broker: int, act: Callable[[], object]) -> None:
    async def run() -> None:
        cluster.nodes[broker].tasks.enter()
        act()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)


def told(world: World) -> list[str]:
    return [each.partition(" ")[2] for each in world.violations]


async def test_nothing_is_told_where_all_is_well(world: World, autojump_clock: MockClock) -> None:
    cluster = world.cluster
    await poll(cluster)
    await world.admin.delete_records({TP: 3})
    cluster.crash(1)
    await cluster.until(lambda: cluster.leader(TP) not in (-1, 1), "another one leads")
    await produce(cluster, 3)
    assert await latest_offset(cluster) == RECORDS + 3
    await poll(cluster)
    await cluster.start_broker(1)
    await cluster.until(lambda: len(cluster.isr(TP)) == 3, "it is in sync again")
    assert world.violations == []


async def test_a_log_begins_at_nothing_that_was_never_committed(world: World, autojump_clock: MockClock) -> None:
    log = world.cluster.logs(TP)[2]

    def begin() -> None:
        with pytest.raises(AssertionError):
            log_start.raise_log_start(log, RECORDS + 1, RECORDS + 1)
        log.truncate_fully_and_start_at(RECORDS + 4)

    await on_node(world.cluster, 2, begin)
    assert told(world) == [
        f"invariant 19: t-0: broker-2 begins at {at}, and no more than {RECORDS} was ever committed"
        for at in (RECORDS + 1, RECORDS + 4)
    ]


async def test_nobody_takes_for_committed_what_no_leader_has_committed(world: World, autojump_clock: MockClock) -> None:
    cluster = world.cluster
    for broker in (2, 3):
        cluster.crash(broker)
    await produce(cluster, 1, acks=1)
    partition = cluster.partition(1, TP)
    partition.leadership.high_watermark = RECORDS + 1
    await on_node(cluster, 1, partition.log_start_moved)
    text = f"takes {RECORDS + 1} for committed, and no leader has gone further than {RECORDS}"
    assert told(world) == [f"invariant 19: t-0: broker-1 {text}"]


async def test_clients_are_told_what_is_committed_and_never_less_than_before(
    world: World, autojump_clock: MockClock
) -> None:
    cluster, leadership = world.cluster, world.cluster.partition(1, TP).leadership
    assert await latest_offset(cluster) == RECORDS
    leadership.high_watermark = RECORDS - 1
    assert await latest_offset(cluster) == RECORDS - 1
    less = f"in epoch 0 that {RECORDS - 1} is committed, and clients were told {RECORDS}"
    assert told(world) == [f"invariant 8: t-0: broker-1 tells who asks for the latest offset {less}"]
    await poll(cluster)
    assert told(world)[1] == f"invariant 8: t-0: broker-1 tells a fetch {less}"
    world.violations.clear()
    leadership.high_watermark = RECORDS + 1
    assert await latest_offset(cluster) == RECORDS + 1
    text = f"tells who asks for the latest offset that {RECORDS + 1} is committed, and it is {RECORDS}"
    assert f"invariant 9: t-0: broker-1 {text}" in told(world)
    leadership.high_watermark = RECORDS


async def test_who_was_replaced_commits_nothing_that_the_next_leader_lacks(
    world: World, god_view: GodView, autojump_clock: MockClock
) -> None:
    """The next one may have committed more by then."""
    cluster, partition = world.cluster, world.cluster.partition(1, TP)
    committed = god_view.committed_of(partition.log)
    committed.begin(partition.leader_epoch + 1, RECORDS + 1)
    committed.grow((), RECORDS + 9, partition.leader_epoch + 1)
    await produce(cluster, 1)
    assert world.violations == [], "the next one has that"
    await produce(cluster, 1)
    text = f"commits up to {RECORDS + 2} in epoch 0, and the next leader began at {RECORDS + 1}"
    assert told(world) == [f"invariant 16: t-0: broker-1 {text}"]


async def test_nothing_is_acknowledged_to_all_before_it_is_committed(
    acknowledges_too_much: None, world: World, autojump_clock: MockClock
) -> None:
    world.violations.clear()
    for broker in (2, 3):
        world.cluster.crash(broker)
    await produce(world.cluster, 1)
    text = f"acknowledges what ends at {RECORDS + 1}, and commits up to {RECORDS} in epoch 0"
    assert told(world) == [f"invariant 15: t-0: broker-1 {text}"]
