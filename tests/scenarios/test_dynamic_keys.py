"""Every dynamic key of brokers: changed while a broker runs it has its effect, and no longer set what counted before.

A key without a row here fails: whoever adds one says what it does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import pytest
import trio
from trio.testing import MockClock

from strandline.broker.replication.replication_quota import ReplicationQuota
from strandline.broker.server import Broker
from strandline.broker.upkeep import cleaning
from strandline.client.errors import ClientError
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import BrokerEndpoint, BrokerIdZnode
from strandline.runtime.config.broker import BROKER_KEYS
from strandline.runtime.config.listener_keys import OF_LISTENERS
from strandline.runtime.config.topic import TOPIC_KEYS
from strandline.storage.cleaning.plan import Plan
from strandline.testkit.environment import VirtualWallClock
from strandline.testkit.inspection import read_all
from support.effects import FOR_ALL, Site, put, tasks
from support.scenario import die

T1 = TopicPartition("t1", 0)

Look = Callable[[Site], Awaitable[object]]


class Effect(NamedTuple):
    """value: what is set for all brokers. before, after: what `look` sees. properties: of the broker's file."""

    value: str
    look: Look
    before: object
    after: object
    properties: Mapping[str, str] = {}
    brokers: int = 1
    entity: str = FOR_ALL


# --- tasks and connections -------------------------------------------------------------------------------------------


def running(beginning: str) -> Look:
    async def look(_: Site) -> int:
        await trio.sleep(11)  # cleaners look every 10 s how many they are to be
        return tasks(beginning)

    return look


async def fetchers(site: Site) -> int:
    """Of broker 2, which follows eight partitions."""
    if not site.cluster.hosts(2, T1):
        await site.topic(partitions=8, replicas=[1, 2])
    await trio.sleep(3)
    for number in range(8):
        await site.produce(TopicPartition(T1.topic, number), 1)  # min.insync.replicas=2: the follower goes on
    return tasks("strandline.broker.replication.follower.Followers._run_fetcher")


async def threads(site: Site) -> int:
    blocking = site.cluster.nodes[1].blocking
    assert blocking is not None
    return blocking.threads


async def connections(site: Site) -> int:
    return await site.connections()


async def connections_of_two(site: Site) -> list[int]:
    """Of the address that the override names, in another spelling, and of another one."""
    return [await site.connections(host) for host in ("::ffff:10.0.0.7", "10.0.0.8")]


async def connections_in_three_seconds(site: Site) -> int:
    """0 where they are not all made by then: those that come faster wait to be accepted."""
    with trio.move_on_after(3):
        return await site.connections(at_most=30)
    return 0


TWO_LISTENERS = {
    "listeners": "PLAINTEXT://broker-1:9092,CLIENTS://broker-1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT",
}
"""The first is that of brokers, where only max.connections counts."""


async def advertised(site: Site) -> str:
    """Where clients reach the broker, as the controller tells all brokers."""
    await trio.sleep(1)
    *_, endpoint = site.cluster.broker(1).data.metadata.brokers[1].endpoints
    return f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"


async def has_series_per_partition(site: Site) -> bool:
    await site.topic()
    return any(metric.name.startswith("kafka_log_log_") for metric in site.cluster.broker(1).metrics.collect())


# --- what may be appended, and how it is stored ----------------------------------------------------------------------


def takes(value: bytes = b"v", *, key: bytes | None = b"k", age_ms: int = 0, **configs: str) -> Look:
    """Whether a record of such an age is taken, by a topic of such a configuration."""

    async def look(site: Site) -> bool:
        now_ms = VirtualWallClock().now_ms()
        return await site.is_taken(await site.topic(**configs), value, key=key, timestamp_ms=now_ms - age_ms)

    return look


async def decompresses(site: Site) -> bool:
    """Whether a compressed batch is taken for a topic where the broker has to look into it."""
    tp = await site.topic(cleanup_policy="compact")
    async with site.cluster.producer(linger_ms=0, compression_type="gzip", delivery_timeout_ms=3000) as producer:
        try:
            await (await producer.send(tp.topic, b"x" * 2000, key=b"k"))
        except ClientError:
            return False
    return True


async def attributes(site: Site) -> int:
    tp = await site.topic()
    await site.produce(tp, 1)
    return site.attributes(tp)


