"""Clients are patient with a partition that cannot be used, and tell whoever asks what it waits for."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from strandline.cli.waits import TELL_AFTER_S, WaitLines
from strandline.client import TrioConsumer, TrioProducer
from strandline.testkit.cluster import MemoryCluster
from support.scenario import T0, cluster_with_topic

MISSING = "00000000000000000000.log"
"""The first of several segments: a log without it is refused."""


class Told:
    """What `consume` and `produce` would have said."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.waiting = False

    async def look(self, client: TrioConsumer | TrioProducer) -> None:
        lines = WaitLines()
        while True:
            waiting = client.waiting()
            self.waiting = bool(waiting)
            self.lines += lines.next_lines(waiting, trio.current_time())
            await trio.sleep(1)


@asynccontextmanager
async def killed(cluster: MemoryCluster) -> AsyncIterator[None]:
    cluster.crash(3)
    yield
    await cluster.start_broker(3)


@asynccontextmanager
async def paused(cluster: MemoryCluster) -> AsyncIterator[None]:
    cluster.pause(3)
    yield
    cluster.resume(3)


@asynccontextmanager
async def refused(cluster: MemoryCluster) -> AsyncIterator[None]:
    disk = cluster.nodes[3].disk
    await cluster.stop(3)
    disk.rename(f"/data/{T0}/{MISSING}", f"/{MISSING}")
    await cluster.start_broker(3)
    yield
    await cluster.stop(3)
    disk.rename(f"/{MISSING}", f"/data/{T0}/{MISSING}")
    await cluster.start_broker(3)


@asynccontextmanager
async def everybody_is_killed(cluster: MemoryCluster) -> AsyncIterator[None]:
    for broker_id in cluster.nodes:
        cluster.crash(broker_id)
    yield
    for broker_id in cluster.nodes:
        await cluster.start_broker(broker_id)


LOSSES = {
    "killed": (killed, r"t-0 waits: partition t-0 has no leader \(of its replicas 3 gone: 3\)"),
    "paused": (paused, r"t-0 waits: partition t-0 has no leader \(of its replicas 3 gone: 3\)"),
    "refused": (refused, "t-0 waits: partition t-0 has no leader; broker 3 does not serve its replica: .*"),
    "all killed": (everybody_is_killed, "t-0 waits: no broker answers: .*"),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_partition_that_loses_its_leader_is_told_with_the_reason_and_goes_on(
    autojump_clock: Any, loss: str
) -> None:
    lose, words = LOSSES[loss]
    small = {"log.segment.bytes": "300"}
    async with cluster_with_topic([3], min_insync_replicas=1, properties=small) as (cluster, producer, ledger):
        for number in range(10):
            await ledger.produce(producer, T0, [b"before-%d" % number])
        async with (
            cluster.consumer() as consumer,
            cluster.producer(linger_ms=0) as writer,
            trio.open_nursery() as tasks,
        ):
            await writer.partitions_for(T0.topic)
            await consumer.assign([T0])
            consumer.seek_to_end()
            await consumer.position(T0)
            reading, writing = Told(), Told()
            tasks.start_soon(reading.look, consumer)
            tasks.start_soon(writing.look, writer)
            assert await consumer.poll(timeout_ms=60_000) == {}
            async with lose(cluster):
                delivery = await writer.send(T0.topic, b"after", partition=0)
                assert await consumer.poll(timeout_ms=3 * TELL_AFTER_S * 1000) == {}
                for told in (reading, writing):
                    assert len(told.lines) == 1 and re.fullmatch(words, told.lines[0]), told.lines
            [records] = (await consumer.poll(timeout_ms=60_000)).values()
            assert [record.value for record in records] == [b"after"]
            await delivery
            await cluster.until(lambda: not reading.waiting and not writing.waiting, "both went on")
            for told in (reading, writing):
                assert told.lines[1:] == ["t-0 goes on"], told.lines
            tasks.cancel_scope.cancel()
