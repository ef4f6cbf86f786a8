"""Produce requests of very many or very large partitions: seen to in steps, and answered as any other."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.errors import ErrorCode
from support.replica_site import T0, T1, Hand, ReplicaSite, batch, produce_hand, turns_of_others


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is large: two batches are two pieces, and every count ends a step."""
    monkeypatch.setattr("strandline.broker.handlers.produce.AT_ONCE", 0)
    monkeypatch.setattr("strandline.broker.handlers.produce.BYTES_PER_COUNT", 1)
    monkeypatch.setattr("strandline.broker.steps.PARTITIONS_PER_STEP", 1)
    monkeypatch.setattr("strandline.protocol.records.validation.PIECE_BYTES", 1)


async def site_that_leads(topic: Mapping[str, str] | None = None) -> ReplicaSite:
    site = ReplicaSite(topic=topic or {})
    await site.order(site.state(T0, replicas=(1,), isr=(1,)), site.state(T1, replicas=(1,), isr=(1,)))
    return site


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def ends(site: ReplicaSite) -> tuple[int, int]:
    return site.partition(T0).log.log_end_offset, site.partition(T1).log.log_end_offset


class Watch(trio.abc.Instrument):
    """What others see of the logs, wherever a task gives way."""

    def __init__(self, site: ReplicaSite) -> None:
        self.site = site
        self.seen: list[tuple[int, int]] = []

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.seen.append(ends(self.site))


async def answered(site: ReplicaSite, hand: Hand) -> list[tuple[int, int]]:
    """What others saw, once each, in its order."""
    site.burst(hand)
    assert not hand.is_answered, "it was seen to in its burst"
    watch = Watch(site)
    trio.lowlevel.add_instrument(watch)
    await site.run_submitted()
    trio.lowlevel.remove_instrument(watch)
    return list(dict.fromkeys(watch.seen))


async def test_others_run_between_its_partitions_and_each_is_appended_whole(autojump_clock: MockClock) -> None:
    site = await site_that_leads()
    hand = produce_hand((T0, batch(3) + batch(2)), (T1, batch(1) * 4), (T0, batch(1)), acks=1)
    assert await answered(site, hand) == [(0, 0), (5, 0), (5, 4), (6, 4)]
    assert [(outcome.error_code, outcome.base_offset) for outcome in hand.outcomes] == [(0, 0), (0, 0), (0, 5)]


async def test_others_run_between_the_batches_that_are_checked(autojump_clock: MockClock) -> None:
    site = await site_that_leads()
    site.burst(hand := produce_hand((T0, batch(1) * 20), acks=1))
    assert await turns_of_others(hand, site.run_submitted) > 10


async def test_nothing_of_a_partition_is_appended_whose_last_batch_is_bad(autojump_clock: MockClock) -> None:
    site = await site_that_leads()
    hand = produce_hand((T0, batch(2) + damaged(batch(2))), (T1, batch(2)), acks=1)
    await answered(site, hand)
    assert [outcome.error_code for outcome in hand.outcomes] == [ErrorCode.CORRUPT_MESSAGE, 0]
    assert ends(site) == (0, 2)


async def test_a_broker_that_leaves_meanwhile_appends_no_more(autojump_clock: MockClock) -> None:
    site = await site_that_leads()
    site.burst(hand := produce_hand((T0, batch()), acks=1))
    site.data.replicas.is_leaving = True
    await site.run_submitted()
    assert [outcome.error_code for outcome in hand.outcomes] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert ends(site) == (0, 0)


async def test_what_a_worker_converts_comes_last_and_in_the_order_of_its_partition(autojump_clock: MockClock) -> None:
    site = await site_that_leads({"compression.type": "gzip"})
    hand = produce_hand((T0, batch(3)), (T1, batch(1, codec="gzip")), (T0, batch(1, codec="gzip")), acks=1)
    await answered(site, hand)
    assert [(outcome.error_code, outcome.base_offset) for outcome in hand.outcomes] == [(0, 0), (0, 0), (0, 3)]
