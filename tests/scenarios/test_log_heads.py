"""The head of a log on whole brokers: DeleteRecords past a follower that is away, retention on every replica."""

from __future__ import annotations

import errno

import pytest
import trio

from strandline.broker.replication import follower, follower_fetch
from strandline.client.errors import ClientError, OffsetOutOfRange
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import read_all
from support.scenario import LAG_TIME_MAX_S, T0, cluster_with_topic, numbered


async def produce_batches(cluster: MemoryCluster, batches: int, per_batch: int, prefix: str = "m") -> None:
    """Batches of so many records each, acknowledged by all in sync."""
    async with cluster.producer(linger_ms=100) as producer:
        for number in range(batches):
            pairs = [(None, value) for value in numbered(f"{prefix}{number}", per_batch)]
            delivery = await producer.send_many(T0.topic, pairs)
            await delivery


async def delete_before(cluster: MemoryCluster, offset: int) -> None:
    async with cluster.admin() as admin:
        assert await admin.delete_records({T0: offset}) == {T0: offset}


def heads(cluster: MemoryCluster, *brokers: int) -> list[int]:
    return [cluster.partition(broker, T0).log.log_start_offset for broker in brokers]


def is_whole(cluster: MemoryCluster) -> bool:
    return cluster.isr(T0) == [1, 2, 3] and all(cluster.hosts(broker, T0) for broker in (1, 2, 3))


async def test_followers_that_keep_up_are_told_at_once(autojump_clock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, _, _):
        await produce_batches(cluster, 2, 10)
        started = trio.current_time()
        await delete_before(cluster, 13)
        assert trio.current_time() - started < 2.0, "not the wait of a parked fetch for each step"
        assert heads(cluster, 1, 2, 3) == [13, 13, 13]


@pytest.mark.parametrize("end", ["kill", "power-loss"])
@pytest.mark.parametrize("wait_s", [0, 50, 70], ids=["at-once", "before-the-periodic-checkpoint", "after-it"])
@pytest.mark.parametrize("offset", [13, 33, 40, -1], ids=["in-a-batch", "in-a-segment", "at-a-segment", "all"])
async def test_what_was_answered_as_deleted_stays_deleted_when_all_brokers_end(
    offset: int, wait_s: int, end: str, autojump_clock
) -> None:
    """The log start stood in memory only until the periodic checkpoint, which comes once a minute
    (`log.flush.start.offset.checkpoint.interval.ms`): a kill of all within it, be it after 50 s, brought every replica
    back to an older checkpoint or to its own first segment, and those begin differently on each. Where whole segments
    had been taken off by then, the checkpoint forgot the log again, and only renames that no fsync had made durable
    stood for it."""
    properties = {"log.retention.check.interval.ms": "10000"}
    configs = {"segment.bytes": "400", "file.delete.delay.ms": "100000"}
    async with cluster_with_topic([1, 2, 3], configs=configs, properties=properties) as (cluster, _, _):
        await produce_batches(cluster, 5, 10)
        async with cluster.admin() as admin:
            deleted = (await admin.delete_records({T0: offset}))[T0]
        assert deleted == (50 if offset == -1 else offset)
        assert 40 in {segment.base_offset for segment in cluster.logs(T0)[1].segments}
        await trio.sleep(wait_s)
        for broker in (1, 2, 3):
            cluster.crash(broker) if end == "kill" else cluster.lose_power(broker)
        for broker in (1, 2, 3):
            await cluster.start_broker(broker)
        await cluster.until(lambda: is_whole(cluster), "every replica is back")
        assert heads(cluster, 1, 2, 3) == [deleted] * 3


