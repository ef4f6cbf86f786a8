"""Configurations in ZooKeeper that another Kafka wrote, on whole brokers: what is not understood deletes nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.admin.config_changes import KEPT_S, MENDED_CHECK_S, REMOVED_AT_ONCE
from strandline.client.errors import ClientError, LeaderNotAvailable
from strandline.protocol.messages import ConfigResource
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import CONFIG_CHANGES_PATH, ConfigChangeZnode, ConfigZnode, TopicZnode
from strandline.runtime.coordination import Create, Delete, NoNode, SetData
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import read_all
from support.scenario import T0, cluster_with_topic, numbered

TIGHT = {
    "log.retention.bytes": "1000",
    "log.segment.bytes": "500",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
"""Defaults by which most of a topic's records go soon."""
KEEP_TOPIC = {"retention.bytes": "-1"}
CHECKS_S = 10.0
"""Some rounds of retention and cleaning."""
RECORDS = 100


def put_topic_config(cluster: MemoryCluster, data: bytes) -> None:
    """As an administrator of another Kafka does, without a word to the brokers."""
    cluster.zookeeper.tree.apply_one(SetData(ConfigZnode.path(T0.topic), data, -1), 0)


def overrides(config: Mapping[str, str]) -> bytes:
    return ConfigZnode(config=dict(config)).encode()


async def put(cluster: MemoryCluster, entity: str, data: bytes, *, announce: bytes | None = b"") -> None:
    """As Kafka's tools do: the znode, then a word about it (b"": the usual one; None: none)."""
    client, path = cluster.zookeeper.client(), f"/config/{entity}"
    await client.start()
    try:
        await client.set(path, data, -1)
    except NoNode:
        await client.create(path, data)
    if announce is not None:
        word = announce or ConfigChangeZnode(entity).encode()
        await client.create(ConfigChangeZnode.SEQUENCE_PATH, word, sequence=True)
    await client.close()


async def produce(cluster: MemoryCluster) -> None:
    async with cluster.producer(linger_ms=0) as producer:
        for number, value in enumerate(numbered("m", RECORDS)):
            await (await producer.send(T0.topic, value, key=b"k%d" % (number % 3)))


async def restart_all(cluster: MemoryCluster, *, crash: bool) -> None:
    for broker in cluster.nodes:
        if crash:
            cluster.crash(broker)
        else:
            await cluster.stop(broker)
    for broker in cluster.nodes:
        await cluster.start_broker(broker)
    await cluster.until(lambda: all(cluster.hosts(broker, T0) for broker in cluster.nodes), "hosted again")


def znodes_below(cluster: MemoryCluster, path: str) -> list[str]:
    """Parents first."""
    children = cluster.zookeeper.tree.children(path)
    return [path, *(found for name in children for found in znodes_below(cluster, f"{path}/{name}"))]


async def kept(cluster: MemoryCluster) -> int:
    async with cluster.consumer() as consumer:
        return len(await read_all(consumer, T0))


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize(
    ("data", "keeps_all"),
    [
        (overrides({"retention.bytes": "-1", "compression.zstd.level": "3"}), True),
        (overrides({"retention.bytes": "-1", "remote.storage.enable": "false"}), True),
        (overrides({"cleanup.policy": "delete", "retention.bytes": "all of them"}), True),
        (overrides({"segment.bytes": "many"}), True),
        (b'{"version":9,"config":{}}', True),
        (b"", True),
        (overrides({"message.format.version": "0.10.2"}), False),
    ],
    ids=[
        "zstd level",
        "no remote storage",
        "unusable bound",
        "unusable other",
        "unreadable",
        "empty",
        "nothing but unknown",
    ],
)
async def test_a_topic_keeps_its_data_beside_what_is_not_understood(
    data: bytes, keeps_all: bool, crash: bool, autojump_clock: MockClock
) -> None:
    async with cluster_with_topic(properties=TIGHT, configs={"retention.bytes": "-1"}) as (cluster, _, _):
        await produce(cluster)
        put_topic_config(cluster, data)
        for _ in range(2):
            await restart_all(cluster, crash=crash)
            await trio.sleep(CHECKS_S)
        assert (await kept(cluster) == RECORDS) == keeps_all


