"""What brokers tell of requests, topics and logs agrees with what clients did."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from scenarios.test_figures import figures
from strandline.client.errors import DeliveryFailed
from strandline.protocol.messages import ConfigResource
from strandline.testkit.cluster import MemoryCluster
from support.scenario import T0, cluster_with_topic, numbered

TRAFFIC = "kafka_server_brokertopicmetrics"
REQUESTS = "kafka_network_requestmetrics"


def log_bytes(cluster: MemoryCluster, broker_id: int) -> int:
    return cluster.partition(broker_id, T0).log.segments.size_bytes


async def test_traffic_is_counted_for_each_topic_and_in_all(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 50))
        async with cluster.consumer() as consumer:
            await consumer.assign([T0])
            read = 0
            while read < 50:
                read += sum(map(len, (await consumer.poll(timeout_ms=1000)).values()))
        leader, follower = figures(cluster, 1), figures(cluster, 2)
        size = log_bytes(cluster, 1)
        for place in ("", " t"):
            assert leader[f"{TRAFFIC}_messagesin_total{place}"] == 50
            assert leader[f"{TRAFFIC}_bytesin_total{place}"] == size
            assert leader[f"{TRAFFIC}_bytesout_total{place}"] == size
            assert leader[f"{TRAFFIC}_failedproducerequests_total{place}"] == 0
            assert follower[f"{TRAFFIC}_messagesin_total{place}"] == 0
        assert leader[f"{TRAFFIC}_replicationbytesout_total"] == 2 * size
        assert follower[f"{TRAFFIC}_replicationbytesin_total"] == size
        assert leader["kafka_log_log_logendoffset t 0"] == follower["kafka_log_log_logendoffset t 0"] == 50
        assert leader["kafka_log_log_size t 0"] == size and leader["kafka_log_log_numlogsegments t 0"] == 1
        assert leader["kafka_server_replicamanager_leadercount"] == 1
        assert follower["kafka_server_replicamanager_leadercount"] == 0
        assert "kafka_cluster_partition_insyncreplicascount t 0" not in follower


async def test_requests_are_counted_with_what_they_waited_for(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 5))
        found = figures(cluster, 1)
        produced = found[f"{REQUESTS}_requests_total Produce"]
        assert 0 < produced == found[f"{REQUESTS}_totaltimems_count Produce"]
        assert found["strandline_request_stage_seconds_bucket Produce remote +Inf"] == produced
        assert found[f"{REQUESTS}_requests_total FetchFollower"] > 0
        assert found[f"{REQUESTS}_requestbytes Produce 0.50"] > 60
        assert not any("stage_seconds" in name and "throttle" in name for name in found), "no part of the total"
        stages = [found[f"strandline_request_stage_seconds_sum Produce {stage}"] for stage in ("remote", "total")]
        assert stages[0] <= stages[1]


async def test_what_is_refused_is_counted_where_an_operator_looks(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(configs={"max.message.bytes": "500"}) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 1))
        delivery = await producer.send("t", bytes(1000), partition=0)
        with pytest.raises(DeliveryFailed, match="MESSAGE_TOO_LARGE"):
            await delivery
        found = figures(cluster, 1)
        assert found[f"{TRAFFIC}_bytesrejected_total t"] > 1000
        assert found[f"{TRAFFIC}_failedproducerequests_total t"] == 0
        assert found[f"{TRAFFIC}_messagesin_total t"] == 1
        assert found[f"{REQUESTS}_errors_total Produce MESSAGE_TOO_LARGE"] >= 1


async def test_totals_never_fall_and_a_deleted_topic_has_no_series(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 7))
        async with cluster.admin() as admin:
            await admin.delete_topic("t")
        await cluster.until(lambda: not cluster.broker(1).data.replicas.partitions, "the topic is gone")
        found = figures(cluster, 1)
        assert found[f"{TRAFFIC}_messagesin_total"] == 7
        assert not any(" t" in name for name in found if name.startswith((TRAFFIC, "kafka_log", "kafka_cluster")))


async def test_series_of_partitions_may_be_switched_off_while_it_runs(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, *_):
        assert "kafka_log_log_size t 0" in figures(cluster, 1)
        async with cluster.admin() as admin:
            await admin.alter_configs(ConfigResource.BROKER, "", {"metrics.per.partition": "false"})
        await cluster.until(lambda: "kafka_log_log_size t 0" not in figures(cluster, 1), "there are none")
        assert figures(cluster, 1)["kafka_server_replicamanager_partitioncount"] == 1
