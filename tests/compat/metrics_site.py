"""A cluster with topics and a load that give every figure of the dashboard something to tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strandline import Admin, Consumer, Producer
from strandline.cli.cluster import EmbeddedCluster
from support.small_disk import SmallDisk, WrappedDaemon

PATIENCE_S = 40
BROKERS = (1, 2, 3)
VICTIM = 3
VARIABLES = {
    "$job": "strandline",
    "$broker": ".*",
    "$topic": ".*",
    "$__rate_interval": "10s",
    "$__range": "1m",
}
"""What Grafana would put in."""


@contextmanager
def cluster_with_admin_ports(folder: Path, small_disk: SmallDisk | None = None) -> Iterator[EmbeddedCluster]:
    """small_disk: the victim's second log directory lies on it."""
    cluster = EmbeddedCluster(
        folder, len(BROKERS), properties={"replica.lag.time.max.ms": "2000", "offsets.topic.num.partitions": "3"}
    )
    if small_disk is not None:
        cluster.brokers[VICTIM] = daemon = WrappedDaemon(f"broker {VICTIM}", cluster.brokers[VICTIM].log_path)
        daemon.prefix = small_disk.enter
        cluster.properties_of[VICTIM] = {"log.dirs": f"{cluster.log_dir(VICTIM)},{small_disk.mount_point}"}
    with cluster:
        yield cluster


def targets_of(cluster: EmbeddedCluster) -> list[str]:
    return [str(cluster.admin_address(broker_id)) for broker_id in BROKERS]


def as_asked(expression: str) -> str:
    """A query of the dashboard, as Grafana would ask it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def until(condition: Callable[[], Any], what: str) -> Any:
    """What it gives, as soon as that is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
    return found


def make_topics(cluster: EmbeddedCluster) -> None:
    """One as usual; one that needs every replica; one that only the victim has."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topic("clicks", 6, 3)
        admin.create_topic("strict", assignments={0: [1, 2, 3]}, configs={"min.insync.replicas": "3"})
        admin.create_topic("alone", assignments={0: [VICTIM]}, configs={"min.insync.replicas": "1"})


def load(cluster: EmbeddedCluster) -> None:
    """Records, and a group that reads them."""
    servers = cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers, acks="all") as producer:
        for number in range(300):
            producer.send("clicks", b"x" * 500, key=b"%d" % number)
        producer.flush(timeout=20)
    with Consumer(bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["clicks"])
        until(lambda: consumer.poll(timeout_ms=500), "nothing is read")
        consumer.commit()
