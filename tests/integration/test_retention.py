"""Retention and DeleteRecords on real processes: the disk gets smaller again, readers of what is gone are reset."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from strandline import Admin, Consumer, Producer
from strandline.cli.cluster import EmbeddedCluster
from strandline.protocol.types import TopicPartition

TP = TopicPartition("t", 0)
SEGMENT_BYTES = 100_000
RETENTION_BYTES = 500_000
PROPERTIES = {
    "log.retention.check.interval.ms": "500",
    "log.segment.bytes": str(SEGMENT_BYTES),
    "log.retention.bytes": str(RETENTION_BYTES),
    "log.segment.delete.delay.ms": "500",
}
DEADLINE_S = 90


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.1)


def record_bytes(folder: Path) -> int:
    """What the segments of a partition take on disk, those included that are put aside and not yet removed."""
    total = 0
    for path in folder.glob("*.log*"):
        with suppress(FileNotFoundError):  # renamed or removed since it was listed: that is what is waited for
            total += path.stat().st_size
    return total


def offset_read_from_zero(consumer: Consumer) -> int:
    """Where a reader is put who wants what is gone."""
    consumer.seek(TP, 0)
    deadline = time.monotonic() + DEADLINE_S
    while not (records := consumer.poll(timeout_ms=1000).get(TP)):
        assert time.monotonic() < deadline, "nothing came"
    return records[0].offset


def test_the_disk_stays_within_its_bounds_under_load(new_cluster: Callable[..., EmbeddedCluster]) -> None:
    cluster = new_cluster(3, properties=PROPERTIES)
    cluster.start()
    with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers, acks="all") as producer:
        admin.create_topic("t", 1, 3)
        count = 5_000
        for _ in range(count):
            producer.send("t", b"v" * 1000)
        producer.flush()

        def on_disk() -> list[int]:
            return [record_bytes(cluster.log_dir(broker_id) / str(TP)) for broker_id in cluster.broker_ids]

        # A segment goes once what remains is still within the bound: nothing full is due below one segment above it.
        until(lambda: max(on_disk()) < RETENTION_BYTES + SEGMENT_BYTES)
        assert min(on_disk()) >= RETENTION_BYTES
        with Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TP])
            begin = consumer.beginning_offsets([TP])[TP]
            while True:
                assert 0 < begin < count
                first_offset = offset_read_from_zero(consumer)
                before, begin = begin, consumer.beginning_offsets([TP])[TP]
                if before == begin:  # else a segment that is not full was still due, and went meanwhile
                    break
            assert first_offset == begin
        assert admin.delete_records({TP: -1}) == {TP: count}
        until(lambda: max(on_disk()) < SEGMENT_BYTES)
        assert producer.send("t", b"after").result().offset == count
