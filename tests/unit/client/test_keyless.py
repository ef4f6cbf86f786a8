"""Where records without a key go: the choice, and what becomes of it over time."""

from __future__ import annotations

import random
from collections import Counter
from itertools import groupby

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from strandline.client import TrioProducer
from strandline.client.partitioner import choose_partition
from strandline.protocol.messages import ApiVersionsRequest, MetadataRequest, Request
from strandline.protocol.types import NO_BROKER, TopicPartition
from unit.client.fake_broker import ApiKey, FakeCluster, Fault

lengths = st.dictionaries(st.integers(0, 50), st.integers(0, 20), min_size=1, max_size=12)


@given(lengths, st.floats(0, 1, exclude_max=True))
def test_what_is_chosen_is_one_of_the_candidates(waiting: dict[int, int], point: float) -> None:
    assert choose_partition(waiting, point) in waiting


@given(lengths)
def test_each_partition_gets_its_share_and_longer_queues_less(waiting: dict[int, int]) -> None:
    points = 5000
    found = Counter(choose_partition(waiting, (number + 0.5) / points) for number in range(points))
    weights = {partition: max(waiting.values()) + 1 - length for partition, length in waiting.items()}
    for partition, weight in weights.items():
        assert weight >= 1, "none is left out"
        assert found[partition] == pytest.approx(points * weight / sum(weights.values()), abs=1.5)


def a_producer(cluster: FakeCluster, **settings: object) -> TrioProducer:
    return TrioProducer(cluster.bootstrap, environment=cluster.environment(), **settings)


async def test_lone_records_stay_with_a_partition_until_it_has_a_batch_of_bytes(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 4)
    went: list[int] = []
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with a_producer(cluster, batch_size=2000) as client:
            for _ in range(400):  # 1 record, 61 bytes of header and some 106 of its own, make a batch
                went.append((await (await client.send("t", b"x" * 100))).partition)
        nursery.cancel_scope.cancel()
    runs = [len(list(run)) for _, run in groupby(went)]
    assert min(runs[:-1]) >= 2000 // 170
    assert set(went) == {0, 1, 2, 3}


@pytest.mark.parametrize("in_one_call", [True, False])
async def test_a_stream_spreads_over_all_partitions_in_full_batches(autojump_clock: object, in_one_call: bool) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 4)
    chance = random.Random(3)
    values = [bytes(chance.randrange(1, 200)) for _ in range(20_000)]
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with a_producer(cluster, batch_size=2000) as client:
            if in_one_call:
                await client.send_many("t", [(None, value) for value in values])
            else:
                for value in values:
                    await client.send("t", value)
        nursery.cancel_scope.cancel()
    sizes = {partition: sum(map(len, log.batches)) for partition, log in cluster.logs.items()}
    assert len(sizes) == 4
    for size in sizes.values():
        assert size == pytest.approx(sum(sizes.values()) / 4, rel=0.15)
    batches = [batch for log in cluster.logs.values() for batch in log.batches]
    full = [batch for batch in batches if len(batch) > 1700]
    assert len(full) > 0.9 * len(batches), "no batch is left behind with the record that did not fit"


async def test_partitions_of_a_slow_broker_get_less(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t", 4)
    slow = {partition for partition, (leader, _) in cluster.leaders.items() if leader == 1}
    assert len(slow) == 2
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.brokers[1].faults[ApiKey.PRODUCE].extend([Fault(apply=True, delay_s=0.5)] * 1000)
        async with a_producer(cluster, batch_size=1000, linger_ms=0) as client:
            for _ in range(2000):
                await client.send("t", b"x" * 200)
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    counts = {partition: len(log.records()) for partition, log in cluster.logs.items()}
    assert sum(counts.values()) == 2000
    assert 0 < sum(counts[partition] for partition in slow) < 2000 / 3


async def test_a_partition_without_a_leader_gets_nothing(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 3)
    cluster.move(TopicPartition("t", 1), NO_BROKER)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with a_producer(cluster, batch_size=500) as client:
            await (await client.send_many("t", [(None, b"x" * 50)] * 1000))
        nursery.cancel_scope.cancel()
    counts = [len(cluster.logs[TopicPartition("t", number)].records()) for number in range(3)]
    assert counts[1] == 0 and min(counts[0], counts[2]) > 300


async def test_a_partition_that_had_no_leader_when_it_was_first_heard_of_gets_records_soon(
    autojump_clock: object,
) -> None:
    """As right after a creation, from a broker that has not heard of all leaders; long before what is known is old."""
    cluster = FakeCluster()
    cluster.add_topic("t", 3)
    late = TopicPartition("t", 1)
    cluster.move(late, NO_BROKER)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with a_producer(cluster, batch_size=500) as client:
            await client.send("t", b"x" * 50)
            await trio.sleep(0.2)
            cluster.move(late, 0)
            for _ in range(100):
                await client.send_many("t", [(None, b"x" * 50)] * 10)
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert len(cluster.logs[late].records()) > 100


async def test_while_a_partition_stays_without_a_leader_little_is_asked(autojump_clock: object) -> None:
    cluster = FakeCluster(3)
    cluster.add_topic("t", 3)
    late = TopicPartition("t", 1)
    cluster.move(late, NO_BROKER)

    def count(kind: type[Request]) -> int:
        return sum(len(broker.seen(kind)) for broker in cluster.brokers)

    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with a_producer(cluster, batch_size=500) as client:

            async def send_for(seconds: int) -> None:
                for _ in range(20 * seconds):
                    await client.send_many("t", [(None, b"x" * 50)] * 10)
                    await trio.sleep(0.05)

            await send_for(1)
            before = count(ApiVersionsRequest), count(MetadataRequest)
            await send_for(60)
            assert count(ApiVersionsRequest) == before[0], "no connection is made anew"
            assert 12 <= count(MetadataRequest) - before[1] <= 30
            cluster.move(late, 1)
            await send_for(5)
        nursery.cancel_scope.cancel()
    assert len(cluster.logs[late].records()) > 100


async def test_a_broker_that_was_away_gets_records_again(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t", 4)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with a_producer(cluster, batch_size=500, metadata_max_age_ms=200) as client:
            await (await client.send_many("t", [(None, b"x" * 50)] * 200))
            led = [partition for partition, (leader, _) in cluster.leaders.items() if leader == 1]
            cluster.brokers[1].kill()
            for partition in led:
                cluster.move(partition, 0)
            await (await client.send_many("t", [(None, b"x" * 50)] * 200))
            await nursery.start(cluster.brokers[1].run)
            for partition in led:
                cluster.move(partition, 1)
            await trio.sleep(1)  # that it leads again is known before anything is sent there
            before = sum(len(cluster.logs[partition].records()) for partition in led)
            for _ in range(100):
                await client.send_many("t", [(None, b"x" * 50)] * 10)
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert sum(len(cluster.logs[partition].records()) for partition in led) - before > 200


async def test_topics_of_many_partitions_are_spread_over_all_of_them(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 100)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with a_producer(cluster, batch_size=300) as client:
            await client.send_many("t", [(None, b"x" * 100)] * 4000)
        nursery.cancel_scope.cancel()
    counts = [len(log.records()) for log in cluster.logs.values()]
    assert min(counts) > 0 and max(counts) < 4000 / 100 * 3
