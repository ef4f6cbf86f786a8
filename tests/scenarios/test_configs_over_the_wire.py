"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs on whole brokers: written once, applied by all, at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.client import configurations
from strandline.client.connection import Connection
from strandline.client.errors import AnsweredError, ClientError, UnknownTopic
from strandline.protocol.api import ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    Message,
    Request,
)
from strandline.protocol.znodes import CONFIG_CHANGES_PATH, ConfigZnode, TopicIdZnode, TopicZnode
from strandline.runtime.coordination import Create, Delete, Operation, OperationResult, SessionState, SetData
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.kafka_client import KafkaClient
from support.scenario import T0, cluster_with_topic

TOPIC = (ConfigResource.TOPIC, T0.topic)
ALL_BROKERS = (ConfigResource.BROKER, "")


async def ask(cluster: MemoryCluster, broker: int, request: Request) -> Message:
    (address,) = cluster.broker(broker).listeners.addresses.values()
    connection = await Connection.open(cluster.network.node("client"), address)
    try:
        return (await connection.roundtrip(request))[0]
    finally:
        connection.close()


async def describe(
    cluster: MemoryCluster, broker: int, resource: tuple[int, str], *keys: str
) -> tuple[int, list[DescribeConfigsResourceResult]]:
    request = DescribeConfigsRequest([DescribeConfigsResource(*resource, list(keys))], include_synonyms=True)
    response = await ask(cluster, broker, request)
    assert isinstance(response, DescribeConfigsResponse)
    [result] = response.results
    assert (result.resource_type, result.resource_name) == resource
    return result.error_code, result.configs


async def alter(
    cluster: MemoryCluster,
    broker: int,
    resource: tuple[int, str],
    *changes: tuple[str, ConfigOperation, str | None],
    validate_only: bool = False,
) -> int:
    configs = [IncrementalAlterableConfig(*change) for change in changes]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(*resource, configs)], validate_only)
    response = await ask(cluster, broker, request)
    assert isinstance(response, IncrementalAlterConfigsResponse)
    return response.responses[0].error_code


async def replace(cluster: MemoryCluster, broker: int, resource: tuple[int, str], configs: dict[str, str]) -> int:
    wanted = [AlterableConfig(*each) for each in configs.items()]
    response = await ask(cluster, broker, AlterConfigsRequest([AlterConfigsResource(*resource, wanted)]))
    assert isinstance(response, AlterConfigsResponse)
    return response.responses[0].error_code


def put(name: str, value: str) -> tuple[str, ConfigOperation, str]:
    return name, ConfigOperation.SET, value


def stored(cluster: MemoryCluster, path: str) -> Any:
    return json.loads(cluster.zookeeper.tree.get(path).data)


def announced(cluster: MemoryCluster) -> list[Any]:
    tree = cluster.zookeeper.tree
    return [stored(cluster, f"{CONFIG_CHANGES_PATH}/{name}") for name in tree.children(CONFIG_CHANGES_PATH)]


async def test_any_broker_alters_a_topic_in_kafkas_json_and_all_apply_it(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, _, _):
        changes = [put("retention.ms", "77"), put("cleanup.policy", "compact")]
        assert await alter(cluster, 3, TOPIC, *changes) == 0
        expected = {"version": 1, "config": {"retention.ms": "77", "cleanup.policy": "compact"}}
        assert stored(cluster, ConfigZnode.path("t")) == expected
        assert announced(cluster) == [{"version": 2, "entity_path": "topics/t"}]
        partitions = [cluster.broker(number).data.replicas.partitions[T0] for number in cluster.nodes]
        await cluster.until(lambda: all(each.config.retention_ms == 77 for each in partitions), "applied")
        assert all(each.config.cleanup_policy == ("compact",) for each in partitions)
        code, found = await describe(cluster, 2, TOPIC, "retention.ms", "cleanup.policy")
        assert (code, {each.name: (each.value, each.config_source) for each in found}) == (
            0,
            {"retention.ms": ("77", ConfigSource.TOPIC), "cleanup.policy": ("compact", ConfigSource.TOPIC)},
        )
        assert await alter(cluster, 1, TOPIC, ("retention.ms", ConfigOperation.DELETE, None)) == 0
        await cluster.until(lambda: all(each.config.retention_ms == 604800000 for each in partitions), "back")
        assert all(each.config.cleanup_policy == ("compact",) for each in partitions)


