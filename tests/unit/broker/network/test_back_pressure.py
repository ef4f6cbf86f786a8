"""Clients that send more than they read, or than others may wait for, over the in-memory network."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from strandline.broker.network.connection import Connection
from strandline.broker.network.limits import ConnectionLimits
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.response_slot import ResponseSlot
from strandline.protocol.api import ApiKey
from strandline.protocol.messages import (
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from strandline.runtime.network import TransportClosed
from strandline.testkit.network import MemoryNetwork
from support.pipeline import open_pipeline
from support.raw_client import RawClient, produce_frames, request_frame

OK = ProduceResponse([])


async def test_ten_thousand_pipelined_requests_are_answered_with_a_bounded_number_in_flight() -> None:
    parked: list[RequestInHand] = []
    in_flight: list[int] = []

    def park(request: RequestInHand) -> None:
        parked.append(request)
        in_flight.append(len(request.connection.slots))

    async with (
        open_pipeline({ApiKey.PRODUCE: park}, limits=ConnectionLimits(max_in_flight=100)) as pipeline,
        trio.open_nursery() as nursery,
    ):

        @nursery.start_soon
        async def complete() -> None:
            while True:
                await trio.testing.wait_all_tasks_blocked()
                batch = parked.copy()
                parked.clear()
                for request in batch:
                    request.respond(OK)
                pipeline.channel.flush_responses()
                await trio.lowlevel.checkpoint()

        client = await pipeline.connect()
        nursery.start_soon(client.send, produce_frames(10_000))
        found = await client.responses(10_000)
        assert [r.header.correlation_id for r in found] == list(range(10_000))
        assert max(in_flight) == 100
        nursery.cancel_scope.cancel()


async def test_a_client_that_never_reads_is_not_read_from_then_closed(autojump_clock: trio.testing.MockClock) -> None:
    parked: list[RequestInHand] = []
    big = MetadataResponse([], [MetadataTopic(0, "x" * 10_000, [])])

    def handle(request: RequestInHand) -> None:
        parked.append(request)
        request.respond(big)

    network = MemoryNetwork(window_bytes=50_000)
    limits = ConnectionLimits(max_pending_bytes=200_000, send_timeout_ms=5_000)
    async with (
        open_pipeline({ApiKey.METADATA: handle}, limits=limits, network=network) as pipeline,
        trio.open_nursery() as nursery,
    ):
        client = await pipeline.connect()
        nursery.start_soon(send_until_closed, client, request_frame(MetadataRequest()) * 1000)
        await trio.sleep(4)
        connection = parked[0].connection
        assert 200_000 <= connection.pending_bytes < 200_000 + 17 * 10_100
        assert len(parked) < 50
        assert connection.why_closed == ""
        await trio.sleep(5)
        assert "took no response" in connection.why_closed
        assert len(parked) < 50


async def send_until_closed(client: RawClient, data: bytes) -> None:
    try:
        await client.send(data)
    except TransportClosed:
        pass


async def test_reading_goes_on_once_the_peer_has_read(autojump_clock: trio.testing.MockClock) -> None:
    big = ProduceResponse([TopicProduceResponse("x" * 10_000, [PartitionProduceResponse(0, 0)])])
    network = MemoryNetwork(window_bytes=50_000)
    limits = ConnectionLimits(max_pending_bytes=100_000, burst_max_requests=5)
    async with (
        open_pipeline(
            {ApiKey.PRODUCE: lambda request: request.respond(big)}, limits=limits, network=network
        ) as pipeline,
        trio.open_nursery() as nursery,
    ):
        client = await pipeline.connect()
        nursery.start_soon(client.send, produce_frames(500))
        await trio.sleep(1)
        found = await client.responses(500)
        assert [r.header.correlation_id for r in found] == list(range(500))


async def test_a_connection_that_floods_lets_others_in() -> None:
    order: list[str] = []

    def handle(request: RequestInHand) -> None:
        order.append(request.context.peer.host)
        request.respond(OK)

    limits = ConnectionLimits(burst_max_requests=10)
    async with open_pipeline(
        {ApiKey.PRODUCE: handle}, limits=limits, network=MemoryNetwork(window_bytes=10**7)
    ) as pipeline:
        flood, other = await pipeline.connect("flood"), await pipeline.connect("other")
        await trio.testing.wait_all_tasks_blocked()
        await flood.send(produce_frames(5000))
        await other.send(produce_frames(1))
        await other.responses(1)
        assert order.index("other") < 200


async def test_refused_requests_count_among_those_in_flight(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_flight: list[int] = []
    new_slot = Connection.new_slot

    def counted(connection: Connection, *where: Any) -> ResponseSlot:
        slot = new_slot(connection, *where)
        in_flight.append(len(connection.slots))
        return slot

    monkeypatch.setattr(Connection, "new_slot", counted)
    limits = ConnectionLimits(max_in_flight=64, burst_max_requests=32)
    refused = request_frame(ProduceRequest(-1, 1000, []), version=99)
    async with open_pipeline(
        {ApiKey.METADATA: lambda _: None, ApiKey.PRODUCE: lambda _: None}, limits=limits
    ) as pipeline:
        client = await pipeline.connect()
        with trio.move_on_after(5):
            await client.send(request_frame(MetadataRequest([])) + 10_000 * refused)
        await trio.sleep(1)
    assert max(in_flight) <= 64 + 32
