"""Inline requests that leave their burst for a worker: order, bytes, bounds, faults and the end of the connection."""

from __future__ import annotations

from collections.abc import Iterator

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from strandline.broker.network.limits import ConnectionLimits
from strandline.broker.network.request import Remainder, RequestInHand
from strandline.broker.network.request_channel import Handler
from strandline.broker.steps import PARTITIONS_PER_STEP, InSteps
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    Message,
    ProduceResponse,
)
from support.pipeline import Pipeline, open_pipeline
from support.raw_client import RawClient, frame_of, produce_request, request_frame

OK = ProduceResponse([])


def frame(payload: bytes, number: int, acks: int = -1) -> bytes:
    return request_frame(produce_request(len(payload), acks=acks), correlation_id=number, attachments=payload)


def slow(number: int, size: int = 100) -> bytes:
    """A request that needs a worker."""
    return frame(b"s" + b"%d" % number * size, number)


def fast(number: int, size: int = 100) -> bytes:
    return frame(b"f" + b"%d" % number * size, number)


class Site:
    """Handlers that write down what they handled, and a worker that does nothing until it is told."""

    def __init__(self) -> None:
        self.handled: list[str] = []
        self.payloads: dict[int, bytes] = {}
        self.gate = trio.Event()
        self.fails = False

    def produce(self, request: RequestInHand) -> Remainder | None:
        number = request.header.correlation_id
        if request.records[0][:1] == b"f":
            self._done(f"{number}", request)
            return None

        async def remainder() -> None:
            self.handled.append(f"{number} begun")
            await self.gate.wait()
            if self.fails:
                raise ValueError("a bug")
            self._done(f"{number} done", request)

        self.handled.append(f"{number} leaves")
        return remainder

    def _done(self, event: str, request: RequestInHand) -> None:
        self.handled.append(event)
        self.payloads[request.header.correlation_id] = bytes(request.records[0])
        request.respond(OK)

    async def create(self, request: RequestInHand) -> Message:
        self.handled.append(f"{request.header.correlation_id} created")
        return CreateTopicsResponse([])

    def serve(self, **options: object):
        return open_pipeline(
            {ApiKey.PRODUCE: self.produce, ApiKey.CREATE_TOPICS: self.create},
            **options,
        )


def create(number: int) -> bytes:
    return request_frame(CreateTopicsRequest([CreatableTopic("t")]), correlation_id=number)


async def numbers(client: RawClient, count: int) -> list[int]:
    found = []
    for _ in range(count):
        response = await client.response()
        assert response is not None, f"closed after {found}"
        found.append(response.header.correlation_id)
    return found


def used_bytes(pipeline: Pipeline) -> int:
    return pipeline.channel.budget_of(APIS[ApiKey.PRODUCE]).used_bytes


async def test_what_only_takes_steps_is_done_while_every_handler_task_waits(autojump_clock: MockClock) -> None:
    site = Site()

    async def creating(request: RequestInHand) -> Message:
        await site.gate.wait()
        return await site.create(request)

    def question(request: RequestInHand) -> Remainder | None:
        def answer() -> Iterator[int]:
            yield PARTITIONS_PER_STEP
            site._done(f"{request.header.correlation_id} done", request)

        return InSteps(answer()) if request.records[0][:1] == b"s" else site.produce(request)

    handlers: dict[ApiKey, Handler] = {ApiKey.PRODUCE: question, ApiKey.CREATE_TOPICS: creating}
    async with open_pipeline(handlers, num_handlers=2) as pipeline:
        waiting = [await pipeline.connect(f"admin {number}") for number in range(5)]
        for number, client in enumerate(waiting):
            await client.send(create(number))
        asking = await pipeline.connect("asking")
        await asking.send(slow(10) + fast(11))
        await wait_all_tasks_blocked()
        assert site.handled == ["10 done", "11"], "though five creations came first"
        site.gate.set()
        assert await numbers(asking, 2) == [10, 11]
        assert [await numbers(client, 1) for client in waiting] == [[0], [1], [2], [3], [4]]


async def test_what_is_behind_waits_in_order_and_has_its_bytes_when_its_turn_comes(autojump_clock: MockClock) -> None:
    site = Site()
    async with site.serve() as pipeline:
        client, other = await pipeline.connect(), await pipeline.connect("other")
        await client.send(fast(1) + slow(2) + fast(3) + slow(4) + fast(5) + create(6) + fast(7))
        await wait_all_tasks_blocked()
        assert site.handled == ["1", "2 leaves", "2 begun"]
        await other.send(fast(8, 30_000))  # into the buffer that the first connection's burst lay in
        assert await numbers(other, 1) == [8]
        site.gate.set()
        assert await numbers(client, 7) == [1, 2, 3, 4, 5, 6, 7]
        behind = ["2 done", "3", "4 leaves", "4 begun", "4 done", "5", "6 created", "7"]
        assert site.handled == ["1", "2 leaves", "2 begun", "8", *behind]
        assert all(site.payloads[n] == b"s%b" % (b"%d" % n * 100) for n in (2, 4))
        assert all(site.payloads[n] == b"f%b" % (b"%d" % n * 100) for n in (1, 3, 5, 7))
        assert used_bytes(pipeline) == 0


async def test_frames_that_come_later_wait_too_and_other_connections_go_on(autojump_clock: MockClock) -> None:
    site = Site()
    async with site.serve() as pipeline:
        client, other = await pipeline.connect(), await pipeline.connect("other")
        await client.send(slow(1))
        await wait_all_tasks_blocked()
        await client.send(fast(2))
        for number in range(10, 20):
            await other.send(fast(number))
            assert await numbers(other, 1) == [number]
        assert "2" not in site.handled
        site.gate.set()
        assert await numbers(client, 2) == [1, 2]