async def is_acknowledged_by_one(site: Site) -> bool:
    """Whether acks=all succeeds while the other replica is away."""
    tp = await site.topic(replicas=[1, 2])
    die(site.cluster, 2)
    await site.cluster.until(lambda: site.cluster.isr(tp) == [1], "2 is out")
    is_taken = await site.is_taken(tp)
    await site.cluster.start_broker(2)
    return is_taken


# --- segments, flushes, retention ------------------------------------------------------------------------------------


def segments(count: int = 4, *, every_s: float = 0.0) -> Look:
    """How many files so many batches make."""

    async def look(site: Site) -> int:
        tp = await site.topic()
        await site.produce(tp, count, every_s=every_s)
        return len(site.files(str(tp), ".log"))

    return look


async def entries(site: Site) -> int:
    """Of the index of four batches, once its segment is closed."""
    tp = await site.topic(segment_ms="1000")
    await site.produce(tp, 4)
    await trio.sleep(2)
    await site.produce(tp, 1)
    return len(site.cluster.nodes[1].disk.read(f"/data/{tp}/{0:020}.index")) // 8


async def flushed(site: Site) -> int:
    tp = await site.topic()
    await site.produce(tp)
    await trio.sleep(3)
    return site.log(tp).recovery_point


async def begins_at_0(site: Site) -> bool:
    tp = await site.topic(segment_bytes="100")
    await site.produce(tp)
    await trio.sleep(5)
    return site.log(tp).log_start_offset == 0


async def deleted_files(site: Site) -> bool:
    """Whether files of a deleted topic still lie there ten seconds later."""
    tp = await site.topic()
    async with site.cluster.admin() as admin:
        await admin.delete_topic(tp.topic)
    await trio.sleep(10)
    return bool(site.files(tp.topic))


async def is_reserved(site: Site) -> bool:
    """Whether the newest of some segments has room of its own on the disk."""
    tp = await site.topic(segment_bytes="150")
    await site.produce(tp, 6)
    newest = max(site.files(str(tp), ".log"))
    return site.cluster.nodes[1].disk.reserved(f"/data/{tp}/{newest}") > 0


# --- cleaning --------------------------------------------------------------------------------------------------------

QUICK = {"log.cleaner.backoff.ms": "500", "log.cleaner.min.cleanable.ratio": "0.01"}


async def compacted(site: Site) -> int:
    """Records that are left of 5 with one key, a while later."""
    tp = await site.topic(cleanup_policy="compact", segment_bytes="100")
    await site.produce(tp)
    await trio.sleep(5)
    return await site.records(tp)


async def tombstones(site: Site) -> int:
    tp = await site.topic(cleanup_policy="compact", segment_bytes="100")
    assert await site.is_taken(tp, None, key=b"gone")
    for _ in range(3):
        await site.produce(tp)
        await trio.sleep(10)
    async with site.cluster.consumer() as consumer:
        return list((await read_all(consumer, tp)).values()).count(None)


def planned(field: str) -> Look:
    """What a cleaning is begun with."""

    async def look(site: Site) -> object:
        plans: list[Plan] = []

        def new_plan(**fields: Any) -> Plan:
            plans.append(Plan(**fields))
            return plans[-1]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cleaning, "Plan", new_plan)
            await compacted(site)
        return getattr(plans[-1], field)

    return look


async def cleaned_a_second(site: Site) -> bool:
    """Whether each of two logs is cleaned soon."""
    return await compacted(site) == 2 and await compacted(site) == 2


# --- elections, throttles, producers ---------------------------------------------------------------------------------


async def is_elected_uncleanly(site: Site) -> bool:
    """Broker 3 was away when the last records were written by broker 2, which is gone."""
    cluster = site.cluster
    tp = await site.topic(replicas=[2, 3])
    die(cluster, 3)
    await cluster.until(lambda: cluster.isr(tp) == [2], "2 is alone")
    await site.produce(tp, 2)
    die(cluster, 2)
    await cluster.start_broker(3)
    await trio.sleep(5)
    leader = cluster.leader(tp)
    await cluster.start_broker(2)
    await cluster.until(lambda: cluster.isr(tp) == [2, 3], "both are back")
    return leader == 3


def rate(quota_of: Callable[[Broker], ReplicationQuota]) -> Look:
    """What it gives in a second; 0: it is not limited."""

    async def look(site: Site) -> int:
        quota, now = quota_of(site.cluster.broker(1)), trio.current_time()
        quota.take(2000, now)
        ready_at = quota.ready_at(now)
        quota.take(2000, now)
        return round(2000 / (quota.ready_at(now) - ready_at)) if quota.is_limited else 0

    return look


