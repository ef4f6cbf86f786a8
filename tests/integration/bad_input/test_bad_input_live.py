"""The tables of bad input against a live broker process: typed errors, bounded memory, nobody else notices."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from strandline.cli.cluster import EmbeddedCluster
from strandline.protocol.messages import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataResponse,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from strandline.runtime.loopback import free_port
from strandline.runtime.network import Address, TransportClosed
from strandline.runtime.network_socket import SocketNetwork
from support import bad_input, bad_requests
from support.bad_input import BadInput, error_codes
from support.bad_requests import GOOD_BATCH, TOPIC, BadRequest
from support.raw_client import RawClient, request_frame

MAX_RSS_BYTES = 250 * 2**20
FRAME_TIMEOUT_MS = 1000
HANG_S = 120
"""A test that waits longer than this for one answer hangs."""


@dataclass(frozen=True)
class LiveBroker:
    """`address`: the listener for clients; `inter_broker`: the one that brokers use."""

    cluster: EmbeddedCluster
    address: Address
    inter_broker: Address

    def rss_bytes(self) -> int:
        identity = self.cluster.brokers[1].id
        assert identity is not None, "the broker is not running any more"
        pages = int(Path(f"/proc/{identity.pid}/statm").read_text().split()[1])
        return pages * 4096


@pytest.fixture(scope="module")
def broker() -> Iterator[LiveBroker]:
    inter_broker = free_port()
    clients = free_port(taken=frozenset({inter_broker}))
    with tempfile.TemporaryDirectory(prefix="bad-input-") as folder:
        cluster = EmbeddedCluster(
            Path(folder),
            1,
            base_port=inter_broker,
            properties={
                "listeners": f"PLAINTEXT://127.0.0.1:{inter_broker},CLIENTS://127.0.0.1:{clients}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "frame.timeout.ms": str(FRAME_TIMEOUT_MS),
                "auto.create.topics.enable": "false",
            },
        )
        cluster.start()
        try:
            live = LiveBroker(cluster, Address("127.0.0.1", clients), Address("127.0.0.1", inter_broker))
            trio.run(_create_topic, live)
            yield live
        finally:
            cluster.stop(timeout_s=10)


async def _connect(address: Address) -> RawClient:
    return RawClient(await SocketNetwork().connect(address))


async def _create_topic(live: LiveBroker) -> None:
    client = await _connect(live.address)
    response = await client.request(CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)]))
    assert response is not None
    assert isinstance(response.message, CreateTopicsResponse)
    assert response.message.topics[0].error_code == 0
    client.close()


async def _end_offset(client: RawClient) -> int:
    response = await client.request(ListOffsetsRequest([ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1)])]))
    assert response is not None
    assert isinstance(response.message, ListOffsetsResponse)
    [partition] = response.message.topics[0].partitions
    assert partition.error_code == 0
    return partition.offset


async def _with_witness(live: LiveBroker, test: Callable[[RawClient], Awaitable[None]], address: Address) -> None:
    """Run a row while another connection watches: it is served before and after, and the log has not changed."""
    with trio.fail_after(HANG_S):
        witness, client = await _connect(live.address), await _connect(address)
        try:
            before = await _end_offset(witness)
            await test(client)
            assert await _end_offset(witness) == before
        finally:
            witness.close()
            client.close()
    assert live.rss_bytes() < MAX_RSS_BYTES


@pytest.mark.parametrize("row", [*bad_input.EVERYWHERE, *bad_input.ON_CLIENT_LISTENERS], ids=str)
async def test_bytes_that_are_no_request_get_a_typed_error_or_a_close(broker: LiveBroker, row: BadInput) -> None:
    await _with_witness(broker, lambda client: bad_input.check(row, client), broker.address)


@pytest.mark.parametrize("row", [*bad_requests.EVERYWHERE, *bad_requests.ON_CLIENT_LISTENERS], ids=str)
async def test_requests_that_must_not_be_obeyed_get_their_error(broker: LiveBroker, row: BadRequest) -> None:
    async def check(client: RawClient) -> None:
        response = await client.request(row.message, attachments=row.attachments)
        assert response is not None, "closed without an answer"
        codes = error_codes(response.message)
        assert len(codes) == 1, f"answered {response.message}"
        assert codes <= row.codes, f"answered {response.message}"
        assert await client.request(MetadataRequest([])) is not None, "closed after the error"

    await _with_witness(broker, check, broker.address)


async def test_one_bad_partition_does_not_spoil_the_good_one_beside_it(broker: LiveBroker) -> None:
    bad = bad_requests.BATCHES[0].attachments
    client = await _connect(broker.address)
    before = await _end_offset(client)
    data = [PartitionProduceData(0, len(GOOD_BATCH)), PartitionProduceData(5, len(bad))]
    response = await client.request(
        ProduceRequest(-1, 5000, [TopicProduceData(TOPIC, data)]), attachments=GOOD_BATCH + bad
    )
    assert response is not None
    assert isinstance(response.message, ProduceResponse)
    good, other = response.message.responses[0].partition_responses
    assert (good.error_code, good.base_offset) == (0, before)
    assert other.error_code != 0
    assert await _end_offset(client) == before + 3
    client.close()


async def test_an_empty_produce_is_fine(broker: LiveBroker) -> None:
    client = await _connect(broker.address)
    for message in (
        ProduceRequest(-1, 5000, [TopicProduceData(TOPIC, [PartitionProduceData(0, 0)])]),
        ProduceRequest(-1, 5000, [TopicProduceData(TOPIC, [PartitionProduceData(0, -1)])]),
    ):
        response = await client.request(message)
        assert response is not None
        assert error_codes(response.message) == set()
    client.close()


async def test_the_longest_topic_name_works(broker: LiveBroker) -> None:
    client = await _connect(broker.address)
    name = "n" * 249
    response = await client.request(CreateTopicsRequest([CreatableTopic(name, 1, 1)]))
    assert response is not None
    assert error_codes(response.message) == set()
    response = await client.request(MetadataRequest([name]))
    assert response is not None
    assert isinstance(response.message, MetadataResponse)
    assert [topic.name for topic in response.message.topics] == [name]
    client.close()


async def test_names_that_differ_in_dot_and_underscore_only_collide(broker: LiveBroker) -> None:
    client = await _connect(broker.address)
    codes = []
    for name in ("collides.here", "collides_here"):
        response = await client.request(CreateTopicsRequest([CreatableTopic(name, 1, 1)]))
        assert response is not None
        codes.append(error_codes(response.message))
    assert codes[0] == set()
    assert codes[1] in ({36}, {17})  # TOPIC_ALREADY_EXISTS or INVALID_TOPIC_EXCEPTION
    client.close()


async def test_ten_thousand_pipelined_requests_of_a_client_that_reads_late(broker: LiveBroker) -> None:
    client = await _connect(broker.address)
    frame = metadata_frames(10_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send, frame)
        with trio.fail_after(HANG_S):
            for number in range(10_000):
                response = await client.response()
                assert response is not None
                assert response.header.correlation_id == number
    assert broker.rss_bytes() < MAX_RSS_BYTES
    client.close()


def metadata_frames(count: int) -> bytes:
    return b"".join(request_frame(MetadataRequest([]), correlation_id=number) for number in range(count))


async def test_a_flood_of_connections_is_bounded_and_others_are_served(broker: LiveBroker) -> None:
    flood = [await _connect(broker.address) for _ in range(300)]
    try:
        witness = await _connect(broker.inter_broker)
        with trio.fail_after(HANG_S):
            assert await witness.request(MetadataRequest([])) is not None
        witness.close()
    finally:
        for client in flood:
            client.close()
    assert broker.rss_bytes() < MAX_RSS_BYTES


async def test_many_large_frames_that_never_end_do_not_fill_the_memory(broker: LiveBroker) -> None:
    head = (90_000_000).to_bytes(4, "big") + metadata_frames(1)[4:]
    clients = [await _connect(broker.address) for _ in range(30)]
    with trio.fail_after(HANG_S):
        for client in clients:
            try:
                await client.send(head + bytes(100_000))
            except TransportClosed:
                pass
        witness = await _connect(broker.address)
        assert await witness.request(MetadataRequest([])) is not None
    assert broker.rss_bytes() < MAX_RSS_BYTES
    for client in (*clients, witness):
        client.close()
