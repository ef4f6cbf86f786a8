"""The god's copy of each log is what stands on the disk, whatever became of an operation on it."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.types import TopicPartition
from strandline.storage.errors import LogStorageError
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.simulation.god_view import GodView
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.options import draw_options
from strandline.testkit.simulation.state_rules import StateRules
from strandline.testkit.simulation.world import World

TP = TopicPartition("t", 0)


async def on_node(cluster: MemoryCluster, broker: int, act: Callable[[], object]) -> None:
    async def run() -> None:
        cluster.nodes[broker].tasks.enter()
        act()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)


async def test_a_truncation_that_fails_half_way_has_cut_some_of_the_log_and_left_the_rest(
    autojump_clock: MockClock,
) -> None:
    """Segments behind the offset are gone; the one that holds it is as it was."""
    cluster = MemoryCluster(2, config={"log.segment.bytes": "1000"})
    world = World(draw_options(1, {}, ()), cluster, cluster.admin())
    god_view = GodView(world)
    with god_view.watching():
        async with cluster.running(), world.admin, cluster.producer(linger_ms=0, acks=1) as producer:
            await world.admin.create_topic("t", assignments={0: [1, 2]})
            await cluster.until(lambda: cluster.leads(1, TP), "it leads")
            cluster.crash(2)  # it is in sync for a while, so nothing is committed
            for _ in range(12):
                await (await producer.send("t", bytes(300), partition=0))
            log = cluster.logs(TP)[1]
            broken = cluster.nodes[1].disk.fail("truncate", "/data/*", errno.EIO, after=2)

            def cut() -> None:
                with pytest.raises(LogStorageError):
                    log.truncate_to(1)

            await on_node(cluster, 1, cut)
            broken.cancel()
            cluster.crash(1)
            await cluster.start_broker(1)
            await cluster.until(lambda: cluster.leads(1, TP), "it leads again")
            assert 1 < cluster.logs(TP)[1].log_end_offset < 12
    assert world.violations == []


async def test_what_compaction_has_not_reached_is_still_promised(autojump_clock: MockClock) -> None:
    """Records of two keys, in segments of a few: what was sealed is compacted, the last ones are not."""
    config = {"log.segment.bytes": "1000", "log.cleaner.backoff.ms": "500"}
    cluster = MemoryCluster(2, config=config)
    world = World(draw_options(1, {}, ()), cluster, cluster.admin())
    god_view = GodView(world)
    cluster.zookeeper.tree.on_apply = StateRules(world, god_view, Losses(world, god_view)).applied
    with god_view.watching():
        async with cluster.running(), world.admin, cluster.producer(linger_ms=0, acks=-1) as producer:
            configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
            await world.admin.create_topic("t", assignments={0: [1, 2]}, configs=configs)
            for number in range(40):
                await (await producer.send("t", bytes(300), key=b"%d" % (number % 2), partition=0))
            cleaned = [f"broker-{number} " for number in (1, 2)]
            await cluster.until(
                lambda: all(
                    any(name in each and "log cleaned" in each for each in cluster.history) for name in cleaned
                ),
                "both have compacted",
            )
            log = cluster.logs(TP)[2]
            committed = god_view.committed_of(log)
            assert 0 < committed.compacted_below <= log.segments.active.base_offset < committed.high_watermark
            assert world.violations == []
            await on_node(cluster, 2, lambda: log.truncate_to(log.log_end_offset - 1))
            assert [each.partition(" ")[2] for each in world.violations] == [
                "invariant 1: t-0: broker-2 is in sync and cuts off [39, 40) of epoch 0, which is committed"
            ]
