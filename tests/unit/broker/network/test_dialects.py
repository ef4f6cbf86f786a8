"""A second dialect beside the native one: what a real one would need of the network, in a few lines.

`Toy` has what sets Kafka's protocol apart: frames of eight bytes and more that begin with the high byte of an API key,
a client id in every request behind the fixed part of its header, record batches inside the body, versions of its own
and none for some APIs, answers that it cannot write in every version, and one to ApiVersions that any client can read.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
import trio.testing

from strandline.broker.network.dialects import Dialect, Header, Records, Regions
from strandline.broker.network.dialects.native import NATIVE
from strandline.broker.network.regions import Piece
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_channel import Handler
from strandline.broker.network.request_context import RequestContext
from strandline.broker.network.request_reader import MAX_OTHERS_IN_BURST
from strandline.protocol.api import Api, ApiKey
from strandline.protocol.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from strandline.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    Request,
    TopicProduceData,
)
from strandline.protocol.native.frame import FIRST_BYTE
from strandline.runtime.disk import Buffer, FileRegion
from support.pipeline import open_pipeline
from support.raw_client import RawClient, produce_request, request_frame

HEAD = struct.Struct(">ihhi")


class ToyHeader(NamedTuple):
    size_bytes: int
    api_key: int
    version: int
    correlation_id: int
    body_bytes: int


VERSIONS = {ApiKey.PRODUCE: (3, 9), ApiKey.FETCH: (4, 12), ApiKey.API_VERSIONS: (0, 3)}
REFUSED_KEY, REFUSED = 99, struct.pack(">ii", 4, 2)


class Toy:
    """A body is JSON: the client's id, then acks and records, or what is to be read. It knows how refusals looked in
    versions that it does not serve any more."""

    name = "toy"
    first_byte = 0x00

    def named(self, context: RequestContext, header: Header) -> RequestContext:
        return context

    def read_header(self, buffer: Buffer, position: int, available: int, max_frame_bytes: int) -> ToyHeader | None:
        if available < HEAD.size:
            return None
        length, key, version, correlation_id = HEAD.unpack_from(buffer, position)
        if not 8 <= length <= max_frame_bytes:
            raise RemoteProtocolError(f"length {length}")
        return ToyHeader(4 + length, key, version, correlation_id, length)

    def versions(self, api: Api) -> tuple[int, int] | None:
        return VERSIONS.get(api.key)

    listed = versions

    def refusal(self, header: Header, frame: memoryview) -> bytes | None:
        return REFUSED if header.api_key == REFUSED_KEY else None

    def decode(
        self, context: RequestContext, api: Api, header: Header, frame: memoryview
    ) -> tuple[RequestContext, Header, Request, Records]:
        body = bytes(frame[HEAD.size :]).split(b"\0")[0]
        try:
            client_id, acks, *_ = json.loads(body or '["", 0]')
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from None
        header = ToyHeader(header.size_bytes, header.api_key, header.version, header.correlation_id, len(body))
        if client_id != context.client_id:
            context = RequestContext(
                context.listener_name, context.is_inter_broker, context.peer, client_id=client_id, dialect=self.name
            )
        lowest, highest = VERSIONS[api.key]
        if not lowest <= header.version <= highest:
            raise RemoteProtocolError("nobody knows what that version is like")
        if api.key is ApiKey.PRODUCE:
            start = HEAD.size + len(body) + 1
            data = [TopicProduceData("t", [PartitionProduceData(0, len(frame) - start)])]
            return context, header, ProduceRequest(acks, 1000, data), [frame[start:]]
        fields = [] if api.key is ApiKey.API_VERSIONS else [0, 0, 0, []]
        return context, header, msgspec.convert(fields, api.request), ()

    def encode(
        self, api: Api, header: Header, message: Message, regions: Regions
    ) -> tuple[bytes, Sequence[Piece], int]:
        _, highest = VERSIONS[api.key]
        version = header.version
        if version > highest:
            if api.key is not ApiKey.API_VERSIONS:
                raise LocalProtocolError(f"nobody knows what version {version} is like")
            version = 0
        fields = [getattr(message, "error_code", 0), getattr(message, "throttle_time_ms", 0)]
        text = json.dumps([version, *fields]).encode()
        pieces = [region for region in regions if region is not None]
        rest: list[Piece] = [part for piece in pieces for part in (b"<", piece, b">")]
        sizes = [piece.length if isinstance(piece, FileRegion) else len(piece) for piece in pieces]
        rest_bytes = sum(size + 2 for size in sizes)
        head = struct.pack(">ii", 4 + len(text) + rest_bytes, header.correlation_id) + text
        return head, rest, rest_bytes


BOTH: tuple[Dialect, ...] = (NATIVE, Toy())


def toy_frame(key: ApiKey, correlation_id: int, *body: Any, version: int = 3, records: bytes | None = None) -> bytes:
    text = json.dumps(body).encode() + (b"" if records is None else b"\0" + records)
    return HEAD.pack(8 + len(text), key, version, correlation_id) + text


async def toy_answers(client: RawClient, count: int) -> list[tuple[int, bytes]]:
    """(correlation id, body) of each."""
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        received = client.received
        if len(received) >= 4 and len(received) >= 4 + int.from_bytes(received[:4], "big"):
            end = 4 + int.from_bytes(received[:4], "big")
            found.append((int.from_bytes(received[4:8], "big"), bytes(received[8:end])))
            del received[:end]
        else:
            assert await client.receive()
    return found


class Handlers:
    """What they saw; they know nothing of dialects."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int]] = []
        self.records: list[bytes] = []
        self.table: dict[ApiKey, Handler] = {
            ApiKey.PRODUCE: self.produce,
            ApiKey.FETCH: self.fetch,
            ApiKey.API_VERSIONS: self.api_versions,
        }

    def _note(self, request: RequestInHand[Request]) -> None:
        self.asked.append((request.context.dialect, request.context.client_id, request.header.version))

    def produce(self, request: RequestInHand[ProduceRequest]) -> None:
        self._note(request)
        self.records += [bytes(records) for records in request.records if records is not None]
        request.respond(ProduceResponse([])) if request.message.acks else request.no_response()

    def fetch(self, request: RequestInHand[Request]) -> None:
        self._note(request)
        topic = FetchTopicResponse("t", [FetchPartitionData(index, 0, 0) for index in range(3)])
        request.respond(FetchResponse([topic]), [None, b"batches", FileRegion(StoredBatches(), 65, 6)])

    def api_versions(self, request: RequestInHand[ApiVersionsRequest]) -> None:
        self._note(request)
        request.respond(ApiVersionsResponse(ErrorCode.NONE, []))


