"""Whole brokers, and topics that recompress, stamp and bound: a worker takes its time, and everything else goes on."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from strandline.client.errors import DeliveryFailed
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    MetadataRequest,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from strandline.protocol.records import build_batch, decode_records, scan
from strandline.protocol.types import TopicPartition
from strandline.runtime.network import Address
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.environment import EPOCH_MS
from strandline.testkit.inspection import Ledger
from support.raw_client import RawClient, request_frame
from support.scenario import T0, check_at_the_end, numbered

U0 = TopicPartition("u", 0)
WORK_S = 2.0
ZSTD = {"compression.type": "zstd", "min.insync.replicas": "2"}


async def create(cluster: MemoryCluster, configs: dict[str, str], topic: str = "t", partitions: int = 1) -> None:
    async with cluster.admin() as admin:
        assignments = {index: [1, 2, 3] for index in range(partitions)}
        await admin.create_topic(topic, assignments=assignments, configs=configs)
    parts = [TopicPartition(topic, index) for index in range(partitions)]
    await cluster.until(lambda: all(cluster.hosts(n, tp) for n in (1, 2, 3) for tp in parts), "hosted")


async def raw_client(cluster: MemoryCluster) -> RawClient:
    return RawClient(await cluster.network.node("client").connect(Address("broker-1", 9092)))


def produce(number: int, *parts: tuple[TopicPartition, bytes], acks: int = -1) -> bytes:
    topics = [TopicProduceData(tp.topic, [PartitionProduceData(tp.partition, len(data))]) for tp, data in parts]
    request = ProduceRequest(acks, 30_000, topics)
    return request_frame(request, correlation_id=number, attachments=b"".join(data for _, data in parts))


def batch(codec: str, name: str, key: bytes | None = b"k") -> bytes:
    return build_batch([(EPOCH_MS + place, key, b"%s-%d" % (name.encode(), place) * 20) for place in range(5)], codec)


async def outcomes(client: RawClient, number: int) -> list[PartitionProduceResponse]:
    response = await client.response()
    assert response is not None and response.header.correlation_id == number
    assert isinstance(response.message, ProduceResponse)
    return [partition for topic in response.message.responses for partition in topic.partition_responses]


def stored(cluster: MemoryCluster, tp: TopicPartition, broker: int = 1) -> bytes:
    log = cluster.partition(broker, tp).log
    region = log.read(0, 2**30, log.log_end_offset)
    return region.file.pread(region.length, region.position) if region is not None else b""


async def test_a_converted_request_and_those_behind_it_keep_their_order_and_nobody_else_waits(
    autojump_clock: MockClock,
) -> None:
    async with MemoryCluster(3, computing_delay_s=WORK_S).running() as cluster:
        await create(cluster, ZSTD)
        await create(cluster, {"min.insync.replicas": "2"}, "u")
        client, other = await raw_client(cluster), await raw_client(cluster)
        began = trio.current_time()
        burst = produce(1, (T0, batch("gzip", "first"))) + produce(2, (U0, batch("none", "plain")))
        await client.send(burst + produce(3, (T0, batch("zstd", "second"))))
        for number in range(10, 15):
            await other.send(produce(number, (U0, batch("lz4", f"other-{number}"))))
            assert [o.error_code for o in await outcomes(other, number)] == [0]
        assert trio.current_time() < began + WORK_S / 2, "the other connection does not wait"
        assert [o.base_offset for o in await outcomes(client, 1)] == [0]
        assert trio.current_time() >= began + WORK_S
        assert [o.base_offset for o in await outcomes(client, 2)] == [25]
        assert [o.base_offset for o in await outcomes(client, 3)] == [5]
        values = [record.value[:6] for record in decode_records(stored(cluster, T0)) if record.value]
        assert values == [b"first-"] * 5 + [b"second"] * 5
        assert {header.compression_type for _, header in scan(stored(cluster, T0))} == {"zstd"}
        assert {header.compression_type for _, header in scan(stored(cluster, U0))} == {"none", "lz4"}
        await cluster.until(lambda: stored(cluster, T0, 3) == stored(cluster, T0, 1), "the follower has the same bytes")


async def test_one_partitions_bad_batch_is_its_own(autojump_clock: MockClock) -> None:
    async with MemoryCluster(3, computing_delay_s=WORK_S).running() as cluster:
        await create(cluster, {"cleanup.policy": "compact"}, partitions=2)
        await create(cluster, {}, "u")
        client = await raw_client(cluster)
        t1 = TopicPartition("t", 1)
        parts = ((T0, batch("gzip", "bad", None)), (U0, batch("gzip", "fine", None)), (t1, batch("gzip", "good")))
        await client.send(produce(1, *parts) + produce(2, (T0, batch("none", "later"))))
        codes = [o.error_code for o in await outcomes(client, 1)]
        assert codes == [ErrorCode.INVALID_RECORD, 0, 0]
        assert [o.error_code for o in await outcomes(client, 2)] == [0]
        assert [r.value[:5] for r in decode_records(stored(cluster, T0)) if r.value] == [b"later"] * 5


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_come_back_whatever_the_codec_with_the_brokers_time(
    codec: str, autojump_clock: MockClock
) -> None:
    async with MemoryCluster(3, computing_delay_s=0.01).running() as cluster:
        await create(cluster, {**ZSTD, "message.timestamp.type": "LogAppendTime"})
        ledger = Ledger()
        async with cluster.producer(compression_type=codec, linger_ms=5) as producer:
            before_ms = EPOCH_MS + round(trio.current_time() * 1000)
            await ledger.produce(producer, T0, numbered("x" * 50, 100))
        assert not ledger.unknown
        await check_at_the_end(cluster, ledger)
        records = decode_records(stored(cluster, T0))
        now_ms = EPOCH_MS + round(trio.current_time() * 1000)
        assert all(record.timestamp_type == 1 and before_ms <= record.timestamp_ms <= now_ms for record in records)
        assert {header.compression_type for _, header in scan(stored(cluster, T0))} == {"zstd"}


async def test_a_producer_learns_which_record_is_out_of_bounds(autojump_clock: MockClock) -> None:
    async with MemoryCluster(3).running() as cluster:
        await create(cluster, {"message.timestamp.before.max.ms": "3600000"})
        async with cluster.producer(compression_type="gzip", linger_ms=5) as producer:
            old = await producer.send("t", b"v" * 300, timestamp_ms=EPOCH_MS - 7_200_000)
            with pytest.raises(DeliveryFailed, match="record 0 has timestamp"):
                await old
            assert (await (await producer.send("t", b"v"))).offset == 0


async def test_a_leader_that_stops_meanwhile_appends_nothing_and_another_takes_the_request(
    autojump_clock: MockClock,
) -> None:
    async with MemoryCluster(3, computing_delay_s=WORK_S).running() as cluster:
        await create(cluster, ZSTD)
        ledger = Ledger()
        async with cluster.producer(compression_type="gzip", linger_ms=0) as producer, trio.open_nursery() as nursery:
            nursery.start_soon(ledger.produce, producer, T0, numbered("x" * 50, 3))
            await trio.sleep(WORK_S / 2)
            began = trio.current_time()
            await cluster.stop(1)
            assert trio.current_time() < began + WORK_S + 1, "it waits for the worker, not for a deadline"
        assert not ledger.unknown and cluster.leader(T0) in (2, 3)
        await cluster.start_broker(1)
        await check_at_the_end(cluster, ledger)


async def test_a_leader_that_is_killed_meanwhile_has_appended_nothing(autojump_clock: MockClock) -> None:
    async with MemoryCluster(3, computing_delay_s=WORK_S).running() as cluster:
        await create(cluster, ZSTD)
        ledger = Ledger()
        async with cluster.producer(compression_type="gzip", linger_ms=0) as producer, trio.open_nursery() as nursery:
            nursery.start_soon(ledger.produce, producer, T0, numbered("x" * 50, 3))
            await trio.sleep(WORK_S / 2)
            cluster.crash(1)
        await cluster.start_broker(1)
        await check_at_the_end(cluster, ledger)
        assert len(decode_records(stored(cluster, T0, 2))) == 3


async def test_metadata_behind_a_conversion_waits_for_it(autojump_clock: MockClock) -> None:
    """Handled in order of arrival, across kinds of handlers."""
    async with MemoryCluster(3, computing_delay_s=WORK_S).running() as cluster:
        await create(cluster, ZSTD)
        client = await raw_client(cluster)
        began = trio.current_time()
        await client.send(
            produce(1, (T0, batch("none", "x")), acks=1) + request_frame(MetadataRequest(["t"]), correlation_id=2)
        )
        assert [o.error_code for o in await outcomes(client, 1)] == [0]
        response = await client.response()
        assert response is not None and response.header.correlation_id == 2
        assert trio.current_time() >= began + WORK_S
