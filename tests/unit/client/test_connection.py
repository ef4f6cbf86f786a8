"""The lock-step and the pipelined connection, byte by byte and against peers that break the rules."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import msgspec
import pytest
import trio

from strandline.client.connection import Connection
from strandline.client.errors import (
    CannotReachBroker,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedApiVersion,
    WrongBroker,
)
from strandline.client.pipelined import PipelinedConnection
from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    Message,
    MetadataRequest,
    MetadataResponse,
)
from strandline.protocol.native.frame import FrameHeader, encode_head
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import ApiKey, FakeCluster, Fault

T0 = TopicPartition("t", 0)


async def opened(cluster: FakeCluster, **arguments: object) -> Connection:
    defaults: dict[str, object] = {"timeout_ms": 5000, "broker_id": 0}
    return await Connection.open(cluster.environment().network, cluster.brokers[0].address, **{**defaults, **arguments})


def fetch(offset: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(max_wait_ms, 1, 2**30, [FetchTopic("t", [FetchPartition(0, offset, 2**30)])])


async def test_requests_and_attachments_survive_any_cutting_of_the_stream(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    for size in (10, 100_000, 1, 300_000):
        cluster.fill(T0, [bytes([size % 251]) * size])
    for direction in (("client", "broker-0"), ("broker-0", "client")):
        cluster.memory.link(*direction).max_piece_bytes = 7000
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        connection = await opened(cluster)
        for offset in (0, 3, 1, 2, 0):
            answer, attachments = await connection.roundtrip(fetch(offset))
            assert isinstance(answer, FetchResponse)
            assert bytes(attachments) == b"".join(cluster.logs[T0].batches[offset:])
        connection.close()
        nursery.cancel_scope.cancel()


async def test_one_byte_at_a_time(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.memory.link("broker-0", "client").max_piece_bytes = 1
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        connection = await opened(cluster)
        answer = await connection.call(MetadataRequest(), MetadataResponse)
        assert (answer.cluster_id, connection.broker_id, connection.cluster_id) == ("fake-cluster", 0, "fake-cluster")
        nursery.cancel_scope.cancel()


async def test_unreachable_wrong_and_silent_brokers_are_named(autojump_clock: object) -> None:
    cluster = FakeCluster()
    with pytest.raises(CannotReachBroker, match=r"broker 0 at broker-0:9092.*advertised.listeners"):
        await opened(cluster)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        broker = cluster.brokers[0]
        broker.answers_as = 5
        with pytest.raises(WrongBroker, match=r"broker 0 is advertised at broker-0:9092, but broker 5"):
            await opened(cluster)
        broker.answers_as = 0
        broker.faults[ApiKey.API_VERSIONS].append(Fault(hang=True))
        with pytest.raises(CannotReachBroker, match=r"700 ms \(socket_connection_setup_timeout_ms\)"):
            await opened(cluster, connect_timeout_ms=700)
        broker.faults[ApiKey.API_VERSIONS].append(Fault(close=True))
        with pytest.raises(CannotReachBroker, match="dropped it"):
            await opened(cluster)
        connection = await opened(cluster)
        broker.faults[ApiKey.METADATA].append(Fault(hang=True))
        with pytest.raises(RequestTimedOut, match=r"broker 0 at broker-0:9092.*MetadataRequest.*5000 ms"):
            await connection.roundtrip(MetadataRequest())
        with pytest.raises(ConnectionLost):
            await connection.roundtrip(MetadataRequest())
        broker.version_range = (1, 3)
        connection = await opened(cluster)
        with pytest.raises(UnsupportedApiVersion, match="MetadataRequest"):
            await connection.roundtrip(MetadataRequest())
        assert not connection.closed
        nursery.cancel_scope.cancel()


async def test_a_cancelled_roundtrip_closes_the_connection(autojump_clock: object) -> None:
    """Or the late answer would be taken for that of the next request."""
    cluster = FakeCluster()
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        connection = await opened(cluster)
        cluster.brokers[0].faults[ApiKey.METADATA].append(Fault(hang=True))
        with trio.move_on_after(1):
            await connection.roundtrip(MetadataRequest())
        assert connection.closed
        nursery.cancel_scope.cancel()


def answer_to(header: FrameHeader, message: Message = MetadataResponse([], []), **changes: int) -> bytes:  # noqa: B008
    changed = msgspec.structs.replace(header, **changes)
    return encode_head(changed.api_key, changed.version, changed.correlation_id, message)


def with_body(header: FrameHeader, body: bytes) -> bytes:
    frame = struct.pack(">BBHBHBIBI", 0x94, 0xCD, header.api_key, 0xCD, 0, 0xCE, header.correlation_id, 0xCE, len(body))
    return struct.pack(">i", len(frame) + len(body)) + frame + body


MALICIOUS: dict[str, Callable[[FrameHeader], bytes]] = {
    "length 0": lambda header: bytes(4),
    "negative length": lambda header: b"\xff\xff\xff\xff" + bytes(40),
    "length above the limit": lambda header: struct.pack(">i", 2**31 - 1),
    "TLS alert": lambda header: b"\x15\x03\x01\x00\x02\x02\x46",
    "HTTP": lambda header: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "random bytes": lambda header: random.Random(4).randbytes(4000),
    "wrong correlation id": lambda header: answer_to(header, correlation_id=header.correlation_id + 1),
    "another API": lambda header: answer_to(header, api_key=int(ApiKey.FETCH)),
    "another version": lambda header: answer_to(header, version=9),
    "body longer than the frame": lambda header: answer_to(header)[:17] + b"\x7f\xff\xff\xff" + answer_to(header)[21:],
    "body is not msgpack": lambda header: with_body(header, b"\xc1" * 9),
    "array of 2^32 items": lambda header: with_body(header, b"\xdd\xff\xff\xff\xff"),
    "deep nesting": lambda header: with_body(header, b"\x91" * 5000),
    "wrong types": lambda header: with_body(header, b"\x92\xa1x\xc3"),
    "two answers": lambda header: answer_to(header) * 2,
}


@pytest.mark.parametrize("kind", MALICIOUS)
async def test_a_malicious_broker_loses_the_connection(autojump_clock: object, kind: str) -> None:
    cluster = FakeCluster()
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        connection = await opened(cluster)
        cluster.brokers[0].faults[ApiKey.METADATA].append(Fault(raw=MALICIOUS[kind]))
        with pytest.raises(RemoteProtocolError, match="broker 0 at broker-0:9092 broke the protocol"):
            await connection.roundtrip(MetadataRequest())
        assert connection.closed

        pipelined = PipelinedConnection(await opened(cluster))
        cluster.brokers[0].faults[ApiKey.METADATA].append(Fault(raw=MALICIOUS[kind]))
        answers: list[Message | Exception] = []
        for _ in range(3):
            pipelined.submit(MetadataRequest(), (), 5000, lambda answer, _: answers.append(answer))
        failure = await pipelined.run()
        assert isinstance(failure, RemoteProtocolError)
        assert len(answers) == 3
        assert all(isinstance(answer, RemoteProtocolError) for answer in answers[1:])
        assert pipelined.closed
        nursery.cancel_scope.cancel()


async def test_a_large_announced_length_allocates_only_what_is_received(autojump_clock: object) -> None:
    cluster = FakeCluster()
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        connection = await opened(cluster, timeout_ms=1000)
        promise = struct.pack(">i", 90_000_000)
        begun = Fault(raw=lambda header: promise + answer_to(header)[4:])
        cluster.brokers[0].faults[ApiKey.METADATA].append(begun)
        with pytest.raises(RequestTimedOut):
            await connection.roundtrip(MetadataRequest())
        assert len(connection.reader._view) < 1_000_000
        nursery.cancel_scope.cancel()


async def test_pipelined_answers_come_in_order_and_once(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    for i in range(10):
        cluster.fill(T0, [b"%d" % i * 20_000])
    for direction in (("client", "broker-0"), ("broker-0", "client")):
        cluster.memory.link(*direction).max_piece_bytes = 9000
        cluster.memory.link(*direction).window_bytes = 30_000
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        connection = PipelinedConnection(await opened(cluster))
        answers: list[bytes] = []

        def on_answer(answer: Message | Exception, attachments: memoryview) -> None:
            assert isinstance(answer, FetchResponse)
            answers.append(bytes(attachments))
            if len(answers) == 20:
                connection.close()

        for i in range(20):
            connection.submit(fetch(i % 10), (), 60_000, on_answer)
        assert isinstance(await connection.run(), ConnectionLost)
        expected = [b"".join(cluster.logs[T0].batches[i % 10 :]) for i in range(20)]
        assert answers == expected
        with pytest.raises(ConnectionLost):
            connection.submit(fetch(), (), 1000, on_answer)
        nursery.cancel_scope.cancel()


async def test_the_oldest_request_times_the_connection_out(autojump_clock: object) -> None:
    cluster = FakeCluster()
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        connection = PipelinedConnection(await opened(cluster))
        answers: list[Message | Exception] = []
        failures: list[Exception] = []

        async def run() -> None:
            failures.append(await connection.run())

        nursery.start_soon(run)
        await trio.sleep(10)
        cluster.brokers[0].faults[ApiKey.METADATA].extend([Fault(apply=True), Fault(hang=True), Fault(hang=True)])
        started = trio.current_time()
        for timeout_ms in (500, 2000, 9000):
            connection.submit(MetadataRequest(), (), timeout_ms, lambda answer, _: answers.append(answer))
        while not failures:
            await trio.sleep(0.01)
        assert trio.current_time() - started == pytest.approx(2, abs=0.1)
        assert isinstance(answers[0], MetadataResponse)
        assert [type(answer) for answer in answers[1:]] == [RequestTimedOut, RequestTimedOut]
        nursery.cancel_scope.cancel()