class StoredBatches:
    """A file of a log, as far as a region needs it."""

    path = "/logs/t-2/0.log"
    truncations = 0

    def pread(self, length: int, position: int) -> bytes:
        return bytes(range(256))[position : position + length]

    def size(self) -> int:
        return 10**6


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


async def test_each_connection_speaks_the_dialect_that_it_began_with(handlers: Handlers) -> None:
    async with open_pipeline(handlers.table, dialects=BOTH) as pipeline:
        other, native = await pipeline.connect(), await pipeline.connect()
        await other.send(toy_frame(ApiKey.PRODUCE, 7, "me", -1, records=b"abc"))
        assert await toy_answers(other, 1) == [(7, b"[3, 0, 0]")]
        response = await native.request(produce_request(3), attachments=b"def")
        assert response is not None and response.message == ProduceResponse([])
        await other.send(bytes([0, 0, 0, 30, FIRST_BYTE]) + bytes(29))  # of the other one: no version of any API
        assert await other.is_closed_by_peer()
    assert handlers.records == [b"abc", b"def"]
    assert handlers.asked == [("toy", "me", 3), ("native", "", 0)]


async def test_only_what_the_channel_was_given_is_spoken(handlers: Handlers) -> None:
    async with open_pipeline(handlers.table, dialects=[Toy()]) as pipeline:
        toy, native = await pipeline.connect(), await pipeline.connect()
        await toy.send(toy_frame(ApiKey.FETCH, 7, "me", 0, version=4))
        assert await toy_answers(toy, 1)
        await native.send(request_frame(produce_request()))
        assert await native.is_closed_by_peer()