@pytest.mark.parametrize("end", ["kill", "orderly"])
@pytest.mark.parametrize("starts", [1, 2], ids=["", "killed in between"])
async def test_a_log_that_was_moved_to_another_log_directory_begins_where_it_did(
    starts: int, end: str, autojump_clock
) -> None:
    """By an operator, while its broker was down. It leads with nobody to tell it where the log begins."""
    two = {"log.dirs": "/data,/more"}
    async with cluster_with_topic([1], brokers=1, min_insync_replicas=1, properties=two) as (cluster, _, _):
        await produce_batches(cluster, 2, 10)
        await delete_before(cluster, 13)
        if end == "kill":
            cluster.crash(1)
        else:
            await cluster.stop(1)
        disk = cluster.nodes[1].disk
        there, elsewhere = ("/data", "/more") if disk.exists("/data/t-0") else ("/more", "/data")
        disk.rename(f"{there}/t-0", f"{elsewhere}/t-0")
        for start in range(starts):
            if start:
                cluster.crash(1)
            await cluster.start_broker(1)
            await cluster.until(lambda: cluster.leads(1, T0), "it leads")
        assert cluster.partition(1, T0).log.segments.folder == f"{elsewhere}/t-0"
        assert heads(cluster, 1) == [13]
        async with cluster.consumer() as consumer:
            assert sorted(await read_all(consumer, T0)) == list(range(13, 20))


@pytest.mark.parametrize("broker", [1, 2], ids=["leader", "follower"])
async def test_nothing_is_answered_while_one_disk_does_not_have_it(broker: int, autojump_clock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, _, _):
        await produce_batches(cluster, 2, 10)
        fault = cluster.nodes[broker].disk.fail("open", "/data/log-start-offset-checkpoint*", errno.EMFILE)
        async with cluster.admin() as admin:
            answer = (await admin.delete_records({T0: 13}, timeout_ms=3_000))[T0]
            assert isinstance(answer, ClientError), "not in time"
            assert heads(cluster, 1, 2, 3) == [13] * 3, "in memory, where it is of no worth"
            fault.cancel()
            assert await admin.delete_records({T0: 13}, timeout_ms=3_000) == {T0: 13}
        for killed in (1, 2, 3):
            cluster.crash(killed)
        for killed in (1, 2, 3):
            await cluster.start_broker(killed)
        await cluster.until(lambda: is_whole(cluster), "every replica is back")
        assert heads(cluster, 1, 2, 3) == [13] * 3


async def test_while_a_disk_does_not_take_a_deletion_nobody_fetches_more_often(
    autojump_clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches: list[int] = []
    build = follower_fetch.build_fetch
    monkeypatch.setattr(follower, "build_fetch", lambda *facts: fetches.append(facts[2]) or build(*facts))
    async with cluster_with_topic([1, 2, 3]) as (cluster, _, _), cluster.admin() as admin:
        await produce_batches(cluster, 2, 10)
        fault = cluster.nodes[2].disk.fail("open", "/data/log-start-offset-checkpoint*", errno.ENOSPC)
        assert isinstance((await admin.delete_records({T0: 13}, timeout_ms=3_000))[T0], ClientError)
        fetches.clear()
        await trio.sleep(60)
        assert fetches.count(2) <= 60 / 0.5 * 1.1, "as often as replica.fetch.wait.max.ms says"
        fault.cancel()
        assert await admin.delete_records({T0: 13}, timeout_ms=5_000) == {T0: 13}


@pytest.mark.parametrize("is_disk_late", [False, True], ids=["its disk is fast", "its disk is late"])
@pytest.mark.parametrize("alone", [False, True], ids=["all return", "it returns alone"])
async def test_a_replica_that_was_away_begins_where_the_others_do_once_it_is_in_sync(
    alone: bool, is_disk_late: bool, autojump_clock
) -> None:
    """Nobody waited for it: it was out of the in-sync set. The whole cluster is killed the moment it is back in there,
    and it may be the one that leads then."""
    async with cluster_with_topic([1, 2, 3], min_insync_replicas=1) as (cluster, _, _):
        await produce_batches(cluster, 2, 10)
        cluster.crash(3)
        cluster.expire_session(3)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "3 is out")
        await delete_before(cluster, 13)
        if is_disk_late:
            fault = cluster.nodes[3].disk.fail("open", "/data/log-start-offset-checkpoint.*", errno.EMFILE)
        await cluster.start_broker(3)
        if is_disk_late:
            await trio.sleep(LAG_TIME_MAX_S)
            assert cluster.isr(T0) == [1, 2]
            fault.cancel()
        await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "3 is back")
        for broker in (1, 2, 3):
            cluster.crash(broker)
            cluster.expire_session(broker)
        await cluster.start_broker(3)
        if alone:
            await cluster.until(lambda: cluster.leads(3, T0), "3 leads")
        for broker in (2, 1):
            await cluster.start_broker(broker)
        await cluster.until(lambda: is_whole(cluster), "every replica is back")
        assert heads(cluster, 1, 2, 3) == [13] * 3


