"""Whom the admin client asks what any broker can answer, and when another one beside it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest
import trio

from strandline.client import TrioAdmin
from strandline.client.errors import ClientError, RequestTimedOut
from strandline.client.first_answer import FirstAnswers
from strandline.client.metadata import SILENT_AFTER_S
from strandline.protocol.messages import ConfigResource, IncrementalAlterConfigsRequest, MetadataRequest
from unit.client.fake_broker import ApiKey, FakeCluster, Fault

LIMIT_S = 30.0
NEVER = 1e9


class Brokers:
    """`after_s`: broker → when it answers; NEVER: not at all. `refusals`: what asking one raises then."""

    def __init__(self, after_s: dict[int, float], refusals: dict[int, ClientError] | None = None) -> None:
        self.after_s = after_s
        self.refusals = refusals or {}
        self.asked: list[int] = []
        self.order = FirstAnswers(random.Random(0))

    async def ask(self, broker_id: int) -> str | None:
        self.asked.append(broker_id)
        await trio.sleep(self.after_s[broker_id])
        if broker_id in self.refusals:
            raise self.refusals[broker_id]
        return f"by {broker_id}"

    async def first(
        self,
        ask: Callable[[int], Awaitable[str | None]] | None = None,
        *,
        limit_s: float = LIMIT_S,
        change: bool = False,
    ) -> tuple[int, str] | None:
        """Broker 1 is preferred; the limit is that of the whole question."""
        brokers = self.order.in_order(sorted(self.after_s), 1)
        with trio.move_on_after(limit_s):
            deadline = trio.current_time() + limit_s
            return await self.order.first(brokers, ask or self.ask, deadline, is_change=change)
        return None


async def test_one_that_answers_is_asked_alone(autojump_clock: object) -> None:
    brokers = Brokers({1: SILENT_AFTER_S - 0.1, 2: 0, 3: 0})
    assert await brokers.first() == (1, "by 1")
    assert brokers.asked == [1]


async def test_one_that_is_at_work_is_asked_once_and_its_answer_counts(autojump_clock: object) -> None:
    brokers = Brokers({1: 4 * SILENT_AFTER_S, 2: NEVER, 3: NEVER})
    assert await brokers.first() == (1, "by 1")
    assert sorted(brokers.asked) == [1, 2, 3]


async def test_a_silent_one_is_asked_last_from_then_on_until_it_answers(autojump_clock: object) -> None:
    brokers = Brokers({1: NEVER, 2: 0, 3: 0})
    assert (await brokers.first() or (0, ""))[0] in (2, 3)
    brokers.asked.clear()
    assert await brokers.first() is not None
    assert 1 not in brokers.asked
    brokers.order.has_answered(1)
    assert brokers.order.in_order([3, 2, 1], 1)[0] == 1


async def test_the_next_one_is_asked_at_once_where_one_has_nothing_to_say(autojump_clock: object) -> None:
    brokers = Brokers({1: 0, 2: 0, 3: 0})

    async def ask(broker_id: int) -> str | None:
        return await brokers.ask(broker_id) if broker_id == 3 else None

    with trio.fail_after(1):
        assert await brokers.first(ask) == (3, "by 3")


async def test_everybody_is_asked_within_a_short_time_too(autojump_clock: object) -> None:
    brokers = Brokers({1: NEVER, 2: NEVER, 3: NEVER})
    assert await brokers.first(limit_s=1) is None
    assert sorted(brokers.asked) == [1, 2, 3]


async def test_a_change_is_never_under_way_at_two(autojump_clock: object) -> None:
    brokers = Brokers({1: NEVER, 2: 0, 3: 0})
    assert await brokers.first(change=True) is None
    assert brokers.asked == [1]


async def test_what_no_other_broker_would_answer_ends_it(autojump_clock: object) -> None:
    brokers = Brokers({1: NEVER, 2: 1, 3: 1}, {each: ClientError("refused") for each in (2, 3)})
    with pytest.raises(ClientError, match="refused"):
        await brokers.first()
    assert len(brokers.asked) == 2


async def test_the_admin_client_asks_another_broker_what_its_controller_does_not_say(autojump_clock: object) -> None:
    cluster = FakeCluster(3)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioAdmin(cluster.bootstrap, environment=cluster.environment()) as client:
            cluster.brokers[0].faults[ApiKey.METADATA] += [Fault(hang=True)] * 100
            assert (await client.describe_cluster(timeout_ms=10_000)).controller_id == 0
            asked = len(cluster.brokers[0].seen(MetadataRequest))
            assert (await client.describe_cluster(timeout_ms=10_000)).controller_id == 0
            assert len(cluster.brokers[0].seen(MetadataRequest)) == asked
        nursery.cancel_scope.cancel()


async def test_the_admin_client_has_one_broker_change_a_configuration(autojump_clock: object) -> None:
    cluster = FakeCluster(3)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.brokers[0].faults[ApiKey.INCREMENTAL_ALTER_CONFIGS].append(Fault(hang=True))
        async with TrioAdmin(cluster.bootstrap, environment=cluster.environment()) as client:
            with pytest.raises(RequestTimedOut, match="broker 0 did not answer IncrementalAlterConfigsRequest"):
                await client.alter_configs(ConfigResource.TOPIC, "t", {"retention.ms": "1"}, timeout_ms=10_000)
        nursery.cancel_scope.cancel()
    assert [len(each.seen(IncrementalAlterConfigsRequest)) for each in cluster.brokers] == [1, 0, 0]
