"""Consumers and producers of a topic that is deleted and made anew under the same name, while they do not look."""

from __future__ import annotations

import pytest
import trio

from scenarios.test_subscriptions import ALL, PARTITIONS, Worker, a_cluster, produce, running
from strandline.client import TrioConsumer
from strandline.client.errors import OffsetOutOfRange, TopicAlreadyExists
from strandline.testkit.cluster import MemoryCluster

FIRST, LATER = 10, 20


async def make_anew(cluster: MemoryCluster) -> None:
    """With more records in each partition than were read of the old one."""
    async with cluster.admin() as admin:
        await admin.delete_topic("orders")
        while True:
            try:
                await admin.create_topic("orders", PARTITIONS, 3)
                break
            except TopicAlreadyExists:
                await trio.sleep(0.01)
    await produce(cluster, FIRST, LATER)


async def offsets(consumer: TrioConsumer, count: int) -> list[int]:
    read: list[int] = []
    with trio.fail_after(60):
        while len(read) < count:
            for records in (await consumer.poll(timeout_ms=500)).values():
                read += [record.offset for record in records]
    return read


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
async def test_an_offset_of_the_old_topic_is_none_of_the_new_one(policy: str, autojump_clock) -> None:
    async with a_cluster() as cluster, cluster.consumer(auto_offset_reset=policy) as consumer:
        await produce(cluster, 0, FIRST)
        await consumer.assign(ALL[:1])
        consumer.seek(ALL[0], 0)
        assert await offsets(consumer, FIRST) == list(range(FIRST))
        consumer.pause(ALL[0])
        await make_anew(cluster)
        consumer.resume(ALL[0])
        if policy == "none":
            with pytest.raises(OffsetOutOfRange, match=r"made anew.*seek"):
                await offsets(consumer, 1)
            consumer.seek(ALL[0], 3)
            assert (await offsets(consumer, LATER - 3))[0] == 3
            return
        if policy == "latest":
            assert await consumer.poll(timeout_ms=5_000) == {}
            await produce(cluster, FIRST + LATER, 1)
        expected = list(range(LATER)) if policy == "earliest" else [LATER]
        assert await offsets(consumer, len(expected)) == expected
        assert consumer.high_watermark(ALL[0]) == expected[-1] + 1


async def test_a_group_reads_the_new_topic_from_its_beginning(autojump_clock) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, FIRST)
        worker = Worker(cluster, auto_commit_interval_ms=0)
        async with running(worker):
            await cluster.until(lambda: len(worker.seen) == PARTITIONS * FIRST, "all is read")
            worker.seen.clear()
            await make_anew(cluster)
            await cluster.until(lambda: len(worker.seen) == PARTITIONS * LATER, "all of the new one is read")
        assert worker.error is None
        async with cluster.consumer(group_id="g") as reader:
            committed = await reader.committed(ALL)
            assert {at.offset for at in committed.values() if at is not None} == {LATER}


async def test_a_producer_goes_on_in_the_new_topic_without_a_gap(autojump_clock) -> None:
    """Its numbers go on where they are, in a log that knows nothing of it, and several batches are under way."""
    count = 200
    async with a_cluster(auto_create_topics_enable="false") as cluster, trio.open_nursery() as nursery:
        async with cluster.producer(linger_ms=0) as producer:
            deliveries = []
            for number in range(count):
                deliveries.append(await producer.send("orders", b"%d" % number, partition=0))
                if number == count // 2:
                    nursery.start_soon(make_anew, cluster)
                await trio.sleep(0.005)
            for delivery in deliveries:
                await delivery
        async with cluster.consumer(auto_offset_reset="earliest") as reader:
            await reader.assign(ALL[:1])
            values: list[bytes | None] = []
            with trio.fail_after(60):
                while b"%d" % (count - 1) not in values:
                    for records in (await reader.poll(timeout_ms=500)).values():
                        values += [record.value for record in records]
    found = [int(value) for value in values if value is not None and b"-" not in value]
    assert 0 < found[0] <= count - 1
    assert found == list(range(found[0], count))
