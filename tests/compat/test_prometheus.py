"""A real Prometheus over a real cluster: every query gives data, alerts fire when their fault is made, and clear."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest
import yaml

from compat.metrics_site import (
    BROKERS,
    PATIENCE_S,
    VICTIM,
    as_asked,
    cluster_with_admin_ports,
    load,
    make_topics,
    targets_of,
    until,
)
from compat.prometheus_server import DEPLOY, Prometheus
from strandline.cli.cluster import EmbeddedCluster
from support.small_disk import SmallDisk

FREE_BYTES = 192 * 2**10
METRIC = re.compile(r"\b(?:kafka|strandline|process)_\w+(?:\{[^}]*\})?")


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path_factory.mktemp("disk") / "small")
    yield disk
    disk.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, small_disk: SmallDisk) -> Iterator[EmbeddedCluster]:
    with cluster_with_admin_ports(tmp_path_factory.mktemp("cluster"), small_disk) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def prometheus(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with Prometheus(tmp_path_factory.mktemp("server") / "prometheus", targets_of(cluster)) as server:
        until(lambda: server.is_ready, "Prometheus does not start")
        make_topics(cluster)
        until(lambda: len(server.query('up{job="strandline"} == 1')) == len(BROKERS), "not all brokers are scraped")
        load(cluster)
        yield server


def expressions_of_panels() -> dict[str, str]:
    """Title of the panel and number of the query → the query, as Grafana would ask it."""
    panels = json.loads((DEPLOY / "grafana/strandline.json").read_text())["panels"]
    return {
        f"{panel['title']} {number}": as_asked(target["expr"])
        for panel in panels
        for number, target in enumerate(panel.get("targets", ()), 1)
    }


def figures_of_rules() -> set[str]:
    """What the rules look at: a comparison that does not hold gives no data, the figure in it does."""
    groups = yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text())["groups"]
    return {figure for group in groups for rule in group["rules"] for figure in METRIC.findall(rule["expr"])}


def test_every_query_of_dashboard_and_rules_gives_data(cluster: EmbeddedCluster, prometheus: Prometheus) -> None:
    queries = {**expressions_of_panels(), **{figure: figure for figure in figures_of_rules()}}
    assert len(queries) > 50

    def without_data() -> list[str]:
        return [title for title, expression in queries.items() if not prometheus.query(expression)]

    deadline = time.monotonic() + PATIENCE_S
    while missing := without_data():
        assert time.monotonic() < deadline, missing
        load(cluster)  # a rate needs two scrapes with something between


def fires(prometheus: Prometheus, *alerts: str) -> None:
    told = until(
        lambda: set(alerts) <= (firing := prometheus.firing()).keys() and firing, f"they do not fire: {alerts}"
    )
    for alert in alerts:
        assert all("{{" not in text and "<error" not in text for text in told[alert].values()), told[alert]


def clear(prometheus: Prometheus, *alerts: str) -> None:
    until(lambda: not set(alerts) & prometheus.firing().keys(), f"they go on: {alerts}")


FAULTS = ("StrandlineBrokerDown", "StrandlineUnderReplicated", "StrandlineUnderMinIsr", "StrandlineOfflinePartitions")


def test_a_killed_broker_is_told_and_its_return_too(cluster: EmbeddedCluster, prometheus: Prometheus) -> None:
    clear(prometheus, *FAULTS)
    cluster.kill_broker(VICTIM)
    fires(prometheus, *FAULTS)
    cluster.start_broker(VICTIM)
    fires(prometheus, "StrandlineBrokerRestarted")
    clear(prometheus, *FAULTS)


def test_a_follower_that_stands_still_is_told(cluster: EmbeddedCluster, prometheus: Prometheus) -> None:
    cluster.pause_broker(VICTIM)
    fires(prometheus, "StrandlineUnderReplicated")
    cluster.resume_broker(VICTIM)
    clear(prometheus, *FAULTS)


def test_a_disk_that_fills_is_told_before_it_is_full(
    cluster: EmbeddedCluster, prometheus: Prometheus, small_disk: SmallDisk
) -> None:
    """Of that disk: the one of the machine may fill, too, while others work there."""
    of_it = f'ALERTS{{alertstate="firing", logDirectory="{small_disk.mount_point}"}}'
    small_disk.fill_but(FREE_BYTES)
    fires(prometheus, "StrandlineDiskNearlyFull", "StrandlineDiskFullInADay")
    until(lambda: len(prometheus.query(of_it)) == 2, "they do not fire for it")
    small_disk.make_room()
    until(lambda: not prometheus.query(of_it), "they go on for it")


def test_no_controller_and_no_zookeeper_are_told(cluster: EmbeddedCluster, prometheus: Prometheus) -> None:
    cluster.stop_zookeeper()
    fires(prometheus, "StrandlineZooKeeperNotConnected", "StrandlineNoController")
    cluster.start_zookeeper()
    clear(prometheus, "StrandlineZooKeeperNotConnected", "StrandlineNoController", *FAULTS)