@pytest.mark.parametrize("cuts", [[1, 2, 3, 4, 5], [4], [5], [11]])
async def test_a_first_frame_may_be_shorter_than_any_of_another_dialect(cuts: list[int], handlers: Handlers) -> None:
    frame = HEAD.pack(8, ApiKey.API_VERSIONS, 0, 5)
    async with open_pipeline(handlers.table, dialects=BOTH) as pipeline:
        client = await pipeline.connect()
        for start, end in itertools.pairwise([0, *cuts, len(frame)]):
            await client.send(frame[start:end])
            await trio.testing.wait_all_tasks_blocked()
        assert await toy_answers(client, 1) == [(5, b"[0, 0, 0]")]


async def test_before_the_first_byte_a_length_means_nothing_and_nothing_is_held_for_it(handlers: Handlers) -> None:
    async with open_pipeline(handlers.table, dialects=BOTH) as pipeline:
        client = await pipeline.connect()
        await client.send(b"\x7f\xff\xff\xff")
        await trio.testing.wait_all_tasks_blocked()
        [connection] = pipeline.processor.connections
        assert (len(connection.kept), connection.expected_bytes) == (4, 0)
        await client.send(b"\x00")
        await trio.testing.wait_all_tasks_blocked()
        assert (len(connection.kept), connection.expected_bytes) == (5, 0)
        await client.send(bytes(7))
        assert await client.is_closed_by_peer()


async def test_the_client_id_is_that_of_each_request(handlers: Handlers) -> None:
    async with open_pipeline(handlers.table, dialects=BOTH) as pipeline:
        client = await pipeline.connect()
        frames = [toy_frame(ApiKey.FETCH, number, name, 0, version=4) for number, name in enumerate(["a", "a", "b"])]
        await client.send(b"".join(frames))
        assert [number for number, _ in await toy_answers(client, 3)] == [0, 1, 2]
        native = await pipeline.connect()
        await native.send(request_frame(ApiVersionsRequest(client_id="n")) + request_frame(produce_request()))
        await native.responses(2)
    assert [name for _, name, _ in handlers.asked] == ["a", "a", "b", "n", "n"]


async def test_records_stand_where_the_dialect_puts_them(handlers: Handlers) -> None:
    async with open_pipeline(handlers.table, dialects=BOTH) as pipeline:
        client, native = await pipeline.connect(), await pipeline.connect()
        await client.send(toy_frame(ApiKey.FETCH, 1, "me", 0, version=4))
        assert await toy_answers(client, 1) == [(1, b"[4, 0, 0]<batches><ABCDEF>")]
        await native.send(request_frame(FetchRequest(0, 0, 0, [])))
        response = await native.response()
    assert response is not None and isinstance(response.message, FetchResponse)
    assert [part.records_size for part in response.message.responses[0].partitions] == [-1, 7, 6]
    assert response.attachments == b"batchesABCDEF"


async def test_records_within_a_body_do_not_count_as_a_large_body(handlers: Handlers) -> None:
    bursts: list[int] = []
    count = MAX_OTHERS_IN_BURST + 4
    frames = [toy_frame(ApiKey.PRODUCE, number, "me", -1, records=bytes(4096)) for number in range(count)]
    async with open_pipeline(
        handlers.table, dialects=BOTH, end_of_burst=lambda: bursts.append(len(handlers.asked))
    ) as pipeline:
        client = await pipeline.connect()
        await client.send(b"".join(frames))
        await toy_answers(client, count)
    assert bursts == [count]


async def test_versions_are_those_of_the_dialect_and_api_versions_is_answered_whatever_is_asked(
    handlers: Handlers,
) -> None:
    async with open_pipeline(handlers.table, dialects=BOTH) as pipeline:
        client = await pipeline.connect()
        await client.send(toy_frame(ApiKey.FETCH, 1, "me", 0, version=0))
        await client.send(toy_frame(ApiKey.API_VERSIONS, 2, "me", 0, version=77))
        refused, known = await toy_answers(client, 2)
        assert refused == (1, b"[0, %d, 0]" % ErrorCode.UNSUPPORTED_VERSION)
        assert known == (2, b"[0, 0, 0]")


async def test_a_refusal_that_cannot_be_written_closes_after_the_answers_that_are_due(handlers: Handlers) -> None:
    async with open_pipeline(handlers.table, dialects=BOTH) as pipeline:
        client = await pipeline.connect()
        await client.send(
            toy_frame(ApiKey.PRODUCE, 1, "me", -1, records=b"x")
            + toy_frame(ApiKey.FETCH, 2, "me", 0, version=77)
            + toy_frame(ApiKey.PRODUCE, 3, "me", -1, records=b"y")
        )
        assert await toy_answers(client, 1) == [(1, b"[3, 0, 0]")]
        assert await client.is_closed_by_peer()
    assert handlers.records == [b"x"]


