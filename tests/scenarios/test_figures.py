"""What brokers tell of themselves agrees with what was done to them."""

from __future__ import annotations

import re

import trio
from trio.testing import MockClock

from strandline.broker.metrics.end_offsets import GOOD_FOR_S, INTERVAL_S
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from support.group_client import GroupClient
from support.scenario import T0, cluster_with_topic, numbered

GROUPS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "100"}


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
