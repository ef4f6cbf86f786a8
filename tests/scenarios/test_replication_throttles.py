"""A replica that is filled under a throttle takes the time that its rate says, and nobody else waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from strandline.client import TrioAdmin, TrioProducer
from strandline.protocol.messages import ConfigResource
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import Ledger
from support.scenario import T0, check_at_the_end, cluster_with_topic, die, numbered

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
SIDES = {
    "leader": ({LEADER_RATE}, {LEADERS}),
    "follower": ({FOLLOWER_RATE}, {FOLLOWERS}),
    "both": ({LEADER_RATE, FOLLOWER_RATE}, {LEADERS, FOLLOWERS}),
}
FILLED = 3
U0 = TopicPartition("u", 0)
RATE = 20_000
PADDING = b"." * 950
COUNT = 200
"""Records of some KB, each a batch: 10 s at the rate."""
WINDOW_S = 1.0
"""What is saved up goes at once."""
START_S = 3.0
"""Of a broker, and of whatever waits for a beat."""


async def set_rates(admin: TrioAdmin, side: str, rate: int | None) -> None:
    """None: no longer set."""
    changes = dict.fromkeys(sorted(SIDES[side][0]), None if rate is None else str(rate))
    await admin.alter_configs(ConfigResource.BROKER, "", changes)


async def set_replicas(admin: TrioAdmin, side: str, replicas: str | None = "*") -> None:
    await admin.alter_configs(ConfigResource.TOPIC, T0.topic, dict.fromkeys(sorted(SIDES[side][1]), replicas))


def log_size(cluster: MemoryCluster, broker_id: int, tp: TopicPartition = T0) -> int:
    return cluster.partition(broker_id, tp).log.size_bytes


class Site:
    """A cluster in which brokers were down while `T0` got COUNT records, and nobody but them lacks any."""

    def __init__(self, cluster: MemoryCluster, admin: TrioAdmin, producer: TrioProducer, ledger: Ledger) -> None:
        self.cluster = cluster
        self.admin = admin
        self.producer = producer
        self.ledger = ledger
        self.size_bytes = log_size(cluster, 1)

    async def start(self, *broker_ids: int) -> float:
        """Returns when they serve."""
        for broker_id in broker_ids:
            await self.cluster.start_broker(broker_id)
        return trio.current_time()

    async def in_sync(self, began: float, isr: tuple[int, ...] = (1, 2, 3), within_s: float = 60.0) -> float:
        """Returns how long it took."""
        await self.cluster.until(
            lambda: self.cluster.isr(T0) == sorted(isr),
            "all are in sync",
            within_s=began + within_s - trio.current_time(),
        )
        return trio.current_time() - began

    async def half_filled(self, broker_id: int = FILLED) -> None:
        def is_half_filled() -> bool:
            has_it = self.cluster.hosts(broker_id, T0)
            return has_it and log_size(self.cluster, broker_id) >= self.size_bytes / 2

        await self.cluster.until(is_half_filled, "half of it is there", within_s=60)


@asynccontextmanager
async def site_of(
    *, down: tuple[int, ...] = (FILLED,), replicas: tuple[int, ...] = (1, 2, 3), count: int = COUNT, others: int = 1
) -> AsyncIterator[Site]:
    """others: partitions of topic `u`, which get nothing."""
    async with (
        cluster_with_topic(replicas, brokers=max(replicas)) as (cluster, producer, ledger),
        cluster.admin() as admin,
    ):
        if others:
            await admin.create_topic(U0.topic, assignments={number: list(replicas) for number in range(others)})
            await cluster.until(lambda: all(cluster.hosts(replica, U0) for replica in replicas), "u is hosted")
        for broker_id in down:
            await cluster.stop(broker_id)
        values = [record + PADDING for record in numbered("m", count)]
        await ledger.produce(producer, T0, values, one_by_one=True)
        yield Site(cluster, admin, producer, ledger)


@pytest.mark.parametrize("side", SIDES)
async def test_a_replica_is_filled_in_the_time_that_the_rate_says(side: str, autojump_clock: MockClock) -> None:
    async with site_of() as site:
        await set_rates(site.admin, side, RATE)
        await set_replicas(site.admin, side)
        seconds = await site.in_sync(await site.start(FILLED))
        expected_s = site.size_bytes / RATE
        assert expected_s - WINDOW_S - 0.2 <= seconds <= expected_s + START_S
        await check_at_the_end(site.cluster, site.ledger)


@pytest.mark.parametrize(
    ("side", "replicas"),
    [("leader", "0:2,1:1"), ("leader", ""), ("follower", "0:1,0:2,1:3"), ("follower", "")],
)
async def test_replicas_that_the_topic_does_not_name_are_not_throttled(
    side: str, replicas: str, autojump_clock: MockClock
) -> None:
    async with site_of() as site:
        await set_rates(site.admin, side, RATE)
        await set_replicas(site.admin, side, replicas)
        assert await site.in_sync(await site.start(FILLED)) < START_S


@pytest.mark.parametrize(("side", "replicas"), [("leader", "0:1"), ("follower", "7:1,0:3")])
async def test_a_replica_that_the_topic_names_is_throttled(side: str, replicas: str, autojump_clock: MockClock) -> None:
    async with site_of() as site:
        await set_rates(site.admin, side, RATE)
        await set_replicas(site.admin, side, replicas)
        assert await site.in_sync(await site.start(FILLED)) >= site.size_bytes / RATE - WINDOW_S - 0.2


@pytest.mark.parametrize("side", SIDES)
async def test_other_partitions_of_the_same_brokers_do_not_wait(side: str, autojump_clock: MockClock) -> None:
    """Neither one that is filled and not throttled, nor producers that wait for the same follower."""
    async with site_of() as site:
        await site.ledger.produce(site.producer, U0, [b"%d" % n + PADDING for n in range(COUNT)], one_by_one=True)
        await set_rates(site.admin, side, RATE)
        await set_replicas(site.admin, side)
        began = await site.start(FILLED)
        await site.cluster.until(lambda: site.cluster.isr(U0) == [1, 2, 3], "u is in sync", within_s=START_S)
        longest_s = 0.0
        while log_size(site.cluster, FILLED) < site.size_bytes * 0.9:
            sent_at = trio.current_time()
            await (await site.producer.send(U0.topic, b"%.3f" % sent_at, partition=0))
            longest_s = max(longest_s, trio.current_time() - sent_at)
        assert trio.current_time() - began > site.size_bytes / RATE / 2, "it was being filled all that time"
        assert longest_s < 0.05
        assert site.cluster.isr(U0) == [1, 2, 3]
        await site.in_sync(began)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("lifted", ["no rate", "no replicas", "high rate"])
async def test_a_throttle_that_is_lifted_midway_holds_nobody_back(
    side: str, lifted: str, autojump_clock: MockClock
) -> None:
    async with site_of() as site:
        await set_rates(site.admin, side, RATE)
        await set_replicas(site.admin, side)
        await site.start(FILLED)
        await site.half_filled()
        began = trio.current_time()
        if lifted == "no replicas":
            await set_replicas(site.admin, side, None)
        else:
            await set_rates(site.admin, side, None if lifted == "no rate" else 10**7)
        assert await site.in_sync(began) < 2.0
        await check_at_the_end(site.cluster, site.ledger)


@pytest.mark.parametrize("others", [0, 1], ids=["that fetches nothing else", "that waits for others, too"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("lifted", ["no rate", "no replicas"])
async def test_who_waits_for_long_hears_soon_that_the_throttle_is_lifted(
    side: str, lifted: str, others: int, autojump_clock: MockClock
) -> None:
    async with site_of(others=others) as site:
        await set_rates(site.admin, side, 1)
        await set_replicas(site.admin, side)
        await site.start(FILLED)
        await trio.sleep(15)
        began = trio.current_time()
        if lifted == "no replicas":
            await set_replicas(site.admin, side, None)
        else:
            await set_rates(site.admin, side, None)
        assert await site.in_sync(began) < 2.0


@pytest.mark.parametrize("side", SIDES)
async def test_a_throttle_that_is_set_midway_holds_back_what_is_left(side: str, autojump_clock: MockClock) -> None:
    async with site_of() as site:
        await set_rates(site.admin, side, RATE)
        await set_replicas(site.admin, side)
        await site.start(FILLED)
        await site.half_filled()
        await set_rates(site.admin, side, RATE // 4)
        seconds = await site.in_sync(trio.current_time())
        assert seconds >= site.size_bytes / 2 / (RATE // 4) - 2 * WINDOW_S


@pytest.mark.parametrize("side", SIDES)
async def test_who_is_in_sync_is_never_held_back(side: str, autojump_clock: MockClock) -> None:
    async with cluster_with_topic(min_insync_replicas=3) as (cluster, producer, ledger), cluster.admin() as admin:
        await set_rates(admin, side, 1)
        await set_replicas(admin, side)
        began = trio.current_time()
        for record in numbered("m", 20):
            await ledger.produce(producer, T0, [record + bytes(n) for n in range(20)])
        assert trio.current_time() - began < 2.0
        assert cluster.isr(T0) == [1, 2, 3]
        await check_at_the_end(cluster, ledger)


@pytest.mark.parametrize("side", SIDES)
async def test_another_leader_midway_goes_on_with_the_rate(side: str, autojump_clock: MockClock) -> None:
    async with site_of() as site:
        await set_rates(site.admin, side, RATE)
        await set_replicas(site.admin, side)
        began = await site.start(FILLED)
        await site.half_filled()
        die(site.cluster, 1)
        await site.cluster.until(lambda: site.cluster.leads(2, T0), "2 leads")
        seconds = await site.in_sync(began, (2, 3))
        expected_s = site.size_bytes / RATE
        assert expected_s - 3 * WINDOW_S <= seconds <= expected_s + 2 * START_S
        await site.start(1)
        await check_at_the_end(site.cluster, site.ledger)


@pytest.mark.parametrize("rate", [0, 1])
@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_at_a_rate_below_a_batch_one_goes_every_eleven_seconds(
    side: str, rate: int, autojump_clock: MockClock
) -> None:
    batches = 6
    async with site_of(count=batches) as site:
        await set_rates(site.admin, side, rate)
        await set_replicas(site.admin, side)
        seconds = await site.in_sync(await site.start(FILLED), within_s=200)
        assert 11 * (batches - 2) <= seconds <= 13 * batches


@pytest.mark.parametrize("side", SIDES)
async def test_two_that_are_filled_at_once_both_get_on(side: str, autojump_clock: MockClock) -> None:
    """Of a leader they share the rate; each of two followers has its own."""
    async with site_of(down=(3, 4), replicas=(1, 2, 3, 4)) as site:
        await set_rates(site.admin, side, RATE)
        await set_replicas(site.admin, side)
        began = await site.start(3, 4)
        await site.half_filled(3)
        other = log_size(site.cluster, 4)
        assert other > site.size_bytes / 4
        seconds = await site.in_sync(began, (1, 2, 3, 4))
        expected_s = site.size_bytes / RATE * (1 if side == "follower" else 2)
        assert expected_s - WINDOW_S - 1.0 <= seconds <= expected_s + 2 * START_S


async def test_partitions_that_are_filled_from_one_leader_take_turns(autojump_clock: MockClock) -> None:
    """However many others stand between them in what their fetcher asks for."""
    async with site_of(others=21) as site:
        await site.ledger.produce(site.producer, U0, [b"%d" % n + PADDING for n in range(COUNT)], one_by_one=True)
        await set_rates(site.admin, "follower", RATE)
        for topic in (T0.topic, U0.topic):
            await site.admin.alter_configs(ConfigResource.TOPIC, topic, {FOLLOWERS: "*"})
        await site.start(FILLED)
        await site.cluster.until(lambda: site.cluster.hosts(FILLED, U0), "it is hosted")

        def sizes() -> list[int]:
            return sorted(log_size(site.cluster, FILLED, tp) for tp in (T0, U0))

        await site.cluster.until(lambda: sizes()[1] >= site.size_bytes / 2, "half of one is there", within_s=60)
        assert sizes()[0] >= site.size_bytes / 4


@pytest.mark.parametrize("side", SIDES)
async def test_who_is_held_back_does_not_ask_all_the_time(side: str, autojump_clock: MockClock) -> None:
    """Nor does its leader look for it each time that the partition grows, or takes its own disk for broken."""
    async with site_of() as site:
        await set_rates(site.admin, side, 1)
        await set_replicas(site.admin, side)
        await site.start(FILLED)
        await trio.sleep(1)
        reads, looks = site.cluster.broker(1).data.fetch.reads, []
        read = reads.read

        def counted(message: object, *arguments: object) -> object:
            looks.append(getattr(message, "replica_id", -1))
            return read(message, *arguments)

        reads.read = counted
        began, rounds = trio.current_time(), 1000
        for number in range(rounds):
            await (await site.producer.send(T0.topic, b"%d" % number, partition=0))
        seconds = trio.current_time() - began
        assert seconds > 3
        assert looks.count(FILLED) < 15 * seconds
        leadership = site.cluster.partition(1, T0).leadership
        assert leadership is not None and leadership.followers[FILLED].stalled_fetches <= 1
