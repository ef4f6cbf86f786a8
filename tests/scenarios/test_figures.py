"""What brokers tell of themselves agrees with what was done to them."""

from __future__ import annotations

import errno
import re
from functools import partial

import trio
from trio.testing import MockClock

from strandline.broker.metrics.end_offsets import GOOD_FOR_S, INTERVAL_S
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import CLIENT, LOG_DIR, MemoryCluster
from support.group_client import GroupClient
from support.scenario import SESSIONS_ALONE, T0, cluster_with_topic, numbered

GROUPS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "100"}
ACTIVE = "kafka_controller_kafkacontroller_activecontrollercount"


def figures(cluster: MemoryCluster, broker_id: int) -> dict[str, float]:
    """Sample's name, and the values of its labels → figure."""
    samples = [sample for family in cluster.broker(broker_id).metrics.collect() for sample in family.samples]
    return {" ".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}


async def test_names_are_those_of_prometheus_and_none_is_there_twice(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=GROUPS) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 3))
        client = GroupClient(cluster)
        await client.join()
        await client.commit({T0: 1})
        for broker_id in cluster.nodes:
            families = list(cluster.broker(broker_id).metrics.collect())
            names = [family.name for family in families]
            assert all(re.fullmatch("[a-z_:][a-z0-9_:]*", name) for name in names)
            begun = [name for before, name in zip(["", *names], names, strict=False) if name != before]
            assert len(begun) == len(set(begun))
            samples = [(s.name, *sorted(s.labels.items())) for family in families for s in family.samples]
            assert len(samples) == len(set(samples))
            failures = [v for k, v in figures(cluster, broker_id).items() if "source_failures" in k]
            assert failures and not any(failures)


async def test_the_coordinator_tells_lag_also_where_another_broker_leads(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=GROUPS) as (cluster, producer, ledger):
        client = GroupClient(cluster)
        await client.join()
        coordinator = client.coordinator_id
        here, other = (TopicPartition(name, 0) for name in ("here", "other"))
        async with cluster.admin() as admin:
            for tp, leader in ((here, coordinator), (other, coordinator % 3 + 1)):
                await admin.create_topic(tp.topic, assignments={0: [leader, leader % 3 + 1]})
        for tp in (here, other):
            await ledger.produce(producer, tp, numbered(tp.topic, 10))
        await client.commit({here: 4, other: 7})
        found = figures(cluster, coordinator)
        assert found["kafka_consumergroup_current_offset g here 0"] == 4
        assert found["kafka_consumergroup_lag g here 0"] == found["kafka_consumergroup_lag_sum g here"] == 6
        assert "kafka_consumergroup_lag g other 0" not in found, "a scrape asks nobody"
        assert found["kafka_consumergroup_members g"] == 1
        assert found["kafka_coordinator_group_groupmetadatamanager_numgroupsstable"] == 1
        assert found["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 2
        for name, count in (("group_completed_rebalance", 1), ("offset_commit", 2), ("offset_deletion", 0)):
            assert found[f"kafka_server_group_coordinator_metrics_{name}_count"] == count
        await trio.sleep(INTERVAL_S)
        found = figures(cluster, coordinator)
        assert found["kafka_consumergroup_lag g other 0"] == found["kafka_consumergroup_lag_sum g other"] == 3

        cluster.cut_both(coordinator, coordinator % 3 + 1)
        await trio.sleep(GOOD_FOR_S + 2 * INTERVAL_S)
        found = figures(cluster, coordinator)
        assert "kafka_consumergroup_lag g other 0" not in found, "what is old is not told"
        assert "kafka_consumergroup_lag_sum g other" not in found

        for broker_id in {*cluster.nodes} - {coordinator}:
            assert not any(name.startswith("kafka_consumergroup") for name in figures(cluster, broker_id))


async def test_partitions_have_no_series_where_nobody_wants_them(autojump_clock: MockClock) -> None:
    sums_only = {**GROUPS, "metrics.per.partition": "false"}
    async with cluster_with_topic(properties=sums_only) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 3))
        client = GroupClient(cluster)
        await client.join()
        await client.commit({T0: 1})
        for broker_id in cluster.nodes:
            samples = [s for family in cluster.broker(broker_id).metrics.collect() for s in family.samples]
            assert not [sample for sample in samples if "partition" in sample.labels]
        assert figures(cluster, client.coordinator_id)["kafka_consumergroup_current_offset_sum g t"] == 1