async def known_producers(site: Site) -> int:
    tp = await site.topic()
    await site.produce(tp)
    await trio.sleep(105)
    return len(site.log(tp).producers.states)


EFFECTS: dict[str, Effect] = {
    "advertised.listeners": Effect(
        "PLAINTEXT://broker-1:9092,CLIENTS://elsewhere:1234",
        advertised,
        "CLIENTS://broker-1:9093",
        "CLIENTS://elsewhere:1234",
        TWO_LISTENERS,
        entity="brokers/1",
    ),
    "num.network.threads": Effect("4", running("deadlines of processor"), 1, 4),
    "num.io.threads": Effect("5", running("request handler"), 2, 5),
    "background.threads": Effect("3", threads, 10, 3),
    "max.connections": Effect("4", connections, 6, 3, {"inter.broker.connections.reserved": "0"}),  # one is taken
    "max.connections.per.ip": Effect("2", connections, 6, 2, TWO_LISTENERS),
    "max.connections.per.ip.overrides": Effect("10.0.0.7:2", connections_of_two, [6, 6], [2, 6], TWO_LISTENERS),
    "max.connection.creation.rate": Effect("1", connections_in_three_seconds, 30, 0, TWO_LISTENERS),
    "listener.name.clients.max.connections": Effect("3", connections, 6, 3, TWO_LISTENERS),
    "unclean.leader.election.enable": Effect("true", is_elected_uncleanly, False, True, brokers=3),
    "num.replica.fetchers": Effect("4", fetchers, 1, 4, {"min.insync.replicas": "2"}, brokers=2),
    "min.insync.replicas": Effect("1", is_acknowledged_by_one, False, True, {"min.insync.replicas": "2"}, brokers=2),
    "leader.replication.throttled.rate": Effect("1000", rate(lambda broker: broker.data.fetch.reads.quota), 0, 1000),
    "follower.replication.throttled.rate": Effect("1000", rate(lambda broker: broker.data.followers.quota), 0, 1000),
    "message.max.bytes": Effect("1000", takes(b"x" * 2000), True, False),
    "max.decompressed.message.bytes": Effect("1000", decompresses, True, False),
    "compression.type": Effect("gzip", attributes, 0, 1),
    "log.segment.bytes": Effect("100", segments(), 1, 4),
    "log.roll.ms": Effect("1000", segments(every_s=2), 1, 4),
    "log.roll.jitter.ms": Effect("9000", segments(every_s=2), 1, 3, {"log.roll.ms": "9000"}),
    "log.retention.ms": Effect("1000", begins_at_0, True, False, {"log.retention.check.interval.ms": "1000"}),
    "log.retention.bytes": Effect("100", begins_at_0, True, False, {"log.retention.check.interval.ms": "1000"}),
    "log.cleanup.policy": Effect("compact", takes(key=None), True, False),
    "log.cleaner.threads": Effect("3", running("strandline.broker.upkeep.task_count.keep_running.<locals>.run"), 1, 3),
    "log.cleaner.dedupe.buffer.size": Effect("2000000", planned("map_bytes"), 134217728, 2000000, QUICK),
    "log.cleaner.io.buffer.load.factor": Effect("0.5", planned("map_load_factor"), 0.9, 0.5, QUICK),
    "log.cleaner.io.buffer.size": Effect("100000", planned("chunk_bytes"), 524288, 100000, QUICK),
    "log.cleaner.io.max.bytes.per.second": Effect("1", cleaned_a_second, True, False, QUICK),
    "log.cleaner.backoff.ms": Effect("500", compacted, 5, 2, {**QUICK, "log.cleaner.backoff.ms": "86400000"}),
    "log.cleaner.min.cleanable.ratio": Effect(
        "0.01", compacted, 5, 2, {**QUICK, "log.cleaner.min.cleanable.ratio": "1"}
    ),
    "log.cleaner.delete.retention.ms": Effect("0", tombstones, 1, 0, QUICK),
    "log.cleaner.min.compaction.lag.ms": Effect("100000", compacted, 2, 5, QUICK),
    "log.cleaner.max.compaction.lag.ms": Effect(
        "1000", compacted, 5, 2, {**QUICK, "log.cleaner.min.cleanable.ratio": "1"}
    ),
    "log.index.size.max.bytes": Effect("24", segments(), 1, 2, {"log.index.interval.bytes": "0"}),
    "log.index.interval.bytes": Effect("0", entries, 0, 3),
    "log.flush.interval.messages": Effect("2", flushed, 0, 5),
    "log.flush.interval.ms": Effect("100", flushed, 0, 5),
    "log.segment.delete.delay.ms": Effect("1000", deleted_files, True, False),
    "log.preallocate": Effect("true", is_reserved, False, True),
    "log.message.timestamp.type": Effect("LogAppendTime", attributes, 0, 8),
    "log.message.timestamp.difference.max.ms": Effect("1000", takes(age_ms=5000), True, False),
    "log.message.timestamp.before.max.ms": Effect("1000", takes(age_ms=5000), True, False),
    "log.message.timestamp.after.max.ms": Effect("1000", takes(age_ms=-5000), True, False),
    "metrics.per.partition": Effect("false", has_series_per_partition, True, False),
    "producer.id.expiration.ms": Effect("1000", known_producers, 1, 0, {"producer.id.expiration.ms": "100000"}),
}


