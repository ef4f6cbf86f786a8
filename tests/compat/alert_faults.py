"""For each shipped alert a fault that is made to real brokers in memory, and unmade: the table is at the end.

What memory has not: processes of their own (a life of a broker tells when it began), and processor time that goes with
the virtual clock (the event loop's watch is handed some). The machine of each broker is one and the same, so what it
lacks (descriptors, a loop that turns) is told by all of them, of which the rows have one.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import trio
from prometheus_client.core import Metric
from trio.testing import MockClock

from compat.scraped_cluster import SCRAPE_S, Scraper
from strandline.client import TrioProducer
from strandline.protocol.errors import ErrorCode
from strandline.testkit.cluster import LOG_DIR, MemoryCluster
from support.group_client import GroupClient
from support.scenario import T0, die, numbered

BEFORE = 4
"""Scrapes while all is well, at first."""


@dataclass
class Site:
    """Where a fault is made. Broker 1 is the controller. producer: with acks=1."""

    cluster: MemoryCluster
    scraper: Scraper
    producer: TrioProducer

    async def produce(self, count: int = 1) -> None:
        for value in numbered("r", count):
            await self.producer.send(T0.topic, value, partition=T0.partition)
        await self.producer.flush()

    async def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            await self.cluster.start_broker(broker_id)


Fault = Callable[[Site], AbstractAsyncContextManager[None]]
"""It is made at the beginning and unmade at the end."""


class Row(NamedTuple):
    """alert: fires by the end of the fault, which lasts for so many scrapes once it is made, and not any more `clears`
    scrapes later. also: other ones that the fault rightly sets off. then: those that its end sets off (a broker was
    started), and that may go on. site: for `cluster_with_topic`. prepare: while all is well. every_beat: the figure
    rests on what a broker does ten times a second; else that is done each second, since hours are to be got through."""

    alert: str
    fault: Fault
    lasts: int
    clears: int = 6
    also: frozenset[str] = frozenset()
    then: frozenset[str] = frozenset()
    site: Mapping[str, Any] = {}
    prepare: Callable[[Site], None] = lambda _: None
    every_beat: bool = False


# --- brokers ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _is_killed(site: Site, broker_id: int) -> AsyncIterator[None]:
    site.cluster.crash(broker_id)
    yield
    await site.start(broker_id)


@asynccontextmanager
async def _loses_its_pod(site: Site) -> AsyncIterator[None]:
    """The node of a broker is gone: a pod that waits has no address, and is no target."""
    site.cluster.crash(3)
    site.scraper.forget(site.cluster, 3)
    yield
    await site.start(3)
    site.scraper.find(site.cluster, 3)


@asynccontextmanager
async def _is_not_found(site: Site) -> AsyncIterator[None]:
    site.scraper.forget(site.cluster)
    yield
    site.scraper.find(site.cluster)


@asynccontextmanager
async def _cannot_register(site: Site) -> AsyncIterator[None]:
    """ZooKeeper goes just when a broker that starts wants to be registered."""
    cluster = site.cluster
    die(cluster, 2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.start_broker, 2)
        await cluster.until(lambda: cluster.nodes[2].lives == 2, "it starts")
        client = cluster.coordination(2).client
        create = client.create

        async def cut_before(path: str, *arguments: Any, **more: Any) -> Any:
            if path == "/brokers/ids/2":
                cluster.cut_from_zookeeper(2)
            return await create(path, *arguments, **more)

        with patch.object(client, "create", cut_before):
            yield
        cluster.heal_zookeeper(2)


@asynccontextmanager
async def _are_restarted_in_turn(site: Site) -> AsyncIterator[None]:
    """As planned: nothing else calls anybody."""
    for broker_id in (3, 2, 1):
        await site.cluster.stop(broker_id)
        await site.scraper.scrape(1)
        await site.start(broker_id)
        await site.cluster.until(lambda: len(site.cluster.isr(T0)) == 3, "the ISR is whole")
        await site.scraper.scrape(1)
    yield


@asynccontextmanager
async def _lose_zookeeper(site: Site, *broker_ids: int) -> AsyncIterator[None]:
    for broker_id in broker_ids:
        site.cluster.cut_from_zookeeper(broker_id)
    yield
    for broker_id in broker_ids:
        site.cluster.heal_zookeeper(broker_id)


@asynccontextmanager
async def _computes_all_the_time(site: Site) -> AsyncIterator[None]:
    """Nine tenths of the virtual seconds are processor time of its loop."""
    watch = site.cluster.broker(1).broker_sources._loop
    real_s, began_s, before_s = watch._cpu_s, trio.current_time(), watch._cpu_s()
    watch._cpu_s = lambda: before_s + (trio.current_time() - began_s) * 0.9
    yield
    more_s = watch._cpu_s() - real_s()
    watch._cpu_s = lambda: real_s() + more_s


@asynccontextmanager
async def _is_held_up(site: Site) -> AsyncIterator[None]:
    """One step of its loop takes 1.5 s, again and again."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)

    async def hold_up() -> None:
        while True:
            clock.jump(1.5)
            await trio.sleep(SCRAPE_S / 2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold_up)
        yield
        nursery.cancel_scope.cancel()


