"""Each fault does what it says, and everything comes to rest behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from strandline.storage.manager import log_directory
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.simulation import driver
from strandline.testkit.simulation.driver import Report
from strandline.testkit.simulation.faults.of_brokers import HOUR_MS, JUMPS_MS, STANDS_STILL
from strandline.testkit.simulation.faults.of_disks import SLOW_S
from strandline.testkit.simulation.faults.places import DISK_PLACES, WRITES
from strandline.testkit.simulation.faults.striking import Strikes
from strandline.testkit.simulation.faults.table import KINDS
from strandline.testkit.simulation.god_view import GodView
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.options import draw_options
from strandline.testkit.simulation.script import Fault, read_script
from strandline.testkit.simulation.world import World

SEEDS = range(1, 11)


def run(script: str, seed: int = 3, length_s: float = 30.0) -> Report:
    """Of a seed whose segments are small and whose topics change."""
    options = driver.options_of(seed, length_s=length_s, kinds=())
    return driver.simulate(options, read_script(script))


@pytest.fixture
async def world(autojump_clock: MockClock) -> AsyncIterator[World]:
    cluster = MemoryCluster(2)
    made = World(draw_options(1, {}, []), cluster, cluster.admin())
    async with cluster.running(), made.admin:
        yield made


@pytest.mark.parametrize("how", [*JUMPS_MS, STANDS_STILL])
async def test_a_clock_jumps_or_stands_still_and_is_right_again(
    world: World, how: str, autojump_clock: MockClock
) -> None:
    clock = world.cluster.nodes[1].wall_clock
    strikes = Strikes(world, Losses(world, GodView(world)), KINDS)
    before_ms, jump_ms = clock.now_ms(), JUMPS_MS.get(how, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(strikes.run, [Fault(0.0, "clock", "1", 10.0, how)])
        await trio.sleep(4)
        went_ms = 0 if how == STANDS_STILL else 4_000
        assert clock.now_ms() == before_ms + jump_ms + went_ms
    assert clock.now_ms() == before_ms + 10_000
    assert abs(JUMPS_MS["-1 h"]) == HOUR_MS


@pytest.mark.parametrize("how", ["broker.id", "cluster.id"])
def test_a_foreign_disk_is_refused_and_left_as_it_is(how: str) -> None:
    report = run(f"5 wrong identity 2 for 3: {how}")
    assert report.findings == [] and report.sometimes[f"a foreign disk was refused: {how}"] == 1


def test_who_starts_on_a_foreign_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def whoever_asks(*_: object, broker_id: int, cluster_id: str) -> dict[str, str]:
        return {"broker.id": str(broker_id), "cluster.id": cluster_id} if cluster_id else {}

    monkeypatch.setattr(log_directory, "read_identity", whoever_asks)
    told = run("5 wrong identity 2 for 3: broker.id").findings
    assert "foreign-disk: broker 2: starts, though broker.id is another one" in told[0]
    assert "foreign-disk: broker 2: its start changed ['/data/" in told[1]


@pytest.mark.parametrize("place", DISK_PLACES)
def test_every_place_of_a_disk_is_met(place: str) -> None:
    """Sooner or later: some need a leader who changes, a cleaner, a start."""
    assert until_met(f"ended at an operation of the disk: {place}", f"6 kill at disk 2 for 8: {place}\n7 stop 3")


@pytest.mark.parametrize("write", WRITES)
def test_every_write_to_zookeeper_is_met(write: str) -> None:
    script = f"5 kill at zookeeper controller for 8: {write}\n7 kill 2 for 1\n9 kill 1 for 1"
    assert until_met(f"killed at a write to ZooKeeper: {write}", script)


def until_met(what: str, script: str) -> bool:
    """Whether one of some seeds meets it; in all of them nothing is found."""
    for seed in SEEDS:
        report = run(script, seed, length_s=20.0)
        assert report.findings == []
        if report.sometimes[what]:
            return True
    return False


@pytest.mark.parametrize("place", ["append", "checkpoint", "epochs"])
def test_a_place_without_room_has_some_again(place: str) -> None:
    report = run(f"4 no room 1 for 9: {place}\n4 no room 2 for 9: {place}\n5 stop 3 for 4\n20 kill 1 for 1", seed=1)
    assert report.findings == [] and report.sometimes[f"no room: {place}"]


def test_a_log_that_went_offline_without_room_is_seen_to() -> None:
    """A cleaner that puts its segment in has no room for an index."""
    options = driver.options_of(1, length_s=60.0, kinds=("no room",))
    report = driver.simulate(options, read_script("20 no room 1 for 8: index\n20 no room 2 for 8: index"))
    assert report.findings == [] and report.sometimes["restarted for a log that was offline"]


def test_without_descriptors_nobody_gets_in_and_then_everybody() -> None:
    report = run("4 no descriptors 2 for 6\n12 kill 3 for 1\n12 no descriptors 1 for 3")
    assert report.findings == [] and report.sometimes["a file was not opened for want of descriptors"]


@pytest.mark.parametrize("how", SLOW_S)
async def test_a_slow_disk_is_as_fast_as_before_in_the_end(world: World, how: str, autojump_clock: MockClock) -> None:
    node = world.cluster.nodes[1]
    before_s = node.disk_delay_s
    strikes = Strikes(world, Losses(world, GodView(world)), KINDS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(strikes.run, [Fault(0.0, "slow disk", "1", 9.0, how)])
        await trio.sleep(5)
        assert node.disk_delay_s == SLOW_S[how] != before_s
    assert node.disk_delay_s == before_s


async def test_a_slow_zookeeper_is_as_fast_as_before_in_the_end(world: World, autojump_clock: MockClock) -> None:
    zookeeper = world.cluster.zookeeper
    before_s = zookeeper.latency_s
    strikes = Strikes(world, Losses(world, GodView(world)), KINDS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(strikes.run, [Fault(0.0, "zookeeper slow", "", 9.0), Fault(1.0, "zookeeper slow", "", 2.0)])
        await trio.sleep(5)
        assert len(world.struck) == 1, "the other one is passed over"
        assert zookeeper.latency_s == 5.0 != before_s
    assert zookeeper.latency_s == before_s
