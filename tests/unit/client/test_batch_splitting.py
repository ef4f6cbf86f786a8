"""Batches that a broker refuses as too large: what has several records is split, and each lands once, in order."""

from __future__ import annotations

import random
from typing import Any

import pytest
from trio.testing import MockClock

from strandline import Producer
from strandline.client import DeliveredBatch, FailedBatch
from strandline.client.accumulator import Batch
from strandline.client.batch_splitting import halves
from strandline.client.errors import DeliveryFailed
from strandline.client.identity import SEQUENCES, ProducerIdentity
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import ProduceRequest
from strandline.protocol.records import Record, assign_producer, build_batch, decode_batch, read_header
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import ApiKey, FakeCluster, Fault
from unit.client.test_idempotent_producer import T0, named, opened
from unit.client.test_sync import PATIENCE_S, cluster

__all__ = ["cluster"]


def split(records: list[Record], codec: str = "none", sinks: Any = ()) -> list[Batch]:
    data = bytearray(build_batch(records, codec))
    assign_producer(data, 7, 3, SEQUENCES - 1)
    return halves(Batch(5, T0, data, len(records), list(sinks), 60.0, is_numbered=True))


def record(offset: int, size: int) -> Record:
    return Record(offset, 1000 - offset, 0, b"k%d" % offset, bytes(size), [("h", b"%d" % offset), ("n", None)])


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("sizes", [[5, 5], [10, 10, 10, 10], [1, 1, 500], [500, 1, 1], [1, 500, 1], [0] * 9], ids=str)
def test_the_halves_hold_the_same_records_under_the_same_numbers(sizes: list[int], codec: str) -> None:
    records = [record(offset, size) for offset, size in enumerate(sizes)]
    first, second = split(records, codec)
    assert first.records_count and second.records_count
    found = [*decode_batch(first.data), *decode_batch(second.data)]
    assert [each[1:] for each in found] == [each[1:] for each in records]
    headers = [read_header(each.data) for each in (first, second)]
    assert {header.codec for header in headers} == {read_header(build_batch(records, codec)).codec} or codec != "none"
    assert {(header.producer_id, header.producer_epoch) for header in headers} == {(7, 3)}
    assert [header.base_sequence for header in headers] == [SEQUENCES - 1, first.records_count - 1]
    assert first.order < second.order
    if 500 in sizes:
        assert max(len(first.data), len(second.data)) < 500 + 61 + 100, "what is large is cut off"


def test_each_half_tells_those_whose_records_it_has() -> None:
    sinks = [("a", 0, 3, 0), ("b", 3, 4, 10), ("c", 7, 1, 0)]
    first, second = split([record(offset, 10) for offset in range(8)], sinks=sinks)
    assert first.sinks == [("a", 0, 3, 0), ("b", 3, 1, 10)]
    assert second.sinks == [("b", 0, 3, 11), ("c", 3, 1, 0)]


IDENTITY = ProducerIdentity(70, 2, {TopicPartition("t", 0): 0})


@pytest.mark.parametrize(
    "settings",
    [{}, {"enable_idempotence": False}, {"identity": IDENTITY}, {"compression_type": "gzip"}],
    ids=["idempotent", "not idempotent", "given identity", "compressed"],
)
@pytest.mark.parametrize("seed", range(3))
async def test_every_record_lands_once_and_in_order_with_several_batches_under_way(
    settings: dict[str, Any], seed: int, autojump_clock: MockClock
) -> None:
    rng = random.Random(seed)
    async with opened(latency_s=0.01, **{"batch_size": 2_000, "linger_ms": 5, **settings}) as site:
        await site.deliver(b"first")
        site.cluster.max_message_bytes = 300
        faults = [Fault(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), *[Fault(apply=True)] * 3]
        if not settings.keys() & {"enable_idempotence", "identity"}:  # they would count as doubled, or as taken
            faults += [Fault(close=True), Fault(close=True, apply=True)]
        site.faults[ApiKey.PRODUCE].extend(rng.choices(faults, k=30))
        values = [b"%03d" % number + rng.randbytes(rng.randrange(100)) for number in range(200)]
        deliveries = await site.send(*values)
        offsets = [(await delivery).offset for delivery in deliveries]
        assert offsets == list(range(1, 201))
        assert site.producer._accumulator.used_bytes == 0
    assert site.stored() == [b"first", *values]
    assert all(len(batch) <= 300 for batch in site.cluster.logs[T0].batches)
    assert all(isinstance(batch, DeliveredBatch) for batch in site.settled)


async def test_a_record_that_is_too_large_fails_alone(autojump_clock: MockClock) -> None:
    async with opened(batch_size=2_000, linger_ms=5) as site:
        await site.deliver(b"first")
        site.cluster.max_message_bytes = 300
        values = named(60)
        values[30] = b"x" * 400
        deliveries = await site.send(*values)
        with pytest.raises(DeliveryFailed, match=r"1 record for t-0: .*MESSAGE_TOO_LARGE") as raised:
            await deliveries[30]
        assert "max.message.bytes" in str(raised.value) and "max.request.size" in str(raised.value)
        assert not raised.value.outcome_unknown
        del deliveries[30], values[30]
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 60))
    assert site.stored() == [b"first", *values]
    assert sum(batch.records_count for batch in site.settled if isinstance(batch, FailedBatch)) == 1


async def test_the_halves_of_a_batch_that_may_be_in_the_log_are_doubled_only_without_numbers(
    autojump_clock: MockClock,
) -> None:
    for is_idempotent in (True, False):
        async with opened(batch_size=2_000, linger_ms=5, enable_idempotence=is_idempotent) as site:
            await site.deliver(b"first")
            faults = [Fault(apply=True, close=True), Fault(error=ErrorCode.MESSAGE_TOO_LARGE)]
            site.faults[ApiKey.PRODUCE].extend(faults)
            for delivery in await site.send(b"a", b"b"):
                if is_idempotent:
                    with pytest.raises(DeliveryFailed) as failure:
                        await delivery
                    assert failure.value.outcome_unknown
                else:
                    assert (await delivery).retried
        assert site.stored() == [b"first", *[b"a", b"b"] * (1 if is_idempotent else 2)]


def test_futures_of_threads_tell_where_their_records_are(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    cluster.max_message_bytes = 1_000
    with Producer(cluster.bootstrap) as producer:
        futures = [producer.send("t", b"%04d" % number) for number in range(1_000)]
        producer.flush()
        many = producer.send_many("t", [(None, b"%04d" % number) for number in range(1_000, 2_000)])
        assert [future.result(PATIENCE_S).offset for future in futures] == list(range(1_000))
        assert sum(batch.records_count for batch in many.result(PATIENCE_S)) == 1_000
    assert [each.value for each in cluster.logs[T0].records()] == [b"%04d" % number for number in range(2_000)]
    assert len(cluster.brokers[0].seen(ProduceRequest)) > 2