async def test_a_member_that_comes_back_by_its_name_is_no_rebalance(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=GROUPS) as (cluster, *_):
        first, again, other = (
            GroupClient(cluster, instance="i"),
            GroupClient(cluster, instance="i"),
            GroupClient(cluster),
        )
        await first.join()
        await again.join()
        completed = "kafka_server_group_coordinator_metrics_group_completed_rebalance_count"
        assert again.generation == 1 and again.member_id != first.member_id
        assert figures(cluster, first.coordinator_id)[completed] == 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.join)
            await trio.sleep(0.5)
            nursery.start_soon(again.join)
        assert figures(cluster, first.coordinator_id)[completed] == 2


async def test_a_replica_that_goes_and_comes_is_counted_by_its_leader(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=SESSIONS_ALONE) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 5))
        found = figures(cluster, 1)
        assert found["kafka_server_replicamanager_isrshrinks_total"] == 0
        assert found["kafka_topic_partition_in_sync_replica t 0"] == found["kafka_topic_partition_replicas t 0"] == 3
        assert found["kafka_topic_partition_current_offset t 0"] == 5
        assert found["kafka_topic_partition_leader t 0"] == found["kafka_topic_partition_leader_is_preferred t 0"] == 1

        cluster.cut_both(3, 1)
        await ledger.produce(producer, T0, numbered("b", 1))
        await cluster.until(lambda: len(cluster.partition(1, T0).leadership.isr) == 2, "the ISR is smaller")
        found = figures(cluster, 1)
        assert found["kafka_server_replicamanager_isrshrinks_total"] == 1
        assert found["kafka_server_replicamanager_isrexpands_total"] == 0
        assert found["kafka_topic_partition_under_replicated_partition t 0"] == 1

        cluster.heal(3, 1)
        cluster.heal(1, 3)
        await cluster.until(lambda: len(cluster.partition(1, T0).leadership.isr) == 3, "the ISR is whole")
        found = figures(cluster, 1)
        assert found["kafka_server_replicamanager_isrexpands_total"] == 1
        assert found["kafka_topic_partition_under_replicated_partition t 0"] == 0
        for broker_id in cluster.nodes:
            is_leader = broker_id == 1
            assert ("kafka_topic_partition_leader t 0" in figures(cluster, broker_id)) == is_leader


async def test_what_waits_for_a_follower_is_in_the_purgatory(autojump_clock: MockClock) -> None:
    purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize"
    async with cluster_with_topic(properties=SESSIONS_ALONE) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 5))
        found = figures(cluster, 1)
        assert (found[f"{purgatory} Produce"], found[f"{purgatory} Fetch"]) == (0, 2), "two followers wait for records"
        cluster.cut_both(3, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ledger.produce, producer, T0, numbered("b", 1))
            await trio.sleep(1)
            assert figures(cluster, 1)[f"{purgatory} Produce"] == 1
        assert figures(cluster, 1)[f"{purgatory} Produce"] == 0


async def test_a_fetch_of_several_partitions_waits_in_each_of_them(autojump_clock: MockClock) -> None:
    """So Kafka counts it, too: each watches it."""
    purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize Fetch"
    async with MemoryCluster(brokers=1).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", 3, 1)
        await cluster.rest(1)
        assert figures(cluster, 1)[purgatory] == 0
        async with cluster.consumer(fetch_max_wait_ms=5000) as consumer, trio.open_nursery() as nursery:
            await consumer.assign([TopicPartition("t", number) for number in range(3)])
            nursery.start_soon(partial(consumer.poll, timeout_ms=4000))
            await trio.sleep(2)
            assert figures(cluster, 1)[purgatory] == 3


async def test_a_follower_tells_how_far_it_is_behind(autojump_clock: MockClock) -> None:
    lag = "kafka_server_replicafetchermanager_maxlag Replica"
    small = {**SESSIONS_ALONE, "replica.fetch.max.bytes": "1000", "replica.fetch.response.max.bytes": "1000"}
    async with cluster_with_topic(properties=small) as (cluster, producer, ledger):
        await cluster.stop(3)
        await ledger.produce(producer, T0, numbered("a" * 900, 50), one_by_one=True)
        await cluster.start_broker(3)
        seen = set()
        while not cluster.hosts(3, T0) or cluster.partition(3, T0).log.log_end_offset < 50:
            found = figures(cluster, 3)
            seen.add(found[lag])
            assert found.get("kafka_server_fetcherlagmetrics_consumerlag Replica t 0", 0) == found[lag]
            await trio.sleep(0.001)
        assert any(0 < each < 50 for each in seen)
        await cluster.rest(1)
        assert figures(cluster, 3)[lag] == 0


