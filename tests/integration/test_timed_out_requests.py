"""Requests that time out while a broker stands still (SIGSTOP), on real processes: what is sent again stands once in
the log where the producer is idempotent, and where it is not, `retried` names each record that may stand twice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter

import pytest

from strandline import Admin, Consumer, Producer, TopicPartition
from strandline.cli.cluster import EmbeddedCluster

TIMEOUT_S = 120
STANDS_STILL_S = 4.5
REQUEST_TIMEOUT_MS = 1500
LINES = 3000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("timeouts"), 3) as cluster:
        yield cluster


def created(cluster: EmbeddedCluster, topic: str) -> list[int]:
    """The replicas of its only partition, the leader first."""
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic(topic, 1, 3, {"min.insync.replicas": "2"})
        partition = admin.describe_topics([topic])[topic].partitions[0]
    return sorted(partition.replicas, key=lambda broker_id: broker_id != partition.leader)


@contextmanager
def standing_still(cluster: EmbeddedCluster, broker_id: int) -> Iterator[None]:
    cluster.pause_broker(broker_id)
    resume = threading.Timer(STANDS_STILL_S, cluster.resume_broker, [broker_id])
    resume.start()
    try:
        yield
    finally:
        resume.join()


def standing(cluster: EmbeddedCluster, topic: str) -> list[bytes]:
    """All values, in the order of the log."""
    partition, values = TopicPartition(topic, 0), []
    with Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        end = consumer.end_offsets([partition])[partition]
        consumer.assign([partition])
        while consumer.position(partition) < end:
            for records in consumer.poll(timeout_ms=1000, max_records=LINES).values():
                values += map(attrgetter("value"), records)
    return values


def test_lines_of_produce_stand_once_and_in_order_though_its_requests_time_out(served: EmbeddedCluster) -> None:
    _, follower, _ = created(served, "lines")
    lines = [b"%d" % number for number in range(LINES)]
    command = [sys.executable, "-m", "strandline.cli", "produce", "-t", "lines", "--rate", "1000"]
    with standing_still(served, follower):
        ran = subprocess.run(
            [*command, "-X", f"request.timeout.ms={REQUEST_TIMEOUT_MS}"],
            input=b"\n".join(lines) + b"\n",
            capture_output=True,
            timeout=TIMEOUT_S,
            env={**os.environ, "STRANDLINE_BOOTSTRAP": served.bootstrap_servers},
        )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.startswith(b"3000 records"), ran.stderr
    assert standing(served, "lines") == lines


@pytest.mark.parametrize(("acks", "role"), [("all", "follower"), ("1", "leader")])
def test_without_idempotence_each_record_that_stands_twice_is_told_as_retried(
    served: EmbeddedCluster, acks: str, role: str
) -> None:
    topic = f"retried-{acks}"
    leader, follower, _ = created(served, topic)
    settings = {"acks": acks, "enable_idempotence": "false", "request_timeout_ms": REQUEST_TIMEOUT_MS, "linger_ms": 0}
    with Producer(served.bootstrap_servers, **settings) as producer:
        producer.send(topic, b"first").result(TIMEOUT_S)
        with standing_still(served, {"leader": leader, "follower": follower}[role]):
            futures = {b"%d" % number: producer.send(topic, b"%d" % number) for number in range(100)}
            retried = {value for value, future in futures.items() if future.result(TIMEOUT_S).retried}
    stand = Counter(standing(served, topic))
    assert stand.keys() == {b"first", *futures}
    twice = {value for value, times in stand.items() if times > 1}
    assert twice <= retried and retried, (twice, retried)
