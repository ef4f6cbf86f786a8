"""The head of a log on whole brokers: DeleteRecords past a follower that is away (R16), retention on every replica."""

from __future__ import annotations

import pytest
import trio

from strandline.client.errors import OffsetOutOfRange
from strandline.protocol.record_batch import scan
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import read_all, values
from strandline.testkit.scenario import T0, cluster_with_topic, numbered
from strandline.testkit.storage_site import raw


async def produce_batches(cluster: MemoryCluster, batches: int, per_batch: int, prefix: str = "m") -> None:
    """Batches of so many records each, acknowledged by all in sync."""
    async with cluster.producer(linger_ms=100) as producer:
        for number in range(batches):
            pairs = [(None, value) for value in numbered(f"{prefix}{number}", per_batch)]
            delivery = await producer.send_many(T0.topic, pairs)
            await delivery.wait()


async def delete_before(cluster: MemoryCluster, offset: int) -> None:
    async with cluster.admin() as admin:
        assert await admin.delete_records({T0: offset}) == {T0: offset}


def heads(cluster: MemoryCluster, *brokers: int) -> list[int]:
    return [cluster.partition(broker, T0).log.log_start_offset for broker in brokers]


async def test_r16_a_follower_that_was_away_begins_inside_a_batch_and_leads_from_there(autojump_clock) -> None:
    """B leads, A is away; the log start moves into the middle of a batch that A never saw. A returns with an end below
    the leader's start, catches up, B dies, A leads: it serves from the log start, and its high watermark is valid."""
    b, a = 2, 3
    async with cluster_with_topic([b, a], min_insync_replicas=1) as (cluster, _, _):
        await produce_batches(cluster, 1, 4, "before")
        cluster.crash(a)
        cluster.expire_session(a)
        await cluster.until(lambda: cluster.isr(T0) == [b], "A is out")
        await produce_batches(cluster, 3, 10)
        bases = [header.base_offset for _, header in scan(memoryview(raw(cluster.partition(b, T0).log)))]
        assert 17 not in bases, "the schedule needs a log start inside a batch"
        await delete_before(cluster, 17)
        await cluster.start_broker(a)
        await cluster.until(lambda: cluster.isr(T0) == [b, a], "A has caught up")
        assert heads(cluster, b, a) == [17, 17]
        cluster.crash(b)
        cluster.expire_session(b)
        await cluster.until(lambda: cluster.leads(a, T0), "A leads")
        partition = cluster.partition(a, T0)
        assert partition.log.log_start_offset == 17 <= partition.high_watermark <= partition.log.log_end_offset == 34
        async with cluster.consumer() as consumer:
            found = await read_all(consumer, T0)
            assert min(found) == 17 and len(found) == 17
        await cluster.start_broker(b)
        await cluster.until(lambda: cluster.isr(T0) == [b, a], "B is back")
        await produce_batches(cluster, 1, 2, "after")
        assert values(cluster.partition(a, T0).log)[-2:] == values(cluster.partition(b, T0).log)[-2:]
        assert heads(cluster, b, a) == [17, 17]


async def test_followers_that_keep_up_are_told_at_once(autojump_clock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, _, _):
        await produce_batches(cluster, 2, 10)
        started = trio.current_time()
        await delete_before(cluster, 13)
        assert trio.current_time() - started < 2.0, "not the wait of a parked fetch for each step"
        assert heads(cluster, 1, 2, 3) == [13, 13, 13]


async def test_a_log_start_survives_the_death_of_all_once_it_is_checkpointed(autojump_clock) -> None:
    properties = {"log.flush.start.offset.checkpoint.interval.ms": "5000"}
    async with cluster_with_topic([1, 2, 3], properties=properties) as (cluster, _, _):
        await produce_batches(cluster, 2, 10)
        await delete_before(cluster, 13)
        await trio.sleep(6)
        for broker in (1, 2, 3):
            cluster.crash(broker)
        for broker in (1, 2, 3):
            await cluster.start_broker(broker)
        everywhere = (1, 2, 3)
        await cluster.until(lambda: all(cluster.hosts(broker, T0) for broker in everywhere), "every replica is back")
        assert heads(cluster, 1, 2, 3) == [13, 13, 13]


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
