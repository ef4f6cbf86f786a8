"""Kafka's replica verification tool and ours on a cluster in which something is wrong: both name it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat.jars import KAFKA_3
from compat.kafka_tools import OF_BOTH, watched
from compat.other_clients import ENVIRONMENT, java
from strandline import Admin, Producer
from strandline.cli.cluster import EmbeddedCluster
from strandline.protocol.messages import ConfigResource

RECORDS = 20
"""In each partition, each in a batch of its own, so that a batch is as long as any other."""
BATCH_BYTES = 500
CRC_AT = 17
"""In a batch: what is behind it is what it is the checksum of."""
DAMAGED, SLOW = 2, 3
"""The broker that has a damaged replica, and the one that lags."""
TOPICS = "headers|values|slow"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """`headers` and `values`: the third batch of one replica is damaged. `slow`: one replica is filled so slowly that
    it stays behind."""
    cluster = EmbeddedCluster(tmp_path_factory.mktemp("cluster"), 3)
    cluster.properties_of[SLOW] = {"replica.fetch.max.bytes": str(2 * BATCH_BYTES)}
    with cluster, Admin(cluster.bootstrap_servers) as admin:
        for topic in ("headers", "values"):
            admin.create_topic(topic, assignments={0: [1, DAMAGED, SLOW]})
        admin.create_topic(
            "slow", assignments={0: [1, 2, SLOW]}, configs={"follower.replication.throttled.replicas": f"0:{SLOW}"}
        )
        admin.alter_configs(ConfigResource.BROKER, "", {"follower.replication.throttled.rate": "1"})
        _produce(cluster, "headers", "values")
        cluster.stop_broker(SLOW)
        _produce(cluster, "slow")
        cluster.start_broker(SLOW)
        _flip(cluster, "headers", CRC_AT)
        _flip(cluster, "values", BATCH_BYTES // 2)
        yield cluster


def _produce(cluster: EmbeddedCluster, *topics: str) -> None:
    with Producer(cluster.bootstrap_servers, acks="all") as producer:
        for topic in topics:
            for _ in range(RECORDS):
                producer.send(topic, b"x" * (BATCH_BYTES - 70)).result(20)  # and 61 bytes of a batch, 9 of a record


def _flip(cluster: EmbeddedCluster, topic: str, at: int) -> None:
    """A bit of the third batch."""
    [segment] = (cluster.log_dir(DAMAGED) / f"{topic}-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    assert len(data) == RECORDS * BATCH_BYTES
    data[2 * BATCH_BYTES + at] ^= 1
    segment.write_bytes(data)


def test_kafkas_tool_and_ours_name_the_damaged_replica_and_the_one_that_lags(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    log4j = tmp_path / "log4j.properties"
    log4j.write_text("log4j.rootLogger=OFF\n")
    name = "kafka-replica-verification"
    command = java(KAFKA_3, f"org.apache.kafka.tools.{OF_BOTH[name]}", "--broker-list", servers, "--time", "-2")
    command.insert(1, f"-Dlog4j.configuration=file:{log4j}")
    command += ["--topics-include", TOPICS, "--report-interval-ms", "100"]
    theirs = watched(command, tmp_path / "theirs.txt", r"max lag is [1-9].*\n")
    ours = _ours(servers)

    assert re.search(r"partition headers-0 has unmatched checksum at offset 2;.* replica 2's checksum", theirs), theirs
    assert "headers-0 on broker 2: damaged [2, 3): its bytes do not have the CRC-32C" in ours
    # It compares the checksums that the batches name, and does not make them anew.
    assert "values-0" not in theirs
    assert "values-0 on broker 2: damaged [2, 3): its bytes do not have the CRC-32C" in ours
    lag = r"max lag is (\d+) for partition slow-0 at offset (\d+)"
    for told, rest in ((theirs, " among 3 partitions"), (ours, " on broker 3 among 3 partitions")):
        found = re.search(lag + rest, told)
        assert found and int(found[1]) + int(found[2]) == RECORDS, told


def _ours(servers: str) -> str:
    command = [sys.executable, "-m", "strandline.cli", "verify-replicas", "--bootstrap", servers]
    done = subprocess.run(
        [*command, "--topics", TOPICS, "--once"], capture_output=True, text=True, timeout=60, env=ENVIRONMENT
    )
    assert done.returncode == 1, done.stderr
    return done.stdout