async def test_what_waits_is_charged_until_it_is_handled(autojump_clock: MockClock) -> None:
    site = Site()
    async with site.serve() as pipeline:
        client = await pipeline.connect()
        await client.send(slow(1, 50_000) + fast(2, 50_000) + fast(3)[:50])
        await wait_all_tasks_blocked()
        assert 100_000 < used_bytes(pipeline) < 101_000
        site.gate.set()
        assert await numbers(client, 2) == [1, 2]
        assert used_bytes(pipeline) == 0


async def test_what_finds_no_room_waits_before_it_is_begun(autojump_clock: MockClock) -> None:
    site = Site()
    async with site.serve(max_queued_bytes=150_000) as pipeline:
        clients = [await pipeline.connect() for _ in range(2)]
        for number, client in enumerate(clients):
            await client.send(slow(number, 100_000))
        await wait_all_tasks_blocked()
        assert len([event for event in site.handled if event.endswith("begun")]) == 1
        site.gate.set()
        assert [await numbers(client, 1) for client in clients] == [[0], [1]]


async def test_a_large_frame_is_charged_once_and_never_copied_again(autojump_clock: MockClock) -> None:
    site = Site()
    limits = ConnectionLimits(receive_buffer_bytes=64 * 1024, large_frame_bytes=16 * 1024)
    async with site.serve(limits=limits) as pipeline:
        client = await pipeline.connect()
        await client.send(slow(1, 300_000) + fast(2))
        await wait_all_tasks_blocked()
        assert site.handled == ["1 leaves", "1 begun"] and 300_000 < used_bytes(pipeline) < 300_200
        site.gate.set()
        assert await numbers(client, 2) == [1, 2]
        assert site.payloads[1] == b"s" + b"1" * 300_000 and used_bytes(pipeline) == 0


async def test_a_bug_in_a_remainder_is_one_error_response(autojump_clock: MockClock) -> None:
    site = Site()
    site.fails = True
    site.gate.set()
    async with site.serve() as pipeline:
        client = await pipeline.connect()
        await client.send(slow(1) + fast(2))
        response = await client.response()
        assert response is not None and isinstance(response.message, ProduceResponse)
        (partition,) = response.message.responses[0].partition_responses
        assert partition.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await numbers(client, 1) == [2]


async def test_a_fault_behind_ends_the_connection_after_what_came_whole(autojump_clock: MockClock) -> None:
    site = Site()
    async with site.serve() as pipeline:
        client = await pipeline.connect()
        await client.send(slow(1) + fast(2) + frame_of(200, 0, 3, b""))
        await wait_all_tasks_blocked()
        assert site.handled == ["1 leaves", "1 begun"]
        site.gate.set()
        await numbers(client, 2)
        assert await client.is_closed_by_peer()
        assert site.handled[-2:] == ["1 done", "2"]


async def test_a_body_that_cannot_be_read_is_answered_in_its_place(autojump_clock: MockClock) -> None:
    site = Site()
    async with site.serve() as pipeline:
        client = await pipeline.connect()
        await client.send(slow(1) + fast(2) + frame_of(ApiKey.PRODUCE, 0, 3, b"\xc1") + fast(4))
        site.gate.set()
        assert await numbers(client, 3) == [1, 2, 3]
        assert await client.is_closed_by_peer()
        assert "4" not in site.handled


async def test_a_client_that_goes_meanwhile_has_its_request_carried_out(autojump_clock: MockClock) -> None:
    site = Site()
    async with site.serve() as pipeline:
        client = await pipeline.connect()
        await client.send(slow(1) + fast(2))
        await wait_all_tasks_blocked()
        client.close()
        site.gate.set()
        await wait_all_tasks_blocked()
        assert site.handled == ["1 leaves", "1 begun", "1 done", "2"]
        assert used_bytes(pipeline) == 0


async def test_a_broker_that_stops_answers_what_is_begun_and_drops_what_waits(autojump_clock: MockClock) -> None:
    site = Site()
    async with site.serve() as pipeline, trio.open_nursery() as nursery:
        client = await pipeline.connect()
        await client.send(slow(1) + fast(2))
        await wait_all_tasks_blocked()
        began = trio.current_time()
        nursery.start_soon(pipeline.processor.stop, began + 50)
        await trio.sleep(1)
        site.gate.set()
        assert await numbers(client, 1) == [1]
        assert await client.is_closed_by_peer()
        assert "2" not in site.handled and trio.current_time() < began + 10, "nobody waits for what is dropped"
        assert used_bytes(pipeline) == 0


async def test_a_broker_that_stops_does_not_wait_for_what_found_no_room(autojump_clock: MockClock) -> None:
    site = Site()
    async with site.serve(max_queued_bytes=150_000) as pipeline, trio.open_nursery() as nursery:
        clients = [await pipeline.connect() for _ in range(2)]
        for number, client in enumerate(clients):
            await client.send(slow(number, 100_000))
            await wait_all_tasks_blocked()
        began = trio.current_time()
        nursery.start_soon(pipeline.processor.stop, began + 50)
        await trio.sleep(1)
        assert await clients[1].is_closed_by_peer()
        site.gate.set()
        assert await numbers(clients[0], 1) == [0]
        assert trio.current_time() < began + 10
