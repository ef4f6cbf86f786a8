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
from strandline.testkit.simulation.faults import of_disks
from strandline.testkit.simulation.faults.of_brokers import HOUR_MS, JUMPS_MS, STANDS_STILL
from strandline.testkit.simulation.faults.places import DISK_PLACES, WRITES
from strandline.testkit.simulation.faults.striking import Strikes
from strandline.testkit.simulation.faults.table import KINDS
from strandline.testkit.simulation.god_view import GodView
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.options import draw_options
from strandline.testkit.simulation.script import Fault, read_script
from strandline.testkit.simulation.world import World


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


def test_every_place_of_a_disk_is_met() -> None:
    """Some need an orderly stop, or a cleaner."""
    found: set[str] = set()
    for seed, place in enumerate(DISK_PLACES):
        report = run(f"6 kill at disk 2 for 8: {place}\n6 power at disk 1 for 8: {place}\n12 stop 3", seed=seed + 1)
        assert report.findings == []
        found |= {name for name in report.sometimes if name.startswith("ended at an operation of the disk")}
    assert len(found) >= len(DISK_PLACES) - 3, found


def test_every_write_to_zookeeper_is_met() -> None:
    found: set[str] = set()
    for seed, write in enumerate(WRITES):
        script = f"5 kill at zookeeper controller for 8: {write}\n7 expire 1\n7 expire 2\n7 expire 3\n9 kill 2 for 1"
        report = run(script, seed=seed + 2)
        assert report.findings == []
        found |= {name for name in report.sometimes if name.startswith("killed at a write to ZooKeeper")}
    assert len(found) >= len(WRITES) - 2, found


@pytest.mark.parametrize("place", ["append", "checkpoint", "epochs"])
def test_a_place_without_room_has_some_again(place: str) -> None:
    report = run(f"4 no room 1 for 9: {place}\n4 no room 2 for 9: {place}\n5 stop 3 for 4\n20 kill 1 for 1", seed=1)
    assert report.findings == [] and report.sometimes[f"no room: {place}"]


def test_a_log_that_went_offline_without_room_is_seen_to() -> None:
    """A cleaner that puts its segment in has no room for an index."""
    options = driver.options_of(1, length_s=60.0, kinds=("no room",))
    report = driver.simulate(options, read_script("20 no room 1 for 8: index\n20 no room 2 for 8: index"))
    assert report.findings == []


def test_without_descriptors_nobody_gets_in_and_then_everybody() -> None:
    report = run("4 no descriptors 2 for 6\n12 kill 3 for 1\n12 no descriptors 1 for 3")
    assert report.findings == [] and report.sometimes["a file was not opened for want of descriptors"]


@pytest.mark.parametrize("how", of_disks.SLOW_S)
def test_a_disk_that_is_slow_for_long_stops_nobody_else(how: str) -> None:
    assert run(f"4 slow disk 1 for 8: {how}").findings == []


async def test_a_slow_zookeeper_is_as_fast_as_before_in_the_end(world: World, autojump_clock: MockClock) -> None:
    zookeeper = world.cluster.zookeeper
    before_s = zookeeper.latency_s
    strikes = Strikes(world, Losses(world, GodView(world)), KINDS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(strikes.run, [Fault(0.0, "zookeeper slow", "", 9.0), Fault(1.0, "zookeeper slow", "", 2.0)])
        await trio.sleep(5)
        assert zookeeper.latency_s == 5.0 != before_s
    assert zookeeper.latency_s == before_s
