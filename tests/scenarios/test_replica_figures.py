"""What brokers tell of replicas that are offline, without a leader, or on the move."""

from __future__ import annotations

import errno

import msgspec
from trio.testing import MockClock

from scenarios.test_figures import ACTIVE, figures
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import LOG_DIR, MemoryCluster
from support.at_once import at_once
from support.reassigning import moves
from support.replica_site import ReplicaSite
from support.scenario import SESSIONS_ALONE, T0, cluster_with_topic, die, numbered

OFFLINE = "kafka_server_replicamanager_offlinereplicacount"
REASSIGNING = "kafka_server_replicamanager_reassigningpartitions"
EXPORTER = "kafka_topic_partition"


def offline(cluster: MemoryCluster, broker_id: int) -> float:
    """By `/metrics`, which agrees with `/status`; a replica counts as one of the broker's however it is."""
    found = figures(cluster, broker_id)[OFFLINE]
    assert figures(cluster, broker_id)["kafka_server_replicamanager_partitioncount"] == 1
    partitions = at_once(cluster.broker(broker_id).health.status())["partitions"]
    assert isinstance(partitions, dict) and partitions["offline"] == found
    return found


async def test_a_replica_that_may_lie_in_an_unread_folder_is_offline(autojump_clock: MockClock) -> None:
    two = {**SESSIONS_ALONE, "log.dirs": f"{LOG_DIR},/more"}
    async with cluster_with_topic(properties=two) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 3))
        assert offline(cluster, 2) == 0
        folder, disk = cluster.partition(2, T0).log_dir, cluster.nodes[2].disk
        await cluster.stop(2)
        fault = disk.fail("open", f"{folder}/.lock", errno.EIO)
        await cluster.start_broker(2)
        await cluster.until(lambda: cluster.broker(2).data.metadata.partition(*T0) is not None, "it knows of the topic")
        assert not cluster.hosts(2, T0)
        assert offline(cluster, 2) == 1
        fault.cancel()
        await cluster.stop(2)
        await cluster.start_broker(2)
        await cluster.until(lambda: cluster.hosts(2, T0), "it is read")
        assert offline(cluster, 2) == 0


async def test_a_refused_log_is_an_offline_replica(autojump_clock: MockClock) -> None:
    small = {**SESSIONS_ALONE, "log.segment.bytes": "300"}
    async with cluster_with_topic(properties=small) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 30), one_by_one=True)
        disk, folder = cluster.nodes[2].disk, f"{LOG_DIR}/{T0}"
        await cluster.stop(2)
        logs = [name for name in disk.listdir(folder) if name.endswith(".log")]
        disk.unlink(f"{folder}/{logs[1]}")
        await cluster.start_broker(2)
        await cluster.until(lambda: T0 in cluster.broker(2).log_manager.refused, "it is refused")
        assert offline(cluster, 2) == 1


async def test_a_partition_without_a_leader_is_told_by_the_controller_and_nobody_else(
    autojump_clock: MockClock,
) -> None:
    alone = TopicPartition("alone", 0)
    async with cluster_with_topic(properties=SESSIONS_ALONE) as (cluster, *_):
        async with cluster.admin() as admin:
            await admin.create_topic("alone", assignments={0: [3]})
        await cluster.until(lambda: cluster.hosts(3, alone), "it is led")
        for leader in (3, -1, 3):
            if leader == -1:
                die(cluster, 3)
                await cluster.until(lambda: cluster.leader(alone) == -1, "nobody leads")
            elif not cluster.nodes[3].is_up:
                await cluster.start_broker(3)
                await cluster.until(lambda: cluster.leads(3, alone), "it is led again")
            live = [each for each, node in cluster.nodes.items() if node.is_up]
            told = {each: figures(cluster, each) for each in live}
            tellers = [each for each in live if f"{EXPORTER}_leader alone 0" in told[each]]
            assert tellers == ([3] if leader == 3 else [each for each in live if told[each][ACTIVE]])
            found = told[tellers[0]]
            assert found[f"{EXPORTER}_leader alone 0"] == leader
            assert found[f"{EXPORTER}_leader_is_preferred alone 0"] == (leader == 3)
            assert found[f"{EXPORTER}_under_replicated_partition alone 0"] == (leader != 3)
            assert found[f"{EXPORTER}_replicas alone 0"] == found[f"{EXPORTER}_in_sync_replica alone 0"] == 1
            ends = [each for each in live if f"{EXPORTER}_current_offset alone 0" in told[each]]
            assert ends == ([3] if leader == 3 else []), "nobody knows where it ends"


async def test_a_replica_that_is_being_added_is_missing_to_the_exporter_and_not_to_kafka(
    autojump_clock: MockClock,
) -> None:
    async with moves([1, 2, 3], properties=SESSIONS_ALONE) as moving:
        cluster = moving.cluster
        cluster.cut_both(4, 1)
        await moving.ask({0: [1, 2, 4]})
        await cluster.until(lambda: len(cluster.partition(1, T0).leadership.replicas) == 4, "it is being added")
        found = figures(cluster, 1)
        assert found[REASSIGNING] == 1
        assert found["kafka_cluster_partition_replicascount t 0"] == 3
        assert found["kafka_cluster_partition_underreplicated t 0"] == 0
        assert found[f"{EXPORTER}_replicas t 0"] == 4
        assert found[f"{EXPORTER}_under_replicated_partition t 0"] == 1


async def test_a_partition_is_on_the_move_also_while_replicas_are_only_removed(autojump_clock: MockClock) -> None:
    site = ReplicaSite()
    state = site.state()
    await site.order(msgspec.structs.replace(state, removing_replicas=[3]))
    leadership = site.partition().leadership
    assert leadership is not None and leadership.is_reassigned and leadership.replication_factor == 3
    await site.order(site.state(epoch=1, replicas=[1, 2], isr=[1, 2]))
    leadership = site.partition().leadership
    assert leadership is not None and not leadership.is_reassigned
