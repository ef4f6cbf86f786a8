"""DeleteRecords on real processes: what was answered as deleted stays so on every replica, whoever is killed, and when.

A log's start on the disk is what the start that follows would make of the folder of a dead broker; the loading runs
over an overlay, so nothing is changed by it. A kill keeps the page cache: what fsync adds is shown on the in-memory
disk (tests/scenarios/test_log_heads.py).
"""

from __future__ import annotations

import random
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from integration.real_time import off_loop, until
from strandline.cli.cluster import EmbeddedCluster
from strandline.client import TrioAdmin, TrioConsumer, TrioProducer
from strandline.protocol.types import TopicPartition
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.disk.checkpoints import HIGH_WATERMARKS, read_offsets
from strandline.storage.inspection.overlay_disk import OverlayDisk
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.inspection import Ledger, read_all
from support.storage_site import FixedClock, SmallLogConfig

TOPIC = "t"
BROKERS = (1, 2, 3)
ASSIGNMENTS = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2], 3: [1, 3, 2]}
RECORDS = 120
BATCH = 10
CONFIGS = {"min.insync.replicas": "2", "segment.bytes": "4000"}
WANTED = {0: 73, 1: 50, 2: -1}
"""Within a batch, at the start of one, all; partition 3 keeps everything."""
LOG_STARTS = {0: 73, 1: 50, 2: RECORDS, 3: 0}

NOTHING_PERIODIC = {
    "log.flush.start.offset.checkpoint.interval.ms": str(2**31 - 1),
    "log.flush.offset.checkpoint.interval.ms": str(2**31 - 1),
    "replica.high.watermark.checkpoint.interval.ms": "60000",
}
RETENTION = {"log.retention.check.interval.ms": "200", "log.segment.delete.delay.ms": "0"}
CHECKPOINTS = {
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.flush.scheduler.interval.ms": "200",
}
"""What a broker does within some minutes, so often that nobody has to wait for it."""


def log_starts_on_disk(broker_id: int, data_dir: str) -> dict[TopicPartition, int]:
    """Where the logs of a dead broker begin: it is loaded as by a start, over a disk that keeps what is below as it is.
    Blocking."""
    manager = LogManager(
        OverlayDisk(PosixDisk()),
        [data_dir],
        broker_id=broker_id,
        topic_config_for=lambda topic: SmallLogConfig(),
        wall_clock=FixedClock(),
        random=random.Random(1),
    )
    manager.load()
    try:
        assert not manager.refused
        return {tp: log.log_start_offset for tp, log in manager.logs.items()}
    finally:
        manager.close(clean=False)


def in_sync(cluster: EmbeddedCluster) -> list[list[int]]:
    found = cluster.metadata([TOPIC])
    states = found.topics[0].partitions if found is not None and found.topics else []
    return [sorted(state.isr_nodes) if state.leader_id >= 0 else [] for state in states]


async def until_in_sync(cluster: EmbeddedCluster, brokers: Sequence[int]) -> None:
    await until(lambda: in_sync(cluster) == [list(brokers)] * len(ASSIGNMENTS), f"{brokers} in sync")


@asynccontextmanager
async def written(cluster: EmbeddedCluster) -> AsyncIterator[Ledger]:
    """The topic with its records, over several segments; in the end those that were not deleted are all there."""
    await off_loop(cluster.start)
    ledger = Ledger()
    async with TrioAdmin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(TOPIC, assignments=ASSIGNMENTS, configs=CONFIGS)
    async with TrioProducer(cluster.bootstrap_servers, acks="all", linger_ms=100) as producer:
        for number in range(0, RECORDS, BATCH):
            for tp in map(partial(TopicPartition, TOPIC), ASSIGNMENTS):
                values = [b"%d:%d:%s" % (tp.partition, number + place, bytes(100)) for place in range(BATCH)]
                await ledger.produce(producer, tp, values)
    await until_in_sync(cluster, BROKERS)
    for broker_id in BROKERS:
        assert all(len(segments(cluster, broker_id, partition)) > 2 for partition in ASSIGNMENTS)
    yield ledger
    async with TrioConsumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        for tp, acked in ledger.acked.items():
            assert len(acked) == RECORDS, "each was acknowledged"
            kept = {offset: value for offset, value in acked.items() if offset >= LOG_STARTS[tp.partition]}
            assert (await read_all(consumer, tp) if kept else {}) == kept
        starts = await consumer.beginning_offsets(list(ledger.acked))
        assert {tp.partition: start for tp, start in starts.items()} == LOG_STARTS, "as leaders tell"


