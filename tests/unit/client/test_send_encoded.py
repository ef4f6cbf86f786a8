"""Batches that somebody else has built: the producer numbers and delivers them as its own."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from strandline.client import TrioProducer
from strandline.client.accumulator import EncodedBatch
from strandline.client.errors import BufferFull, ClientClosed, InvalidRecordValue, RecordTooLarge, UnknownTopic
from strandline.client.identity import ProducerIdentity
from strandline.protocol.records import build_batch, read_header
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import FakeCluster

T0 = TopicPartition("t", 0)


def encoded(*values: bytes) -> EncodedBatch:
    """With numbers and a CRC that are not right."""
    data = bytearray(build_batch([(7, b"k", value) for value in values], producer=(99, 9, 9)))
    data[17] ^= 1
    return EncodedBatch(data, len(values))


def producer(cluster: FakeCluster, **settings: Any) -> TrioProducer:
    return TrioProducer(cluster.bootstrap, environment=cluster.environment(), **settings)


@pytest.mark.parametrize("settings", [{}, {"enable_idempotence": False}, {"identity": ProducerIdentity(5, 1, {T0: 3})}])
async def test_batches_land_whole_in_order_with_the_producers_numbers(
    autojump_clock: object, settings: dict[str, Any]
) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster, linger_ms=1000, **settings) as client:
            before = await client.send("t", b"before", partition=0)
            many = await client.send_encoded("t", [encoded(b"1", b"2"), encoded(b"3")], partition=0)
            after = await client.send("t", b"after", partition=0)
            assert [(batch.base_offset, batch.records_count) for batch in await many] == [(1, 2), (3, 1)]
            assert ((await before).offset, (await after).offset) == (0, 4)
            assert client._accumulator.used_bytes == 0
        nursery.cancel_scope.cancel()
    log = cluster.logs[T0]
    assert [record.value for record in log.records()] == [b"before", b"1", b"2", b"3", b"after"], "CRCs are right"
    headers = [read_header(data) for data in log.batches]
    first = settings["identity"].next_sequence[T0] if "identity" in settings else 0
    if settings.get("enable_idempotence") is False:
        assert {header[-4:-1] for header in headers} == {(-1, -1, -1)}
    else:
        assert [header.base_sequence for header in headers] == [first, first + 1, first + 3, first + 4]
        assert len({header.producer_id for header in headers}) == 1


async def test_without_a_partition_one_that_has_a_leader_is_taken(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t", 2)
    cluster.move(TopicPartition("t", 1), -1)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster) as client:
            for number in range(6):
                [batch] = await (await client.send_encoded("t", [encoded(b"%d" % number)]))
                assert batch.partition == 0
        nursery.cancel_scope.cancel()


async def test_they_wait_for_memory_and_what_cannot_be_sent_is_refused(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster, buffer_memory=300, max_request_size=400, max_block_ms=500) as client:
            many = await client.send_encoded("t", [encoded(b"x" * 150) for _ in range(20)], partition=0)
            assert len(await many) == 20
            large = await client.send_encoded("t", [encoded(b"y"), encoded(b"x" * 400), encoded(b"z")], partition=0)
            with pytest.raises(RecordTooLarge, match=r"a record of 4\d\d bytes for t-0 is above max_request_size"):
                await large
            assert (large.delivered_records, large.failed_records) == (1, 2), "nothing follows it"
            with pytest.raises(UnknownTopic, match="no partition 7"):
                await (await client.send_encoded("t", [encoded(b"x")], partition=7))
            cluster.brokers[0].kill()
            with pytest.raises(BufferFull, match="max_block_ms"):
                await (await client.send_encoded("t", [encoded(b"x" * 150) for _ in range(3)], partition=0))
        nursery.cancel_scope.cancel()
    with pytest.raises(ClientClosed):
        await (await client.send_encoded("t", [encoded(b"late")], partition=0))


async def test_the_same_bytes_twice_are_refused(autojump_clock: object) -> None:
    cluster = FakeCluster()
    async with producer(cluster) as client:
        with pytest.raises(InvalidRecordValue, match="two of them are the same bytes"):
            await client.send_encoded("t", [encoded(b"x")] * 2, partition=0)


@pytest.mark.parametrize(
    "batch",
    [
        EncodedBatch(bytearray(60), 1),
        EncodedBatch(encoded(b"1", b"2").data, 1),
        EncodedBatch(bytearray(bytes(encoded(b"1").data) + b"\0"), 1),
        EncodedBatch(memoryview(build_batch([(7, b"k", b"v")])), 1),
    ],
)
async def test_what_is_no_batch_or_cannot_be_written_to_is_refused(autojump_clock: object, batch: EncodedBatch) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster) as client:
            with pytest.raises(InvalidRecordValue, match="refused"):
                await client.send_encoded("t", [batch], partition=0)
            assert (await (await client.send("t", b"fine"))).offset == 0
        nursery.cancel_scope.cancel()