async def test_an_api_that_a_dialect_has_not_is_unknown_there_before_its_frame_is_awaited(handlers: Handlers) -> None:
    handlers.table[ApiKey.METADATA] = lambda request: request.respond(MetadataResponse([], []))
    async with open_pipeline(handlers.table, dialects=BOTH) as pipeline:
        toy, native = await pipeline.connect(), await pipeline.connect()
        await toy.send(HEAD.pack(1_000_000, ApiKey.METADATA, 0, 1))
        assert await toy.is_closed_by_peer()
        assert await native.request(MetadataRequest()) is not None


async def test_a_refusal_that_the_peer_understands_has_its_place_in_the_order_and_the_connection_goes_on(
    handlers: Handlers,
) -> None:
    unknown = HEAD.pack(8, REFUSED_KEY, 0, 2)
    async with open_pipeline(handlers.table, dialects=BOTH) as pipeline:
        client = await pipeline.connect()
        frames = [
            toy_frame(ApiKey.FETCH, 1, "me", 0, version=4),
            unknown,
            toy_frame(ApiKey.FETCH, 3, "me", 0, version=4),
        ]
        for frame in frames:
            await client.send(frame[:5])
            await trio.testing.wait_all_tasks_blocked()
            await client.send(frame[5:])
        assert [number for number, _ in await toy_answers(client, 3)] == [1, 2, 3]
        await client.send(unknown * 200)
        assert len(await toy_answers(client, 200)) == 200
        await client.send(HEAD.pack(8, REFUSED_KEY + 1, 0, 2))
        assert await client.is_closed_by_peer()


async def test_a_gate_sees_who_asks_and_every_answer_whatever_the_dialect(handlers: Handlers) -> None:
    seen: list[tuple[str, bool]] = []

    def throttle(api: Api, handler: Handler) -> Handler:
        """As a quota would: its time stands in the answer, where there is one."""

        def handle(request: RequestInHand[Request]) -> object:
            def answer(message: Message | None, regions: Regions) -> tuple[Message, Regions] | None:
                seen.append((request.context.client_id, message is not None))
                if message is None or request.context.client_id != "greedy":
                    return None
                return msgspec.structs.replace(message, throttle_time_ms=250), regions

            request.on_answer(answer)
            return handler(request)

        return handle if api.key in (ApiKey.PRODUCE, ApiKey.FETCH) else handler

    async with open_pipeline(handlers.table, gates=[throttle], dialects=BOTH) as pipeline:
        toy, native = await pipeline.connect(), await pipeline.connect()
        await toy.send(
            toy_frame(ApiKey.FETCH, 1, "greedy", 0, version=4)
            + toy_frame(ApiKey.PRODUCE, 2, "modest", -1, records=b"x")
            + toy_frame(ApiKey.PRODUCE, 3, "greedy", 0, records=b"x")
            + toy_frame(ApiKey.API_VERSIONS, 4, "greedy", 0)
        )
        answers = [body for _, body in await toy_answers(toy, 3)]
        assert answers == [b"[4, 0, 250]<batches><ABCDEF>", b"[3, 0, 0]", b"[3, 0, 0]"]
        await native.send(request_frame(ApiVersionsRequest(client_id="greedy")) + request_frame(produce_request()))
        _, response = await native.responses(2)
        assert response.message == ProduceResponse([], throttle_time_ms=250)
    assert seen == [("greedy", True), ("modest", True), ("greedy", False), ("greedy", True)]


async def test_a_produce_request_without_acks_takes_no_place_in_any_dialect(handlers: Handlers) -> None:
    async with open_pipeline(handlers.table, dialects=BOTH) as pipeline:
        client = await pipeline.connect()
        await client.send(
            toy_frame(ApiKey.PRODUCE, 1, "me", 0, records=b"x") + toy_frame(ApiKey.FETCH, 2, "me", 0, version=4)
        )
        assert [number for number, _ in await toy_answers(client, 1)] == [2]
        await trio.testing.wait_all_tasks_blocked()
        [connection] = pipeline.processor.connections
        assert not connection.slots
