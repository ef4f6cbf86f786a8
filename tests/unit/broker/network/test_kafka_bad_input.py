"""Bad input in Kafka's dialect against the pipeline in memory: a typed error or a close, and nobody else notices."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
import trio
import trio.testing

from strandline.broker.network.dialects.kafka import KAFKA
from strandline.broker.network.dialects.native import NATIVE
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_bounds import MAX_CLIENT_BODY_BYTES
from strandline.broker.network.request_channel import Handler
from strandline.broker.network.request_context import RequestContext
from strandline.protocol.api import APIS, Api, ApiKey, Scheduling
from strandline.protocol.errors import ErrorCode, RemoteProtocolError
from strandline.protocol.messages import ApiVersionsRequest, Message, MetadataRequest, Request
from strandline.runtime.network import Address
from strandline.testkit.kafka_client import CORRELATION_ID, kafka_frame, read_frame
from support.kafka_entities import ALL_VERSIONS, class_of, draw, written
from support.kafka_frames import answer_in, codes
from support.pipeline import Pipeline, open_pipeline
from support.raw_client import RawClient, request_frame

SPOKEN = [api for api in APIS.values() if api.kafka is not None]
VERSIONS = [
    pytest.param(api, version, id=f"{api.key.name}-{version}")
    for api in SPOKEN
    if api.kafka is not None
    for version in range(api.kafka[0], api.kafka[1] + 1)
]
ENDS = [
    pytest.param(api, version, id=f"{api.key.name}-{version}")
    for api in SPOKEN
    for version in sorted(set(api.kafka or ()))
]
REFUSED = [(key, version) for key, version in ALL_VERSIONS if APIS.get(key) is None or APIS[key].kafka is None]
LENGTHS = [
    bytes.fromhex(text)
    for text in ("ffffffff", "fffffffe", "7fffffff", "80000000", "00002711", "ffff", "7fff", "ffffffff0f", "8080808008")
]
"""In the place of a length: null, negative, of 2 GiB, more than may be named, as a varint of 4 GiB."""
CONTEXT = RequestContext("PLAINTEXT", False, Address("client", 1), dialect="kafka")


async def queued(request: RequestInHand[Request]) -> Message:
    return request.api.failure(None, 0, None)


def inline(request: RequestInHand[Request]) -> None:
    if request.message.has_answer:
        request.respond(request.api.failure(None, 0, None))
    else:
        request.no_response()


HANDLERS: dict[ApiKey, Handler] = {
    api.key: inline if api.scheduling is Scheduling.INLINE else queued for api in APIS.values()
}


def body_of(key: int, version: int) -> bytes:
    return written(draw(class_of(key, version), random.Random(key * 100 + version), 0.0))


def decode(api: Api, version: int, body: bytes) -> None:
    """As the pipeline does with a whole frame."""
    frame = memoryview(bytearray(kafka_frame(api.key, version, body)))
    header = KAFKA.read_header(frame, 0, len(frame), 2**23)
    assert header is not None
    KAFKA.decode(CONTEXT, api, header, frame)


# --- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_a_body_that_is_cut_off_anywhere_is_one_typed_error(api: Api, version: int) -> None:
    body = body_of(api.key, version)
    for length in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            decode(api, version, body[:length])


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_no_length_and_no_garbage_takes_more_than_one_typed_error_or_much_memory(api: Api, version: int) -> None:
    body, rng = body_of(api.key, version), random.Random(api.key * 1000 + version)
    decode_quietly(api, version, body)
    tracemalloc.start()
    for place in range(0, len(body), 1 + len(body) // 40):
        for length in LENGTHS:
            decode_quietly(api, version, body[:place] + length + body[place + len(length) :])
    for _ in range(40):
        decode_quietly(api, version, rng.randbytes(rng.randrange(100)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 500_000


@pytest.mark.parametrize(("key", "version"), [(ApiKey.FETCH, 11), (ApiKey.FETCH, 13), (ApiKey.PRODUCE, 3)])
def test_names_are_bounded_together_and_record_batches_are_not_counted(key: ApiKey, version: int) -> None:
    name = struct.pack(">h", 32_000) + b"n" * 32_000
    if key is ApiKey.PRODUCE:
        head, topic = bytes.fromhex("ffff 0001 000003e8"), name + struct.pack(">iii", 1, 0, -1)
    elif version < 13:
        head = struct.pack(">iiiibii", -1, 1, 1, 1, 0, 0, 0)
        topic = name + struct.pack(">i", 1) + struct.pack(">iiqqi", 0, -1, 0, -1, 1)
    else:
        head, topic = b"", b""
    body = head + struct.pack(">i", 100) + topic * 100 if topic else bytes(MAX_CLIENT_BODY_BYTES + 1)
    with pytest.raises(RemoteProtocolError, match=r"a body of \d+ bytes, more than"):
        decode(APIS[key], version, body)


@pytest.mark.parametrize("dialect", ["kafka", "native"])
def test_of_a_client_s_id_so_much_is_kept_as_others_can_be_told(dialect: str) -> None:
    """Each byte that is no UTF-8 would become three, and no answer of an old version has room for them."""
    api = APIS[ApiKey.API_VERSIONS]
    if dialect == "kafka":
        frame = memoryview(kafka_frame(api.key, 0, b"", client_id=b"\xff" * (2**15 - 1)))
        header = KAFKA.read_header(frame, 0, len(frame), 2**23)
        assert header is not None
        context, *_ = KAFKA.decode(CONTEXT, api, header, frame)
    else:
        frame = memoryview(request_frame(ApiVersionsRequest("x", "1", "\U0001f600" * 100_000)))
        native = NATIVE.read_header(frame, 0, len(frame), 2**23)
        assert native is not None
        context, *_ = NATIVE.decode(CONTEXT, api, native, frame)
    assert 20_000 < len(context.client_id.encode()) < 2**15


def decode_quietly(api: Api, version: int, body: bytes) -> None:
    try:
        decode(api, version, body)
    except RemoteProtocolError:
        pass


# --- connections -----------------------------------------------------------------------------------------------------


async def ask_kafka(client: RawClient, key: int, version: int, body: bytes) -> set[int] | None:
    """The codes of the answer; None: closed instead."""
    await client.send(kafka_frame(key, version, body))
    frame = await read_frame(client)
    return None if frame is None else codes(answer_in(frame, key, version))


async def is_served(pipeline: Pipeline, witness: RawClient, client: RawClient) -> None:
    """The native witness, and somebody who speaks Kafka's dialect."""
    assert await witness.request(MetadataRequest()) is not None
    assert await ask_kafka(client, ApiKey.API_VERSIONS, 3, b"\x05name\x021\0") == {0}
    assert pipeline.channel.budget_of(APIS[ApiKey.PRODUCE]).used_bytes == 0


