"""What the gate does to requests, around handlers of the test's choice."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.network.dialects.kafka import KAFKA
from strandline.broker.network.dialects.native import NATIVE
from strandline.broker.network.request import RequestInHand
from strandline.broker.quotas.entities import QuotaEntity
from strandline.broker.quotas.gate import QuotaGate
from strandline.broker.quotas.holding import ask_again, let_go
from strandline.protocol.api import ApiKey
from strandline.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    ProduceResponse,
    Request,
)
from strandline.protocol.native.frame import encode_head
from strandline.protocol.types import ANY_REPLICA
from strandline.testkit.kafka_client import kafka_frame
from support.quota_gate import EVERYBODY, gated
from support.raw_client import RawClient, produce_request, request_frame


def fetch_request(replica_id: int = -1) -> FetchRequest:
    return FetchRequest(0, 5000, 2**20, [FetchTopic("t", [FetchPartition(0, 0, 2**20)])], replica_id)


@pytest.mark.parametrize(("is_broker", "held"), [(True, False), (False, True)])
@pytest.mark.parametrize("replica_id", [2, -1])
async def test_brokers_are_exempt_and_who_forges_the_id_of_one_is_not(
    is_broker: bool, held: bool, replica_id: int, autojump_clock: MockClock
) -> None:
    async with gated("consumer_byte_rate", 1000, is_inter_broker=is_broker) as (pipeline, *_):
        answer = await (await pipeline.connect()).request(fetch_request(replica_id))
        assert answer is not None and isinstance(answer.message, FetchResponse)
        assert (answer.message.throttle_time_ms > 0) == held


async def test_a_fetch_takes_no_more_at_once_than_a_window_gives(autojump_clock: MockClock) -> None:
    async with gated("consumer_byte_rate", 1000) as (pipeline, _, _, seen):
        await (await pipeline.connect()).request(fetch_request())
        assert (seen[0].max_bytes, seen[0].min_bytes) == (1000, 1000)


async def test_the_time_of_handlers_is_counted_and_what_they_wait_is_not(autojump_clock: MockClock) -> None:
    async with gated("request_percentage", 10) as (pipeline, clock, sensors, _):
        client, other = await pipeline.connect(), await pipeline.connect()
        clock.cost_s = 0.3
        answer = await client.request(MetadataRequest())
        assert answer is not None and isinstance(answer.message, MetadataResponse)
        assert answer.message.throttle_time_ms == 2000, "0.3 s of 0.1 s per second, of which one was saved up"
        await trio.sleep(60)
        clock.cost_s = 0.2
        created = await other.request(CreateTopicsRequest([]))
        assert created is not None and isinstance(created.message, CreateTopicsResponse)
        [sensor] = sensors["request_percentage"]._sensors.values()
        owed_s = sensor.meter.owed_s(trio.current_time())
        assert owed_s == pytest.approx(2.0, abs=0.01), "the first half was made up for while it waited"


async def test_an_answer_that_comes_later_tells_of_the_time_that_its_handler_took(autojump_clock: MockClock) -> None:
    async with gated("request_percentage", 10) as (pipeline, clock, sensors, _):
        parked: list[RequestInHand[ProduceRequest]] = []

        def park(request: RequestInHand[ProduceRequest]) -> None:
            clock.now += 0.3
            parked.append(request)

        pipeline.channel._behind_gates[ApiKey.PRODUCE] = park
        pipeline.channel.switch_gate(QuotaGate(sensors, clock=clock))
        client = await pipeline.connect()
        await client.send(request_frame(produce_request()))
        await trio.sleep(0.5)
        parked[0].respond(ProduceResponse([]))
        pipeline.channel.flush_responses()
        answer = await client.response()
        assert answer is not None and isinstance(answer.message, ProduceResponse)
        assert answer.message.throttle_time_ms == 1500, "of 2 s that are owed"


async def test_work_in_steps_is_counted_step_by_step(autojump_clock: MockClock) -> None:
    async with gated("request_percentage", 10) as (pipeline, clock, _, _):
        clock.cost_s = 0.15
        answer = await (await pipeline.connect()).request(ListOffsetsRequest([]))
        assert answer is not None and isinstance(answer.message, ListOffsetsResponse)
        assert answer.message.throttle_time_ms == 2000


async def test_who_owes_time_waits_with_any_request_by_any_connection(autojump_clock: MockClock) -> None:
    async with gated("request_percentage", 10) as (pipeline, clock, _, _):
        clock.cost_s = 0.3
        client, other = await pipeline.connect(), await pipeline.connect()
        await client.request(MetadataRequest())
        clock.cost_s = 0.0
        began = trio.current_time()
        await other.request(produce_request())
        assert trio.current_time() - began == pytest.approx(2.0, abs=0.01)
        counts = pipeline.channel.counts.rows
        throttled_s = [counts[key].throttle.total for key in (ApiKey.METADATA, ApiKey.PRODUCE)]
        assert throttled_s == pytest.approx([2, 2], rel=0.01), "who was muted, and who stood in line"
        assert counts[ApiKey.PRODUCE].queue.total < 1e5 > counts[ApiKey.PRODUCE].total.total


@pytest.mark.parametrize(
    ("message", "is_broker", "passes"),
    [
        (ApiVersionsRequest("app"), False, True),
        (OffsetForLeaderEpochRequest([], ANY_REPLICA), False, False),
        (OffsetForLeaderEpochRequest([], ANY_REPLICA), True, True),
        (MetadataRequest(), True, True),
        (MetadataRequest(), False, False),
    ],
)
async def test_what_brokers_ask_does_not_stand_in_the_clients_line(
    message: Request, is_broker: bool, passes: bool, autojump_clock: MockClock
) -> None:
    async with gated("request_percentage", 10) as (pipeline, clock, _, _):
        clock.cost_s = 0.3
        client, other = await pipeline.connect(), await pipeline.connect()
        await client.request(MetadataRequest())
        if is_broker:
            for each in pipeline.processor.connections:
                each.context = replace(each.context, is_inter_broker=True)
        clock.cost_s, began = 0.0, trio.current_time()
        assert await other.request(message) is not None
        assert (trio.current_time() - began < 0.1) == passes


async def test_only_the_first_question_for_versions_of_a_connection_is_exempt(autojump_clock: MockClock) -> None:
    async with gated("request_percentage", 10) as (pipeline, clock, _, _):
        clock.cost_s = 0.3
        client, other = await pipeline.connect(), await pipeline.connect()
        await client.request(MetadataRequest())
        began = trio.current_time()
        found = []
        for _ in range(3):
            assert await other.request(ApiVersionsRequest()) is not None
            found.append(trio.current_time() - began)
        assert found == pytest.approx([0, 2, 5], abs=0.01), "it is counted, too"


async def test_a_large_frame_that_was_held_for_time_gives_back_its_memory(autojump_clock: MockClock) -> None:
    async with gated("request_percentage", 10) as (pipeline, clock, _, seen):
        clock.cost_s = 0.3
        client, other = await pipeline.connect(), await pipeline.connect()
        await client.request(MetadataRequest())
        await other.request(produce_request(2_000_000), attachments=bytes(2_000_000))
        await trio.sleep(1)
        assert len(seen) == 2 and next(iter(pipeline.channel._lines.values())).budget.used_bytes == 0


async def test_who_exceeded_it_is_not_read_for_the_time_that_was_told(autojump_clock: MockClock) -> None:
    """Whatever it asks for: what is not read costs nothing."""
    async with gated("producer_byte_rate", 1000) as (pipeline, *_):
        client, other = await pipeline.connect(), await pipeline.connect()
        answer = await client.request(produce_request(3000), attachments=bytes(3000))
        assert answer is not None and isinstance(answer.message, ProduceResponse)
        began, told_s = trio.current_time(), answer.message.throttle_time_ms / 1000
        assert await other.request(MetadataRequest()) is not None and trio.current_time() == began
        assert await client.request(MetadataRequest()) is not None
        assert told_s == pytest.approx(2, abs=0.1) and trio.current_time() - began == pytest.approx(told_s, abs=0.01)


async def test_requests_that_were_sent_ahead_pass_one_by_one_and_in_order(autojump_clock: MockClock) -> None:
    async with gated("producer_byte_rate", 1000) as (pipeline, _, _, seen):
        client = await pipeline.connect()
        frame = request_frame(produce_request(1000, acks=0), attachments=bytes(1000))
        await client.send(frame * 50)
        passed = []
        for _ in range(5):
            await trio.sleep(5)
            passed.append(len(seen))
        assert passed[1:] == pytest.approx([9, 14, 19, 24], abs=2)


@pytest.mark.parametrize(("acks", "handled"), [(1, 2), (0, 4)])
async def test_requests_of_peers_that_ended_leave_the_line_where_somebody_would_ask_again(
    acks: int, handled: int, autojump_clock: MockClock
) -> None:
    """What was sent ahead behind them does not hide that. Without an answer two wait on, for 3 s and for 7 s."""
    async with gated("producer_byte_rate", 1000) as (pipeline, _, sensors, seen):
        clients = [await pipeline.connect() for _ in range(10)]
        frame = request_frame(produce_request(4000, acks=acks), attachments=bytes(4000))
        for client in clients[:-1]:
            await client.send(frame if client is clients[0] else frame + frame[:100])
            await trio.sleep(0.01)
        for client in clients[1:-1]:
            client.transport.close()
        began = trio.current_time()
        await clients[-1].request(produce_request(4000), attachments=bytes(4000))
        assert len(seen) == handled
        assert (trio.current_time() - began < 6) == (acks == 1)
        [sensor] = sensors["producer_byte_rate"]._sensors.values()
        assert not sensor.line


async def test_a_large_frame_is_not_received_while_something_is_owed(autojump_clock: MockClock) -> None:
    size = 2 * 1024 * 1024
    async with gated("producer_byte_rate", size / 4) as (pipeline, _, _, seen):
        client, other = await pipeline.connect(), await pipeline.connect()
        large = request_frame(produce_request(size), attachments=bytes(size))
        await client.send(large)
        await trio.sleep(0.5)
        assert len(seen) == 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.send, large)
            await trio.sleep(2)
            data = next(iter(pipeline.channel._lines.values())).budget
            assert (len(seen), data.used_bytes) == (1, 0)
        await trio.sleep(5)
        assert len(seen) == 2
        throttled = pipeline.channel.counts.rows[ApiKey.PRODUCE].throttle
        assert throttled.total == pytest.approx(3 + 2.5 + 4, abs=0.1), "both were muted; between, one was in line"


@pytest.mark.parametrize("size", [600_000, 2_000_000])
async def test_many_connections_with_large_requests_pass_what_one_would(size: int, autojump_clock: MockClock) -> None:
    """Above 512 KiB, whether they fit into the receive buffer or not; each alone above what all windows give."""
    async with gated("producer_byte_rate", 50_000) as (pipeline, _, _, seen):
        clients = [await pipeline.connect() for _ in range(10)]
        request = request_frame(produce_request(size), attachments=bytes(size))

        async def repeat(client: RawClient) -> None:
            while True:
                await client.send(request)
                await client.response()

        with trio.move_on_after(600):
            async with trio.open_nursery() as nursery:
                for client in clients:
                    nursery.start_soon(repeat, client)
        assert len(seen) * size <= 50_000 * 601 + size
        assert len(seen) * size >= 50_000 * 590 - size


@pytest.mark.parametrize("is_another_first", [False, True])
async def test_what_is_announced_and_never_comes_is_not_owed(is_another_first: bool, autojump_clock: MockClock) -> None:
    """Also by one that waits in line until it may be received."""
    async with gated("producer_byte_rate", 100_000) as (pipeline, _, sensors, seen):
        liar, other = await pipeline.connect(), await pipeline.connect()
        if is_another_first:
            await other.send(request_frame(produce_request(1_000_000), attachments=bytes(1_000_000)))
            await other.response()
        await liar.send(encode_head(ApiKey.PRODUCE, 0, 1, produce_request(100_000_000), 100_000_000) + bytes(200))
        await trio.sleep(20)
        liar.transport.close()
        began, before = trio.current_time(), len(seen)
        await other.send(request_frame(produce_request(100), attachments=bytes(100)))
        assert await other.response() is not None
        assert len(seen) == before + 1
        assert trio.current_time() - began < 5
        [sensor] = sensors["producer_byte_rate"]._sensors.values()
        assert sensor.meter.owed_s(trio.current_time()) < 1


async def test_large_frames_in_line_are_let_go_with_their_quota(autojump_clock: MockClock) -> None:
    size = 2_000_000
    async with gated("producer_byte_rate", 100_000) as (pipeline, _, sensors, seen):
        large = request_frame(produce_request(size), attachments=bytes(size))
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon((await pipeline.connect()).send, large)
            await trio.sleep(1)
            assert len(seen) == 1
            for sensor in sensors["producer_byte_rate"].set_bounds({}, 0.0):
                let_go(sensor)
            await trio.sleep(1)
            assert len(seen) == 5


async def test_large_frames_in_line_are_let_go_where_another_quota_begins_to_count(autojump_clock: MockClock) -> None:
    """And are charged to that one only."""
    async with gated("producer_byte_rate", 100_000, dialects=(NATIVE, KAFKA)) as (pipeline, _, sensors, seen):
        table = sensors["producer_byte_rate"]
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon((await pipeline.connect()).send, large_kafka_frame())
            await trio.sleep(1)
            assert len(seen) == 1
            [before] = table
            table.set_bounds({EVERYBODY: 100_000, QuotaEntity("ANONYMOUS", "app"): 10**9}, 0.0)
            ask_again(before)
            await trio.sleep(1)
            assert len(seen) == 5
            assert before.meter.owed_s(trio.current_time()) == pytest.approx(17, abs=0.5)


def large_kafka_frame() -> bytes:
    """Produce of 2 MB."""
    body = bytes.fromhex("ffff 0001 000001f4 00000001 0001 74 00000001 00000000") + (2_000_000).to_bytes(4, "big")
    return kafka_frame(ApiKey.PRODUCE, 3, body + bytes(2_000_000), client_id=b"app")


async def test_the_first_large_frame_of_a_connection_is_held_by_its_client_id(autojump_clock: MockClock) -> None:
    async with gated("producer_byte_rate", 100_000, dialects=(NATIVE, KAFKA)) as (pipeline, _, sensors, seen):
        sensors["producer_byte_rate"].set_bounds({QuotaEntity(client_id="app"): 100_000}, 0.0)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon((await pipeline.connect()).send, large_kafka_frame())
            await trio.sleep(15)
            assert len(seen) == 1
            await trio.sleep(20)
            assert len(seen) == 2
            nursery.cancel_scope.cancel()


async def test_without_a_quota_nothing_stands_before_the_handlers() -> None:
    async with gated("producer_byte_rate", 1) as (pipeline, *_):
        bare = pipeline.channel._behind_gates
        assert pipeline.channel._handlers[ApiKey.PRODUCE] is not bare[ApiKey.PRODUCE]
        assert pipeline.channel._handlers[ApiKey.METADATA] is bare[ApiKey.METADATA], "no quota counts its time"
        pipeline.channel.switch_gate(None)
        assert pipeline.channel._handlers == bare