@pytest.mark.parametrize("value", ["true", "TRUE", "perhaps"])
async def test_a_topic_with_a_remote_tier_is_refused_until_it_has_none(value: str, autojump_clock: MockClock) -> None:
    why = "remote.storage.enable, and records in Kafka's remote tier are not served"
    async with cluster_with_topic(properties=TIGHT, configs=KEEP_TOPIC) as (cluster, _, _):
        await produce(cluster)
        put_topic_config(cluster, overrides({"remote.storage.enable": value}))
        for broker in cluster.nodes:
            await cluster.stop(broker)
        disk = cluster.nodes[3].disk
        before = {name: disk.read(f"/data/{T0}/{name}") for name in disk.listdir(f"/data/{T0}")}
        for broker in cluster.nodes:
            await cluster.start_broker(broker)
        async with cluster.consumer(default_api_timeout_ms=3000) as consumer:
            with pytest.raises(LeaderNotAvailable, match=why):
                await consumer.end_offsets([T0])
        await trio.sleep(CHECKS_S)
        for broker in cluster.nodes:
            assert why in str(cluster.broker(broker).log_manager.refused[T0])
        await cluster.stop(3)
        assert {name: disk.read(f"/data/{T0}/{name}") for name in disk.listdir(f"/data/{T0}")} == before
        assert not disk.exists("/data/.kafka_cleanshutdown")
        await cluster.start_broker(3)
        put_topic_config(cluster, overrides(KEEP_TOPIC))
        await restart_all(cluster, crash=False)
        assert await kept(cluster) == RECORDS


async def test_a_topic_with_a_remote_tier_gets_no_new_log(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=TIGHT) as (cluster, _, _):
        put_topic_config(cluster, overrides({"remote.storage.enable": "true"}))
        await cluster.stop(3)
        cluster.replace_disk(3)
        await cluster.start_broker(3)
        await cluster.until(lambda: any("role change failed" in line for line in cluster.history), "it is refused")
        assert T0 not in cluster.broker(3).log_manager.logs and str(T0) not in cluster.nodes[3].disk.listdir("/data")