@pytest.mark.parametrize(("api", "version"), ENDS)
async def test_a_request_that_is_cut_off_anywhere_is_answered_and_closed_and_nobody_notices(
    api: Api, version: int, autojump_clock: trio.testing.MockClock
) -> None:
    body = body_of(api.key, version)
    async with open_pipeline(HANDLERS, dialects=(NATIVE, KAFKA), is_inter_broker=False) as pipeline:
        witness, other = await pipeline.connect("witness"), await pipeline.connect("other")
        for length in range(len(body)):
            client = await pipeline.connect()
            answered = await ask_kafka(client, api.key, version, body[:length])
            assert answered is None or answered <= {ErrorCode.INVALID_REQUEST}
            assert await client.is_closed_by_peer()
            client.close()
        await is_served(pipeline, witness, other)
        assert pipeline.quota.total == 2


@pytest.mark.parametrize(("api", "version"), ENDS)
async def test_a_frame_that_does_not_come_whole_is_closed_at_its_deadline(
    api: Api, version: int, autojump_clock: trio.testing.MockClock
) -> None:
    frame = kafka_frame(api.key, version, body_of(api.key, version))
    async with open_pipeline(HANDLERS, dialects=(NATIVE, KAFKA)) as pipeline:
        witness, other = await pipeline.connect("witness"), await pipeline.connect("other")
        clients = [await pipeline.connect() for _ in range(1, len(frame), 7)]
        for client, length in zip(clients, range(1, len(frame), 7), strict=True):
            await client.send(frame[:length])
        for client in clients:
            assert await client.is_closed_by_peer()
        await is_served(pipeline, witness, other)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", length) + b"\0\x03\0\x01\0\0\0\x01\0\x04test"
        for length in (0, -1, 7, 9, 2**31 - 1, -(2**31), 101 * 2**20)
    ]
    + [
        struct.pack(">i", 30) + b"\0\x03\0\x01\0\0\0\x01" + client_id + bytes(22)
        for client_id in (b"\xff\xfe", b"\x80\0", b"\x7f\xff", b"\0\x17")
    ],
)
async def test_a_length_that_no_frame_has_closes_the_connection(
    data: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_pipeline(HANDLERS, dialects=(NATIVE, KAFKA)) as pipeline:
        witness, other, client = [await pipeline.connect() for _ in range(3)]
        await client.send(data)
        assert await client.is_closed_by_peer()
        await is_served(pipeline, witness, other)


@pytest.mark.parametrize(("key", "version"), [(ApiKey.METADATA, 1), (ApiKey.FETCH, 12), (ApiKey.JOIN_GROUP, 9)])
async def test_of_a_request_that_is_too_long_no_more_than_its_header_is_awaited(
    key: ApiKey, version: int, autojump_clock: trio.testing.MockClock
) -> None:
    frame = struct.pack(">i", 90 * 2**20) + kafka_frame(key, version, b"")[4:]
    async with open_pipeline(HANDLERS, dialects=(NATIVE, KAFKA), is_inter_broker=False) as pipeline:
        witness, other, client = [await pipeline.connect() for _ in range(3)]
        await client.send(frame)
        answer = await read_frame(client)
        assert answer is not None and ErrorCode.INVALID_REQUEST in codes(answer_in(answer, key, version))
        assert await client.is_closed_by_peer() and trio.current_time() < 5
        await is_served(pipeline, witness, other)


@pytest.mark.parametrize("api", SPOKEN, ids=lambda api: api.key.name)
async def test_a_version_that_is_not_served_is_refused_or_closed(
    api: Api, autojump_clock: trio.testing.MockClock
) -> None:
    assert api.kafka is not None
    known = [version for key, version in ALL_VERSIONS if key == api.key]
    async with open_pipeline(HANDLERS, dialects=(NATIVE, KAFKA)) as pipeline:
        witness, other = await pipeline.connect("witness"), await pipeline.connect("other")
        for version in (*known, -1, api.kafka[0] - 1, api.kafka[1] + 1, 32_767):
            if api.kafka[0] <= version <= api.kafka[1] or api.key is ApiKey.API_VERSIONS:
                continue
            client = await pipeline.connect()
            if version in known:
                answered = await ask_kafka(client, api.key, version, body_of(api.key, version))
                assert answered is None or ErrorCode.UNSUPPORTED_VERSION in answered
            elif not (api.key is ApiKey.PRODUCE and 0 <= version < 3):
                await client.send(kafka_frame(api.key, version, bytes(50), flexible=False))
                assert await client.is_closed_by_peer()
        await is_served(pipeline, witness, other)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_producing_in_formats_of_the_past_is_refused_partition_by_partition(
    version: int, autojump_clock: trio.testing.MockClock
) -> None:
    """kio does not know these versions any more. A request of one partition, t-5, of 4 bytes."""
    body = struct.pack(">hiih1siii4s", -1, 1000, 1, 1, b"t", 1, 5, 4, b"data")
    async with open_pipeline(HANDLERS, dialects=(NATIVE, KAFKA)) as pipeline:
        witness, client = await pipeline.connect("witness"), await pipeline.connect()
        await client.send(kafka_frame(ApiKey.PRODUCE, version, body, flexible=False))
        frame = await read_frame(client)
        assert frame is not None
        head = struct.pack(">iih1siih", CORRELATION_ID, 1, 1, b"t", 1, 5, ErrorCode.UNSUPPORTED_VERSION)
        rest = 8 + (8 if version >= 2 else 0) + (4 if version >= 1 else 0)
        assert frame[: len(head)] == head and len(frame) == len(head) + rest
        await is_served(pipeline, witness, client)


async def test_what_is_not_served_is_refused_and_the_connection_goes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_pipeline(HANDLERS, dialects=(NATIVE, KAFKA)) as pipeline:
        witness, client = await pipeline.connect("witness"), await pipeline.connect()
        for key, version in REFUSED:
            found = await ask_kafka(client, key, version, body_of(key, version))
            assert found is not None and len(found) == 1 and 0 not in found, (key, version)
        await is_served(pipeline, witness, client)


@pytest.mark.parametrize("key", [4, 5, 6, 7, 999, 32_767, -1])
async def test_what_is_no_api_of_clients_is_closed(key: int, autojump_clock: trio.testing.MockClock) -> None:
    async with open_pipeline(HANDLERS, dialects=(NATIVE, KAFKA)) as pipeline:
        witness, other, client = [await pipeline.connect() for _ in range(3)]
        await client.send(kafka_frame(key, 1, bytes(20), flexible=False))
        assert await client.is_closed_by_peer()
        await is_served(pipeline, witness, other)
