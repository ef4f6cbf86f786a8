"""The CSV reporter on whole brokers: files of each of them while they run, and nothing that a folder does disturbs."""

from __future__ import annotations

import csv
import errno
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.environment import EPOCH_MS
from support.scenario import T0, cluster_with_topic, numbered
from support.scraping import scrape

SET = "/metrics"
INTERVAL_S = 5
ON = {
    "kafka.metrics.reporters": "kafka.metrics.KafkaCSVMetricsReporter",
    "kafka.metrics.polling.interval.secs": str(INTERVAL_S),
    "kafka.csv.metrics.reporter.enabled": "true",
    "kafka.csv.metrics.dir": SET,
}
COMPLAINT = "metrics are not written"


def files(cluster: MemoryCluster, broker_id: int) -> list[str]:
    """Names within its folder."""
    folder = f"{SET}/broker-{broker_id}/"
    return [path.removeprefix(folder) for path in cluster.nodes[broker_id].disk.content() if path.startswith(folder)]


def rows(cluster: MemoryCluster, broker_id: int, name: str) -> list[dict[str, str]]:
    text = cluster.nodes[broker_id].disk.read(f"{SET}/broker-{broker_id}/{name}.csv").decode()
    return list(csv.DictReader(text.splitlines()))


def complaints(cluster: MemoryCluster, broker_id: int) -> list[str]:
    return [line for line in cluster.history if COMPLAINT in line and f" broker-{broker_id} " in line]


async def test_each_broker_writes_what_it_tells_at_each_interval(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=ON) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("a", 7))
        await trio.sleep(3 * INTERVAL_S + 1)
        told = await scrape(cluster, 1)
        for broker_id in cluster.nodes:
            ends = rows(cluster, broker_id, "kafka_log_log_logendoffset.topic.partition")
            assert [(each["topic"], each["partition"], each["value"]) for each in ends] == [("t", "0", "7")] * len(ends)
            times_s = [int(each["time"]) for each in ends]
            assert len(times_s) >= 3 and times_s[0] >= EPOCH_MS // 1000
            assert {later - earlier for earlier, later in pairwise(times_s)} == {INTERVAL_S}
        names = {name.partition(".")[0] for name in files(cluster, 1)}
        assert names == {name for name, _ in told.samples}, "a file for each that a scrape has"
        assert rows(cluster, 1, "kafka_server_brokertopicmetrics_messagesin_total.topic")[-1]["value"] == "7"
        assert rows(cluster, 2, "kafka_server_brokertopicmetrics_messagesin_total.topic")[-1]["value"] == "0"
        assert {each["value"] for each in rows(cluster, 1, "kafka_server_kafkaserver_brokerstate")} == {"3"}


async def test_a_broker_that_was_killed_goes_on_in_the_same_files(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=ON) as (cluster, *_):
        await trio.sleep(2 * INTERVAL_S)
        before = rows(cluster, 3, "kafka_server_kafkaserver_brokerstate")
        cluster.crash(3)
        await cluster.start_broker(3)
        await trio.sleep(2 * INTERVAL_S)
        after = rows(cluster, 3, "kafka_server_kafkaserver_brokerstate")
        assert after[: len(before)] == before and len(after) > len(before)
        assert all(each.keys() == {"time", "value"} and each["value"] for each in after)


async def test_there_is_no_folder_while_the_reporter_is_named_and_not_enabled(autojump_clock: MockClock) -> None:
    properties = {**ON, "kafka.csv.metrics.reporter.enabled": "false"}
    async with cluster_with_topic(properties=properties) as (cluster, *_):
        await trio.sleep(3 * INTERVAL_S)
        assert not [path for path in cluster.nodes[1].disk.content() if path.startswith(SET)]


@pytest.mark.parametrize(
    ("operation", "number"), [("makedirs", errno.EACCES), ("makedirs", errno.ENOTDIR), ("pwritev", errno.ENOSPC)]
)
async def test_a_folder_that_cannot_be_written_is_told_once_and_disturbs_nothing(
    operation: str, number: int, autojump_clock: MockClock
) -> None:
    async with cluster_with_topic(properties=ON) as (cluster, producer, ledger):
        fault = cluster.nodes[1].disk.fail(operation, f"{SET}*", number)
        await trio.sleep(4 * INTERVAL_S)
        [line] = complaints(cluster, 1)
        assert f"{SET}/broker-1" in line and "kafka.csv.metrics.dir" in line and f"Errno {number}" in line
        assert not complaints(cluster, 2) and files(cluster, 2)
        await ledger.produce(producer, T0, numbered("a", 3))
        found = await scrape(cluster, 1)
        assert found.of_partition("kafka_log_log_logendoffset", "t") == 3
        assert found.value("kafka_log_logmanager_offlinelogdirectorycount") == 0, "it is no log directory"
        fault.cancel()
        await trio.sleep(INTERVAL_S + 1)
        assert rows(cluster, 1, "kafka_log_log_logendoffset.topic.partition")[-1]["value"] == "3"


async def test_a_disk_that_does_not_answer_keeps_no_broker_from_ending(autojump_clock: MockClock) -> None:
    async with cluster_with_topic(properties=ON) as (cluster, *_):
        blocking = cluster.nodes[3].blocking
        assert blocking is not None
        blocking.stuck_lanes.add("metrics")
        await trio.sleep(3 * INTERVAL_S)
        assert not files(cluster, 3) and files(cluster, 2)
        with trio.fail_after(30):
            await cluster.stop(3)
