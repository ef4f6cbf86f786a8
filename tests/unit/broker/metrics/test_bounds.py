"""What a scrape leaves out since a family would have too many series, and that it is told of that scrape alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from trio.testing import MockClock

from strandline.broker.metrics.bounds import MAX_SERIES
from strandline.broker.server import Broker
from strandline.protocol.messages import ConfigResource
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from support.wide_broker import widen

LEFT_OUT = "strandline_metrics_left_out"


def scrape(broker: Broker) -> tuple[Counter[str], dict[str, float]]:
    """Series by family, and which families lack how many."""
    families = list(broker.metrics.collect())
    assert not broker.metrics.failing.lately()
    series = Counter(family.name for family in families for sample in family.samples if "partition" in sample.labels)
    [told] = [family for family in families if family.name == LEFT_OUT]
    return series, {sample.labels["family"]: sample.value for sample in told.samples if sample.value}


async def test_nothing_is_left_out_any_more_once_partitions_have_no_series(autojump_clock: MockClock) -> None:
    async with MemoryCluster(brokers=1).running() as cluster, cluster.admin() as admin:
        broker = cluster.broker(1)
        widen(broker, 1, MAX_SERIES + 5)
        series, left_out = scrape(broker)
        assert set(series.values()) == {MAX_SERIES}
        assert left_out == dict.fromkeys(series, 5)
        await admin.alter_configs(ConfigResource.BROKER, "", {"metrics.per.partition": "false"})
        config = broker.config_changes.config
        await cluster.until(lambda: not config.value.metrics_per_partition, "it counts")
        assert scrape(broker) == ({}, {})


async def test_replicas_that_are_not_led_take_no_place_of_those_that_are(autojump_clock: MockClock) -> None:
    async with MemoryCluster(brokers=1).running() as cluster:
        broker = cluster.broker(1)
        widen(broker, 2, MAX_SERIES - 20)
        for index in range(MAX_SERIES - 20):
            broker.data.replicas.partitions[TopicPartition("topic-00000", index)].leadership = None
        series, left_out = scrape(broker)
        assert series["kafka_cluster_partition_underminisr"] == MAX_SERIES - 20
        assert series["kafka_log_log_size"] == MAX_SERIES
        assert left_out == {name: MAX_SERIES - 40 for name in series if name.startswith("kafka_log_log_")}


async def test_thousands_of_topics_and_groups_are_told(autojump_clock: MockClock) -> None:
    """What adds up topics, as dashboards do, has all of them."""
    async with MemoryCluster(brokers=1).running() as cluster:
        broker = cluster.broker(1)
        widen(broker, 1200, 1, groups=1200)
        assert scrape(broker)[1] == {}


@pytest.mark.parametrize("page", ["README.md", "docs/metrics.md", "deploy/prometheus/rules.yml"])
def test_who_reads_of_metrics_reads_of_their_bound(page: str) -> None:
    assert f"{MAX_SERIES:,} series" in (Path(__file__).parents[4] / page).read_text()
