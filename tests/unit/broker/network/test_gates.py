"""Gates: what stands before every handler and sees every answer, as authorisation, quotas and metrics will."""

from __future__ import annotations

import msgspec
import pytest
import structlog
import trio
from trio.testing import MockClock

from strandline.broker.handlers.produce import UNDECIDED, ProduceOperation
from strandline.broker.network.dialects import Regions
from strandline.broker.network.dialects.native import NATIVE
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_channel import Gate, Handler, RequestChannel, WorkQueue
from strandline.broker.network.unflushed_connections import UnflushedConnections
from strandline.broker.replication.topic_counts import TopicTraffic
from strandline.protocol.api import Api, ApiKey
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    Request,
    TopicProduceData,
    TopicProduceResponse,
)
from support.pipeline import open_pipeline
from support.raw_client import produce_request, request_frame

CREATED = CreateTopicsResponse([])


def metadata(request: RequestInHand[MetadataRequest]) -> None:
    request.respond(MetadataResponse([], []))


async def create_topics(_: RequestInHand[CreateTopicsRequest]) -> Message:
    return CREATED


async def test_a_gate_stands_before_every_handler_and_what_it_raises_is_answered() -> None:
    async def create_topics(request: RequestInHand[CreateTopicsRequest]) -> Message:
        seen.append("created")
        return CREATED

    def gate(name: str, refused: ApiKey) -> Gate:
        def before(api: Api, handler: Handler) -> Handler:
            def passed(request: RequestInHand[Request]) -> object:
                seen.append(f"{name} {request.context.client_id} {api.key.name}")
                if api.key is refused:
                    raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                return handler(request)

            return passed

        return before

    seen: list[str] = []
    gates = [gate("outer", ApiKey.METADATA), gate("inner", ApiKey.DELETE_TOPICS)]
    handlers: dict[ApiKey, Handler] = {
        ApiKey.API_VERSIONS: lambda request: request.respond(ApiVersionsResponse(0, [])),
        ApiKey.METADATA: metadata,
        ApiKey.CREATE_TOPICS: create_topics,
        ApiKey.DELETE_TOPICS: create_topics,
    }
    async with open_pipeline(handlers, gates=gates) as pipeline:
        client = await pipeline.connect()
        await client.request(ApiVersionsRequest(client_id="me"))
        refused = await client.request(MetadataRequest(["t"]))
        assert refused is not None and isinstance(refused.message, MetadataResponse)
        assert refused.message.topics[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        created = await client.request(CreateTopicsRequest([CreatableTopic("t")]))
        assert created is not None and created.message == CREATED
        refused = await client.request(DeleteTopicsRequest(["t"]))
        assert refused is not None and isinstance(refused.message, DeleteTopicsResponse)
        assert refused.message.responses[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert seen == [
        "outer me API_VERSIONS",
        "inner me API_VERSIONS",
        "outer me METADATA",
        "outer me CREATE_TOPICS",
        "inner me CREATE_TOPICS",
        "created",
        "outer me DELETE_TOPICS",
        "inner me DELETE_TOPICS",
    ]


def test_without_a_gate_nothing_stands_before_a_handler() -> None:
    handlers: dict[ApiKey, Handler] = {ApiKey.METADATA: metadata}
    channel = RequestChannel(
        handlers=handlers,
        dialects=(NATIVE,),
        end_of_burst=lambda: None,
        unflushed_connections=UnflushedConnections(),
        work=WorkQueue(1),
        max_queued_bytes=1,
        num_handlers=1,
        log=structlog.get_logger(),
    )
    assert channel._handlers == handlers


async def test_answers_pass_the_gates_from_the_inmost_to_the_outermost_each_once() -> None:
    def gate(name: str, refuses: bool) -> Gate:
        def before(api: Api, handler: Handler) -> Handler:
            def passed(request: RequestInHand[Request]) -> object:
                request.on_answer(lambda message, _: seen.append((name, type(message))))
                if refuses and api.key is ApiKey.DELETE_TOPICS:
                    raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                return handler(request)

            return passed

        return before

    def answer_twice(request: RequestInHand[MetadataRequest]) -> None:
        metadata(request)
        metadata(request)

    seen: list[tuple[str, type]] = []
    handlers: dict[ApiKey, Handler] = {
        ApiKey.METADATA: answer_twice,
        ApiKey.CREATE_TOPICS: create_topics,
        ApiKey.DELETE_TOPICS: create_topics,
    }
    async with open_pipeline(handlers, gates=[gate("outer", refuses=True), gate("inner", refuses=False)]) as pipeline:
        client = await pipeline.connect()
        for request in (MetadataRequest(), CreateTopicsRequest([]), DeleteTopicsRequest([])):
            await client.request(request)
    assert seen == [
        ("inner", MetadataResponse),
        ("outer", MetadataResponse),
        ("inner", CreateTopicsResponse),
        ("outer", CreateTopicsResponse),
        ("outer", DeleteTopicsResponse),
    ]


async def test_a_gate_may_refuse_some_of_the_topics_and_let_the_others_through() -> None:
    """As authorisation would: the handler and its records know nothing of what was left out."""

    def authorise(api: Api, handler: Handler) -> Handler:
        def passed(request: RequestInHand[ProduceRequest]) -> object:
            asked, records = request.message, iter(request.records)
            sorted_out: dict[bool, list[TopicProduceData]] = {True: [], False: []}
            kept: list[memoryview | None] = []
            for topic in asked.topic_data:
                is_allowed = not topic.name.startswith("secret")
                sorted_out[is_allowed].append(topic)
                pieces = [next(records) for _ in topic.partition_data]
                kept += pieces if is_allowed else []
            refused = msgspec.structs.replace(asked, topic_data=sorted_out[False])
            refusal = api.failure(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
            request.message = msgspec.structs.replace(asked, topic_data=sorted_out[True])
            request.records = kept

            def answer(message: Message | None, regions: Regions) -> tuple[Message, Regions]:
                assert isinstance(message, ProduceResponse) and isinstance(refusal, ProduceResponse)
                return ProduceResponse(message.responses + refusal.responses), regions

            request.on_answer(answer)
            return handler(request)

        return passed

    def produce(request: RequestInHand[ProduceRequest]) -> None:
        seen.extend(bytes(piece) for piece in request.records if piece is not None)
        partition = PartitionProduceResponse(0, 0, 7)
        request.respond(
            ProduceResponse([TopicProduceResponse(topic.name, [partition]) for topic in request.message.topic_data])
        )

    seen: list[bytes] = []
    asked = [TopicProduceData(name, [PartitionProduceData(0, 3)]) for name in ("a", "secret", "b")]
    async with open_pipeline({ApiKey.PRODUCE: produce}, gates=[authorise]) as pipeline:
        client = await pipeline.connect()
        response = await client.request(ProduceRequest(-1, 1000, asked), attachments=b"aaaxxxbbb")
    assert response is not None and isinstance(response.message, ProduceResponse)
    assert [(topic.name, topic.partition_responses[0].error_code) for topic in response.message.responses] == [
        ("a", 0),
        ("b", 0),
        ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert seen == [b"aaa", b"bbb"]


def raises(request: RequestInHand[ProduceRequest]) -> None:
    raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def fails(request: RequestInHand[ProduceRequest]) -> None:
    operation = ProduceOperation(request, 0.0, False, 1, [UNDECIDED], TopicTraffic())
    operation.complete(0, PartitionProduceResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))


def comes_too_late(request: RequestInHand[ProduceRequest]) -> None:
    request.connection.close("gone")
    request.respond(ProduceResponse([]))


@pytest.mark.parametrize(("handler", "acks"), [(raises, 0), (fails, 0), (comes_too_late, -1)])
async def test_a_gate_hears_that_there_is_no_answer(handler: Handler, acks: int, autojump_clock: MockClock) -> None:
    heard: list[object] = []

    def gate(api: Api, handler: Handler) -> Handler:
        def passed(request: RequestInHand[ProduceRequest]) -> object:
            request.on_answer(lambda message, _: heard.append(message))
            return handler(request)

        return passed

    async with open_pipeline({ApiKey.PRODUCE: handler}, gates=[gate]) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(produce_request(acks=acks)))
        await trio.sleep(1)
    assert heard == [None]
