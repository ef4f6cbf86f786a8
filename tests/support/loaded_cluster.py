"""A cluster of three brokers to which much is done, step by step, and what each broker told at its `/metrics` then.

The story is played once in a process; tests look at what came of it. Broker 1 is controller all the time.

    idle         nothing was done yet
    asked for    as below, but that a scrape asks for the first time where partitions end that others lead
    throttled    one client exceeds its quota now
    loaded       topics, producers (refused ones, too), consumers, a group with commits, a quota that is exceeded
    rebalancing  a second member is on its way into the group
    completing   it is in, and the leader of the group has assigned nothing yet
    empty        both have left the group
    short        broker 3 was killed, and what it led has another leader
    deleting     DeleteRecords waits for a follower that hears nothing
    deleted      it has heard
    catching up  broker 3 is back, and behind
    led elsewhere   it is in sync, and leads nothing
    back         it leads again, one partition since somebody asked for it, one since the controller looked
    moving       a replica is being copied
    moved        that is done
    after        a topic and the group are gone
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from unittest.mock import patch

import trio
from trio.testing import MockClock

from strandline.broker.metrics import broker_sources
from strandline.broker.metrics.of_machine import of_machine
from strandline.client import TrioAdmin
from strandline.client.connection import Connection
from strandline.client.errors import ClientError
from strandline.client.quotas import DEFAULT_ENTITY, QuotaOwner
from strandline.protocol.messages import (
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    TopicProduceData,
)
from strandline.protocol.records.codec import build_batch
from strandline.protocol.types import TopicPartition
from strandline.runtime.machine import MachineFigures, Traffic
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import Ledger
from support.group_client import GroupClient
from support.scenario import SESSIONS_ALONE, numbered
from support.scraping import OPENMETRICS, TEXT, Scrape, scrape

BROKERS = (1, 2, 3)
CONTROLLER, COORDINATOR, KILLED = 1, 2, 3
PROPERTIES = {
    **SESSIONS_ALONE,
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "100",
    "replica.lag.time.max.ms": "4000",
    "min.insync.replicas": "2",
    "log.cleaner.backoff.ms": "500",
    "replica.fetch.max.bytes": "1000",
    "replica.fetch.response.max.bytes": "1000",
    "leader.imbalance.check.interval.seconds": "5",
    "leader.imbalance.per.broker.percentage": "40",
}
ORDERS, RETURNS = TopicPartition("orders", 0), TopicPartition("orders", 1)
KEYS, CLICKS, NARROW = (TopicPartition(topic, 0) for topic in ("keys", "clicks", "narrow"))
PARTITIONS = (ORDERS, RETURNS, KEYS, CLICKS, NARROW, TopicPartition("__consumer_offsets", 0))
ASSIGNMENTS = {
    "orders": {0: [1, 2, 3], 1: [2, 3, 1]},
    "keys": {0: [3, 1, 2]},
    "clicks": {0: [1, 2]},
    "narrow": {0: [3, 2]},
}
CONFIGS = {
    "keys": {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.3"},
    "clicks": {"segment.bytes": "1000"},
    "narrow": {"max.message.bytes": "500"},
}
IN_BOTH_FORMATS = ("idle", "loaded", "short")
MACHINE = MachineFigures(
    cpu_s={"user": 1.0},
    cpus=1,
    network={"eth0": Traffic(1, 1)},
    disks={"sda": Traffic(1, 1, 1.0)},
    memory_bytes={"MemTotal": 2, "MemAvailable": 1},
    open_descriptors=1,
    max_descriptors=2,
)
"""What the brokers are told of theirs. A real one has devices that come and go, and times that a kernel takes back."""
BEHIND = "kafka_server_fetcherlagmetrics_consumerlag"
HEAVY = "heavy"
"""A client whose bytes a quota limits."""


@dataclass
class Story:
    """What came of it: moment → broker → what it told. `facts`: figures that the logs, and not the counters, had at a
    moment, by name."""

    told: dict[str, dict[int, Scrape]] = field(default_factory=dict)
    """In the order of the moments."""
    told_as_openmetrics: dict[str, dict[int, Scrape]] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    leaders: dict[str, set[int]] = field(default_factory=dict)
    """Who led a partition at a moment."""


@cache
def story() -> Story:
    """What everything below is about."""
    played = Story()

    async def play() -> None:
        cluster = MemoryCluster(3, config=PROPERTIES)
        async with cluster.running():
            await Play(cluster, played).run()

    with patch.object(broker_sources, "of_machine", partial(of_machine, lambda: MACHINE)):
        trio.run(play, clock=MockClock(autojump_threshold=0))
    return played


class Play:
    """One step after the other; each begins where the one before ended."""

    def __init__(self, cluster: MemoryCluster, played: Story) -> None:
        self.cluster = cluster
        self.story = played
        self.ledger = Ledger()
        self.first, self.second = GroupClient(cluster), GroupClient(cluster)

    async def run(self) -> None:
        await trio.sleep(2)  # brokers have met
        await self.look("idle")
        async with self.cluster.admin() as admin:
            await self.load(admin)
            await self.rebalance()
            await self.kill()
            await self.delete_records(admin)
            await self.come_back(admin)
            await self.move(admin)
            await self.tidy(admin)

    async def look(self, moment: str) -> None:
        """Have all that run scraped in both formats, the second time for what a first scrape only asks for."""
        await trio.sleep(0.2)
        brokers = [n for n in BROKERS if self.cluster.nodes[n].is_up]
        self.story.leaders[moment] = {n for n in brokers if any(self.cluster.leads(n, tp) for tp in PARTITIONS)}
        self.story.told[moment] = {n: await scrape(self.cluster, n, TEXT) for n in brokers}
        if moment in IN_BOTH_FORMATS:
            self.story.told_as_openmetrics[moment] = {n: await scrape(self.cluster, n, OPENMETRICS) for n in brokers}

    def size_bytes(self, tp: TopicPartition, broker_id: int = 1) -> int:
        return self.cluster.partition(broker_id, tp).log.segments.size_bytes

    # --- loaded --------------------------------------------------------------------------------------------------

    async def load(self, admin: TrioAdmin) -> None:
        for topic, assignments in ASSIGNMENTS.items():
            await admin.create_topic(topic, assignments=assignments, configs=CONFIGS.get(topic))
        async with self.cluster.producer(linger_ms=0) as producer:
            await self.ledger.produce(producer, ORDERS, numbered("o", 50))
            await self.ledger.produce(producer, CLICKS, numbered("c" * 90, 40), one_by_one=True)
            await self.ledger.produce(producer, NARROW, numbered("n", 3))
            for number in range(400):
                await producer.send("keys", b"value %d" % number, key=b"key %d" % (number % 5))
                if number % 4 == 3:
                    await producer.flush()
            with suppress(ClientError):
                await (await producer.send("narrow", bytes(1000), partition=0))
        async with self.cluster.producer(acks=1, linger_ms=0) as producer:
            await self.ledger.produce(producer, RETURNS, numbered("r", 30))
        await self.misbehave()
        await self.cluster.rest(0.5)
        self.story.facts["bytes of orders 0"] = self.size_bytes(ORDERS)
        self.story.facts["bytes of orders 1"] = self.size_bytes(RETURNS)
        async with self.cluster.consumer() as consumer:
            await consumer.assign([ORDERS, RETURNS])
            read = 0
            while read < 80:
                read += sum(map(len, (await consumer.poll(timeout_ms=1000)).values()))
        await self.first.join()
        assert self.first.coordinator_id == COORDINATOR, "it leads least"
        await self.first.commit({ORDERS: 40, RETURNS: 30, CLICKS: 35})
        await self.cluster.rest(5)
        await self.look("asked for")  # of the ends that other brokers know
        await self.exceed_a_quota(admin)
        await self.first.heartbeat()
        await self.cluster.rest(6)
        await self.first.heartbeat()
        await self.look("loaded")

    async def misbehave(self) -> None:
        """Requests that are refused: of one who does not lead, of one that is not there, of what is not there yet."""
        async with self._connected(3) as connection:
            await self._produce(connection, "orders")
            await self._produce(connection, "absent")
        async with self._connected(1) as connection:
            topics = [FetchTopic("orders", [FetchPartition(0, 1000, 2**20)])]
            await connection.roundtrip(FetchRequest(500, 1, 2**24, topics))

    @asynccontextmanager
    async def _connected(self, broker_id: int, client_id: str = "") -> AsyncIterator[Connection]:
        (address,) = self.cluster.broker(broker_id).listeners.addresses.values()
        connection = await Connection.open(self.cluster.network.node("client"), address, client_id=client_id)
        yield connection
        connection.close()

    async def _produce(self, connection: Connection, topic: str, size_bytes: int = 10) -> None:
        batch = build_batch([(1, None, bytes(size_bytes))], "none")
        data = [TopicProduceData(topic, [PartitionProduceData(0, len(batch))])]
        await connection.roundtrip(ProduceRequest(1, 30_000, data), [batch])

    async def exceed_a_quota(self, admin: TrioAdmin) -> None:
        """One client sends ten times as much as it may, and has quotas that it keeps."""
        await admin.alter_quotas(QuotaOwner(ip=DEFAULT_ENTITY), {"connection_creation_rate": 1000.0})
        await admin.alter_quotas(
            QuotaOwner(client_id=HEAVY),
            {"producer_byte_rate": 1000.0, "request_percentage": 1000.0, "controller_mutation_rate": 10.0},
        )
        await self.cluster.until(
            lambda: all(len(self.cluster.broker(n).quotas.values) == 2 for n in BROKERS), "they are known everywhere"
        )
        async with self._connected(1, HEAVY) as connection:
            await connection.roundtrip(DeleteTopicsRequest([], 1000))  # which deletes nothing
            await self._produce(connection, "orders", 10_000)
            self.story.facts["bytes of heavy"] = self.size_bytes(ORDERS) - self.story.facts["bytes of orders 0"]
            await self.cluster.rest(0.5)
            await self.look("throttled")

    # --- rebalancing, completing ---------------------------------------------------------------------------------

    async def rebalance(self) -> None:
        first, second = self.first, self.second
        async with trio.open_nursery() as nursery:
            nursery.start_soon(second.join)
            await trio.sleep(1)
            await self.look("rebalancing")
            answer = await first.ask(first.join_request())
            assert answer.error_code == 0 and answer.leader == first.member_id
            await self.look("completing")
            slots = [SyncGroupRequestAssignment(each.member_id, b"") for each in answer.members]
            await first.ask(SyncGroupRequest(first.group, answer.generation_id, first.member_id, slots, None))
            first.generation = answer.generation_id
        assert second.generation == first.generation == 2
        await first.leave()
        await second.leave()
        await self.look("empty")

    # --- short, deleting, back -----------------------------------------------------------------------------------

    async def kill(self) -> None:
        cluster = self.cluster
        cluster.crash(3)
        await cluster.until(lambda: 3 not in cluster.isr(ORDERS) and cluster.leader(KEYS) == 1, "it is missed")
        await cluster.until(lambda: cluster.isr(NARROW) == [2] and cluster.leads(1, KEYS), "it is missed")
        async with cluster.producer(linger_ms=0) as producer:
            await self.ledger.produce(producer, ORDERS, numbered("p", 10))
        async with cluster.producer(linger_ms=0, delivery_timeout_ms=900, request_timeout_ms=500) as producer:
            with suppress(ClientError):
                await (await producer.send("narrow", b"refused", partition=0))
            await self.ledger.produce(producer, RETURNS, numbered("q" * 900, 40), one_by_one=True)
        await self.look("short")

    async def delete_records(self, admin: TrioAdmin) -> None:
        cluster = self.cluster
        async with trio.open_nursery() as nursery:
            cluster.cut_both(1, 2)
            nursery.start_soon(self._deleted, admin)
            await trio.sleep(0.5)
            await self.look("deleting")
            cluster.heal(1, 2)
        await cluster.rest(3)
        await self.look("deleted")

    async def _deleted(self, admin: TrioAdmin) -> None:
        assert await admin.delete_records({CLICKS: 25}) == {CLICKS: 25}

    async def come_back(self, admin: TrioAdmin) -> None:
        cluster = self.cluster
        await cluster.start_broker(3)
        await self._look_while_behind()
        await cluster.until(lambda: all(3 in cluster.isr(tp) for tp in (ORDERS, RETURNS, KEYS, NARROW)), "in sync")
        await self.look("led elsewhere")
        assert await admin.elect_leaders([KEYS]) == {KEYS: 3}
        await cluster.until(lambda: cluster.leads(3, KEYS) and cluster.leads(3, NARROW), "it leads again")
        await cluster.rest(3)
        await self.look("back")

    async def _look_while_behind(self) -> None:
        """Its fetches are smaller than what it lacks."""
        with trio.fail_after(10):
            while not (found := await scrape(self.cluster, 3)).rows(BEHIND):
                await trio.sleep(0.001)
        self.story.told["catching up"] = {3: found}
        self.story.leaders["catching up"] = set()

    # --- moving, after -------------------------------------------------------------------------------------------

    async def move(self, admin: TrioAdmin) -> None:
        cluster = self.cluster
        cluster.cut_both(1, 3)
        await admin.alter_partition_reassignments({CLICKS: [1, 2, 3]})
        await cluster.until(lambda: len(cluster.partition(1, CLICKS).leadership.replicas) == 3, "it is to be copied")
        await self.look("moving")
        cluster.heal(1, 3)
        await cluster.until(lambda: cluster.isr(CLICKS) == [1, 2, 3], "it is copied")
        await cluster.rest(2)
        await self.look("moved")

    async def tidy(self, admin: TrioAdmin) -> None:
        cluster = self.cluster
        await admin.delete_topic("narrow")
        await cluster.until(lambda: not any(cluster.hosts(n, NARROW) for n in BROKERS), "the topic is gone")
        answer = await self.first.ask(DeleteGroupsRequest([self.first.group]))
        assert [each.error_code for each in answer.results] == [0]
        await cluster.rest(2)
        await self.look("after")
