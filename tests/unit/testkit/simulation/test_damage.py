"""What a disk alters: brokers are not told, oracles are, and in the end somebody sees to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.records import scan
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.simulation import driver
from strandline.testkit.simulation.damage import Damage
from strandline.testkit.simulation.faults.striking import Strikes
from strandline.testkit.simulation.faults.table import KINDS
from strandline.testkit.simulation.god_view import GodView
from strandline.testkit.simulation.history import Stream
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.options import TopicPlan, draw_options
from strandline.testkit.simulation.script import Fault, read_script
from strandline.testkit.simulation.workloads.changing_topics import create_topic
from strandline.testkit.simulation.world import World

TP = TopicPartition("t", 0)
CRC_POSITION = 17


@pytest.fixture
async def world(autojump_clock: MockClock) -> AsyncIterator[World]:
    """Two brokers; the first leads the one partition, which has the records 0 to 4."""
    cluster = MemoryCluster(2, config={"offsets.topic.num.partitions": "1"})
    made = World(draw_options(1, {}, []), cluster, cluster.admin())
    async with cluster.running(), made.admin:
        await create_topic(made, TopicPlan("t", 1, 2, 1, -1, {}))
        await produce(made, range(5))
        yield made


async def produce(world: World, numbers: range) -> None:
    async with world.cluster.producer(linger_ms=0) as producer:
        for number in numbers:
            await (await producer.send("t", b"%d" % number, partition=0))


def flip(world: World, offset: int, bit: int = 1) -> Damage:
    """In the checksum of the batch that has that offset, on the first broker."""
    disk, path = world.cluster.nodes[1].disk, f"/data/{TP}/{0:020}.log"
    content = disk.read(path)
    at = next(position for position, header in scan(content) if header.base_offset == offset) + CRC_POSITION
    right, wrong = content[at : at + 1], bytes([content[at] ^ bit])
    disk.write(path, content[:at] + wrong + content[at + 1 :])
    damage = Damage(Stream(TP, 1), "flip", path, offset, at, right, wrong)
    world.damage.setdefault(1, []).append(damage)
    return damage


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("kind", ["damage", "bit flip"])
def test_the_cluster_comes_to_rest_whole(kind: str, seed: int) -> None:
    options = driver.options_of(seed, length_s=25.0, kinds=())
    report = driver.simulate(options, read_script(f"4 {kind} 1 for 4\n14 {kind} 2 for 4"))
    assert report.findings == [] and len(report.struck) == 2
    assert sum(count for name, count in report.sometimes.items() if name.startswith("damaged: ")) >= 2


async def test_what_lies_behind_damage_and_nowhere_else_is_gone(world: World, autojump_clock: MockClock) -> None:
    losses = Losses(world, GodView(world))
    with losses.by_disaster([1]):
        flip(world, offset=3)
    assert world.excuses.gone == set()
    with losses.by_disaster([2]):
        world.cluster.crash(2)
        world.cluster.replace_disk(2)
    assert world.excuses.gone == {b"3", b"4"}


async def test_what_was_written_behind_damage_goes_with_the_log_that_is_removed(
    world: World, autojump_clock: MockClock
) -> None:
    cluster = world.cluster
    losses = Losses(world, GodView(world))
    strikes = Strikes(world, losses, KINDS)
    await cluster.until(lambda: cluster.leads(1, TP), "it leads")
    cluster.crash(2)
    await cluster.until(lambda: cluster.isr(TP) == [1], "alone")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(strikes.run, [Fault(0.0, "bit flip", "1", 5.0)])
        await cluster.until(lambda: 1 in world.damage, "damaged")
        await produce(world, range(5, 8))
        assert world.excuses.gone == set()
    assert world.sometimes["a damaged log was removed"] == 1 and not world.damage
    assert world.excuses.gone == {b"5", b"6", b"7"}


@pytest.mark.parametrize("is_known", [False, True])
async def test_what_a_disk_alters_is_not_held_against_the_broker(
    world: World, is_known: bool, autojump_clock: MockClock
) -> None:
    cluster = world.cluster
    with GodView(world).watching():
        await cluster.until(lambda: cluster.leads(1, TP), "it leads")
        await produce(world, range(5, 6))
        await cluster.stop(1)
        flip(world, offset=0)
        if not is_known:
            world.damage.clear()
        await cluster.start_broker(1)
        await cluster.until(lambda: cluster.isr(TP) == [1, 2], "in sync")
        await world.admin.elect_leaders([TP])
        await cluster.until(lambda: cluster.leads(1, TP), "it leads again")
    assert bool(world.violations) is not is_known


async def test_two_flips_of_one_byte_are_undone(world: World, autojump_clock: MockClock) -> None:
    disk, path = world.cluster.nodes[1].disk, f"/data/{TP}/{0:020}.log"
    before = disk.read(path)
    damage = [flip(world, offset=3), flip(world, offset=3, bit=2)]
    assert disk.read(path) != before and [each.is_seen(disk) for each in damage] == [False, True]
    damage[1].undo(disk)
    assert damage[0].is_seen(disk)
    damage[0].undo(disk)
    assert disk.read(path) == before
    damage[0].redo(disk)
    assert damage[0].is_seen(disk)