MAX_FILES = 1000


@asynccontextmanager
async def _opens_files_without_end(_: Site) -> AsyncIterator[None]:
    """Nine tenths of what it may, by what it has open already."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_FILES, limits[1]))
    try:
        for _ in range(len(os.listdir("/proc/self/fd")), MAX_FILES * 9 // 10):
            opened.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for each in opened:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# --- the cluster ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _has_the_job_of_another_cluster(site: Site) -> AsyncIterator[None]:
    """Two controllers of one cluster cannot be had for a minute: the one that does not reach ZooKeeper resigns."""
    async with MemoryCluster(1).running() as other:
        site.scraper.find(other, prefix="other")
        yield
        site.scraper.forget(other)


@asynccontextmanager
async def _stands_still(site: Site) -> AsyncIterator[None]:
    """A follower does not reach its leader; Prometheus reaches both."""
    site.cluster.cut_both(3, 1)
    await site.produce()
    yield
    site.cluster.heal(3, 1)
    site.cluster.heal(1, 3)


@asynccontextmanager
async def _is_elected_without_being_in_sync(site: Site) -> AsyncIterator[None]:
    cluster = site.cluster
    die(cluster, 3)
    await cluster.until(lambda: cluster.isr(T0) == [2], "the ISR is smaller")
    await site.produce()
    die(cluster, 2)
    await site.start(3)
    await cluster.until(lambda: cluster.leader(T0) == 3, "who was not in sync leads")
    await site.start(2)
    yield


@asynccontextmanager
async def _leads_nothing_any_more(site: Site) -> AsyncIterator[None]:
    die(site.cluster, 2)
    await site.cluster.until(lambda: site.cluster.leader(T0) == 1, "the other one leads")
    await site.start(2)
    yield
    async with site.cluster.admin() as admin:
        await admin.elect_leaders()


@asynccontextmanager
async def _falls_behind(site: Site) -> AsyncIterator[None]:
    """A group commits once, and reads no more while others write."""
    await _commit(site, "g", 0)
    await site.produce(written := 1001)

    async def write() -> None:
        nonlocal written
        while True:
            await site.produce(10)
            written += 10
            await trio.sleep(SCRAPE_S)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        yield
        nursery.cancel_scope.cancel()
    await _commit(site, "g", written)


async def _commit(site: Site, group: str, offset: int) -> None:
    client = GroupClient(site.cluster, group)
    await client.find()
    assert await client.commit({T0: offset}) is ErrorCode.NONE
    client.close()


# --- disks and figures ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _has_a_disk_that_fails(site: Site) -> AsyncIterator[None]:
    cluster, disk = site.cluster, site.cluster.nodes[2].disk
    fault = disk.fail("fsync", f"{cluster.partition(2, T0).log_dir}/t-0/*", errno.EIO)
    await site.produce()
    yield
    cluster.crash(2)
    disk._faults.remove(fault)
    await site.start(2)


DISK_BYTES = 1_000_000


def _has_a_small_disk(site: Site, taken_bytes: int) -> None:
    disk = site.cluster.nodes[1].disk
    disk.makedirs("/others")
    disk.write("/others/file", bytes(taken_bytes))
    disk.capacity_bytes = DISK_BYTES


@asynccontextmanager
async def _has_a_full_disk(site: Site) -> AsyncIterator[None]:
    disk = site.cluster.nodes[1].disk
    disk.write("/others/file", bytes(DISK_BYTES * 95 // 100))
    yield
    disk.unlink("/others/file")


@asynccontextmanager
async def _has_a_disk_that_fills(site: Site) -> AsyncIterator[None]:
    """What is left lasts for eight hours or so."""
    disk = site.cluster.nodes[1].disk

    async def fill() -> None:
        while True:
            disk.write("/others/file", disk.read("/others/file") + bytes(500))
            await trio.sleep(SCRAPE_S)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fill)
        yield
        nursery.cancel_scope.cancel()
    disk.unlink("/others/file")


class _Source:
    is_broken = False

    def __call__(self) -> Iterator[Metric]:
        if self.is_broken:
            raise ValueError("no such figure")
        yield from ()


def _has_one_more_source(site: Site) -> None:
    site.cluster.broker(1).metrics.add("more", _Source())


@asynccontextmanager
async def _cannot_tell(site: Site) -> AsyncIterator[None]:
    source = site.cluster.broker(1).metrics._sources["more"]
    assert isinstance(source, _Source)
    source.is_broken = True
    yield
    source.is_broken = False


@asynccontextmanager
async def _has_a_group_with_an_endless_name(site: Site) -> AsyncIterator[None]:
    name = "g" * 300
    await _commit(site, name, 0)
    yield
    async with site.cluster.admin() as admin:
        await admin.delete_groups([name])


RESTARTED = frozenset({"StrandlineBrokerRestarted"})
ALONE: Mapping[str, Any] = {
    "brokers": 1,
    "replicas": (1,),
    "min_insync_replicas": 1,
    "properties": {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
    },
}
LED_BY_THE_SECOND = {"brokers": 2, "replicas": (2, 1), "min_insync_replicas": 1}

FAULTS = (
    Row(
        "StrandlineBrokerDown",
        partial(_is_killed, broker_id=3),
        8,
        also=frozenset({"StrandlineUnderReplicated"}),
        then=RESTARTED,
    ),
    Row(
        "StrandlineBrokerMissing",
        _loses_its_pod,
        14,
        also=frozenset({"StrandlineUnderReplicated"}),
        then=RESTARTED,
    ),
    Row("StrandlineNothingScraped", _is_not_found, 12, site=ALONE),
    Row(
        "StrandlineBrokerNotRunning",
        _cannot_register,
        24,
        also=RESTARTED | {"StrandlineZooKeeperNotConnected"},
        site={"brokers": 2, "replicas": (1,), "min_insync_replicas": 1},
    ),
    Row("StrandlineBrokerRestarted", _are_restarted_in_turn, 2, 22),
    Row("StrandlineZooKeeperNotConnected", lambda site: _lose_zookeeper(site, 2), 3),
    Row("StrandlineLoopBusy", _computes_all_the_time, 14, site=ALONE, every_beat=True),
    Row("StrandlineLoopHeldUp", _is_held_up, 7, site=ALONE, every_beat=True),
    Row("StrandlineDescriptorsShort", _opens_files_without_end, 12, site=ALONE),
    Row(
        "StrandlineNoController",
        lambda site: _lose_zookeeper(site, 1, 2, 3),
        4,
        also=frozenset({"StrandlineZooKeeperNotConnected"}),
    ),
    Row("StrandlineSeveralControllers", _has_the_job_of_another_cluster, 4, site=ALONE),
    Row(
        "StrandlineOfflinePartitions",
        partial(_is_killed, broker_id=2),
        4,
        also=frozenset({"StrandlineBrokerDown"}),
        then=RESTARTED,
        site={"brokers": 2, "replicas": (2,), "min_insync_replicas": 1},
    ),
    Row("StrandlineUnderMinIsr", _stands_still, 3, site={"min_insync_replicas": 3}),
    Row("StrandlineUnderReplicated", _stands_still, 6),
    Row(
        "StrandlineUncleanElection",
        _is_elected_without_being_in_sync,
        2,
        22,
        also=RESTARTED,
        site={
            "replicas": (2, 3),
            "min_insync_replicas": 1,
            "configs": {"unclean.leader.election.enable": "true"},
        },
    ),
    Row(
        "StrandlineLeadersUnbalanced",
        _leads_nothing_any_more,
        64,
        also=RESTARTED,
        site={**LED_BY_THE_SECOND, "properties": {"auto.leader.rebalance.enable": "false"}},
    ),
    Row("StrandlineConsumerLagGrows", _falls_behind, 34, site=ALONE),
    Row(
        "StrandlineOfflineLogDirectory",
        _has_a_disk_that_fails,
        2,
        then=RESTARTED,
        site={
            **LED_BY_THE_SECOND,
            "configs": {"flush.messages": "1"},
            "properties": {"log.dirs": f"{LOG_DIR},/more"},
        },
    ),
    Row(
        "StrandlineDiskNearlyFull",
        _has_a_full_disk,
        4,
        site=ALONE,
        prepare=partial(_has_a_small_disk, taken_bytes=DISK_BYTES * 3 // 10),
    ),
    Row(
        "StrandlineDiskFullInADay",
        _has_a_disk_that_fills,
        36,
        site=ALONE,
        prepare=partial(_has_a_small_disk, taken_bytes=DISK_BYTES * 55 // 100),
    ),
    Row("StrandlineFiguresMissing", _cannot_tell, 2, 22, site=ALONE, prepare=_has_one_more_source),
    Row("StrandlineFiguresLeftOut", _has_a_group_with_an_endless_name, 22, site=ALONE),
)
