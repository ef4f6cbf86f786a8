"""Queued and control requests: order, muting, bounds, failures; and work that handlers submit."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from strandline.broker.network.limits import ByteBudget, ConnectionLimits
from strandline.broker.network.request import RequestInHand
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from support.pipeline import open_pipeline
from support.raw_client import RawClient, produce_request, request_frame

CREATED = CreateTopicsResponse([])
DESCRIBED = DescribeLogDirsResponse(0, [])


def create(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name) for name in names])


def describe(*names: str) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest([DescribableLogDirTopic(name, []) for name in names])


def update_metadata() -> UpdateMetadataRequest:
    return UpdateMetadataRequest(0, 0, 0, [], [])


async def created(_: RequestInHand) -> Message:
    return CREATED


async def updated(_: RequestInHand) -> Message:
    return UpdateMetadataResponse(0)


def metadata(request: RequestInHand) -> None:
    request.respond(MetadataResponse([], []))


async def correlation_ids(client: RawClient, count: int) -> list[int]:
    return [response.header.correlation_id for response in await client.responses(count)]


class Door:
    """A queued handler that waits until it is opened."""

    def __init__(self, answer: Message = DESCRIBED) -> None:
        self.answer = answer
        self.started: list[int] = []
        self.opened = trio.Event()

    async def __call__(self, request: RequestInHand) -> Message:
        self.started.append(request.header.correlation_id)
        await self.opened.wait()
        return self.answer


async def test_requests_are_handled_in_arrival_order_across_inline_and_queued_handlers() -> None:
    order: list[str] = []
    gate = Door()

    async def queued(request: RequestInHand) -> Message:
        response = await gate(request)
        order.append(f"queued {request.header.correlation_id}")
        return response

    def inline(request: RequestInHand) -> None:
        order.append(f"inline {request.header.correlation_id}")
        metadata(request)

    async with open_pipeline(
        {ApiKey.METADATA: inline, ApiKey.DESCRIBE_LOG_DIRS: queued},
        end_of_burst=lambda: order.append("end"),
    ) as pipeline:
        client, other = await pipeline.connect("a"), await pipeline.connect("b")
        await client.send(
            request_frame(MetadataRequest(), correlation_id=1)
            + request_frame(describe("t"), correlation_id=2)
            + request_frame(MetadataRequest(), correlation_id=3)
            + request_frame(describe("t"), correlation_id=4)
        )
        await trio.testing.wait_all_tasks_blocked()
        assert order == ["inline 1", "end"]
        assert gate.started == [2]  # 3 and 4 wait: the connection is muted
        assert await other.request(MetadataRequest(), correlation_id=9)  # others are not
        gate.opened.set()
        assert await correlation_ids(client, 4) == [1, 2, 3, 4]
        assert order == ["inline 1", "end", "inline 9", "end", "queued 2", "inline 3", "end", "queued 4"]


async def test_the_queue_is_bounded_and_pushes_back() -> None:
    gate = Door()
    async with open_pipeline({ApiKey.DESCRIBE_LOG_DIRS: gate}, max_queued_requests=3, num_handlers=2) as pipeline:
        clients = [await pipeline.connect(f"host-{number}") for number in range(10)]
        for number, client in enumerate(clients):
            await client.send(request_frame(describe("t"), correlation_id=number))
        await trio.testing.wait_all_tasks_blocked()
        assert len(gate.started) == 2
        assert len(pipeline.work.items) == 3
        gate.opened.set()
        for number, client in enumerate(clients):
            assert await correlation_ids(client, 1) == [number]


async def test_the_number_of_handlers_changes_while_they_work() -> None:
    """Who is one too many answers what it has in hand, and takes nothing more."""
    gate = Door()
    async with open_pipeline({ApiKey.DESCRIBE_LOG_DIRS: gate}, num_handlers=2) as pipeline:
        clients = [await pipeline.connect(f"host-{number}") for number in range(4)]
        for number, client in enumerate(clients):
            await client.send(request_frame(describe("t"), correlation_id=number))
        await trio.testing.wait_all_tasks_blocked()
        assert len(gate.started) == 2
        pipeline.channel.set_num_handlers(3)
        await trio.testing.wait_all_tasks_blocked()
        assert len(gate.started) == 3
        pipeline.channel.set_num_handlers(1)
        gate.opened.set()
        for number, client in enumerate(clients):
            assert await correlation_ids(client, 1) == [number]
        gate.opened = trio.Event()
        for client in clients:
            await client.send(request_frame(describe("t")))
        await trio.testing.wait_all_tasks_blocked()
        assert len(gate.started) == 5, "one at a time"


async def test_queued_bytes_are_bounded_and_given_back() -> None:
    gate = Door()
    async with open_pipeline({ApiKey.DESCRIBE_LOG_DIRS: gate}, max_queued_bytes=250_000, num_handlers=1) as pipeline:
        budget = pipeline.channel.budget_of(APIS[ApiKey.DESCRIBE_LOG_DIRS])
        clients = [await pipeline.connect(f"host-{number}") for number in range(5)]
        for client in clients:
            await client.send(request_frame(describe("t" * 100_000)))
        await trio.testing.wait_all_tasks_blocked()
        assert 200_000 < budget.used_bytes <= 250_000
        assert len(pipeline.work.items) == 1
        small = await pipeline.connect("small")
        await small.send(request_frame(describe("t"), correlation_id=77))
        await trio.testing.wait_all_tasks_blocked()
        assert len(pipeline.work.items) == 2  # small requests do not wait for bytes
        gate.opened.set()
        for client in clients:
            await correlation_ids(client, 1)
        assert budget.used_bytes == 0


async def test_controllers_requests_pass_stuck_data_requests() -> None:
    gate = Door()
    async with open_pipeline(
        {ApiKey.DESCRIBE_LOG_DIRS: gate, ApiKey.UPDATE_METADATA: updated},
        max_queued_requests=1,
        max_queued_bytes=1,
        num_handlers=1,
    ) as pipeline:
        for number in range(5):
            client = await pipeline.connect(f"host-{number}")
            await client.send(request_frame(describe("t" * 100_000)))
        await trio.testing.wait_all_tasks_blocked()
        controller = await pipeline.connect("controller")
        response = await controller.request(update_metadata())
        assert response is not None
        assert response.message == UpdateMetadataResponse(0)


async def test_a_controlled_shutdown_passes_clients_requests_that_are_stuck() -> None:
    async def shut_down(_: RequestInHand) -> Message:
        return ControlledShutdownResponse(0, [])

    gate = Door()
    async with open_pipeline(
        {ApiKey.DESCRIBE_LOG_DIRS: gate, ApiKey.CREATE_TOPICS: gate, ApiKey.CONTROLLED_SHUTDOWN: shut_down},
        max_queued_requests=1,
        max_queued_bytes=1,
        num_handlers=1,
    ) as pipeline:
        for number in range(5):
            for name, asked in (("data", describe("t")), ("admin", create("t"))):
                client = await pipeline.connect(f"{name}-{number}")
                await client.send(request_frame(asked))
        await trio.testing.wait_all_tasks_blocked()
        broker = await pipeline.connect("broker")
        response = await broker.request(ControlledShutdownRequest(2, 1))
        assert response is not None and response.message == ControlledShutdownResponse(0, [])


async def test_control_requests_are_handled_one_after_another() -> None:
    running = 0
    most = 0

    async def update(_: RequestInHand) -> Message:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.testing.wait_all_tasks_blocked()
        running -= 1
        return UpdateMetadataResponse(0)

    async with open_pipeline({ApiKey.UPDATE_METADATA: update}, num_handlers=4) as pipeline:
        clients = [await pipeline.connect(f"host-{number}") for number in range(4)]
        for client in clients:
            await client.send(request_frame(update_metadata()))
        for client in clients:
            await correlation_ids(client, 1)
    assert most == 1


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (RuntimeError("bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (BrokerError(ErrorCode.NOT_CONTROLLER), ErrorCode.NOT_CONTROLLER),
    ],
)
async def test_a_failing_queued_handler_is_one_error_response(failure: Exception, code: ErrorCode) -> None:
    async def fail_once(request: RequestInHand) -> Message:
        if request.header.correlation_id == 1:
            raise failure
        return CREATED

    async with open_pipeline({ApiKey.CREATE_TOPICS: fail_once}) as pipeline:
        client = await pipeline.connect()
        response = await client.request(create("one", "two"), correlation_id=1)
        assert response is not None
        assert isinstance(response.message, CreateTopicsResponse)
        results: list[CreatableTopicResult] = response.message.topics
        assert [(result.name, result.error_code) for result in results] == [("one", code), ("two", code)]
        response = await client.request(create("three"), correlation_id=2)
        assert response is not None
        assert response.message == CREATED


async def test_an_api_between_brokers_is_refused_on_a_client_listener() -> None:
    async with open_pipeline(
        {ApiKey.METADATA: metadata, ApiKey.UPDATE_METADATA: updated}, is_inter_broker=False
    ) as pipeline:
        client = await pipeline.connect()
        response = await client.request(update_metadata())
        assert response is not None
        assert response.message == UpdateMetadataResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert await client.request(MetadataRequest()) is not None


async def test_submitted_work_runs_in_the_handler_tasks_and_answers_by_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def cold_read(request: RequestInHand) -> None:
        await trio.lowlevel.checkpoint()
        metadata(request)

    async def broken() -> None:
        raise RuntimeError("bug")

    async with open_pipeline({ApiKey.METADATA: lambda request: submit(request)}) as pipeline:

        def submit(request: RequestInHand) -> None:
            pipeline.work.put(broken)
            pipeline.work.put(lambda: cold_read(request))

        client = await pipeline.connect()
        await client.send(b"".join(request_frame(MetadataRequest(), correlation_id=number) for number in range(5)))
        assert await correlation_ids(client, 5) == [0, 1, 2, 3, 4]


async def test_a_bug_at_the_end_of_a_burst_closes_that_connection_only(autojump_clock: trio.testing.MockClock) -> None:
    broken = True

    def end_of_burst() -> None:
        if broken:
            raise RuntimeError("bug")

    async with open_pipeline({ApiKey.METADATA: metadata}, end_of_burst=end_of_burst) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(MetadataRequest()))
        assert await client.is_closed_by_peer()
        broken = False
        assert await (await pipeline.connect()).request(MetadataRequest()) is not None


async def test_bytes_of_a_large_frame_are_charged_while_it_is_received() -> None:
    received: list[int] = []

    def handle(request: RequestInHand) -> None:
        received.append(len(request.records[0]))
        request.respond(ProduceResponse([]))

    size = 300_000
    produce = produce_request(size)
    frame = request_frame(produce, attachments=bytes(size))
    limits = ConnectionLimits(receive_buffer_bytes=50_000, large_frame_bytes=20_000)
    async with open_pipeline({ApiKey.PRODUCE: handle}, limits=limits, max_queued_bytes=size + 1000) as pipeline:
        budget = pipeline.channel.budget_of(APIS[ApiKey.PRODUCE])
        first, second, third = [await pipeline.connect(name) for name in ("a", "b", "c")]
        for client in (first, second, third):
            await client.send(frame[:60_000])
            await trio.testing.wait_all_tasks_blocked()
        assert budget.used_bytes == len(frame)  # one at a time
        first.close()  # in the middle: its bytes go to the next
        await second.send(frame[60_000:])
        await correlation_ids(second, 1)
        await third.send(frame[60_000:])
        await correlation_ids(third, 1)
        assert received == [size, size]
        assert budget.used_bytes == 0


async def test_an_unfinished_frame_is_put_aside_once_however_it_comes() -> None:
    size = 30_000  # fits the shared buffer, but would be copied in and out of it for every packet
    produce = produce_request(size)
    frame = request_frame(produce, attachments=bytes(size))
    limits = ConnectionLimits(receive_buffer_bytes=50_000, large_frame_bytes=20_000)
    async with open_pipeline(
        {ApiKey.PRODUCE: lambda request: request.respond(ProduceResponse([]))}, limits=limits
    ) as pipeline:
        client = await pipeline.connect()
        await client.send(frame[:25_000])
        await trio.testing.wait_all_tasks_blocked()
        [connection] = pipeline.processor.connections
        assert len(connection.kept) == 0
        assert pipeline.channel.budget_of(APIS[ApiKey.PRODUCE]).used_bytes == len(frame)
        await client.send(frame[25_000:])
        await correlation_ids(client, 1)


async def test_a_large_frame_of_a_queued_api_keeps_its_bytes_until_it_is_handled() -> None:
    gate = Door()
    limits = ConnectionLimits(receive_buffer_bytes=50_000, large_frame_bytes=20_000)
    async with open_pipeline({ApiKey.DESCRIBE_LOG_DIRS: gate}, limits=limits) as pipeline:
        budget = pipeline.channel.budget_of(APIS[ApiKey.DESCRIBE_LOG_DIRS])
        client = await pipeline.connect()
        frame = request_frame(describe("t" * 100_000))
        await client.send(frame + request_frame(describe("next"), correlation_id=2))
        await trio.testing.wait_all_tasks_blocked()
        assert budget.used_bytes == len(frame)
        client.close()
        await trio.testing.wait_all_tasks_blocked()
        assert budget.used_bytes == len(frame)  # the handler still has them
        gate.opened.set()
        await trio.testing.wait_all_tasks_blocked()
        assert budget.used_bytes == 0


async def test_a_budget_serves_its_waiters_in_order_and_lets_a_giant_in_alone() -> None:
    budget = ByteBudget(100)
    order: list[str] = []

    async def take(name: str, amount: int) -> None:
        await budget.reserve(amount)
        order.append(name)

    async with trio.open_nursery() as nursery:
        await budget.reserve(60)
        for name, amount in (("giant", 500), ("small", 10)):
            nursery.start_soon(take, name, amount)
            await trio.testing.wait_all_tasks_blocked()
        assert order == []  # small came later: it does not overtake
        budget.release(60)
        await trio.testing.wait_all_tasks_blocked()
        assert order == ["giant"]
        budget.release(500)
    assert order == ["giant", "small"]


async def test_a_cancelled_waiter_of_a_budget_leaves_the_line() -> None:
    budget = ByteBudget(100)
    await budget.reserve(100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(budget.reserve, 50)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    budget.release(100)
    await budget.reserve(10)
    assert budget.used_bytes == 10