async def delete(cluster: EmbeddedCluster) -> None:
    async with TrioAdmin(cluster.bootstrap_servers) as admin:
        answered = await admin.delete_records(
            {TopicPartition(TOPIC, partition): offset for partition, offset in WANTED.items()}
        )
    assert {tp.partition: offset for tp, offset in answered.items()} == {key: LOG_STARTS[key] for key in WANTED}


async def kill(cluster: EmbeddedCluster, *brokers: int) -> None:
    """SIGKILL, all of them before anyone notices."""
    for broker_id in brokers:
        cluster.brokers[broker_id].signal(signal.SIGKILL)
    for broker_id in brokers:
        await off_loop(cluster.kill_broker, broker_id)


async def start(cluster: EmbeddedCluster, *brokers: int) -> None:
    for broker_id in brokers:
        await off_loop(cluster.start_broker, broker_id, wait=False)
    await off_loop(cluster.wait_ready)
    await until_in_sync(cluster, BROKERS)


def assert_on_disk(cluster: EmbeddedCluster, *brokers: int) -> None:
    """Of brokers that are dead."""
    found = {each: log_starts_on_disk(each, str(cluster.log_dir(each))) for each in brokers}
    expected = {TopicPartition(TOPIC, key): start for key, start in LOG_STARTS.items()}
    assert found == dict.fromkeys(brokers, expected)


def segments(cluster: EmbeddedCluster, broker_id: int, partition: int) -> list[Path]:
    return sorted((cluster.log_dir(broker_id) / f"{TOPIC}-{partition}").glob("*.log"))


def head_is_gone(cluster: EmbeddedCluster, broker_id: int) -> bool:
    """Every segment that ends below the log start."""
    seconds = {partition: segments(cluster, broker_id, partition)[1:2] for partition in WANTED}
    return all(int(path.stem) > LOG_STARTS[partition] for partition, paths in seconds.items() for path in paths)


def are_checkpointed(cluster: EmbeddedCluster) -> bool:
    """All that was committed, on every broker."""
    everywhere = {TopicPartition(TOPIC, partition): RECORDS for partition in ASSIGNMENTS}
    paths = [cluster.log_dir(broker_id) / HIGH_WATERMARKS for broker_id in BROKERS]
    return all(read_offsets(PosixDisk(), str(path)) == everywhere for path in paths)


@pytest.mark.parametrize(
    "properties",
    [NOTHING_PERIODIC, {**NOTHING_PERIODIC, **RETENTION}, {**RETENTION, **CHECKPOINTS}],
    ids=["at once", "after retention", "after retention and checkpoints"],
)
async def test_what_was_answered_as_deleted_stays_deleted_when_all_are_killed(
    new_cluster: Callable[..., EmbeddedCluster], properties: dict[str, str]
) -> None:
    cluster = new_cluster(3, properties=properties)
    async with written(cluster):
        await delete(cluster)
        if properties is not NOTHING_PERIODIC:
            await until(lambda: all(head_is_gone(cluster, broker_id) for broker_id in BROKERS), "retention")
        if CHECKPOINTS.items() <= properties.items():
            await until(lambda: are_checkpointed(cluster), "checkpoints")
        for _ in range(2):
            await kill(cluster, *BROKERS)
            assert_on_disk(cluster, *BROKERS)
            await start(cluster, *BROKERS)


@pytest.mark.parametrize("order", [(3, 1, 2), (1, 2, 3)], ids=["returns first", "returns last"])
async def test_who_was_away_when_it_was_answered_begins_there_too(
    new_cluster: Callable[..., EmbeddedCluster], order: Sequence[int]
) -> None:
    """Nobody waited for it: it was out of the in-sync set. The others are killed right after the answer."""
    cluster = new_cluster(3, properties=NOTHING_PERIODIC)
    async with written(cluster):
        await kill(cluster, 3)
        await until_in_sync(cluster, [1, 2])
        await delete(cluster)
        await kill(cluster, 1, 2)
        assert_on_disk(cluster, 1, 2)
        assert set(log_starts_on_disk(3, str(cluster.log_dir(3))).values()) == {0}
        await start(cluster, *order)
        await kill(cluster, *BROKERS)
        assert_on_disk(cluster, *BROKERS)
        await start(cluster, *BROKERS)