def test_every_dynamic_key_has_a_row() -> None:
    live = {key.name for key in BROKER_KEYS.values() if key.dynamic and key.honoured and key.live}
    live |= {key.format("clients") for key in OF_LISTENERS}
    assert {*EFFECTS} == live, "say in EFFECTS what it does"


@pytest.mark.parametrize("name", EFFECTS)
async def test_a_change_has_its_effect_while_the_broker_runs(name: str, autojump_clock: MockClock) -> None:
    effect = EFFECTS[name]
    async with Site.running(effect.properties, brokers=effect.brokers) as site:
        assert await effect.look(site) == effect.before
        await put(site.cluster, effect.entity, {name: effect.value})
        assert await effect.look(site) == effect.after
        await put(site.cluster, effect.entity, {})
        assert await effect.look(site) == effect.before


def throttles(which: str) -> Look:
    async def look(site: Site) -> bool:
        throttled = getattr(site.cluster.partition(1, await site.topic()).config, which)
        return throttled is not None and throttled.has(0, 1)

    return look


OF_TOPICS: dict[str, Effect] = {
    name: EFFECTS[key.broker_attribute.replace("_", ".")]
    for name, key in TOPIC_KEYS.items()
    if key.honoured and key.broker_attribute is not None
} | {
    # That is drawn when a segment begins: the first one has none.
    "segment.jitter.ms": Effect("9000", segments(12, every_s=2), 3, 6, {"log.roll.ms": "9000"}),
    "leader.replication.throttled.replicas": Effect("0:1", throttles("throttled_leaders"), False, True),
    "follower.replication.throttled.replicas": Effect("*", throttles("throttled_followers"), False, True),
}


def test_every_key_of_topics_has_a_row() -> None:
    assert {*OF_TOPICS} == {name for name, key in TOPIC_KEYS.items() if key.honoured}


@pytest.mark.parametrize("name", OF_TOPICS)
async def test_a_change_of_a_topic_has_its_effect(name: str, autojump_clock: MockClock) -> None:
    """As that of its broker's key, for a topic that is there by then, and for no other."""
    effect = OF_TOPICS[name]
    async with Site.running(effect.properties, brokers=effect.brokers) as site:
        site.changes = {name: effect.value}
        assert await effect.look(site) == effect.after
        site.changes = {}
        assert await effect.look(site) == effect.before


async def test_every_broker_hears_of_other_addresses_of_one_each_time(autojump_clock: MockClock) -> None:
    async with Site.running({}, brokers=3) as site:
        cluster, path = site.cluster, BrokerIdZnode.path(2)
        epoch = cluster.broker(2).registration.broker_epoch
        client = cluster.zookeeper.client()
        await client.start()
        await trio.sleep(1)
        for port in (1, 2):
            znode = BrokerIdZnode.decode(path, cluster.zookeeper.tree.get(path).data)
            clients = BrokerEndpoint("CLIENTS", "elsewhere", port, "PLAINTEXT")
            changed = msgspec.structs.replace(znode, endpoints=(znode.endpoints[0], clients))
            await client.set(path, changed.encode(), -1)
            await trio.sleep(1)
            for broker in cluster.nodes:
                heard = cluster.broker(broker).data.metadata.brokers[2].endpoints
                assert [(each.host, each.port) for each in heard] == [("broker-2", 9092), ("elsewhere", port)]
        await client.close()
        assert cluster.broker(2).registration.broker_epoch == epoch
        assert await site.is_taken(await site.topic(replicas=[2, 3, 1]))
