"""The table of APIs against a whole broker: each has its handler, and each listener offers what it serves."""

from __future__ import annotations

import inspect

import pytest
from trio.testing import MockClock

from strandline.client.connection import Connection
from strandline.protocol.api import APIS, Scheduling
from strandline.testkit.cluster import MemoryCluster


async def test_every_api_has_a_handler_of_its_kind(autojump_clock: MockClock) -> None:
    async with MemoryCluster(1).running() as cluster:
        channel = cluster.broker(1).channel
        assert channel.apis == APIS
        for key, handler in channel._handlers.items():
            assert inspect.iscoroutinefunction(handler) == (APIS[key].scheduling is not Scheduling.INLINE)


async def test_the_controller_answers_what_is_said_to_be_the_controllers(autojump_clock: MockClock) -> None:
    async with MemoryCluster(1).running() as cluster:
        term = cluster.broker(1).controller.term
        assert term is not None
        assert set(term.duties.answers) == {api.request for api in APIS.values() if api.is_controllers}


@pytest.mark.parametrize("is_broker", [True, False])
async def test_a_broker_offers_brokers_what_only_they_may_use(is_broker: bool, autojump_clock: MockClock) -> None:
    async with MemoryCluster(1).running() as cluster:
        broker = cluster.broker(1)
        (address,) = broker.listeners.addresses.values()
        key = broker.registration.broker_key if is_broker else ""
        connection = await Connection.open(cluster.network.node("asking"), address, broker_key=key)
        offered = {key: api for key, api in APIS.items() if is_broker or not api.inter_broker_only}
        assert connection.versions == {key: api.native[1] for key, api in offered.items()}
        connection.close()
