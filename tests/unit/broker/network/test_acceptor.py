"""Who gets in: limits in all, per host and for brokers; every way out gives its slot back."""

from __future__ import annotations

import errno

import pytest
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
from strandline.protocol.messages import MetadataRequest, MetadataResponse
from strandline.runtime.network import Address, CannotListen
from strandline.testkit.network import MemoryListener, MemoryNetwork
from support.pipeline import open_pipeline
from support.raw_client import RawClient


def answer(request: RequestInHand) -> None:
    request.respond(MetadataResponse([], []))


HANDLERS: dict[ApiKey, Handler] = {ApiKey.METADATA: answer}


async def is_served(client: RawClient) -> bool:
    return await client.request(MetadataRequest()) is not None


async def test_connections_over_the_limit_are_refused_until_one_ends() -> None:
    async with open_pipeline(HANDLERS, quota=ConnectionQuota(3, 100)) as pipeline:
        clients = [await pipeline.connect(f"host-{number}") for number in range(3)]
        for client in clients:
            assert await is_served(client)
        refused = await pipeline.connect("late")
        assert await refused.is_closed_by_peer()
        clients[0].close()
        await trio.testing.wait_all_tasks_blocked()
        assert await is_served(await pipeline.connect("late"))


async def test_one_host_cannot_take_every_connection() -> None:
    async with open_pipeline(HANDLERS, quota=ConnectionQuota(100, 2), is_inter_broker=False) as pipeline:
        for _ in range(2):
            assert await is_served(await pipeline.connect("greedy"))
        assert await (await pipeline.connect("greedy")).is_closed_by_peer()
        assert await is_served(await pipeline.connect("other"))


async def test_clients_that_exhaust_theirs_leave_slots_to_brokers() -> None:
    quota = ConnectionQuota(10, 100, reserved=4)
    for _ in range(6):
        assert quota.take("client", is_inter_broker=False) is None
    refusal = quota.take("client", is_inter_broker=False)
    assert refusal is not None
    assert "max.connections" in refusal
    for _ in range(4):
        assert quota.take("broker", is_inter_broker=True) is None
    assert quota.take("broker", is_inter_broker=True) is not None


@pytest.mark.parametrize("ending", ["client closes", "reset", "bad frame", "idle", "broker stops", "cancelled"])
async def test_every_way_to_end_gives_the_slot_back(ending: str, autojump_clock: trio.testing.MockClock) -> None:
    async with open_pipeline(HANDLERS, limits=ConnectionLimits(max_idle_ms=5000)) as pipeline:
        client = await pipeline.connect()
        assert await is_served(client)
        assert (pipeline.quota.total, pipeline.quota._per_host) == (1, {"client": 1})
        if ending == "client closes":
            client.close()
        elif ending == "reset":
            pipeline.network.drop_connections("client")
        elif ending == "bad frame":
            await client.send(b"GET / HTTP/1.1\r\n\r\n")
        elif ending == "idle":
            await trio.sleep(10)
        elif ending == "broker stops":
            await pipeline.processor.stop(trio.current_time() + 1)
        if ending != "cancelled":
            await trio.testing.wait_all_tasks_blocked()
            assert (pipeline.quota.total, pipeline.quota._per_host) == (0, {})
    assert (pipeline.quota.total, pipeline.quota._per_host) == (0, {})


async def test_connections_are_dealt_out_round_robin() -> None:
    network = MemoryNetwork()
    log = structlog.get_logger()
    channel = RequestChannel(
        handlers=HANDLERS,
        dialects=(NATIVE,),
        end_of_burst=lambda: None,
        unflushed_connections=UnflushedConnections(),
        work=WorkQueue(1),
        max_queued_bytes=1,
        num_handlers=1,
        log=log,
    )
    processors = [Processor(number, channel, ConnectionLimits(), log) for number in range(3)]
    config = ListenerConfig("PLAINTEXT", Address("broker", 9092), is_inter_broker=False)
    acceptor = Acceptor(config, network.node("broker"), processors, ConnectionQuota(100, 100), log)
    async with trio.open_nursery() as nursery:
        for processor in processors:
            await nursery.start(processor.run)
        await nursery.start(acceptor.run)
        clients = [RawClient(await network.node("client").connect(config.address)) for _ in range(7)]
        for client in clients:
            assert await is_served(client)
        assert [len(processor.connections) for processor in processors] == [3, 2, 2]
        nursery.cancel_scope.cancel()


async def test_without_descriptors_the_acceptor_backs_off_and_goes_on(autojump_clock: trio.testing.MockClock) -> None:
    async with open_pipeline(HANDLERS) as pipeline:
        [listener] = pipeline.network._listeners.values()
        assert isinstance(listener, MemoryListener)
        listener.accept_errors.extend(OSError(errno.EMFILE, "Too many open files") for _ in range(5))
        since = trio.current_time()
        assert await is_served(await pipeline.connect())
        assert trio.current_time() - since == pytest.approx(0.5)


async def test_a_listener_knows_its_port_before_it_accepts_and_frees_it_in_the_end() -> None:
    network = MemoryNetwork()
    log = structlog.get_logger()
    config = ListenerConfig("PLAINTEXT", Address("broker", 0), is_inter_broker=True)
    acceptor = Acceptor(config, network.node("broker"), [], ConnectionQuota(1, 1), log)
    address = await acceptor.bind()
    assert address.port != 0
    with pytest.raises(CannotListen):
        await network.node("broker").listen(address)
    acceptor.close()
    (await network.node("broker").listen(address)).close()
