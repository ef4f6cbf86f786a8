"""A producer while leadership changes hands: who leads next is known at once, that broker hears of it in a moment."""

from __future__ import annotations

import math

import pytest
import trio

from strandline.client.errors import DeliveryFailed
from strandline.client.metadata import PartitionView
from strandline.client.producer import TrioProducer
from strandline.client.takeovers import takeover_wait_ms
from strandline.protocol.api import ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition

from .fake_broker import FakeCluster, Fault

T0 = TopicPartition("t", 0)
NEVER_MS = 1_000_000
"""Back-offs, and metadata: none of the producer's usual ways to the next leader is taken within the test."""


def patient_producer(cluster: FakeCluster, retries: int = 100) -> TrioProducer:
    return TrioProducer(
        cluster.bootstrap,
        environment=cluster.environment(),
        linger_ms=0,
        retries=retries,
        retry_backoff_ms=NEVER_MS,
        retry_backoff_max_ms=NEVER_MS,
        delivery_timeout_ms=NEVER_MS / 2,
    )


async def test_where_the_answer_names_the_next_leader_nobody_backs_off(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with patient_producer(cluster) as client:
            await (await client.send("t", b"before"))
            cluster.move(T0, 1)
            with trio.fail_after(10):
                await (await client.send("t", b"after"))
        nursery.cancel_scope.cancel()


async def test_a_leader_that_has_not_heard_of_it_yet_is_asked_again_soon(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    not_yet = Fault(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=cluster.leaders[T0])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with patient_producer(cluster) as client:
            await (await client.send("t", b"before"))
            cluster.move(T0, 1)
            cluster.brokers[1].faults[ApiKey.PRODUCE].extend([not_yet] * 3)
            with trio.fail_after(10):
                await (await client.send("t", b"after"))
        nursery.cancel_scope.cancel()


async def test_few_attempts_are_not_used_up_within_a_moment(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with patient_producer(cluster, retries=2) as client:
            await (await client.send("t", b"before"))
            cluster.move(T0, 1)
            delivery = await client.send("t", b"after")
            await trio.sleep(10)
            assert not delivery.done()
            with pytest.raises(DeliveryFailed):
                await delivery
        nursery.cancel_scope.cancel()


def test_only_a_takeover_shortens_the_wait_and_each_attempt_doubles_it() -> None:
    def wait_ms(known: PartitionView | None, asked: int, epoch: int, attempt: int = 1, retries: int = 100) -> float:
        return takeover_wait_ms(known, asked, epoch, attempt=attempt, retries=retries)

    known = PartitionView(leader=2, leader_epoch=7)
    assert wait_ms(None, 1, 7) == math.inf
    assert wait_ms(known, 1, -1) == math.inf, "it does not say who leads"
    assert wait_ms(known, 1, 6) == math.inf, "it is behind itself"
    assert wait_ms(known, 2, 7) == math.inf, "the one who leads says that it does not"
    assert wait_ms(PartitionView(-1, 7), 1, 7) == math.inf, "nobody leads"
    assert wait_ms(known, 1, 7, retries=3) == math.inf
    assert wait_ms(known, 1, 7, attempt=3) == wait_ms(known, 1, 7) == 10
    assert [wait_ms(known, 2, 6, attempt) for attempt in (1, 2, 3, 4)] == [10, 20, 40, 80]