async def test_replacing_gives_the_others_their_defaults_again(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(configs={"retention.ms": "5", "segment.bytes": "999"}) as (cluster, _, _):
        assert await replace(cluster, 2, TOPIC, {"retention.ms": "7"}) == 0
        partition = cluster.broker(3).data.replicas.partitions[T0]
        await cluster.until(lambda: partition.config.retention_ms == 7, "applied")
        assert partition.config.segment_bytes == 2**30


async def test_a_lower_minimum_lets_what_waits_be_acknowledged(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(min_insync_replicas=3) as (cluster, producer, _):
        cluster.crash(3)
        pending = await producer.send(T0.topic, b"waits for a third replica")
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "3 left")
        assert await alter(cluster, 2, TOPIC, put("min.insync.replicas", "2")) == 0
        with trio.fail_after(10):
            await pending


async def test_a_lower_limit_refuses_the_next_large_batch(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, producer, _):
        await (await producer.send(T0.topic, bytes(2000)))
        assert await alter(cluster, 3, TOPIC, put("max.message.bytes", "1000")) == 0
        leader = cluster.broker(1).data.replicas.partitions[T0]
        await cluster.until(lambda: leader.config.max_message_bytes == 1000, "applied")
        with pytest.raises(ClientError, match="MESSAGE_TOO_LARGE"):
            await (await producer.send(T0.topic, bytes(2000)))


async def test_dynamic_keys_of_one_broker_and_of_all(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, _, _):
        own = (ConfigResource.BROKER, "2")
        assert await alter(cluster, 1, own, put("log.cleaner.threads", "3")) == ErrorCode.INVALID_REQUEST
        assert await alter(cluster, 2, own, put("log.cleaner.threads", "3")) == 0
        assert await alter(cluster, 1, ALL_BROKERS, put("log.cleaner.threads", "2")) == 0
        assert stored(cluster, ConfigZnode.path("<default>", "brokers")) == {
            "version": 1,
            "config": {"log.cleaner.threads": "2"},
        }
        assert [each["entity_path"] for each in announced(cluster)] == ["brokers/2", "brokers/<default>"]

        def threads() -> list[int]:
            return [cluster.broker(n).config_changes.config.value.log_cleaner_threads for n in cluster.nodes]

        await cluster.until(lambda: threads() == [2, 3, 2], "applied")
        _, [entry] = await describe(cluster, 2, own, "log.cleaner.threads")
        assert [(each.value, each.source) for each in entry.synonyms] == [("3", 2), ("2", 3), ("1", 5)]
        assert (await describe(cluster, 1, own))[0] == ErrorCode.INVALID_REQUEST
        _, for_all = await describe(cluster, 3, ALL_BROKERS)
        assert [(each.name, each.value) for each in for_all] == [("log.cleaner.threads", "2")]
        _, [inherited] = await describe(cluster, 3, TOPIC, "min.insync.replicas")
        assert [(each.value, each.source) for each in inherited.synonyms] == [("2", 4), ("1", 5)]


async def test_what_is_only_looked_at_or_refused_changes_nothing(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(configs={"segment.bytes": "99"}) as (cluster, _, _):
        before = stored(cluster, ConfigZnode.path("t"))
        assert await alter(cluster, 1, TOPIC, put("retention.ms", "5"), validate_only=True) == 0
        for resource, change, code in [
            (TOPIC, put("retention.ms", "soon"), ErrorCode.INVALID_CONFIG),
            (TOPIC, put("retention", "5"), ErrorCode.INVALID_CONFIG),
            ((ConfigResource.TOPIC, "absent"), put("retention.ms", "5"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ((ConfigResource.TOPIC, ".."), put("retention.ms", "5"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            ((ConfigResource.TOPIC, ""), put("retention.ms", "5"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (ALL_BROKERS, put("log.dirs", "/etc"), ErrorCode.INVALID_REQUEST),
            ((ConfigResource.BROKER_LOGGER, "1"), put("root", "DEBUG"), ErrorCode.INVALID_REQUEST),
            ((ConfigResource.UNKNOWN, "t"), put("retention.ms", "5"), ErrorCode.INVALID_REQUEST),
        ]:
            for validate_only in (True, False):
                assert await alter(cluster, 1, resource, change, validate_only=validate_only) == code, (
                    resource,
                    change,
                )
            if code != ErrorCode.INVALID_CONFIG and resource != ALL_BROKERS:
                assert (await describe(cluster, 1, resource))[0] == code
        assert stored(cluster, ConfigZnode.path("t")) == before
        assert announced(cluster) == []


async def test_a_resource_named_twice_is_refused_and_the_others_are_altered(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, _, _):
        one = AlterConfigsResource(*TOPIC, [AlterableConfig("retention.ms", "5")])
        other = AlterConfigsResource(*ALL_BROKERS, [AlterableConfig("log.cleaner.threads", "2")])
        response = await ask(cluster, 1, AlterConfigsRequest([one, other, one]))
        assert isinstance(response, AlterConfigsResponse)
        refused = ErrorCode.INVALID_REQUEST
        assert [each.error_code for each in response.responses] == [refused, 0, refused]


async def test_a_configuration_that_cannot_be_read_is_replaced_as_a_whole_or_not_at_all(
    autojump_clock: MockClock,
) -> None:
    async with cluster_with_topic() as (cluster, _, _):
        cluster.zookeeper.tree.apply_one(SetData(ConfigZnode.path("t"), b"junk", -1), 0)
        assert (await describe(cluster, 1, TOPIC))[0] == ErrorCode.INVALID_CONFIG
        assert await alter(cluster, 1, TOPIC, put("retention.ms", "5")) == ErrorCode.INVALID_CONFIG
        assert await replace(cluster, 1, TOPIC, {"retention.ms": "5"}) == 0
        assert stored(cluster, ConfigZnode.path("t")) == {"version": 1, "config": {"retention.ms": "5"}}


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_value_too_long_for_kafkas_strings_is_not_set_and_hides_nothing_where_it_stands(
    version: int, autojump_clock: MockClock
) -> None:
    key = "leader.replication.throttled.replicas"
    value = ",".join(f"{partition}:1" for partition in range(6000))
    async with cluster_with_topic() as (cluster, _, _):
        assert await alter(cluster, 1, TOPIC, put(key, value)) == ErrorCode.INVALID_CONFIG
        assert await replace(cluster, 1, TOPIC, {key: value}) == ErrorCode.INVALID_CONFIG
        data = ConfigZnode({key: value}).encode()
        cluster.zookeeper.tree.apply_one(SetData(ConfigZnode.path("t"), data, -1), 0)
        (address,) = cluster.broker(1).listeners.addresses.values()
        client = KafkaClient(await cluster.network.node("kafka client").connect(address))
        resources = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            for kind, name in (TOPIC, (ConfigResource.BROKER, "1"))
        ]
        answer = await client.ask(ApiKey.DESCRIBE_CONFIGS, version, resources=resources, include_synonyms=True)
        client.close()
        assert [result.error_code for result in answer.results] == [0, 0]
        told = {each.name: each.value for each in answer.results[0].configs}
        assert told[key] is None and told["follower.replication.throttled.replicas"] == ""
        assert await alter(cluster, 1, TOPIC, put(key, "*")) == 0


async def test_folders_that_somebody_removed_are_made_again(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, _, _):
        tree = cluster.zookeeper.tree
        for path in (ConfigZnode.path("t"), "/config/topics", CONFIG_CHANGES_PATH):
            tree.apply_one(Delete(path), 0)
        assert await alter(cluster, 1, TOPIC, put("retention.ms", "5")) == 0
        partition = cluster.broker(2).data.replicas.partitions[T0]
        await cluster.until(lambda: partition.config.retention_ms == 5, "applied")


async def test_a_topic_that_goes_meanwhile_leaves_no_configuration_behind(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(brokers=1, replicas=[1], min_insync_replicas=1) as (cluster, _, _):
        async with cluster.admin() as admin:
            await admin.create_topic("u", 1, 1)
        tree = cluster.zookeeper.tree
        for path in cluster_paths(cluster, TopicZnode.path("u"))[::-1]:
            tree.apply_one(Delete(path), 0)
        tree.apply_one(Delete(ConfigZnode.path("u")), 0)
        resource = (ConfigResource.TOPIC, "u")
        assert await alter(cluster, 1, resource, put("retention.ms", "5")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert tree.exists(ConfigZnode.path("u")) is None


async def test_a_topic_made_anew_meanwhile_gets_nothing_of_the_former_one(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_with_topic(configs={"segment.bytes": "99"}) as (cluster, _, _):
        coordination = cluster.coordination(2)
        multi, anew = coordination.multi, ConfigZnode({"segment.bytes": "77"}).encode()

        async def multi_a_moment_later(operations: Sequence[Operation]) -> list[OperationResult]:
            tree = cluster.zookeeper.tree
            [topic_id] = TopicIdZnode.among("t", tree.children(TopicZnode.path("t")))
            for old, new in (
                (TopicIdZnode.path("t", topic_id), Create(TopicIdZnode.path("t", b"another topic id"))),
                (ConfigZnode.path("t"), Create(ConfigZnode.path("t"), anew)),
            ):
                tree.apply_one(Delete(old), 0)
                tree.apply_one(new, 0)
            return await multi(operations)

        monkeypatch.setattr(coordination, "multi", multi_a_moment_later)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await alter(cluster, 2, TOPIC, put("retention.ms", "5")) == unknown
        assert cluster.zookeeper.tree.get(ConfigZnode.path("t")).data == anew


def cluster_paths(cluster: MemoryCluster, path: str) -> list[str]:
    """Parents first."""
    children = cluster.zookeeper.tree.children(path)
    return [path, *(found for name in children for found in cluster_paths(cluster, f"{path}/{name}"))]


async def test_two_who_alter_at_once_lose_nothing_of_each_other(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, _, _):
        names = ["retention.ms", "segment.ms", "flush.ms", "retention.bytes", "segment.bytes"]
        async with trio.open_nursery() as nursery:
            for number, name in enumerate(names):
                nursery.start_soon(alter, cluster, number % 3 + 1, TOPIC, put(name, "100"))
        found = ConfigZnode.decode("", cluster.zookeeper.tree.get(ConfigZnode.path("t")).data)
        assert found.config == dict.fromkeys(names, "100")


async def test_who_gets_no_answer_from_zookeeper_is_told_to_ask_again(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, _, _):
        cluster.zookeeper.drop_next_reply("/config/topics/t")
        again = ErrorCode.REQUEST_TIMED_OUT
        adding = ("cleanup.policy", ConfigOperation.APPEND, "compact")
        assert await alter(cluster, 1, TOPIC, adding) == again
        await cluster.until(lambda: cluster.coordination(1).state is SessionState.CONNECTED, "back")
        assert await alter(cluster, 1, TOPIC, adding) == 0
        _, [entry] = await describe(cluster, 1, TOPIC, "cleanup.policy")
        assert entry.value == "delete,compact"
        cluster.cut_from_zookeeper(2)
        assert await alter(cluster, 2, TOPIC, put("retention.ms", "5")) == again


async def test_what_stands_in_the_file_alone_is_told_without_zookeeper(autojump_clock: MockClock) -> None:
    """Where the admin port is: there a broker says what is wrong with it."""
    async with cluster_with_topic() as (cluster, _, _), cluster.admin() as admin:
        cluster.cut_from_zookeeper(2)
        [entry] = await admin.describe_configs(ConfigResource.BROKER, "2", ["admin.listener"], timeout_ms=1_000)
        assert (entry.name, entry.read_only) == ("admin.listener", True)


@pytest.mark.parametrize(
    ("resource", "keys"),
    [
        ((ConfigResource.BROKER, "2"), ()),
        ((ConfigResource.BROKER, "2"), ("admin.listener", "log.cleaner.threads")),
        ((ConfigResource.BROKER, "2"), ("not.known",)),
        (ALL_BROKERS, ("admin.listener",)),
        (TOPIC, ("admin.listener",)),
    ],
)
async def test_what_zookeeper_may_have_is_not_told_without_it(
    autojump_clock: MockClock, resource: tuple[int, str], keys: tuple[str, ...]
) -> None:
    async with cluster_with_topic() as (cluster, _, _):
        cluster.cut_from_zookeeper(2)
        assert (await describe(cluster, 2, resource, *keys))[0] == ErrorCode.REQUEST_TIMED_OUT


async def test_the_admin_client_asks_whoever_knows(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, _, _), cluster.admin() as admin:
        await admin.alter_configs(ConfigResource.TOPIC, "t", {"retention.ms": "5", "segment.bytes": "99"})
        await admin.alter_configs(ConfigResource.TOPIC, "t", {"segment.bytes": None})
        found = {each.name: each for each in await admin.describe_configs(ConfigResource.TOPIC, "t")}
        assert (found["retention.ms"].value, found["segment.bytes"].config_source) == ("5", ConfigSource.DEFAULT)
        await admin.alter_configs(ConfigResource.BROKER, "3", {"log.cleaner.threads": "2"})
        [entry] = [
            each
            for each in await admin.describe_configs(ConfigResource.BROKER, "3")
            if each.name == "log.cleaner.threads"
        ]
        assert entry.config_source == ConfigSource.DYNAMIC_BROKER
        assert await admin.describe_configs(ConfigResource.BROKER) == []
        with pytest.raises(AnsweredError, match=r"altering what is configured for topic 't'.*retention.ms='soon'"):
            await admin.alter_configs(ConfigResource.TOPIC, "t", {"retention.ms": "soon"})
        with pytest.raises(AnsweredError, match="The topic 'absent' does not exist"):
            await admin.describe_configs(ConfigResource.TOPIC, "absent")
        with pytest.raises(ClientError):
            await admin.describe_configs(ConfigResource.BROKER, "9", timeout_ms=500)


async def test_the_admin_client_asks_for_many_topics_at_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configurations, "MAX_DESCRIBED", 2)
    async with cluster_with_topic() as (cluster, _, _), cluster.admin() as admin:
        await admin.create_topic("u", configs={"cleanup.policy": "compact"})
        found = await admin.describe_topic_configs(["t", "absent", "u"], ["cleanup.policy"])
        assert isinstance(found.pop("absent"), UnknownTopic)
        values = {
            name: [(each.name, each.value) for each in keys] for name, keys in found.items() if isinstance(keys, list)
        }
        assert values == {"t": [("cleanup.policy", "delete")], "u": [("cleanup.policy", "compact")]}
        assert await admin.describe_topic_configs([]) == {}


async def test_a_resource_is_described_once_per_request(autojump_clock: MockClock) -> None:
    """Else 5 KB of a broker's id ask for 19 MB."""
    twice = [DescribeConfigsResource(*TOPIC), DescribeConfigsResource(*ALL_BROKERS), DescribeConfigsResource(*TOPIC)]
    async with cluster_with_topic((1,), brokers=1, min_insync_replicas=1) as (cluster, _, _):
        response = await ask(cluster, 1, DescribeConfigsRequest(twice))
        assert isinstance(response, DescribeConfigsResponse)
        invalid = ErrorCode.INVALID_REQUEST
        assert [result.error_code for result in response.results] == [invalid, 0, invalid]
        assert not response.results[0].configs


async def test_a_broker_says_where_its_admin_port_listens_though_any_free_port_was_asked_for(
    autojump_clock: MockClock,
) -> None:
    cluster = MemoryCluster(brokers=1, config={"admin.listener": "127.0.0.1:0"})
    async with cluster.running():
        error_code, [entry] = await describe(cluster, 1, (ConfigResource.BROKER, "1"), "admin.listener")
    assert error_code == 0 and entry.value is not None
    host, _, port = entry.value.rpartition(":")
    assert host == "127.0.0.1" and int(port) > 0
    assert any("admin port" in line and entry.value in line for line in cluster.history)
