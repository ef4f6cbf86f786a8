"""The table of bad input against the pipeline in memory: typed error or close, and nobody else notices."""

from __future__ import annotations

import tracemalloc

import pytest
import structlog.testing
import trio
import trio.testing

from strandline.broker.network.limits import ConnectionLimits
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_channel import Handler
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.messages import (
    ApiVersionsResponse,
    ControlledShutdownResponse,
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
    DescribeLogDirsResponse,
    DescribeProducersResponse,
    FetchResponse,
    ListOffsetsResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    OffsetForLeaderEpochResponse,
    ProduceResponse,
    Request,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from support.bad_input import (
    API_VERSIONS_OF_THE_FUTURE,
    CORRELATION_ID,
    EVERYWHERE,
    ON_CLIENT_LISTENERS,
    OTHER_PROTOCOLS,
    BadInput,
    Outcome,
    check,
)
from support.pipeline import open_pipeline
from support.raw_client import frame_of, request_frame


async def queued(request: RequestInHand[Request]) -> Message:
    responses: dict[int, Message] = {
        ApiKey.CREATE_TOPICS: CreateTopicsResponse([]),
        ApiKey.DELETE_TOPICS: DeleteTopicsResponse([]),
        ApiKey.STOP_REPLICA: StopReplicaResponse(0, []),
        ApiKey.UPDATE_METADATA: UpdateMetadataResponse(0),
        ApiKey.CONTROLLED_SHUTDOWN: ControlledShutdownResponse(0, []),
        ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsResponse(0),
    }
    return responses[request.api.key]


HANDLERS: dict[ApiKey, Handler] = {
    ApiKey.PRODUCE: lambda request: request.respond(ProduceResponse([])),
    ApiKey.FETCH: lambda request: request.respond(FetchResponse([])),
    ApiKey.LIST_OFFSETS: lambda request: request.respond(ListOffsetsResponse([])),
    ApiKey.METADATA: lambda request: request.respond(MetadataResponse([], [])),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda request: request.respond(OffsetForLeaderEpochResponse([])),
    ApiKey.DELETE_RECORDS: lambda request: request.respond(DeleteRecordsResponse([])),
    ApiKey.API_VERSIONS: lambda request: request.respond(ApiVersionsResponse(35, [])),
    ApiKey.DESCRIBE_PRODUCERS: lambda request: request.respond(DescribeProducersResponse([])),
}
for key in (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.DESCRIBE_LOG_DIRS,
):
    HANDLERS[key] = queued


@pytest.mark.parametrize("row", [*EVERYWHERE, *ON_CLIENT_LISTENERS], ids=str)
async def test_bad_input_gets_a_typed_error_or_a_close_and_nobody_else_notices(
    row: BadInput, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_pipeline(HANDLERS, is_inter_broker=False) as pipeline:
        witness = await pipeline.connect("witness")
        assert await witness.request(MetadataRequest()) is not None
        client = await pipeline.connect()
        since = trio.current_time()
        await check(row, client)
        waited_s = trio.current_time() - since
        assert waited_s >= 30 if row.outcome is Outcome.CLOSED_AT_DEADLINE else waited_s == 0
        client.close()
        await trio.testing.wait_all_tasks_blocked()
        assert await witness.request(MetadataRequest()) is not None
        assert pipeline.quota.total == 1
        assert pipeline.channel.budget_of(APIS[ApiKey.PRODUCE]).used_bytes == 0


@pytest.mark.parametrize("row", [row for row in EVERYWHERE if row.outcome is not Outcome.CLOSED_AT_DEADLINE], ids=str)
async def test_what_came_whole_before_bad_input_is_handled(row: BadInput) -> None:
    async with open_pipeline(HANDLERS, is_inter_broker=False) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(MetadataRequest(), correlation_id=7) + row.data)
        response = await client.response()
        assert response is not None
        assert response.header.correlation_id == 7


async def test_api_versions_is_answered_whatever_its_version_and_body() -> None:
    async with open_pipeline(HANDLERS) as pipeline:
        for data in (API_VERSIONS_OF_THE_FUTURE, frame_of(ApiKey.API_VERSIONS, 999, CORRELATION_ID, b"\xc1")):
            client = await pipeline.connect()
            await client.send(data)
            response = await client.response()
            assert response is not None
            assert response.message == ApiVersionsResponse(35, [])


async def test_lengths_are_checked_before_memory_is_taken() -> None:
    async with open_pipeline(HANDLERS) as pipeline:
        clients = [await pipeline.connect() for _ in range(20)]
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for client in clients:
            await client.send((1_000_000_000).to_bytes(4, "big") + b"\x94")
        for client in clients:
            assert await client.is_closed_by_peer()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak - before < 2_000_000


async def test_a_flood_of_bad_input_is_not_a_flood_of_log_lines(autojump_clock: trio.testing.MockClock) -> None:
    with structlog.testing.capture_logs() as lines:
        async with open_pipeline(HANDLERS, limits=ConnectionLimits()) as pipeline:
            for _ in range(50):
                client = await pipeline.connect()
                await client.send(OTHER_PROTOCOLS[0].data)
                assert await client.is_closed_by_peer()
            await trio.sleep(2)
            client = await pipeline.connect()
            await client.send(OTHER_PROTOCOLS[0].data)
            assert await client.is_closed_by_peer()
    assert len(lines) == 2
    assert lines[1]["left_out"] == 49
    assert "GET" not in str(lines)  # no payload
