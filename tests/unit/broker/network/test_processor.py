"""From bytes to handlers and back: order, bursts, frames, bugs and the end, over the in-memory network."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from strandline.broker.network.limits import ConnectionLimits
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_context import RequestContext
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from strandline.runtime.network import Address
from strandline.testkit.network import MemoryNetwork
from support.effects import tasks
from support.pipeline import open_pipeline
from support.raw_client import produce_frames, produce_request, request_frame

OK = ProduceResponse([])


def answer(request: RequestInHand) -> None:
    request.respond(OK)


def answer_metadata(request: RequestInHand) -> None:
    request.respond(MetadataResponse([], []))


async def test_responses_leave_in_the_order_of_their_requests() -> None:
    parked: list[RequestInHand] = []
    async with open_pipeline({ApiKey.PRODUCE: parked.append}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(5))
        await trio.testing.wait_all_tasks_blocked()
        for request in reversed(parked):
            request.respond(OK)
            pipeline.channel.flush_responses()
        assert [r.header.correlation_id for r in await client.responses(5)] == [0, 1, 2, 3, 4]


async def test_nothing_leaves_before_an_earlier_response_is_ready() -> None:
    parked: list[RequestInHand] = []
    async with open_pipeline({ApiKey.PRODUCE: parked.append, ApiKey.METADATA: answer_metadata}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(1) + request_frame(MetadataRequest(), correlation_id=1))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.WouldBlock):
            client.transport.recv_into_nowait(memoryview(bytearray(1)))
        parked[0].respond(OK)
        pipeline.channel.flush_responses()
        assert [r.header.correlation_id for r in await client.responses(2)] == [0, 1]


async def test_a_burst_is_handled_in_order_and_ended_once() -> None:
    events: list[Any] = []

    def handle(request: RequestInHand) -> None:
        events.append(request.header.correlation_id)
        request.respond(OK)

    async with open_pipeline({ApiKey.PRODUCE: handle}, end_of_burst=lambda: events.append("end of burst")) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(50))
        await client.responses(50)
        assert events == [*range(50), "end of burst"]


async def test_attachments_can_be_changed_in_place_until_the_end_of_the_burst() -> None:
    views: list[memoryview] = []
    written: list[bytes] = []

    def handle(request: RequestInHand) -> None:
        request.records[0][0:2] = b"ok"
        views.append(request.records[0])
        request.respond(OK)

    async with open_pipeline(
        {ApiKey.PRODUCE: handle}, end_of_burst=lambda: written.extend(map(bytes, views))
    ) as pipeline:
        client = await pipeline.connect()
        await client.send(
            request_frame(produce_request(4), attachments=b"abcd")
            + request_frame(produce_request(4), attachments=b"efgh")
        )
        await client.responses(2)
        assert written == [b"okcd", b"okgh"]


async def test_frames_may_come_byte_by_byte() -> None:
    sizes: list[int] = []

    def handle(request: RequestInHand) -> None:
        sizes.append(len(request.records[0]))
        request.respond(OK)

    async with open_pipeline({ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        for byte in produce_frames(2, size=7):
            await client.send(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()
        await client.responses(2)
        assert sizes == [7, 7]


@pytest.mark.parametrize("seed", range(8))
async def test_frames_may_come_in_any_pieces(seed: int) -> None:
    network = MemoryNetwork(seed)
    network.link("client", "broker").max_piece_bytes = 3000
    network.link("broker", "client").max_piece_bytes = 50
    received: list[tuple[int, bytes]] = []

    def handle(request: RequestInHand) -> None:
        received.append((request.header.correlation_id, bytes(request.records[0])))
        request.respond(OK)

    limits = ConnectionLimits(receive_buffer_bytes=4000, large_frame_bytes=2000)
    async with (
        open_pipeline({ApiKey.PRODUCE: handle}, limits=limits, network=network) as pipeline,
        trio.open_nursery() as nursery,
    ):
        client = await pipeline.connect()
        contents = [bytes([number]) * (number * 97 % 9000) for number in range(60)]
        stream = b"".join(
            request_frame(produce_request(len(content)), correlation_id=number, attachments=content)
            for number, content in enumerate(contents)
        )
        nursery.start_soon(client.send, stream)
        found = await client.responses(60)
        assert [r.header.correlation_id for r in found] == list(range(60))
        assert received == list(enumerate(contents))
        assert pipeline.channel.budget_of(APIS[ApiKey.PRODUCE]).used_bytes == 0


async def test_a_frame_over_the_limit_ends_the_connection_at_its_prefix() -> None:
    limits = ConnectionLimits(max_frame_bytes=10_000)
    async with open_pipeline({ApiKey.PRODUCE: answer}, limits=limits) as pipeline:
        for length in (10_001, 2**31 - 1, 0, -1, 16):
            client = await pipeline.connect()
            assert await client.request(produce_request()) is not None  # its dialect is known from here on
            await client.send(length.to_bytes(4, "big", signed=True))
            assert await client.is_closed_by_peer()
        client = await pipeline.connect()
        frame = request_frame(produce_request(9_000), attachments=bytes(9_000))
        size = 9_000 + 10_004 - len(frame)
        frame = request_frame(produce_request(size), attachments=bytes(size))
        assert len(frame) == 10_004
        await client.send(frame)
        await client.responses(1)


async def test_acks_0_takes_no_place_in_the_response_order() -> None:
    seen: list[int] = []

    def handle(request: RequestInHand) -> None:
        seen.append(len(request.connection.slots))
        if request.message.acks:
            request.respond(OK)

    async with open_pipeline({ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        frames = [request_frame(produce_request(acks=0), correlation_id=1)] * 20
        await client.send(b"".join(frames))
        await trio.testing.wait_all_tasks_blocked()
        await client.send(request_frame(produce_request(), correlation_id=2))
        assert (await client.responses(1))[0].header.correlation_id == 2
        assert seen == [0] * 20 + [1]


async def test_a_bug_under_acks_0_closes_the_connection() -> None:
    def handle(request: RequestInHand) -> None:
        raise RuntimeError("bug")

    async with open_pipeline({ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(produce_request(acks=0)))
        assert await client.is_closed_by_peer()


async def test_a_bug_in_a_handler_is_one_error_response_and_the_connection_goes_on() -> None:
    def handle(request: RequestInHand) -> None:
        if request.header.correlation_id == 1:
            raise RuntimeError("bug")
        request.respond(OK)

    async with open_pipeline({ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(3))
        first, second, third = await client.responses(3)
        assert first.message == third.message == OK
        assert isinstance(second.message, ProduceResponse)
        partition = second.message.responses[0].partition_responses[0]
        assert (partition.index, partition.error_code) == (0, ErrorCode.UNKNOWN_SERVER_ERROR)


async def test_only_the_first_answer_counts() -> None:
    def handle(request: RequestInHand) -> None:
        request.respond(OK)
        request.respond(ProduceResponse([TopicProduceResponse("again", [])]))
        request.no_response()

    async with open_pipeline({ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(2))
        assert [r.message for r in await client.responses(2)] == [OK, OK]


async def test_answering_a_closed_connection_does_nothing() -> None:
    parked: list[RequestInHand] = []
    async with open_pipeline({ApiKey.PRODUCE: parked.append}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(1))
        await trio.testing.wait_all_tasks_blocked()
        client.close()
        await trio.testing.wait_all_tasks_blocked()
        assert parked[0].connection.closed
        parked[0].respond(OK)
        parked[0].no_response()
        pipeline.channel.flush_responses()
        assert pipeline.network.open_transports == 0


async def test_an_answer_that_cannot_be_encoded_becomes_an_error_response() -> None:
    def handle(request: RequestInHand) -> None:
        request.respond(ProduceResponse([TopicProduceResponse(object(), [])]))

    async with open_pipeline({ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        response = await client.request(produce_request())
        assert response is not None
        assert isinstance(response.message, ProduceResponse)
        assert response.message.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_produce_without_an_answer_of_a_version_that_is_not_served_is_closed_unanswered() -> None:
    async with open_pipeline({ApiKey.PRODUCE: answer}) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(produce_request(), correlation_id=1))
        await client.send(request_frame(produce_request(acks=0), version=99, correlation_id=2))
        (good,) = await client.responses(1)
        assert good.message == OK
        assert await client.is_closed_by_peer()


async def test_stopping_lets_due_responses_leave_and_then_closes(autojump_clock: trio.testing.MockClock) -> None:
    parked: list[RequestInHand] = []
    async with open_pipeline({ApiKey.PRODUCE: parked.append}) as pipeline, trio.open_nursery() as nursery:
        idle, busy, stuck = [await pipeline.connect() for _ in range(3)]
        await busy.send(produce_frames(1))
        await trio.testing.wait_all_tasks_blocked()
        await stuck.send(produce_frames(1))
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        nursery.start_soon(pipeline.processor.stop, started + 10)
        assert await idle.is_closed_by_peer()
        parked[0].respond(OK)
        pipeline.channel.flush_responses()
        assert await busy.response() is not None
        assert await busy.is_closed_by_peer()
        assert trio.current_time() < started + 10
        assert await stuck.is_closed_by_peer()
        assert trio.current_time() >= started + 10
        late = await pipeline.connect()
        assert await late.is_closed_by_peer()
    assert pipeline.quota.total == 0


async def test_a_version_that_is_not_served_is_answered_and_the_connection_goes_on() -> None:
    versions: list[int] = []

    def api_versions(request: RequestInHand) -> None:
        versions.append(request.header.version)
        request.respond(ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, []))

    async with open_pipeline({ApiKey.PRODUCE: answer, ApiKey.API_VERSIONS: api_versions}) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(produce_request(), version=99, correlation_id=5))
        await client.send(request_frame(ApiVersionsRequest(), version=77, correlation_id=6))
        await client.send(request_frame(produce_request(), correlation_id=7))
        refused, known, good = await client.responses(3)
        assert (refused.header.correlation_id, refused.header.version) == (5, 99)
        assert isinstance(refused.message, ProduceResponse)
        partition = refused.message.responses[0].partition_responses[0]
        assert partition.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (known.header.correlation_id, versions) == (6, [77])
        assert good.message == OK


async def test_a_processor_that_retires_serves_its_connections_to_their_end() -> None:
    async with open_pipeline({ApiKey.METADATA: answer_metadata}) as pipeline:
        first, last = await pipeline.connect(), await pipeline.connect()
        assert await first.request(MetadataRequest()) and await last.request(MetadataRequest())
        pipeline.processor.retire()
        first.close()
        await trio.testing.wait_all_tasks_blocked()
        assert await last.request(MetadataRequest())
        assert tasks("deadlines of processor 0") == 1
        last.close()
        await trio.testing.wait_all_tasks_blocked()
        assert tasks("deadlines of processor 0") == 0


async def test_a_processor_that_retires_keeps_whom_it_punishes_for_as_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    given_back: list[float] = []
    async with open_pipeline({ApiKey.METADATA: answer_metadata}) as pipeline:
        listener = await pipeline.network.node("other").listen(Address("other", 1))
        await pipeline.network.node("client").connect(Address("other", 1))
        since = trio.current_time()
        pipeline.processor.hold(
            await listener.accept(),
            RequestContext("PLAINTEXT", False, Address("client", 1)),
            lambda: given_back.append(trio.current_time() - since),
            5.0,
            lambda key: False,
        )
        pipeline.processor.retire()
        await trio.sleep(6)
        assert given_back == [5.0]
        assert tasks("deadlines of processor 0") == 0