async def test_the_session_with_zookeeper_is_told(autojump_clock: MockClock) -> None:
    listener = "kafka_server_sessionexpirelistener"
    latency = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"
    async with cluster_with_topic() as (cluster, *_):
        found = figures(cluster, 2)
        assert found[f"{listener}_sessionstate CONNECTED"] == 1 and found[f"{listener}_zookeeperdisconnects_total"] == 0
        requests = found[f"{latency}_count"]
        assert requests > 0
        cluster.cut_from_zookeeper(2)
        await trio.sleep(1)
        found = figures(cluster, 2)
        assert found[f"{listener}_sessionstate CONNECTED"] == 0 and found[f"{listener}_zookeeperdisconnects_total"] == 1
        await trio.sleep(60)
        cluster.heal_zookeeper(2)
        await trio.sleep(5)
        found = figures(cluster, 2)
        assert found[f"{listener}_zookeeperexpires_total"] == 1 and found[f"{latency}_count"] > requests


async def test_connections_and_disks_are_told(autojump_clock: MockClock) -> None:
    connections = "kafka_server_socket_server_metrics_connection_count PLAINTEXT 0"
    async with cluster_with_topic(configs={"flush.messages": "1"}) as (cluster, producer, ledger):
        await trio.sleep(2)  # brokers have met
        found = figures(cluster, 1)
        assert found["kafka_log_logmanager_offlinelogdirectorycount"] == 0
        assert found["kafka_log_logflushstats_logflushrateandtimems_count"] == 0
        [address] = cluster.broker(1).listeners.addresses.values()
        client = await cluster.network.node(CLIENT).connect(address)
        await trio.sleep(0.1)
        assert figures(cluster, 1)[connections] == found[connections] + 1
        client.close()
        await trio.sleep(0.1)
        assert figures(cluster, 1)[connections] == found[connections]
        await ledger.produce(producer, T0, numbered("b", 5))
        await trio.sleep(5)
        assert figures(cluster, 1)["kafka_log_logflushstats_logflushrateandtimems_count"] > 0


async def test_what_the_cleaner_did_is_told(autojump_clock: MockClock) -> None:
    compacted = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.3"}
    properties = {"log.cleaner.backoff.ms": "500"}
    async with cluster_with_topic(configs=compacted, properties=properties) as (cluster, producer, _):
        for number in range(400):
            await producer.send("t", b"value %d" % number, key=b"key %d" % (number % 5))
            if number % 4 == 3:
                await producer.flush()
        await trio.sleep(10)
        for broker_id in cluster.nodes:
            found = figures(cluster, broker_id)
            lines = [each for each in cluster.history if "log cleaned" in each and f"broker-{broker_id} " in each]
            assert found["strandline_cleaner_cleanings_total"] == len(lines) > 0
            assert found["strandline_cleaner_read_bytes_total"] > found["strandline_cleaner_written_bytes_total"] > 0
            assert found["kafka_log_logcleanermanager_time_since_last_run_ms"] <= 500
            assert 0 < found["kafka_log_logcleaner_cleaner_recopy_percent"] < 100
            assert found["kafka_log_logcleanermanager_uncleanable_partitions_count /data"] == 0
            assert found["kafka_log_logcleanermanager_uncleanable_bytes /data"] == 0
            assert 0 < found["kafka_log_logcleaner_max_buffer_utilization_percent"] < 1, "five keys take little of it"
            assert (
                found["kafka_log_logcleaner_max_clean_time_secs"] > 0 == found["kafka_log_logcleaner_deadthreadcount"]
            )


async def test_a_disk_that_failed_is_told_with_what_it_held(autojump_clock: MockClock) -> None:
    two = {**SESSIONS_ALONE, "log.dirs": f"{LOG_DIR},/more"}
    async with cluster_with_topic(configs={"flush.messages": "1"}, properties=two) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 3))
        failing = cluster.partition(1, T0).log_dir
        other = "/more" if failing == LOG_DIR else LOG_DIR
        cluster.nodes[1].disk.fail("fsync", f"{failing}/t-0/*", errno.EIO)
        await ledger.produce(producer, T0, numbered("b", 3))
        await trio.sleep(5)
        found = figures(cluster, 1)
        assert found["kafka_log_logmanager_offlinelogdirectorycount"] == 1
        assert found[f"kafka_log_logmanager_logdirectoryoffline {failing}"] == 1
        assert found[f"kafka_log_logmanager_logdirectoryoffline {other}"] == 0
        assert "kafka_topic_partition_leader t 0" not in found, "another broker leads it"
        assert figures(cluster, cluster.leader(T0))["kafka_topic_partition_leader_is_preferred t 0"] == 0
        [controller] = [each for each in cluster.nodes if figures(cluster, each)[ACTIVE] == 1]
        found = figures(cluster, controller)
        assert found["kafka_controller_controllerstats_logdirchangerateandtimems_count"] >= 1
        assert found["kafka_controller_kafkacontroller_preferredreplicaimbalancecount"] == 1
        assert found["kafka_controller_kafkacontroller_offlinepartitionscount"] == 0
