"""Deletions of records that TCP delivers late, over connections that the client had given up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
import trio

from strandline.client.record_deletion import _Deletion
from strandline.testkit.cluster import CLIENT, MemoryCluster, node_name
from support.scenario import T0, cluster_with_topic

CUT_S = 3.2
LATE_S = 10.0
"""What is lost in such a cut is sent again by then."""


def cut_before_the_first_deletion(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client had to ask before is answered."""
    delete: Callable[..., Awaitable[Any]] = _Deletion._delete

    async def cut_off(deletion: _Deletion, leader: int, offsets: Mapping[Any, int]) -> Any:
        monkeypatch.undo()
        cluster.network.cut(CLIENT, node_name(leader))
        return await delete(deletion, leader, offsets)

    monkeypatch.setattr(_Deletion, "_delete", cut_off)


async def heal_later(cluster: MemoryCluster) -> None:
    await trio.sleep(CUT_S)
    cluster.network.heal()


async def produce(cluster: MemoryCluster, count: int) -> None:
    async with cluster.producer(linger_ms=0) as producer:
        for number in range(count):
            await (await producer.send(T0.topic, b"%d" % number, partition=0))


async def test_all_that_was_committed_is_not_what_has_come_since(autojump_clock, monkeypatch) -> None:
    async with cluster_with_topic() as (cluster, *_), cluster.admin(request_timeout_ms=1000) as admin:
        await produce(cluster, 3)
        cut_before_the_first_deletion(cluster, monkeypatch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(heal_later, cluster)
            assert await admin.delete_records({T0: -1}) == {T0: 3}
        await produce(cluster, 2)
        await trio.sleep(LATE_S)
        assert cluster.partition(cluster.leader(T0), T0).log.log_start_offset == 3


async def test_what_was_meant_for_a_topic_spares_the_one_that_was_made_anew(autojump_clock, monkeypatch) -> None:
    async with cluster_with_topic() as (cluster, *_), cluster.admin(request_timeout_ms=1000) as admin:
        await produce(cluster, 3)
        cut_before_the_first_deletion(cluster, monkeypatch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(heal_later, cluster)
            await admin.delete_records({T0: 3}, timeout_ms=1500)
        await admin.delete_topics([T0.topic])
        await admin.create_topic(T0.topic, assignments={0: [1, 2, 3]})
        await cluster.until(lambda: cluster.leads(1, T0), "there is another one")
        await produce(cluster, 5)
        await trio.sleep(LATE_S)
        assert cluster.partition(1, T0).log.log_start_offset == 0
