"""Audits on real Spark and a real cluster, whose files are damaged under the running brokers and between two starts."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from crc32c import crc32c

from integration.real_time import until
from strandline import Admin, Producer
from strandline.cli.cluster import EmbeddedCluster
from strandline.protocol.records import BatchHeader, scan
from strandline.protocol.records.batch import CRC_START, HEADER_BYTES
from strandline.protocol.types import TopicPartition
from strandline.spark_connector.pipelines.audit import AuditOptions, AuditSummary, audit
from strandline.spark_connector.pipelines.audit_page import audit_page

pytestmark = pytest.mark.spark

ASSIGNMENTS = {0: [1, 2, 3], 1: [1, 2, 3], 2: [2, 1, 3]}
BATCHES = 60
KEYS = 20
CLEANER = {"log.cleaner.backoff.ms": "200", "log.cleaner.min.cleanable.ratio": "0.01"}


@pytest.fixture
def cluster(new_cluster: Callable[..., EmbeddedCluster]) -> EmbeddedCluster:
    """Broker 3 does not compact: its replicas have what those of the others have not any more."""
    made = new_cluster(3, properties=CLEANER)
    made.properties_of[3] = {"log.cleaner.enable": "false"}
    made.start()
    return made


def write(cluster: EmbeddedCluster, topic: str, partition: int, numbers: range) -> None:
    """A batch each."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in numbers:
            producer.send(
                topic, b"%d " % number + b"x" * 100, key=b"%d" % (number % KEYS), partition=partition
            ).result()


def segment(cluster: EmbeddedCluster, broker_id: int, partition: TopicPartition) -> Path:
    return sorted((cluster.log_dir(broker_id) / str(partition)).glob("*.log"))[0]


def change(path: Path, offset: int, changed: Callable[[bytearray, BatchHeader], bytes | bytearray]) -> None:
    """Have something else in the place of the batch that begins at `offset`."""
    data = path.read_bytes()
    [(position, header)] = [(position, header) for position, header in scan(data) if header.base_offset == offset]
    end = position + header.size_bytes
    new = data[:position] + bytes(changed(bytearray(data[position:end]), header)) + data[end:]
    with path.open("r+b") as file:
        file.truncate(len(new))
        file.write(new)


def flip(batch: bytearray, header: BatchHeader) -> bytearray:
    batch[HEADER_BYTES + 20] ^= 4
    return batch


def forge(batch: bytearray, header: BatchHeader) -> bytearray:
    """Other bytes, and the checksum for them."""
    flip(batch, header)
    struct.pack_into(">I", batch, CRC_START - 4, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def in_sync(cluster: EmbeddedCluster, count: int) -> Callable[[], bool]:
    def are() -> bool:
        found = cluster.metadata(["audited", "table"])
        parts = [part for topic in found.topics for part in topic.partitions] if found is not None else []
        return len(parts) == len(ASSIGNMENTS) + 1 and all(len(part.isr_nodes) == count for part in parts)

    return are


def found(summary: AuditSummary) -> list[tuple[str, int, str, int, int]]:
    return [
        (f"{partition.topic}-{partition.partition}", replica.broker_id, each.kind, each.start, each.end)
        for partition in summary.partitions
        for replica in partition.replicas
        for each in replica.findings
    ]


def test_damage_of_every_kind_is_found_and_nothing_else(spark: Any, cluster: EmbeddedCluster) -> None:
    servers = cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic("audited", assignments=ASSIGNMENTS)
        admin.create_topic(
            "table", assignments={0: [1, 2, 3]}, configs={"cleanup.policy": "compact", "segment.bytes": "2000"}
        )
    for partition in ASSIGNMENTS:
        write(cluster, "audited", partition, range(BATCHES))
    write(cluster, "table", 0, range(4 * KEYS))
    table = TopicPartition("table", 0)
    stored = {broker: len(list((cluster.log_dir(broker) / str(table)).glob("*.log"))) for broker in (1, 2, 3)}
    assert stored[3] > 1

    def cleaned() -> bool:
        size = [sum(path.stat().st_size for path in (cluster.log_dir(n) / str(table)).glob("*.log")) for n in (1, 3)]
        return size[0] < size[1]

    trio.run(until, cleaned, "broker 1 has compacted what broker 3 has not")

    # Equal, though replicas of the compacted topic differ, and somebody writes and deletes meanwhile.
    stop = threading.Event()

    def go_on() -> None:
        number = BATCHES
        while not stop.is_set():
            write(cluster, "audited", 2, range(number, number + 5))
            write(cluster, "table", 0, range(number, number + 5))
            number += 5
            with Admin(bootstrap_servers=servers) as admin:
                admin.delete_records({TopicPartition("audited", 2): number - 20})

    writing = threading.Thread(target=go_on)
    writing.start()
    try:
        whole = audit(spark, AuditOptions(servers))
    finally:
        stop.set()
        writing.join()
    assert (found(whole), whole.is_equal, whole.replicas) == ([], True, 12)
    sizes = {each.broker_id: each.records for each in whole.partitions[-1].replicas}
    assert sizes[1] < sizes[3], "compacted on its own"
    for replica in whole.partitions[0].replicas:
        assert (replica.start, replica.end, replica.batches, replica.state) == (0, BATCHES, BATCHES, "equal")

    # While the brokers run: a flipped bit and a forged batch on followers, a flipped bit on a leader.
    change(segment(cluster, 2, TopicPartition("audited", 0)), 10, flip)
    change(segment(cluster, 2, TopicPartition("audited", 0)), 20, forge)
    change(segment(cluster, 1, TopicPartition("audited", 1)), 30, flip)
    # While one is down: a batch is cut out of the middle. Its start takes that for what a compaction left.
    cluster.kill_broker(3)
    change(segment(cluster, 3, TopicPartition("audited", 0)), 40, lambda batch, header: b"")
    with Admin(bootstrap_servers=servers) as admin:
        trio.run(until, in_sync(cluster, 2), "broker 3 is gone")
    down = audit(spark, AuditOptions(servers, {"audited": (2,)}))
    assert (found(down), down.is_equal) == ([("audited-2", 3, "offline", 0, 0)], False)
    cluster.start_broker(3)
    trio.run(until, in_sync(cluster, 3), "broker 3 is back")

    damaged = audit(spark, AuditOptions(servers, pattern="aud.*"))
    assert found(damaged) == [
        ("audited-0", 2, "damaged", 10, 11),
        ("audited-0", 2, "different", 20, 21),
        ("audited-0", 3, "missing", 40, 41),
        ("audited-1", 1, "damaged", 30, 31),
    ]
    assert (damaged.is_equal, damaged.replicas_by_state["different"]) == (False, 3)
    page = audit_page(damaged, cluster=servers)
    assert "missing [40, 41)" in page and "broker 1 (leader)" in page
