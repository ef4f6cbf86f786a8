"""What `/metrics` tells of what is in the way just now: requests and answers in line, events, replicas that fail."""

from __future__ import annotations

import errno

import trio
from trio.testing import MockClock

from strandline.client.connection import Connection
from strandline.protocol.messages import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from strandline.testkit.cluster import LOG_DIR, MemoryCluster
from support.raw_client import request_frame
from support.scenario import SESSIONS_ALONE, T0, cluster_with_topic, die, numbered
from support.scraping import scrape

QUEUES = "kafka_network_requestchannel"


async def connect(cluster: MemoryCluster, broker_id: int, node: str = "client") -> Connection:
    (address,) = cluster.broker(broker_id).listeners.addresses.values()
    return await Connection.open(cluster.network.node(node), address, timeout_ms=600_000)


async def test_requests_that_no_handler_has_begun_are_in_the_queue(autojump_clock: MockClock) -> None:
    """Two handlers (`num.io.threads`) wait for the disk, so of five requests three are in line."""
    async with cluster_with_topic() as (cluster, *_):
        connections = [await connect(cluster, 1) for _ in range(5)]
        cluster.nodes[1].disk_delay_s = 5.0
        async with trio.open_nursery() as nursery:
            for each in connections:
                nursery.start_soon(each.call, DescribeLogDirsRequest(None), DescribeLogDirsResponse)
            await trio.sleep(1)
            assert (await scrape(cluster, 1)).value(f"{QUEUES}_requestqueuesize") == 3
        cluster.nodes[1].disk_delay_s = 0.0
        found = await scrape(cluster, 1)
        assert found.value(f"{QUEUES}_requestqueuesize") == 0
        waited = found.value("strandline_request_stage_seconds_sum", request="DescribeLogDirs", stage="queue")
        assert waited > 5, "those in line waited for those before them"


async def test_answers_that_a_peer_does_not_take_are_in_the_queue(autojump_clock: MockClock) -> None:
    async with cluster_with_topic() as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a" * 1000, 50))
        (address,) = cluster.broker(1).listeners.addresses.values()
        cluster.network.link("broker-1", "slow").window_bytes = 1000
        slow = await cluster.network.node("slow").connect(address)
        assert (await scrape(cluster, 1)).value(f"{QUEUES}_responsequeuesize") == 0
        topics = [FetchTopic("t", [FetchPartition(0, 0, 2**20)])]
        slow.send_nowait([request_frame(FetchRequest(500, 1, 2**24, topics))])
        await trio.sleep(1)
        found = await scrape(cluster, 1)
        assert found.value(f"{QUEUES}_responsequeuesize") == 1
        assert found.get("kafka_network_requestmetrics_totaltimems_count", request="FetchConsumer") == 0
        slow.close()
        await trio.sleep(1)
        assert (await scrape(cluster, 1)).value(f"{QUEUES}_responsequeuesize") == 0


async def test_events_of_the_controller_wait_while_zookeeper_takes_its_time(autojump_clock: MockClock) -> None:
    manager = "kafka_controller_controllereventmanager"
    async with cluster_with_topic() as (cluster, *_):
        held = cluster.coordination(1).hold_writes(lambda operations: "/partitions/" in repr(operations))
        async with cluster.admin() as admin, trio.open_nursery() as nursery:
            for name in ("new-1", "new-2", "new-3"):
                nursery.start_soon(admin.create_topic, name, 1, 1)
            await held.reached.wait()
            await trio.sleep(1)
            found = await scrape(cluster, 1)
            waiting = found.value(f"{manager}_eventqueuesize")
            state = found.value("kafka_controller_kafkacontroller_controllerstate")
            held.release()
            assert waiting > 0 and state > 0, "one is in hand"
            assert (await scrape(cluster, 2)).value(f"{manager}_eventqueuesize") == 0
        await trio.sleep(2)
        found = await scrape(cluster, 1)
        assert found.value(f"{manager}_eventqueuesize") == 0
        assert found.value(f"{manager}_eventqueuetimems", quantile="0.999") >= 1000


async def test_partitions_that_a_leader_refuses_are_not_fetched_for_a_moment(autojump_clock: MockClock) -> None:
    failed = "kafka_server_replicafetchermanager_failedpartitionscount"
    async with cluster_with_topic([3, 2, 4], brokers=4) as (cluster, *_):
        assert (await scrape(cluster, 4)).value(failed, clientId="Replica") == 0
        cluster.network.link("broker-1", "broker-2").latency_s = 1.0  # 2 hears late that it is to lead
        die(cluster, 3)
        await cluster.until(lambda: cluster.broker(4).data.followers.failing > 0, "2 refuses to lead")
        assert (await scrape(cluster, 4)).value(failed, clientId="Replica") == 1
        cluster.network.link("broker-1", "broker-2").latency_s = 0.001
        await trio.sleep(5)
        assert (await scrape(cluster, 4)).value(failed, clientId="Replica") == 0


async def test_replicas_on_a_disk_that_failed_are_offline(autojump_clock: MockClock) -> None:
    offline = "kafka_server_replicamanager_offlinereplicacount"
    two = {**SESSIONS_ALONE, "log.dirs": f"{LOG_DIR},/more"}
    async with cluster_with_topic(configs={"flush.messages": "1"}, properties=two) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 3))
        assert (await scrape(cluster, 1)).value(offline) == 0
        failing = cluster.partition(1, T0).log_dir
        cluster.nodes[1].disk.fail("fsync", f"{failing}/t-0/*", errno.EIO)
        await ledger.produce(producer, T0, numbered("b", 3))
        await trio.sleep(5)
        found = await scrape(cluster, 1)
        assert found.value(offline) == 1
        assert found.value("kafka_server_replicamanager_leadercount") == 0
        assert found.of_partition("kafka_log_log_size", "t") is None, "it has no log any more"
        assert found.value("kafka_log_logmanager_offlinelogdirectorycount") == 1
        assert found.rows("strandline_log_directory_free_bytes").keys() <= {("/more",), (LOG_DIR,)} - {(failing,)}
        assert not any(found.rows("strandline_metrics_source_failures_total").values())
        assert (await scrape(cluster, 2)).value(offline) == 0
