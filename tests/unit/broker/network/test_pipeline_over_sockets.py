"""The pipeline over real sockets and a real file: sendfile, leftovers, a peer that goes away."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
import trio
import trio.testing

from strandline.broker.network.acceptor import Acceptor, ListenerConfig
from strandline.broker.network.dialects.native import NATIVE
from strandline.broker.network.limits import ConnectionLimits, ConnectionQuota
from strandline.broker.network.processor import Processor
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_channel import Handler, RequestChannel, WorkQueue
from strandline.broker.network.unflushed_connections import UnflushedConnections
from strandline.protocol.api import ApiKey
from strandline.protocol.messages import (
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    MetadataRequest,
    MetadataResponse,
)
from strandline.runtime.disk import FileRegion
from strandline.runtime.disk_posix import PosixDisk
from strandline.runtime.network import Address
from strandline.runtime.network_socket import SocketNetwork
from support.raw_client import RawClient, request_frame

FETCH = FetchRequest(0, 0, 0, [])


@asynccontextmanager
async def serving(handlers: dict[ApiKey, Handler]) -> AsyncIterator[tuple[Address, ConnectionQuota]]:
    log = structlog.get_logger()
    channel = RequestChannel(
        handlers=handlers,
        dialects=(NATIVE,),
        end_of_burst=lambda: None,
        unflushed_connections=UnflushedConnections(),
        work=WorkQueue(10),
        max_queued_bytes=10**8,
        num_handlers=1,
        log=log,
    )
    quota = ConnectionQuota(10, 10)
    processor = Processor(0, channel, ConnectionLimits(), log)
    config = ListenerConfig("PLAINTEXT", Address("127.0.0.1", 0), is_inter_broker=True)
    async with trio.open_nursery() as nursery:
        await nursery.start(processor.run)
        address = await nursery.start(Acceptor(config, SocketNetwork(), [processor], quota, log).run)
        yield address, quota
        nursery.cancel_scope.cancel()
    assert quota.total == 0


async def test_regions_of_a_real_file_arrive_whole_at_a_reader_that_comes_late(tmp_path: Path) -> None:
    content = random.Random(5).randbytes(3_000_000)
    file = PosixDisk().open(str(tmp_path / "segment"), create=True)
    file.pwritev([content], 0)
    spans = [(0, 3_000_000), (17, 60_000), (99, 65_536), (1_000_000, 70_001), (5, 1)]

    def fetch(request: RequestInHand) -> None:
        regions = [FileRegion(file, position, length) for position, length in spans]
        request.respond(FetchResponse([FetchTopicResponse("t", [FetchPartitionData(0, 0, 0) for _ in spans])]), regions)

    async with serving({ApiKey.FETCH: fetch}) as (address, _):
        client = RawClient(await SocketNetwork().connect(address))
        for number in range(5):
            await client.send(request_frame(FETCH, correlation_id=number))
        await trio.testing.wait_all_tasks_blocked(0.01)  # the socket's buffers are full, the rest is the writer's
        expected = b"".join(content[position : position + length] for position, length in spans)
        for number in range(5):
            response = await client.response()
            assert response is not None
            assert response.header.correlation_id == number
            assert response.attachments == expected
        client.close()
    file.close()


async def test_a_peer_that_goes_away_in_the_middle_of_a_response_leaves_nothing_behind(tmp_path: Path) -> None:
    file = PosixDisk().open(str(tmp_path / "segment"), create=True)
    file.pwritev([bytes(30_000_000)], 0)

    def fetch(request: RequestInHand) -> None:
        answer = FetchResponse([FetchTopicResponse("t", [FetchPartitionData(0, 0, 0)])])
        request.respond(answer, [FileRegion(file, 0, 30_000_000)])

    def metadata(request: RequestInHand) -> None:
        request.respond(MetadataResponse([], []))

    async with serving({ApiKey.FETCH: fetch, ApiKey.METADATA: metadata}) as (address, quota):
        client = RawClient(await SocketNetwork().connect(address))
        await client.send(request_frame(FETCH) * 3)
        await client.transport.wait_readable()
        client.close()
        other = RawClient(await SocketNetwork().connect(address))
        while quota.total > 1:
            assert await other.request(MetadataRequest()) is not None
        other.close()
    file.close()