async def test_retention_takes_the_head_of_every_replica_and_a_consumer_there_is_reset(autojump_clock) -> None:
    configs = {"segment.bytes": "1000", "retention.bytes": "2000", "file.delete.delay.ms": "5000"}
    properties = {"log.retention.check.interval.ms": "10000"}
    async with cluster_with_topic([1, 2, 3], configs=configs, properties=properties) as (cluster, _, _):
        await produce_batches(cluster, 40, 10)
        before = [log.size_bytes for log in cluster.logs(T0).values()]
        await trio.sleep(11)
        logs = cluster.logs(T0).values()
        for log, size_bytes in zip(logs, before, strict=True):
            assert 2000 <= log.size_bytes < 3500 < size_bytes
            assert log.log_start_offset == next(iter(log.segments)).base_offset > 0
        assert {log.log_end_offset for log in logs} == {400}
        async with cluster.consumer(auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0])
            consumer.seek(T0, 0)
            records = await consumer.poll(timeout_ms=5_000)
            assert records[T0][0].offset == heads(cluster, cluster.leader(T0))[0] > 0
        async with cluster.consumer(auto_offset_reset="none") as consumer:
            await consumer.assign([T0])
            consumer.seek(T0, 0)
            with pytest.raises(OffsetOutOfRange):
                await consumer.poll(timeout_ms=5_000)
        await trio.sleep(7)
        assert not [path for path in cluster.nodes[1].disk.listdir("/data/t-0") if path.endswith(".deleted")]


@pytest.mark.parametrize("log_start", [12, 17], ids=["between-batches", "inside-a-batch"])
@pytest.mark.parametrize("written_after", [3, 30], ids=["above-its-end", "above-where-they-part"])
async def test_after_an_unclean_election_a_log_that_begins_above_the_leaders_is_copied_anew(
    log_start: int, written_after: int, autojump_clock
) -> None:
    """A falls behind and leaves the ISR; B deletes records beyond A's end and dies; A leads uncleanly. Nothing of what
    B has is in A's log: B takes that over whole. Were it to go on from its own start, and A died, what A committed
    below that would be gone."""
    b, a = 2, 3
    configs = {"unclean.leader.election.enable": "true"}
    properties = {"log.flush.start.offset.checkpoint.interval.ms": "1000"}
    cluster_of_two = cluster_with_topic([b, a], min_insync_replicas=1, configs=configs, properties=properties)
    async with cluster_of_two as (cluster, _, _):
        await produce_batches(cluster, 1, 4, "before")
        cluster.crash(a)
        cluster.expire_session(a)
        await cluster.until(lambda: cluster.isr(T0) == [b], "A is out")
        await produce_batches(cluster, 4, 8)
        await delete_before(cluster, log_start)
        await trio.sleep(2)
        cluster.crash(b)
        cluster.expire_session(b)
        await cluster.start_broker(a)
        await cluster.until(lambda: cluster.leads(a, T0), "A leads")
        await produce_batches(cluster, 1, written_after, "after")
        await cluster.start_broker(b)
        await cluster.until(lambda: cluster.isr(T0) == [b, a], "B has caught up")
        assert heads(cluster, b, a) == [0, 0]
        await produce_batches(cluster, 1, 2, "whole")
        cluster.assert_replicas_equal(T0)
