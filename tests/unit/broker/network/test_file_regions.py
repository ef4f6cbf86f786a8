"""Responses that carry pieces of files: their order, slow readers, files that cannot give what was promised."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing

from strandline.broker.network.dialects import Regions
from strandline.broker.network.request import RequestInHand
from strandline.protocol.api import ApiKey
from strandline.protocol.messages import (
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    MetadataRequest,
    MetadataResponse,
    Request,
)
from strandline.runtime.disk import FileRegion
from support.pipeline import open_pipeline
from support.raw_client import request_frame


def fetch_frames(count: int) -> bytes:
    return request_frame(FetchRequest(0, 0, 0, [])) * count


def answer(request: RequestInHand[Request], regions: Regions) -> None:
    """A partition for each region."""
    data = [FetchPartitionData(index, 0, 0) for index in range(len(regions))]
    request.respond(FetchResponse([FetchTopicResponse("t", data)]), regions)


class BytesFile:
    """A file of an in-memory disk, as far as a region needs it."""

    def __init__(self, data: bytes) -> None:
        self.path = "/logs/t-0/0.log"
        self.data = data
        self.truncations = 0

    def pread(self, length: int, position: int) -> bytes:
        return self.data[position : position + length]

    def size(self) -> int:
        return len(self.data)


async def test_file_regions_follow_their_head_whatever_their_size() -> None:
    content = bytes(range(256)) * 2000
    file = BytesFile(content)
    spans = [(0, 10), (5, 100_000), (77, 300), (1000, 400_000), (3, 1)]

    def handle(request: RequestInHand) -> None:
        regions = [FileRegion(file, position, length) for position, length in spans]
        answer(request, [b"first", *regions])

    async with open_pipeline({ApiKey.FETCH: handle}) as pipeline:
        client = await pipeline.connect()
        await client.send(fetch_frames(3))
        expected = b"first" + b"".join(content[position : position + length] for position, length in spans)
        for response in await client.responses(3):
            assert response.attachments == expected
        [connection] = pipeline.processor.connections
        assert connection.pending_bytes == 0


def answer_metadata(request: RequestInHand) -> None:
    request.respond(MetadataResponse([], []))


async def test_a_slow_reader_never_holds_another_connection() -> None:
    file = BytesFile(bytes(1_000_000))

    def handle(request: RequestInHand) -> None:
        answer(request, [FileRegion(file, 0, 1_000_000)])

    async with open_pipeline({ApiKey.FETCH: handle, ApiKey.METADATA: answer_metadata}) as pipeline:
        slow, quick = await pipeline.connect("slow"), await pipeline.connect("quick")
        await slow.send(fetch_frames(20))
        await trio.testing.wait_all_tasks_blocked()
        for number in range(10):
            response = await quick.request(MetadataRequest(), correlation_id=number)
            assert response is not None
            assert response.header.correlation_id == number
        found = await slow.responses(20)
        assert all(len(r.attachments) == 1_000_000 for r in found)


@pytest.mark.parametrize("length", [1_000, 900_000], ids=["small", "large"])
async def test_a_region_whose_file_was_truncated_ends_the_connection(length: int) -> None:
    file = BytesFile(bytes(1_000_000))
    parked: list[RequestInHand] = []
    async with open_pipeline({ApiKey.FETCH: parked.append}) as pipeline:
        client = await pipeline.connect()
        await client.send(fetch_frames(2))
        await trio.testing.wait_all_tasks_blocked()
        answer(parked[1], [FileRegion(file, 0, length)])
        file.truncations += 1
        answer(parked[0], [])
        pipeline.channel.flush_responses()
        assert parked[0].connection.closed
        assert "truncated" in parked[0].connection.why_closed


async def test_a_truncation_in_the_middle_of_a_region_ends_the_connection() -> None:
    file = BytesFile(bytes(1_000_000))

    def handle(request: RequestInHand) -> None:
        answer(request, [FileRegion(file, 0, 1_000_000)])

    async with open_pipeline({ApiKey.FETCH: handle}) as pipeline:
        client = await pipeline.connect()
        await client.send(fetch_frames(1))
        await trio.testing.wait_all_tasks_blocked()  # the window is full, the rest is the writer's
        file.truncations += 1
        assert await client.response() is None


@pytest.mark.parametrize("length", [1_000, 900_000], ids=["small", "large"])
async def test_a_file_that_ends_inside_a_promised_region_ends_the_connection(length: int) -> None:
    file = BytesFile(bytes(999))

    def handle(request: RequestInHand) -> None:
        answer(request, [FileRegion(file, 0, length)])

    async with open_pipeline({ApiKey.FETCH: handle}) as pipeline:
        client = await pipeline.connect()
        await client.send(fetch_frames(1))
        assert await client.response() is None


class UnreadableFile(BytesFile):
    def pread(self, length: int, position: int) -> bytes:
        raise OSError(errno.EIO, "EIO")


@pytest.mark.parametrize("length", [1_000, 900_000], ids=["small", "large"])
async def test_a_file_that_cannot_be_read_ends_the_connection_and_is_told_to_its_directory(length: int) -> None:
    fine, broken = BytesFile(bytes(1000)), UnreadableFile(bytes(1_000_000))
    fine.path, broken.path = "/logs/fine", "/logs/broken"
    told: list[str] = []

    def handle(request: RequestInHand) -> None:
        regions = [FileRegion(fine, 0, 1000), FileRegion(broken, 0, length)]
        answer(request, regions)

    async with open_pipeline({ApiKey.FETCH: handle}) as pipeline:
        pipeline.channel.read_failed = lambda path, error: told.append(path)
        client = await pipeline.connect()
        await client.send(fetch_frames(1))
        assert await client.response() is None
    assert told == ["/logs/broken"]


class CoolingFile(BytesFile):
    """On a disk that a thread has to wait for; `cold`: its pages have left the cache."""

    cold = False
    read_on_the_loop = 0

    def is_resident(self, position: int, length: int) -> bool:
        return not self.cold

    def pread(self, length: int, position: int) -> bytes:
        self.read_on_the_loop += self.cold
        return super().pread(length, position)


@pytest.mark.parametrize("regions_bytes", [[3_000_000], [40_000] * 50], ids=["one large", "many small"])
async def test_what_goes_cold_while_a_slow_peer_reads_is_warmed_before_it_is_sent(
    regions_bytes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.broker.network.regions.COLD_DISTANCE_BYTES", 0)
    file = CoolingFile(bytes(3_000_000))
    warmed: list[FileRegion] = []
    size = sum(regions_bytes)

    async def warm(region: FileRegion) -> None:
        file.cold = False
        warmed.append(region)
        await trio.lowlevel.checkpoint()

    def handle(request: RequestInHand) -> None:
        regions = [FileRegion(file, 0, length) for length in regions_bytes]
        answer(request, regions)

    async with open_pipeline({ApiKey.FETCH: handle}) as pipeline:
        pipeline.channel.warm = warm
        client = await pipeline.connect()
        await client.send(fetch_frames(1))
        await trio.testing.wait_all_tasks_blocked()  # the window is full, the rest is the writer's
        file.cold = True
        response = await client.response()
        assert response is not None and len(response.attachments) == size
    assert warmed and file.read_on_the_loop == 0
    assert warmed[0].length < size


async def test_a_disk_that_fails_while_a_region_is_warmed_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.broker.network.regions.COLD_DISTANCE_BYTES", 0)
    file = CoolingFile(bytes(3_000_000))
    told: list[str] = []

    async def warm(region: FileRegion) -> None:
        raise OSError(errno.EIO, "EIO")

    def handle(request: RequestInHand) -> None:
        answer(request, [FileRegion(file, 0, 3_000_000)])

    async with open_pipeline({ApiKey.FETCH: handle}) as pipeline:
        pipeline.channel.warm = warm
        pipeline.channel.read_failed = lambda path, error: told.append(path)
        client = await pipeline.connect()
        await client.send(fetch_frames(1))
        await trio.testing.wait_all_tasks_blocked()
        file.cold = True
        assert await client.response() is None
    assert told == [file.path]