@pytest.mark.parametrize(
    ("config", "keeps_all"),
    [
        ({"cleanup.policy": "compact", "delete.retention.ms": "long"}, True),
        ({"cleanup.policy": "compact", "min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, True),
        ({"cleanup.policy": "compact", "compression.gzip.level": "3"}, False),
    ],
    ids=["unusable", "lags that do not fit", "unknown beside it"],
)
async def test_a_compacted_topic_is_compacted_and_nothing_else_as_far_as_it_is_understood(
    config: dict[str, str], keeps_all: bool, autojump_clock: MockClock
) -> None:
    async with cluster_with_topic(properties=TIGHT, configs={"cleanup.policy": "compact"}) as (cluster, _, _):
        put_topic_config(cluster, overrides(config))
        await restart_all(cluster, crash=False)
        await produce(cluster)
        await trio.sleep(CHECKS_S)
        async with cluster.consumer() as consumer:
            found = await read_all(consumer, T0)
        assert (len(found) == RECORDS) == keeps_all
        assert set(found) >= {RECORDS - 1, RECORDS - 2, RECORDS - 3}, "the newest of each key stays"


@pytest.mark.parametrize(
    ("data", "leads"),
    [
        (overrides({"unclean.leader.election.enable": "perhaps"}), False),
        (b"junk", False),
        (overrides({"compression.zstd.level": "3"}), True),
        (overrides({"unclean.leader.election.enable": "true", "segment.bytes": "many"}), True),
    ],
    ids=["unusable", "unreadable", "unknown beside the default", "another key unusable"],
)
async def test_nobody_is_elected_uncleanly_by_a_word_that_is_not_understood(
    data: bytes, leads: bool, autojump_clock: MockClock
) -> None:
    properties = {"unclean.leader.election.enable": "true"}
    async with cluster_with_topic([2, 3], min_insync_replicas=1, properties=properties) as (cluster, producer, ledger):
        put_topic_config(cluster, data)
        cluster.crash(3)
        cluster.expire_session(3)
        await cluster.until(lambda: cluster.isr(T0) == [2], "2 is alone")
        await ledger.produce(producer, T0, numbered("x", 3))
        cluster.crash(2)
        cluster.expire_session(2)
        await cluster.start_broker(3)
        await trio.sleep(CHECKS_S)
        assert (cluster.leader(T0) == 3) == leads


async def test_what_somebody_asks_to_delete_is_deleted_all_the_same(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=TIGHT, configs=KEEP_TOPIC) as (cluster, _, _):
        await produce(cluster)
        put_topic_config(cluster, b"junk")
        await restart_all(cluster, crash=False)
        async with cluster.admin() as admin:
            assert await admin.delete_records({T0: 50}) == {T0: 50}
        await trio.sleep(CHECKS_S)
        assert await kept(cluster) == RECORDS - 50


async def test_a_log_is_loaded_by_its_topics_configuration_though_nobody_hosts_it(autojump_clock: MockClock) -> None:
    """An index longer than `segment.index.bytes` keeps a Kafka from starting."""
    limits = {"segment.index.bytes": "240", "index.interval.bytes": "1000000"}
    properties = {"auto.create.topics.enable": "false", "min.insync.replicas": "1"}
    async with cluster_with_topic([2], properties=properties, configs=limits) as (cluster, producer, ledger):
        for number in range(50):  # batches
            await ledger.produce(producer, T0, [b"%5000d" % number])
        for broker in cluster.nodes:
            cluster.crash(broker)
            cluster.expire_session(broker)
        topic = f"/brokers/topics/{T0.topic}"
        for path in reversed(znodes_below(cluster, topic)):
            cluster.zookeeper.tree.apply_one(Delete(path, -1), 0)
        await cluster.start_broker(2)
        assert T0 in cluster.broker(2).log_manager.logs and not cluster.hosts(2, T0)
        await cluster.stop(2)
        disk = cluster.nodes[2].disk
        assert disk.exists("/data/.kafka_cleanshutdown")
        assert all(
            len(disk.read(f"/data/{T0}/{name}")) <= 240 for name in disk.listdir(f"/data/{T0}") if "index" in name
        )


# --- of brokers ------------------------------------------------------------------------------------------------------

KEEP = {"log.retention.bytes": "-1"}
ALL, ONE = "brokers/<default>", "brokers/1"


@pytest.mark.parametrize(
    ("znodes", "keep"),
    [
        ({ALL: overrides(KEEP)}, [1, 2, 3]),
        ({ONE: overrides(KEEP)}, [1]),
        ({ALL: overrides(KEEP), ONE: overrides({"log.retention.bytes": "1000"})}, [2, 3]),
        ({ALL: overrides({"log.retention.bytes": "all of them"})}, [1, 2, 3]),
        ({ALL: b"junk"}, [1, 2, 3]),
        ({ALL: overrides({**KEEP, "ssl.keystore.password": "s3cret", "log.retention.hours": "1"})}, [1, 2, 3]),
        ({ALL: overrides({"max.connections": "none"})}, []),
    ],
    ids=["all", "one", "one before all", "unusable", "unreadable", "others beside it", "unusable, not of logs"],
)
async def test_what_zookeeper_says_of_brokers_counts_from_their_start(
    znodes: Mapping[str, bytes], keep: list[int], autojump_clock: MockClock
) -> None:
    """Replicas delete each for themselves: those that are told to keep everything do."""
    async with cluster_with_topic(properties=TIGHT, configs=KEEP_TOPIC) as (cluster, _, _):
        await produce(cluster)
        for entity, data in znodes.items():
            await put(cluster, entity, data, announce=None)
        put_topic_config(cluster, overrides({}))
        await restart_all(cluster, crash=True)
        await trio.sleep(CHECKS_S)
        starts = {broker: cluster.partition(broker, T0).log.log_start_offset for broker in cluster.nodes}
        # A leader that deletes takes its followers' heads along.
        leader_keeps = cluster.leader(T0) in keep
        assert [broker for broker in keep if starts[broker] == 0] == (keep if leader_keeps else [])
        assert all(starts[broker] > 0 for broker in cluster.nodes if broker not in keep)
        assert not any("s3cret" in line for line in cluster.history)


@pytest.mark.parametrize(
    "announce",
    [b"", b"junk", b'{"version":1,"entity_type":"brokers","entity_name":"<default>"}'],
    ids=["2", "junk", "1"],
)
async def test_a_change_of_the_brokers_defaults_takes_effect_while_they_run(
    announce: bytes, autojump_clock: MockClock
) -> None:
    async with cluster_with_topic(properties=TIGHT, configs={}) as (cluster, _, _):
        await put(cluster, ALL, overrides(KEEP), announce=announce)
        await trio.sleep(1)
        await produce(cluster)
        await trio.sleep(CHECKS_S)
        assert await kept(cluster) == RECORDS
        await put(cluster, ALL, overrides({}), announce=announce)
        await trio.sleep(CHECKS_S)
        assert 0 < await kept(cluster) < RECORDS, "the file's word counts again"


async def test_another_limit_of_connections_holds_for_those_to_come(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties={"inter.broker.connections.reserved": "0"}) as (cluster, _, _):
        await put(cluster, ALL, overrides({"max.connections": "1"}))
        await trio.sleep(1)
        with pytest.raises(ClientError):
            async with cluster.consumer(default_api_timeout_ms=3000) as consumer:
                await consumer.end_offsets([T0])
        await put(cluster, ALL, overrides({}))
        await trio.sleep(1)
        assert await kept(cluster) == 0


@pytest.mark.parametrize("entity", [ALL, "topics/t"])
async def test_what_is_mended_without_a_word_is_noticed(entity: str, autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=TIGHT, configs=KEEP_TOPIC) as (cluster, _, _):
        await produce(cluster)
        await put(cluster, entity, b"junk")
        if entity == ALL:
            await put(cluster, "topics/t", overrides({}))
        await trio.sleep(CHECKS_S)
        assert await kept(cluster) == RECORDS
        assert any("to be mended" in line or "is mended" in line for line in cluster.history)
        await put(cluster, entity, overrides({}), announce=None)
        await trio.sleep(MENDED_CHECK_S + CHECKS_S)
        assert await kept(cluster) < RECORDS


async def test_a_change_that_was_announced_while_a_session_was_lost_is_not_missed(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=TIGHT, configs=KEEP_TOPIC) as (cluster, _, _):
        await produce(cluster)
        for broker in cluster.nodes:
            cluster.cut_from_zookeeper(broker)
        await put(cluster, "topics/t", overrides({}), announce=None)  # its announcement has come and gone
        for broker in cluster.nodes:
            cluster.expire_session(broker)
            cluster.heal_zookeeper(broker)
        await trio.sleep(3 * CHECKS_S)
        assert await kept(cluster) < RECORDS


@pytest.mark.parametrize("pauses_s", [(0.0, 0.0), (CHECKS_S, 0.0), (0.0, CHECKS_S), (CHECKS_S, CHECKS_S)])
async def test_announcements_count_after_their_folder_was_made_anew_and_numbers_begin_at_0(
    pauses_s: tuple[float, float], autojump_clock: MockClock
) -> None:
    """pauses_s: while it is gone, and while it is empty."""
    async with cluster_with_topic(properties=TIGHT, configs=KEEP_TOPIC) as (cluster, _, _):
        for _ in range(3):
            await put(cluster, "topics/t", overrides({"retention.bytes": "100000"}))
        await trio.sleep(CHECKS_S)
        client = cluster.zookeeper.client()
        await client.start()
        for name in await client.children(CONFIG_CHANGES_PATH):
            await client.delete(f"{CONFIG_CHANGES_PATH}/{name}", -1)
        await client.delete(CONFIG_CHANGES_PATH, -1)
        await trio.sleep(pauses_s[0])
        await client.create(CONFIG_CHANGES_PATH, None)
        await trio.sleep(pauses_s[1])
        await client.close()
        await put(cluster, "topics/t", overrides(KEEP_TOPIC))
        await trio.sleep(CHECKS_S)
        for broker in cluster.nodes:
            assert cluster.partition(broker, T0).config.retention_bytes == -1


async def test_announcements_count_after_their_folder_was_replaced_before_anybody_looked(
    autojump_clock: MockClock,
) -> None:
    """Then one of the new folder has the name of one that was looked at."""
    async with cluster_with_topic([1], brokers=1, configs=KEEP_TOPIC) as (cluster, _, _):
        await put(cluster, "topics/t", overrides({"retention.bytes": "1"}))
        await trio.sleep(CHECKS_S)
        tree = cluster.zookeeper.tree
        names = tree.children(CONFIG_CHANGES_PATH)
        word = ConfigChangeZnode("topics/t").encode()
        for operation in (
            *(Delete(f"{CONFIG_CHANGES_PATH}/{name}") for name in names),
            Delete(CONFIG_CHANGES_PATH),
            Create(CONFIG_CHANGES_PATH),
            SetData(ConfigZnode.path(T0.topic), overrides({"retention.bytes": "2"}), -1),
            *[Create(ConfigChangeZnode.SEQUENCE_PATH, word, sequence=True)] * len(names),
        ):
            tree.apply_one(operation, 0)
        assert tree.children(CONFIG_CHANGES_PATH) == names
        client = cluster.zookeeper.client()
        await client.start()
        await client.create(f"{CONFIG_CHANGES_PATH}/note", b"")  # they are woken
        await client.close()
        await trio.sleep(CHECKS_S)
        assert cluster.partition(1, T0).config.retention_bytes == 2


@pytest.mark.parametrize(
    "name",
    ["backup_20260101", "note_9999999999", "x_\u0663", "x_" + "9" * 5000, "config_change_9999999999"],
)
async def test_what_an_operator_keeps_beside_announcements_hides_none(name: str, autojump_clock: MockClock) -> None:
    async with cluster_with_topic([1], brokers=1, configs=KEEP_TOPIC) as (cluster, _, _):
        client = cluster.zookeeper.client()
        await client.start()
        await client.create(f"{CONFIG_CHANGES_PATH}/{name}", b"an operator's")
        await client.close()
        await put(cluster, "topics/t", overrides({"retention.bytes": "1"}))
        await trio.sleep(CHECKS_S)
        assert cluster.partition(1, T0).config.retention_bytes == 1
        await cluster.stop(1)
        await cluster.start_broker(1)
        await cluster.until(lambda: cluster.hosts(1, T0), "hosted again")
        await put(cluster, "topics/t", overrides({"retention.bytes": "2"}))
        await trio.sleep(CHECKS_S)
        assert cluster.partition(1, T0).config.retention_bytes == 2


async def test_announcements_that_may_not_be_read_have_everything_read_again_with_one_line(
    autojump_clock: MockClock,
) -> None:
    async with cluster_with_topic([1], brokers=1, configs=KEEP_TOPIC) as (cluster, _, _):
        cluster.zookeeper.tree.unreadable = {f"{CONFIG_CHANGES_PATH}/config_change_*"}
        cluster.cut_from_zookeeper(1)
        for count in range(300):
            await put(cluster, "topics/t", overrides({"retention.bytes": str(count)}))
        cluster.heal_zookeeper(1)
        await trio.sleep(CHECKS_S)
        assert cluster.partition(1, T0).config.retention_bytes == 299
        [line] = [line for line in cluster.history if "who changed is not said" in line]
        assert '"announcements":300' in line


async def test_announcements_that_stand_in_a_folder_made_anew_go_after_a_quarter_of_an_hour(
    autojump_clock: MockClock,
) -> None:
    async with cluster_with_topic([1], brokers=1, configs=KEEP_TOPIC) as (cluster, _, _):
        client = cluster.zookeeper.client()
        await client.start()
        cluster.cut_from_zookeeper(1)
        for name in await client.children(CONFIG_CHANGES_PATH):
            await client.delete(f"{CONFIG_CHANGES_PATH}/{name}")
        await client.delete(CONFIG_CHANGES_PATH)
        await client.create(CONFIG_CHANGES_PATH)
        for _ in range(3):
            await put(cluster, "topics/t", overrides({}))
        cluster.heal_zookeeper(1)
        await trio.sleep(KEPT_S + 2 * MENDED_CHECK_S)
        assert await client.children(CONFIG_CHANGES_PATH) == []


async def test_what_may_not_be_read_keeps_that_topic_alone_and_counts_once_it_may(
    autojump_clock: MockClock,
) -> None:
    async with cluster_with_topic([1], brokers=1, configs={"retention.bytes": "5"}) as (cluster, _, _):
        async with cluster.admin() as admin:
            await admin.create_topic("u", configs={"retention.bytes": "6"})
        other = TopicPartition("u", 0)
        await cluster.until(lambda: cluster.hosts(1, other), "hosted")
        cluster.zookeeper.tree.unreadable = {ConfigZnode.path("t")}
        await put(cluster, "topics/t", overrides({"retention.bytes": "1"}))
        await put(cluster, "topics/u", overrides({"retention.bytes": "2"}))
        await trio.sleep(CHECKS_S)
        assert cluster.partition(1, T0).config.retention_bytes == -1, "it keeps everything"
        assert cluster.partition(1, other).config.retention_bytes == 2
        await cluster.stop(1)
        await cluster.start_broker(1)
        await cluster.until(lambda: cluster.hosts(1, T0), "hosted again")
        assert cluster.partition(1, T0).config.retention_bytes == -1
        cluster.zookeeper.tree.unreadable.clear()
        await trio.sleep(MENDED_CHECK_S + CHECKS_S)
        assert cluster.partition(1, T0).config.retention_bytes == 1


async def test_who_asks_about_what_may_not_be_read_is_told_what_helps_and_may_delete_it(
    autojump_clock: MockClock,
) -> None:
    async with cluster_with_topic([1], brokers=1) as (cluster, _, _), cluster.admin() as admin:
        cluster.zookeeper.tree.unreadable = {ConfigZnode.path("t")}
        for ask in (
            admin.describe_configs(ConfigResource.TOPIC, "t"),
            admin.alter_configs(ConfigResource.TOPIC, "t", {"retention.bytes": "5"}),
        ):
            with pytest.raises(ClientError, match="ZooKeeper keeps this broker out: mend the access control list"):
                await ask
        await admin.delete_topic("t")
        assert cluster.zookeeper.tree.exists(TopicZnode.path("t")) is None


async def test_announcements_go_a_quarter_of_an_hour_after_they_were_looked_at_and_nothing_else_does(
    autojump_clock: MockClock,
) -> None:
    async with cluster_with_topic([1], brokers=1, configs=KEEP_TOPIC) as (cluster, _, _):
        client = cluster.zookeeper.client()
        await client.start()
        others = ["config_change_x", "note_0000000000", "config_change_00"]
        for name in others:
            await client.create(f"{CONFIG_CHANGES_PATH}/{name}", b"an operator's")

        async def announced() -> list[int]:
            names = await client.children(CONFIG_CHANGES_PATH)
            assert {*others} <= {*names}
            return [int(name.rpartition("_")[2]) for name in names if name not in others]

        await put(cluster, "topics/t", overrides({"retention.bytes": "1"}))
        word = ConfigChangeZnode("topics/t").encode()
        for _ in range(1, 2 * REMOVED_AT_ONCE):
            await client.create(ConfigChangeZnode.SEQUENCE_PATH, word, sequence=True)
        await trio.sleep(KEPT_S - 60)
        assert len(await announced()) == 2 * REMOVED_AT_ONCE
        await put(cluster, "topics/t", overrides({"retention.bytes": "2"}))
        young = (await announced())[-1:]
        await trio.sleep(3 * MENDED_CHECK_S + 60)
        assert await announced() == young, "what was looked at lately stays"
        assert cluster.partition(1, T0).config.retention_bytes == 2
        await put(cluster, "topics/t", overrides({"retention.bytes": "3"}))
        await trio.sleep(CHECKS_S)
        assert cluster.partition(1, T0).config.retention_bytes == 3
        await trio.sleep(KEPT_S + 3 * MENDED_CHECK_S)
        assert await announced() == []
        await client.close()


async def test_a_smaller_minimum_lets_the_high_watermark_move(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(min_insync_replicas=3) as (cluster, producer, _):
        cluster.crash(3)
        cluster.expire_session(3)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "3 is out")
        delivery = await producer.send(T0.topic, b"waits")
        await trio.sleep(1)
        assert cluster.partition(1, T0).high_watermark == 0
        await put(cluster, "topics/t", overrides({"min.insync.replicas": "2"}))
        assert (await delivery).offset == 0


@pytest.mark.parametrize("entity", ["topics/t", ALL])
async def test_allowing_unclean_elections_frees_a_partition_at_once(entity: str, autojump_clock: MockClock) -> None:
    async with cluster_with_topic([2, 3], min_insync_replicas=1) as (cluster, producer, ledger):
        cluster.crash(3)
        cluster.expire_session(3)
        await cluster.until(lambda: cluster.isr(T0) == [2], "2 is alone")
        await ledger.produce(producer, T0, numbered("x", 3))
        cluster.crash(2)
        cluster.expire_session(2)
        await cluster.start_broker(3)
        await trio.sleep(CHECKS_S)
        assert cluster.leader(T0) == -1
        await put(cluster, entity, overrides({"unclean.leader.election.enable": "true"}))
        await cluster.until(lambda: cluster.leader(T0) == 3, "3 leads")
