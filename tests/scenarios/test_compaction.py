"""Compaction on whole brokers: under load, with faults, on leaders and followers alike."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

from scenarios.test_figures import figures
from strandline.protocol.types import TopicPartition
from strandline.runtime.environment import NO_WORKER, ComputingFailed
from strandline.storage.cleaning import jobs
from strandline.storage.disk.checkpoints import COMPACTED_OFFSETS, read_offsets
from strandline.testkit.cluster import LOG_DIR, MemoryCluster
from strandline.testkit.environment import InlineSession
from support.cleaning import batches, records_of

T0 = TopicPartition("t", 0)
CONFIG = {
    "log.cleanup.policy": "compact",
    "log.segment.bytes": "2000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.min.cleanable.ratio": "0.3",
    "num.partitions": "1",
}


async def produce(cluster: MemoryCluster, topic: str, count: int, keys: int, start: int = 0) -> dict[bytes, bytes]:
    """Rounds over the keys; returns the newest value of each."""
    newest: dict[bytes, bytes] = {}
    async with cluster.producer() as producer:
        for number in range(start, start + count):
            key, value = b"k%d" % (number % keys), b"v%d" % number
            await producer.send(topic, value, key=key, partition=0)
            newest[key] = value
            if number % 4 == 3:
                await producer.flush()
        await producer.flush()
    return newest


async def consume(cluster: MemoryCluster, tp: TopicPartition, end: int) -> dict[bytes, bytes]:
    seen: dict[bytes, bytes] = {}
    async with cluster.consumer() as consumer:
        await consumer.assign([tp])
        consumer.seek(tp, 0)
        while await consumer.position(tp) < end:
            for records in (await consumer.poll(timeout_ms=1000)).values():
                seen |= {record.key: record.value for record in records}
    return seen


def cleaned(cluster: MemoryCluster) -> list[str]:
    return [line for line in cluster.history if "log cleaned" in line]


async def test_replicas_are_compacted_each_for_itself_and_a_consumer_sees_the_newest_of_each_key(
    autojump_clock: Any,
) -> None:
    async with MemoryCluster(brokers=3, config=CONFIG).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", 1, 3)
        newest = await produce(cluster, "t", 400, 7)
        await cluster.until(lambda: len(cleaned(cluster)) >= 3, "all replicas cleaned")
        await trio.sleep(5)
        newest |= await produce(cluster, "t", 100, 5, start=400)
        await trio.sleep(5)
        for broker_id in cluster.nodes:
            log = cluster.partition(broker_id, T0).log
            assert log.log_end_offset == 500 and len(records_of(batches(log))) < 100
            assert {record.key: record.value for record in records_of(batches(log))} == newest
            disk = cluster.nodes[broker_id].disk
            checkpointed = read_offsets(disk, f"{LOG_DIR}/{COMPACTED_OFFSETS}")[T0]
            assert 0 < checkpointed <= log.segments.active.base_offset
        assert await consume(cluster, T0, 500) == newest


async def test_a_follower_that_was_away_copies_a_compacted_log_and_may_lead(autojump_clock: Any) -> None:
    async with MemoryCluster(brokers=2, config=CONFIG).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", 1, 2)
        newest = await produce(cluster, "t", 30, 7)
        follower = next(broker_id for broker_id in cluster.nodes if broker_id != cluster.leader(T0))
        cluster.crash(follower)
        newest |= await produce(cluster, "t", 300, 7, start=30)
        await cluster.until(lambda: bool(cleaned(cluster)), "the leader cleaned")
        await cluster.start_broker(follower)
        await cluster.until(lambda: len(cluster.isr(T0)) == 2, "back in the ISR")
        cluster.crash(cluster.leader(T0))
        await cluster.until(lambda: cluster.leader(T0) == follower, "it leads")
        newest |= await produce(cluster, "t", 5, 7, start=330)
        assert await consume(cluster, T0, 335) == newest


async def test_what_a_killed_broker_had_sealed_is_compacted_though_nothing_is_written_any_more(
    autojump_clock: Any,
) -> None:
    config = {**CONFIG, "log.cleaner.backoff.ms": "3000"}
    async with MemoryCluster(brokers=1, config=config).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", 1, 1)
        newest = await produce(cluster, "t", 300, 7)
        cluster.crash(1)
        assert not cleaned(cluster)
        await cluster.start_broker(1)
        await cluster.until(lambda: bool(cleaned(cluster)), "cleaned")
        assert await consume(cluster, T0, 300) == newest


@pytest.mark.parametrize("position", [70, 8])
async def test_a_log_that_cannot_be_read_is_reported_once_and_the_others_are_cleaned(
    position: int, autojump_clock: Any
) -> None:
    config = {**CONFIG, "log.cleaner.backoff.ms": "60000"}
    async with MemoryCluster(brokers=1, config=config).running() as cluster:
        async with cluster.admin() as admin:
            for topic in ("t", "u"):
                await admin.create_topic(topic, 1, 1)
        await produce(cluster, "t", 300, 7)
        await produce(cluster, "u", 300, 7)
        segment = list(cluster.partition(1, T0).log.segments)[2]
        cluster.nodes[1].disk.open(segment.path + ".log").pwritev([b"\x7f"], position)
        await trio.sleep(300)
        assert len([line for line in cluster.history if "cannot be compacted" in line]) == 1
        assert any('"u-0"' in line for line in cleaned(cluster))
        assert cluster.partition(1, T0).log.failure is None
        found = figures(cluster, 1)
        assert found["kafka_log_logcleanermanager_uncleanable_partitions_count /data"] == 1
        rest = [
            each.size_bytes for each in cluster.partition(1, T0).log.segments if each.base_offset >= segment.base_offset
        ]
        assert found["kafka_log_logcleanermanager_uncleanable_bytes /data"] == sum(rest[:-1]) > 0, "but the active one"
        assert cluster.partition(1, T0).log.segments.holding(segment.base_offset).base_offset == segment.base_offset


async def test_while_no_worker_can_be_started_nothing_is_cleaned_and_no_disk_is_to_blame(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_worker(*_: object) -> None:
        raise ComputingFailed("job", NO_WORKER, "Resource temporarily unavailable")

    async with MemoryCluster(brokers=1, config=CONFIG).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", 1, 1)
        with monkeypatch.context() as patch:
            patch.setattr(InlineSession, "run", no_worker)
            await produce(cluster, "t", 300, 7)
            await trio.sleep(60)
        assert cluster.partition(1, T0).log.failure is None and not cleaned(cluster)
        await cluster.until(lambda: bool(cleaned(cluster)), "cleaned once there are workers again")


async def test_cleaners_keep_to_their_byte_rate(autojump_clock: Any) -> None:
    config = {**CONFIG, "log.cleaner.io.max.bytes.per.second": "1000"}
    async with MemoryCluster(brokers=1, config=config).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("t", 1, 1)
        await produce(cluster, "t", 300, 7)
        before = trio.current_time()
        size = cluster.partition(1, T0).log.size_bytes
        await cluster.until(lambda: bool(cleaned(cluster)), "cleaned", within_s=600)
        assert trio.current_time() - before > size / 1000


TWO_DIRS = {**CONFIG, "log.dirs": f"{LOG_DIR},/more"}


def files(cluster: MemoryCluster, folder: str) -> dict[str, bytes]:
    disk = cluster.nodes[1].disk
    return {name: disk.read(f"{folder}/{name}") for name in disk.listdir(folder) if name.endswith(".log")}


async def two_topics(cluster: MemoryCluster, count: int = 300) -> str:
    """t and u, each in a directory of its own, not cleaned yet. Returns the folder of t."""
    async with cluster.admin() as admin:
        for topic in ("t", "u"):
            await admin.create_topic(topic, 1, 1)
    for topic in ("t", "u"):
        await produce(cluster, topic, count, 7)
    t, u = (cluster.partition(1, TopicPartition(topic, 0)).log.segments.folder for topic in ("t", "u"))
    assert t.rpartition("/")[0] != u.rpartition("/")[0] and not cleaned(cluster)
    return t


@pytest.mark.parametrize("operation", ["open", "pwritev", "fsync"])
async def test_a_disk_that_fails_under_a_cleaning_takes_its_directory_offline_and_touches_no_segment(
    operation: str, autojump_clock: Any
) -> None:
    async with MemoryCluster(brokers=1, config={**TWO_DIRS, "log.cleaner.backoff.ms": "60000"}).running() as cluster:
        folder = await two_topics(cluster)
        before = files(cluster, folder)
        cluster.nodes[1].disk.fail(operation, f"{folder}/*.cleaned", errno.EIO)
        await cluster.until(lambda: bool(cleaned(cluster)), "the other directory is cleaned", within_s=600)
        await trio.sleep(120)
        assert cluster.partition(1, T0).failed and cluster.partition(1, T0).log.failure is not None
        assert files(cluster, folder) == before
        assert cluster.partition(1, TopicPartition("u", 0)).log.failure is None
        assert not [line for line in cleaned(cluster) if '"t-0"' in line]


@pytest.mark.parametrize("operation", ["open", "pwritev", "fsync"])
async def test_a_full_disk_ends_a_cleaning_and_nothing_else(operation: str, autojump_clock: Any) -> None:
    async with MemoryCluster(brokers=1, config={**TWO_DIRS, "log.cleaner.backoff.ms": "60000"}).running() as cluster:
        folder = await two_topics(cluster)
        before, disk = files(cluster, folder), cluster.nodes[1].disk
        fault = disk.fail(operation, f"{folder}/*.cleaned", errno.ENOSPC)
        await cluster.until(lambda: bool(cleaned(cluster)), "the other directory is cleaned", within_s=600)
        await trio.sleep(1000)
        assert len([line for line in cluster.history if "no space to compact" in line]) in (3, 4)
        assert files(cluster, folder) == before
        assert not [name for name in disk.listdir(folder) if name.endswith(".cleaned")]
        assert cluster.partition(1, T0).log.failure is None
        newest = await produce(cluster, "t", 100, 7, start=300)
        fault.cancel()
        await cluster.until(lambda: any('"t-0"' in line for line in cleaned(cluster)), "cleaned at last", within_s=900)
        assert await consume(cluster, T0, 400) == newest


async def test_a_cleaning_that_lacks_a_descriptor_at_its_end_is_tried_again_after_a_pause(autojump_clock: Any) -> None:
    async with MemoryCluster(brokers=1, config={**TWO_DIRS, "log.cleaner.backoff.ms": "60000"}).running() as cluster:
        folder = await two_topics(cluster)
        await trio.sleep(30)  # what was begun is flushed
        fault = cluster.nodes[1].disk.fail("fsync_dir", folder, errno.EMFILE, times=3)
        await trio.sleep(2 * 60)
        assert 0 < fault.hits < 3, "there is a pause"
        await cluster.until(lambda: any('"t-0"' in line for line in cleaned(cluster)), "cleaned", within_s=600)
        assert fault.hits == 3
        assert cluster.partition(1, T0).log.failure is None


async def test_a_wall_clock_that_jumps_ahead_takes_no_young_tombstone(autojump_clock: Any) -> None:
    config = {**CONFIG, "log.cleaner.min.cleanable.ratio": "0.1"}
    async with MemoryCluster(brokers=1, config=config).running() as cluster:
        clock: Any = cluster.nodes[1].broker.environment.wall_clock
        async with cluster.admin() as admin:
            await admin.create_topic("t", 1, 1)

        async def fill() -> None:
            async with cluster.producer() as producer:
                for number in range(80):
                    await producer.send("t", b"v" * 60, key=b"k%d" % (number % 9), partition=0, timestamp_ms=right_ms)
                    await producer.flush()

        def tombstones() -> int:
            return sum(record.key == b"gone" for record in records_of(batches(cluster.partition(1, T0).log)))

        right_ms = clock.now_ms()
        async with cluster.producer() as producer:
            await producer.send("t", None, key=b"gone", partition=0)
        await fill()
        await cluster.until(lambda: bool(cleaned(cluster)), "cleaned once")
        clock.skew_ms = 10 * 365 * 86_400_000
        await trio.sleep(5)
        told = [line for line in cluster.history if "compaction is suspended" in line]
        before = len(cleaned(cluster))
        await fill()
        await trio.sleep(60)
        assert len(told) == 1 and len(cleaned(cluster)) == before and tombstones() == 1
        clock.skew_ms = 0
        await cluster.until(lambda: len(cleaned(cluster)) > before, "cleaned by the right clock")
        await trio.sleep(10)
        assert tombstones() == 1


async def test_a_topic_that_is_created_anew_while_it_is_cleaned_is_not_to_blame_for_what_the_worker_met(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MemoryCluster(brokers=1, config=CONFIG).running() as cluster, cluster.admin() as admin:
        await admin.create_topic("t", 1, 1)
        run, old = InlineSession.run, cluster.partition(1, T0)
        recreated = False

        async def recreate_meanwhile(session: InlineSession, job: Any, *arguments: object) -> Any:
            nonlocal recreated
            if job is not jobs.advance or recreated:
                return await run(session, job, *arguments)
            recreated = True
            await admin.delete_topic("t")
            await cluster.until(lambda: T0 not in cluster.nodes[1].broker.data.replicas.partitions, "deleted")
            await admin.create_topic("t", 1, 1)
            await cluster.until(lambda: cluster.partition(1, T0) is not old, "created anew")
            done = {
                "end_offset": 5,
                "records_read": 5,
                "records_kept": 5,
                "unreadable_offset": 5,
                "why": "cut short",
                "map_used": 0.1,
            }
            return {"bytes_read": 0, "bytes_written": 0, "result": None, "done": done}

        monkeypatch.setattr(InlineSession, "run", recreate_meanwhile)
        await produce(cluster, "t", 300, 7)
        await cluster.until(lambda: any("cleaning given up" in line for line in cluster.history), "given up")
        assert not [line for line in cluster.history if "cannot be compacted" in line]
        newest = await produce(cluster, "t", 300, 7)
        await cluster.until(lambda: bool(cleaned(cluster)), "the new one is cleaned")
        assert await consume(cluster, T0, 300) == newest
