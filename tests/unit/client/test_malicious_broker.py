"""Producer and consumer against brokers that lie in well-formed answers: they keep their promises and end in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from strandline.client import TrioConsumer, TrioProducer
from strandline.client.errors import DeliveryTimeout
from strandline.protocol.messages import (
    FetchPartitionData,
    FetchResponse,
    FetchTopicResponse,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from strandline.protocol.native.frame import FrameHeader, encode_head
from strandline.protocol.records import assign_offset, build_batch
from strandline.protocol.types import TopicPartition
from strandline.runtime.network import Address
from unit.client.fake_broker import ApiKey, FakeCluster, Fault

T0 = TopicPartition("t", 0)


def batch(base_offset: int, values: int = 1) -> bytes:
    data = bytearray(build_batch([(0, None, b"forged")] * values))
    assign_offset(data, base_offset, 0)
    return bytes(data)


def fetched(
    records: bytes, high_watermark: int = 100, *, topic: str = "t", index: int = 0, size: int | None = None
) -> Callable[[FrameHeader], bytes]:
    part = FetchPartitionData(index, 0, high_watermark, len(records) if size is None else size, 0)
    answer = FetchResponse([FetchTopicResponse(topic, [part])])
    return lambda header: (
        encode_head(header.api_key, header.version, header.correlation_id, answer, len(records)) + records
    )


LIES = {
    "garbage for records": fetched(b"\xff" * 500),
    "half a batch": fetched(batch(0)[:-1]),
    "above the high watermark": fetched(batch(0, 5), high_watermark=3),
    "negative offsets": fetched(batch(-5)),
    "offsets going back": fetched(batch(7) + batch(3)),
    "another partition": fetched(batch(0), index=1),
    "another topic": fetched(batch(0), topic="u"),
    "sizes that do not add up": fetched(batch(0), size=10),
    "negative size": fetched(batch(0), size=-7),
}


@pytest.mark.parametrize("lie", LIES)
async def test_forged_fetch_answers_never_reach_the_program(autojump_clock: object, lie: str) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    cluster.fill(T0, [b"true"])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.brokers[0].faults[ApiKey.FETCH].extend([Fault(raw=LIES[lie])] * 3)
        client = TrioConsumer(cluster.bootstrap, environment=cluster.environment(), auto_offset_reset="earliest")
        async with client:
            await client.assign([T0])
            polled = await client.poll(timeout_ms=30_000)
            assert [record.value for record in polled[T0]] == [b"true"]
        nursery.cancel_scope.cancel()


PRODUCE_LIES: dict[str, ProduceResponse] = {
    "nothing at all": ProduceResponse([]),
    "another partition": ProduceResponse([TopicProduceResponse("t", [PartitionProduceResponse(5, 0, 0)])]),
    "no offset": ProduceResponse([TopicProduceResponse("t", [PartitionProduceResponse(0, 0, -1)])]),
    "unknown error number": ProduceResponse([TopicProduceResponse("t", [PartitionProduceResponse(0, 9999, -1)])]),
}


@pytest.mark.parametrize("lie", PRODUCE_LIES)
async def test_a_produce_answer_without_an_outcome_is_no_success(autojump_clock: object, lie: str) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")

    def raw(header: FrameHeader) -> bytes:
        return encode_head(header.api_key, header.version, header.correlation_id, PRODUCE_LIES[lie])

    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.brokers[0].faults[ApiKey.PRODUCE].extend([Fault(raw=raw)] * 200)
        async with TrioProducer(
            cluster.bootstrap, environment=cluster.environment(), delivery_timeout_ms=3000
        ) as client:
            with pytest.raises(Exception, match="t-0") as failure:
                await (await client.send("t", b"x"))
            assert failure.value.outcome_unknown  # type: ignore[attr-defined]
        nursery.cancel_scope.cancel()


async def test_endless_redirects_end_with_the_delivery_timeout_and_few_requests(autojump_clock: object) -> None:
    """Each broker says that another one leads, in ever higher epochs."""
    cluster = FakeCluster(2)
    cluster.add_topic("t")

    def redirect(to: int) -> Callable[[FrameHeader], bytes]:
        def raw(header: FrameHeader) -> bytes:
            part = PartitionProduceResponse(0, 6, -1, -1, -1, None, to, header.correlation_id)
            answer = ProduceResponse([TopicProduceResponse("t", [part])])
            return encode_head(header.api_key, header.version, header.correlation_id, answer)

        return raw

    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        for broker in cluster.brokers:
            broker.faults[ApiKey.PRODUCE].extend([Fault(raw=redirect(1 - broker.broker_id))] * 10_000)
        async with TrioProducer(
            cluster.bootstrap, environment=cluster.environment(), delivery_timeout_ms=20_000
        ) as client:
            with pytest.raises(DeliveryTimeout, match="NOT_LEADER_OR_FOLLOWER"):
                await (await client.send("t", b"x"))
            assert trio.current_time() <= 21
        nursery.cancel_scope.cancel()
    assert sum(len(broker.seen(ProduceRequest)) for broker in cluster.brokers) < 60


async def test_a_leader_nobody_knows_and_addresses_of_others_are_survived(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.leaders[T0] = (77, 0)
        async with TrioProducer(
            cluster.bootstrap, environment=cluster.environment(), delivery_timeout_ms=3000
        ) as client:
            with pytest.raises(DeliveryTimeout, match="broker 77 is not among the cluster's live brokers"):
                await (await client.send("t", b"x"))
            cluster.leaders[T0] = (1, 1)
            cluster.brokers[1].advertised = cluster.brokers[0].address
            with pytest.raises(DeliveryTimeout, match="broker 1 is advertised at broker-0:9092, but broker 0"):
                await (await client.send("t", b"x"))
            cluster.brokers[1].advertised = Address("nowhere.example", 1)
            with pytest.raises(DeliveryTimeout, match=r"broker 1 at nowhere.example:1 cannot be reached") as failure:
                await (await client.send("t", b"x"))
            assert not failure.value.outcome_unknown
        nursery.cancel_scope.cancel()
