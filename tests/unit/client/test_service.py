"""Clients that nobody runs say so, instead of waiting for what never comes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from strandline.client import TrioAdmin, TrioConsumer, TrioProducer
from strandline.client.errors import ClientClosed, NotRunning
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import FakeCluster

T0 = TopicPartition("t", 0)

CALLS: dict[str, tuple[Callable[[FakeCluster], Any], Callable[[Any], Awaitable[object]]]] = {
    "commit": (lambda cluster: consumer(cluster), lambda client: client.commit({T0: 1})),
    "commit of what was read": (lambda cluster: consumer(cluster), lambda client: client.commit()),
    "committed": (lambda cluster: consumer(cluster), lambda client: client.committed([T0])),
    "assign": (lambda cluster: consumer(cluster), lambda client: client.assign([T0])),
    "poll": (lambda cluster: consumer(cluster), lambda client: client.poll(timeout_ms=60_000)),
    "end_offsets": (lambda cluster: consumer(cluster), lambda client: client.end_offsets([T0])),
    "send": (
        lambda cluster: TrioProducer(cluster.bootstrap, environment=cluster.environment()),
        lambda client: client.send("t", b"x"),
    ),
    "list_topics": (
        lambda cluster: TrioAdmin(cluster.bootstrap, environment=cluster.environment()),
        lambda client: client.list_topics(),
    ),
}


def consumer(cluster: FakeCluster) -> TrioConsumer:
    return TrioConsumer(cluster.bootstrap, environment=cluster.environment(), group_id="g")


@pytest.mark.parametrize("what", CALLS)
async def test_a_client_that_does_not_run_says_so_at_once(what: str, autojump_clock) -> None:
    make, call = CALLS[what]
    client = make(FakeCluster(1))
    began = trio.current_time()
    with pytest.raises(NotRunning, match="async with"):
        await call(client)
    assert trio.current_time() == began
    if isinstance(client, TrioConsumer | TrioAdmin):
        client.close()
        with pytest.raises(ClientClosed):
            await call(client)


async def test_a_run_that_was_only_just_started_counts(autojump_clock) -> None:
    cluster = FakeCluster(1)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        for _ in range(10):  # trio shuffles the tasks of a turn
            client = TrioConsumer(cluster.bootstrap, environment=cluster.environment())
            nursery.start_soon(client.run)
            assert await client.end_offsets([T0]) == {T0: 0}
            client.close()
        nursery.cancel_scope.cancel()
