"""How long batches wait for more records: the rule, and what a producer makes of it."""

from __future__ import annotations

import math

import pytest
import trio

from strandline.client import TrioProducer
from strandline.client.errors import InvalidRecordValue
from strandline.client.lingering import ADAPTIVE_LINGER_MS, QUIET_S, Gathering
from strandline.protocol.messages import ProduceRequest
from unit.client.fake_broker import ApiKey, FakeCluster, Fault

NOW = 100.0


def test_what_finds_nothing_in_front_of_it_leaves_at_once() -> None:
    assert Gathering().look(1, NOW, is_first=True) is None


def test_what_was_gathered_leaves_when_no_more_comes_for_a_moment() -> None:
    gathering = Gathering()
    assert gathering.look(1, NOW, is_first=False) == math.inf
    assert gathering.look(3, NOW + 0.5, is_first=False) == math.inf
    due = gathering.look(3, NOW + 0.5, is_first=True)
    assert due == NOW + 0.5 + QUIET_S
    assert gathering.look(3, due, is_first=True) is None


def test_as_long_as_records_come_what_was_gathered_stays() -> None:
    gathering = Gathering()
    gathering.look(1, NOW, is_first=False)
    for turn in range(2, 10):
        now = NOW + turn * QUIET_S
        assert gathering.look(turn, now, is_first=True) == now + QUIET_S


async def requests_of(settings: dict[str, object], delay_s: float, records: int) -> tuple[int, float]:
    """(requests, seconds) until the last of some records is delivered, all but the first of which were sent while that
    one's request was under way."""
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        client = TrioProducer(cluster.bootstrap, environment=cluster.environment(), **settings)
        async with client:
            await (await client.send("t", b"connects"))
            cluster.brokers[0].faults[ApiKey.PRODUCE].append(Fault(apply=True, delay_s=delay_s))
            before, began = len(cluster.brokers[0].seen(ProduceRequest)), trio.current_time()
            deliveries = [await client.send("t", b"first")]
            await trio.sleep(delay_s / 2)
            deliveries += [await client.send("t", b"%d" % number) for number in range(records - 1)]
            for delivery in deliveries:
                await delivery
            took_s = trio.current_time() - began
        nursery.cancel_scope.cancel()
    return len(cluster.brokers[0].seen(ProduceRequest)) - before, took_s


@pytest.mark.parametrize("settings", [{}, {"linger_ms": None}, {"linger_ms": 0}])
async def test_a_lone_record_does_not_wait_for_others(autojump_clock: object, settings: dict[str, object]) -> None:
    assert await requests_of(settings, delay_s=0.0, records=1) == (1, 0.0)


async def test_a_time_that_was_set_is_waited_for(autojump_clock: object) -> None:
    requests, took_s = await requests_of({"linger_ms": ADAPTIVE_LINGER_MS}, delay_s=0.0, records=1)
    assert (requests, took_s) == (1, pytest.approx(ADAPTIVE_LINGER_MS / 1000))


async def test_records_gather_while_a_request_is_under_way(autojump_clock: object) -> None:
    requests, took_s = await requests_of({}, delay_s=0.002, records=50)
    assert requests == 2
    assert took_s < 0.002 + ADAPTIVE_LINGER_MS / 1000


async def test_what_gathers_waits_no_longer_than_the_limit(autojump_clock: object) -> None:
    requests, took_s = await requests_of({}, delay_s=10.0, records=2)
    assert requests == 2
    assert took_s == pytest.approx(10.0, abs=0.001), "it left beside the slow request, and was answered behind it"


async def test_without_answers_the_time_alone_counts(autojump_clock: object) -> None:
    _, took_s = await requests_of({"acks": 0}, delay_s=0.0, records=1)
    assert took_s == pytest.approx(ADAPTIVE_LINGER_MS / 1000)


async def test_a_batch_whose_only_record_was_refused_is_not_sent(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioProducer(cluster.bootstrap, environment=cluster.environment()) as client:
            with pytest.raises(InvalidRecordValue):
                await client.send("t", "text")
            await client.flush()
            assert (await (await client.send("t", b"good"))).offset == 0
        nursery.cancel_scope.cancel()
    assert len(cluster.brokers[0].seen(ProduceRequest)) == 1
