"""From bytes to handlers and back: order, bursts, budgets, back-pressure, over the in-memory network."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
import trio.testing

from strandline.broker.limits import ConnectionLimits
from strandline.broker.request_channel import RequestInHand
from strandline.protocol.api import ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from strandline.runtime.disk import FileRegion
from strandline.runtime.network import TransportClosed
from strandline.testkit.network import MemoryNetwork
from strandline.testkit.pipeline import open_pipeline
from strandline.testkit.raw_client import RawClient, Response, request_frame

OK = ProduceResponse([])


def produce(size: int = 0, *, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(acks, 30_000, [TopicProduceData("t", [PartitionProduceData(0, size)])])


def produce_frames(count: int, size: int = 10, first: int = 0) -> bytes:
    return b"".join(
        request_frame(produce(size), correlation_id=number, attachments=bytes(size))
        for number in range(first, first + count)
    )


async def responses(client: RawClient, count: int) -> list[Response]:
    found: list[Response] = []
    for _ in range(count):
        response = await client.response()
        assert response is not None, f"closed after {len(found)} responses"
        found.append(response)
    return found


def answer(request: RequestInHand) -> None:
    request.respond(OK)


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


async def test_responses_leave_in_the_order_of_their_requests() -> None:
    parked: list[RequestInHand] = []
    async with open_pipeline(inline={ApiKey.PRODUCE: parked.append}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(5))
        await trio.testing.wait_all_tasks_blocked()
        for request in reversed(parked):
            request.respond(OK)
            pipeline.channel.flush_responses()
        assert [r.header.correlation_id for r in await responses(client, 5)] == [0, 1, 2, 3, 4]


async def test_nothing_leaves_before_an_earlier_response_is_ready() -> None:
    parked: list[RequestInHand] = []
    async with open_pipeline(inline={ApiKey.PRODUCE: parked.append, ApiKey.METADATA: answer_metadata}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(1) + request_frame(MetadataRequest(), correlation_id=1))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.WouldBlock):
            client.transport.recv_into_nowait(memoryview(bytearray(1)))
        parked[0].respond(OK)
        pipeline.channel.flush_responses()
        assert [r.header.correlation_id for r in await responses(client, 2)] == [0, 1]


def answer_metadata(request: RequestInHand) -> None:
    request.respond(MetadataResponse([], []))


async def test_a_burst_is_handled_in_order_and_ended_once() -> None:
    events: list[Any] = []

    def handle(request: RequestInHand) -> None:
        events.append(request.correlation_id)
        request.respond(OK)

    async with open_pipeline(
        inline={ApiKey.PRODUCE: handle}, end_of_burst=lambda: events.append("end of burst")
    ) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(50))
        await responses(client, 50)
        assert events == [*range(50), "end of burst"]


async def test_attachments_can_be_changed_in_place_until_the_end_of_the_burst() -> None:
    views: list[memoryview] = []
    written: list[bytes] = []

    def handle(request: RequestInHand) -> None:
        request.attachments[0:2] = b"ok"
        views.append(request.attachments)
        request.respond(OK)

    async with open_pipeline(
        inline={ApiKey.PRODUCE: handle}, end_of_burst=lambda: written.extend(map(bytes, views))
    ) as pipeline:
        client = await pipeline.connect()
        await client.send(
            request_frame(produce(4), attachments=b"abcd") + request_frame(produce(4), attachments=b"efgh")
        )
        await responses(client, 2)
        assert written == [b"okcd", b"okgh"]


async def test_ten_thousand_pipelined_requests_are_answered_with_a_bounded_number_in_flight() -> None:
    parked: list[RequestInHand] = []
    in_flight: list[int] = []

    def park(request: RequestInHand) -> None:
        parked.append(request)
        in_flight.append(request.connection.in_flight)

    async with (
        open_pipeline(inline={ApiKey.PRODUCE: park}, limits=ConnectionLimits(max_in_flight=100)) as pipeline,
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
        found = await responses(client, 10_000)
        assert [r.header.correlation_id for r in found] == list(range(10_000))
        assert max(in_flight) == 100
        nursery.cancel_scope.cancel()


async def test_frames_may_come_byte_by_byte() -> None:
    sizes: list[int] = []

    def handle(request: RequestInHand) -> None:
        sizes.append(len(request.attachments))
        request.respond(OK)

    async with open_pipeline(inline={ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        for byte in produce_frames(2, size=7):
            await client.send(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked()
        await responses(client, 2)
        assert sizes == [7, 7]


@pytest.mark.parametrize("seed", range(8))
async def test_frames_may_come_in_any_pieces(seed: int) -> None:
    network = MemoryNetwork(seed)
    network.link("client", "broker").max_piece_bytes = 3000
    network.link("broker", "client").max_piece_bytes = 50
    received: list[tuple[int, bytes]] = []

    def handle(request: RequestInHand) -> None:
        received.append((request.correlation_id, bytes(request.attachments)))
        request.respond(OK)

    limits = ConnectionLimits(receive_buffer_bytes=4000, large_frame_bytes=2000)
    async with (
        open_pipeline(inline={ApiKey.PRODUCE: handle}, limits=limits, network=network) as pipeline,
        trio.open_nursery() as nursery,
    ):
        client = await pipeline.connect()
        contents = [bytes([number]) * (number * 97 % 9000) for number in range(60)]
        stream = b"".join(
            request_frame(produce(len(content)), correlation_id=number, attachments=content)
            for number, content in enumerate(contents)
        )
        nursery.start_soon(client.send, stream)
        found = await responses(client, 60)
        assert [r.header.correlation_id for r in found] == list(range(60))
        assert received == list(enumerate(contents))
        assert pipeline.channel.budget_of(ApiKey.PRODUCE).used_bytes == 0


async def test_a_frame_over_the_limit_ends_the_connection_at_its_prefix() -> None:
    limits = ConnectionLimits(max_frame_bytes=10_000)
    async with open_pipeline(inline={ApiKey.PRODUCE: answer}, limits=limits) as pipeline:
        for length in (10_001, 2**31 - 1, 0, -1, 16):
            client = await pipeline.connect()
            await client.send(length.to_bytes(4, "big", signed=True))
            assert await client.is_closed_by_peer()
        client = await pipeline.connect()
        frame = request_frame(produce(9_000), attachments=bytes(9_000))
        frame = request_frame(produce(9_000), attachments=bytes(9_000 + 10_004 - len(frame)))
        assert len(frame) == 10_004
        await client.send(frame)
        await responses(client, 1)


async def test_acks_0_takes_no_place_in_the_response_order() -> None:
    seen: list[int] = []

    def handle(request: RequestInHand) -> None:
        seen.append(request.connection.in_flight)
        if request.message.acks:
            request.respond(OK)

    async with open_pipeline(inline={ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        frames = [request_frame(produce(acks=0), correlation_id=1)] * 20
        await client.send(b"".join(frames))
        await trio.testing.wait_all_tasks_blocked()
        await client.send(request_frame(produce(), correlation_id=2))
        assert (await responses(client, 1))[0].header.correlation_id == 2
        assert seen == [0] * 20 + [1]


async def test_a_bug_under_acks_0_closes_the_connection() -> None:
    def handle(request: RequestInHand) -> None:
        raise RuntimeError("bug")

    async with open_pipeline(inline={ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(produce(acks=0)))
        assert await client.is_closed_by_peer()


async def test_a_bug_in_a_handler_is_one_error_response_and_the_connection_goes_on() -> None:
    def handle(request: RequestInHand) -> None:
        if request.correlation_id == 1:
            raise RuntimeError("bug")
        request.respond(OK)

    async with open_pipeline(inline={ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(3))
        first, second, third = await responses(client, 3)
        assert first.message == third.message == OK
        assert isinstance(second.message, ProduceResponse)
        partition = second.message.responses[0].partition_responses[0]
        assert (partition.index, partition.error_code) == (0, ErrorCode.UNKNOWN_SERVER_ERROR)


async def test_only_the_first_answer_counts() -> None:
    def handle(request: RequestInHand) -> None:
        request.respond(OK)
        request.respond(ProduceResponse([TopicProduceResponse("again", [])]))
        request.no_response()

    async with open_pipeline(inline={ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(2))
        assert [r.message for r in await responses(client, 2)] == [OK, OK]


async def test_answering_a_closed_connection_does_nothing() -> None:
    parked: list[RequestInHand] = []
    async with open_pipeline(inline={ApiKey.PRODUCE: parked.append}) as pipeline:
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


async def test_a_client_that_never_reads_is_not_read_from_then_closed(autojump_clock: trio.testing.MockClock) -> None:
    parked: list[RequestInHand] = []
    big = MetadataResponse([], [MetadataTopic(0, "x" * 10_000, [])])

    def handle(request: RequestInHand) -> None:
        parked.append(request)
        request.respond(big)

    network = MemoryNetwork(window_bytes=50_000)
    limits = ConnectionLimits(max_pending_bytes=200_000, send_timeout_ms=5_000)
    async with (
        open_pipeline(inline={ApiKey.METADATA: handle}, limits=limits, network=network) as pipeline,
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
            inline={ApiKey.PRODUCE: lambda request: request.respond(big)}, limits=limits, network=network
        ) as pipeline,
        trio.open_nursery() as nursery,
    ):
        client = await pipeline.connect()
        nursery.start_soon(client.send, produce_frames(500))
        await trio.sleep(1)
        found = await responses(client, 500)
        assert [r.header.correlation_id for r in found] == list(range(500))


async def test_a_slow_reader_never_holds_another_connection() -> None:
    file = BytesFile(bytes(1_000_000))

    def handle(request: RequestInHand) -> None:
        request.respond(OK, [FileRegion(file, 0, 1_000_000)], 1_000_000)  # type: ignore[arg-type]

    async with open_pipeline(inline={ApiKey.PRODUCE: handle, ApiKey.METADATA: answer_metadata}) as pipeline:
        slow, quick = await pipeline.connect("slow"), await pipeline.connect("quick")
        await slow.send(produce_frames(20))
        await trio.testing.wait_all_tasks_blocked()
        for number in range(10):
            response = await quick.request(MetadataRequest(), correlation_id=number)
            assert response is not None
            assert response.header.correlation_id == number
        found = await responses(slow, 20)
        assert all(len(r.attachments) == 1_000_000 for r in found)


async def test_a_connection_that_floods_lets_others_in() -> None:
    order: list[str] = []

    def handle(request: RequestInHand) -> None:
        order.append(request.connection.context.peer.host)
        request.respond(OK)

    limits = ConnectionLimits(burst_max_requests=10)
    async with open_pipeline(
        inline={ApiKey.PRODUCE: handle}, limits=limits, network=MemoryNetwork(window_bytes=10**7)
    ) as pipeline:
        flood, other = await pipeline.connect("flood"), await pipeline.connect("other")
        await trio.testing.wait_all_tasks_blocked()
        await flood.send(produce_frames(5000))
        await other.send(produce_frames(1))
        await responses(other, 1)
        assert order.index("other") < 200


async def test_file_regions_follow_their_head_whatever_their_size() -> None:
    content = bytes(range(256)) * 2000
    file = BytesFile(content)
    spans = [(0, 10), (5, 100_000), (77, 300), (1000, 400_000), (3, 1)]

    def handle(request: RequestInHand) -> None:
        regions = [FileRegion(file, position, length) for position, length in spans]  # type: ignore[arg-type]
        request.respond(OK, [b"first", *regions], 5 + sum(length for _, length in spans))

    async with open_pipeline(inline={ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(3))
        expected = b"first" + b"".join(content[position : position + length] for position, length in spans)
        for response in await responses(client, 3):
            assert response.attachments == expected
        [connection] = pipeline.processor.connections
        assert connection.pending_bytes == 0


@pytest.mark.parametrize("length", [1_000, 900_000], ids=["small", "large"])
async def test_a_region_whose_file_was_truncated_ends_the_connection(length: int) -> None:
    file = BytesFile(bytes(1_000_000))
    parked: list[RequestInHand] = []
    async with open_pipeline(inline={ApiKey.PRODUCE: parked.append}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(2))
        await trio.testing.wait_all_tasks_blocked()
        parked[1].respond(OK, [FileRegion(file, 0, length)], length)  # type: ignore[arg-type]
        file.truncations += 1
        parked[0].respond(OK)
        pipeline.channel.flush_responses()
        assert parked[0].connection.closed
        assert "truncated" in parked[0].connection.why_closed


async def test_a_truncation_in_the_middle_of_a_region_ends_the_connection() -> None:
    file = BytesFile(bytes(1_000_000))

    def handle(request: RequestInHand) -> None:
        request.respond(OK, [FileRegion(file, 0, 1_000_000)], 1_000_000)  # type: ignore[arg-type]

    async with open_pipeline(inline={ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(1))
        await trio.testing.wait_all_tasks_blocked()  # the window is full, the rest is the writer's
        file.truncations += 1
        assert await client.response() is None


@pytest.mark.parametrize("length", [1_000, 900_000], ids=["small", "large"])
async def test_a_file_that_ends_inside_a_promised_region_ends_the_connection(length: int) -> None:
    file = BytesFile(bytes(999))

    def handle(request: RequestInHand) -> None:
        request.respond(OK, [FileRegion(file, 0, length)], length)  # type: ignore[arg-type]

    async with open_pipeline(inline={ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(1))
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
        regions = [FileRegion(fine, 0, 1000), FileRegion(broken, 0, length)]  # type: ignore[arg-type]
        request.respond(OK, regions, 1000 + length)

    async with open_pipeline(inline={ApiKey.PRODUCE: handle}) as pipeline:
        pipeline.channel.read_failed = lambda path, error: told.append(path)
        client = await pipeline.connect()
        await client.send(produce_frames(1))
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
    monkeypatch.setattr("strandline.broker.regions.COLD_DISTANCE_BYTES", 0)
    file = CoolingFile(bytes(3_000_000))
    warmed: list[FileRegion] = []
    size = sum(regions_bytes)

    async def warm(region: FileRegion) -> None:
        file.cold = False
        warmed.append(region)
        await trio.lowlevel.checkpoint()

    def handle(request: RequestInHand) -> None:
        regions = [FileRegion(file, 0, length) for length in regions_bytes]  # type: ignore[arg-type]
        request.respond(OK, regions, size)

    async with open_pipeline(inline={ApiKey.PRODUCE: handle}) as pipeline:
        pipeline.channel.warm = warm
        client = await pipeline.connect()
        await client.send(produce_frames(1))
        await trio.testing.wait_all_tasks_blocked()  # the window is full, the rest is the writer's
        file.cold = True
        response = await client.response()
        assert response is not None and len(response.attachments) == size
    assert warmed and file.read_on_the_loop == 0
    assert warmed[0].length < size


async def test_a_disk_that_fails_while_a_region_is_warmed_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.broker.regions.COLD_DISTANCE_BYTES", 0)
    file = CoolingFile(bytes(3_000_000))
    told: list[str] = []

    async def warm(region: FileRegion) -> None:
        raise OSError(errno.EIO, "EIO")

    def handle(request: RequestInHand) -> None:
        request.respond(OK, [FileRegion(file, 0, 3_000_000)], 3_000_000)  # type: ignore[arg-type]

    async with open_pipeline(inline={ApiKey.PRODUCE: handle}) as pipeline:
        pipeline.channel.warm = warm
        pipeline.channel.read_failed = lambda path, error: told.append(path)
        client = await pipeline.connect()
        await client.send(produce_frames(1))
        await trio.testing.wait_all_tasks_blocked()
        file.cold = True
        assert await client.response() is None
    assert told == [file.path]


async def test_an_answer_that_cannot_be_encoded_becomes_an_error_response() -> None:
    def handle(request: RequestInHand) -> None:
        request.respond(ProduceResponse([TopicProduceResponse(object(), [])]))  # type: ignore[arg-type]

    async with open_pipeline(inline={ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        response = await client.request(produce())
        assert response is not None
        assert isinstance(response.message, ProduceResponse)
        assert response.message.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_stopping_lets_due_responses_leave_and_then_closes(autojump_clock: trio.testing.MockClock) -> None:
    parked: list[RequestInHand] = []
    async with open_pipeline(inline={ApiKey.PRODUCE: parked.append}) as pipeline, trio.open_nursery() as nursery:
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
        versions.append(request.api_version)
        request.respond(ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, []))

    async with open_pipeline(inline={ApiKey.PRODUCE: answer, ApiKey.API_VERSIONS: api_versions}) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(produce(), version=99, correlation_id=5))
        await client.send(request_frame(ApiVersionsRequest(), version=77, correlation_id=6))
        await client.send(request_frame(produce(), correlation_id=7))
        refused, known, good = await responses(client, 3)
        assert (refused.header.correlation_id, refused.header.version) == (5, 99)
        assert isinstance(refused.message, ProduceResponse)
        partition = refused.message.responses[0].partition_responses[0]
        assert partition.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (known.header.correlation_id, versions) == (6, [77])
        assert good.message == OK
