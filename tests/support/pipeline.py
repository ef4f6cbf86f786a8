"""A broker's network pipeline without the broker: acceptor, processor and request channel around given handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import structlog
import trio
import trio.testing

from strandline.broker.membership.broker_key import is_key
from strandline.broker.network.acceptor import Acceptor, CreationRates, ListenerConfig
from strandline.broker.network.dialects import Dialect
from strandline.broker.network.dialects.native import NATIVE
from strandline.broker.network.limits import ConnectionLimits, ConnectionQuota
from strandline.broker.network.processor import Processor
from strandline.broker.network.request_channel import Gate, Handler, RequestChannel, WorkQueue
from strandline.broker.network.request_context import RequestContext
from strandline.broker.network.unflushed_connections import UnflushedConnections
from strandline.protocol.api import ApiKey
from strandline.runtime.network import Address, Transport
from strandline.testkit.network import MemoryNetwork, MemoryNode
from support.raw_client import RawClient

HANG_S, HANG_VIRTUAL_S = 30, 10_000
"""A test that takes longer hangs and fails (on the virtual clock the processor's timer would tick for ever)."""


@dataclass(slots=True)
class Pipeline:
    """`connect` as many clients as needed; each may come from another host."""

    network: MemoryNetwork
    channel: RequestChannel
    work: WorkQueue
    processor: Processor
    quota: ConnectionQuota
    address: Address

    async def connect(self, host: str = "client") -> RawClient:
        node: MemoryNode = self.network.node(host)
        return RawClient(await node.connect(self.address))


class _OfBrokers(Processor):
    """All its connections are taken for those of brokers, as if each had shown a key."""

    def adopt(
        self, transport: Transport, context: RequestContext, on_closed: Callable[[], None], received: bytes = b""
    ) -> None:
        super().adopt(transport, replace(context, is_inter_broker=True), on_closed, received)


@asynccontextmanager
async def open_pipeline(
    handlers: Mapping[ApiKey, Handler],
    *,
    gates: Sequence[Gate] = (),
    dialects: Sequence[Dialect] = (NATIVE,),
    end_of_burst: Callable[[], None] = lambda: None,
    limits: ConnectionLimits | None = None,
    quota: ConnectionQuota | None = None,
    is_inter_broker: bool = True,
    max_queued_requests: int = 500,
    max_queued_bytes: int = 64 * 1024 * 1024,
    num_handlers: int = 2,
    network: MemoryNetwork | None = None,
    rates: CreationRates | None = None,
    broker_key: str = "",
) -> AsyncIterator[Pipeline]:
    """Serve on `broker:9092` of an in-memory network until the block ends."""
    log = structlog.get_logger()
    network = network or MemoryNetwork()
    quota = quota or ConnectionQuota(1000, 1000)
    work = WorkQueue(max_queued_requests)
    channel = RequestChannel(
        handlers=handlers,
        gates=gates,
        dialects=dialects,
        end_of_burst=end_of_burst,
        unflushed_connections=UnflushedConnections(),
        work=work,
        max_queued_bytes=max_queued_bytes,
        num_handlers=num_handlers,
        log=log,
    )
    is_own = is_inter_broker and rates is None
    processor = (_OfBrokers if is_own else Processor)(0, channel, limits or ConnectionLimits(), log)
    listener = ListenerConfig("PLAINTEXT", Address("0.0.0.0", 9092), is_inter_broker, is_brokers_own=is_own)
    acceptor = Acceptor(
        listener, network.node("broker"), [processor], quota, log, rates, partial(is_key, key=broker_key)
    )
    is_virtual = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    with trio.fail_after(HANG_VIRTUAL_S if is_virtual else HANG_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(channel.run)
            await nursery.start(processor.run)
            await nursery.start(acceptor.run)
            yield Pipeline(network, channel, work, processor, quota, Address("broker", 9092))
            nursery.cancel_scope.cancel()
