"""Compaction on real processes: a compacted topic under load, brokers killed while their workers clean."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import trio

from integration.real_time import off_loop, until
from strandline.cli.cluster import EmbeddedCluster
from strandline.client import TrioAdmin, TrioConsumer, TrioProducer
from strandline.protocol.records import decode_records
from strandline.protocol.types import TopicPartition

TP = TopicPartition("accounts", 0)
KEYS = 200
SMALL_BYTES = 400_000
CONFIG = {
    "log.cleanup.policy": "compact",
    "log.segment.bytes": "100000",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.2",
    "log.segment.delete.delay.ms": "1000",
}


async def produce(cluster: EmbeddedCluster, rounds: range, newest: dict[bytes, bytes]) -> None:
    """Each round writes every third key; some rounds compressed."""
    for codec in ("none", "lz4"):
        async with TrioProducer(cluster.bootstrap_servers, compression_type=codec) as producer:
            for number in rounds:
                for key in range(number % 3, KEYS, 3):
                    value = b"%d/%s/" % (number, codec.encode()) + b"x" * 200
                    await producer.send(TP.topic, value, key=b"key-%d" % key, partition=0)
                    newest[b"key-%d" % key] = value
                await producer.flush()


async def consume(cluster: EmbeddedCluster) -> dict[bytes, bytes]:
    seen: dict[bytes, bytes] = {}
    async with TrioConsumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        await consumer.assign([TP])
        end = (await consumer.end_offsets([TP]))[TP]
        while await consumer.position(TP) < end:
            for records in (await consumer.poll(timeout_ms=1000)).values():
                seen |= {record.key: record.value for record in records}
    return seen


def on_disk(cluster: EmbeddedCluster, broker_id: int) -> bytes:
    """One state of the log: read anew while the cleaner swaps segments under the reader."""
    folder: Path = cluster.log_dir(broker_id) / str(TP)
    while True:
        with suppress(FileNotFoundError):
            before = segments(folder)
            data = b"".join(path.read_bytes() for path, _ in before)
            if segments(folder) == before:
                return data


def segments(folder: Path) -> list[tuple[Path, int]]:
    """(path, inode): a cleaned segment takes the name of the first that it replaces."""
    return [(path, path.stat().st_ino) for path in sorted(folder.glob("*.log"))]


def is_clean(cluster: EmbeddedCluster, broker_id: int, newest: dict[bytes, bytes]) -> bool:
    """Is the log small, and does it hold the newest of each key?"""
    data = on_disk(cluster, broker_id)
    return len(data) < SMALL_BYTES and newest == {
        record.key: record.value for record in decode_records(memoryview(data))
    }


def is_whole(cluster: EmbeddedCluster) -> bool:
    found = cluster.metadata([TP.topic])
    return bool(found and found.topics) and all(len(each.isr_nodes) == 3 for each in found.topics[0].partitions)


def cleanings(cluster: EmbeddedCluster, broker_id: int) -> int:
    return cluster.brokers[broker_id].log_path.read_text().count("log cleaned")


async def test_a_compacted_topic_under_load_keeps_the_newest_of_each_key_on_every_replica(new_cluster: Any) -> None:
    cluster: EmbeddedCluster = new_cluster(3, properties=CONFIG)
    await off_loop(cluster.start)
    async with TrioAdmin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(TP.topic, 1, 3)
    newest: dict[bytes, bytes] = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce, cluster, range(40), newest)
        await until(lambda: cleanings(cluster, 2) > 0, "a first cleaning")
        await off_loop(cluster.kill_broker, 2)
        await off_loop(cluster.start_broker, 2)
    # A follower that is still catching up has a small log, too.
    await until(lambda: is_whole(cluster), "all replicas in sync")
    for broker_id in (1, 2, 3):
        await until(partial(is_clean, cluster, broker_id, newest), f"a small log with every key on broker {broker_id}")
    assert await consume(cluster) == newest
    assert "Traceback" not in "".join(broker.log_path.read_text() for broker in cluster.brokers.values())
