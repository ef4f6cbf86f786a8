"""What is asked of a controller that was elected a moment ago and has not read yet what there is."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.controller.agenda import NotController
from strandline.controller.controller import Controller
from strandline.protocol.messages import (
    PREFERRED,
    UNCLEAN,
    ControlledShutdownRequest,
    ElectLeadersRequest,
    ElectLeadersTopic,
)


async def elected_a_moment_ago(cluster: Any) -> Controller:
    """Of broker 1; `t` is led by 2, though 3 should lead it, and 2 died a moment ago."""
    await cluster.start(1, 2, 3)
    slow = Slow(cluster.brokers[1].coordination)
    first = await cluster.controller_on(1, via=lambda _: slow)
    await cluster.create(first, "t", [[3, 2, 1]])
    await first.ask(ControlledShutdownRequest(3, cluster.brokers[3].epoch))
    await cluster.leader_writes_isr("t", 0, [3, 2, 1])
    await cluster.come_to_rest()
    assert (await cluster.state("t")).leader == 2
    slow.pause_s = 0.1
    first.term.resign("for this test")
    await cluster.until(lambda: first.term is None)
    await cluster.until(lambda: first.term is not None)
    assert not first.is_active
    return first


class Slow:
    """A session whose reads take a while."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.pause_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get_many(self, paths: Any) -> Any:
        await trio.sleep(self.pause_s)
        return await self._inner.get_many(paths)


async def test_all_partitions_are_those_that_it_finds(autojump_clock: MockClock, cluster: Any) -> None:
    controller = await elected_a_moment_ago(cluster)
    response: Any = await controller.ask(ElectLeadersRequest(PREFERRED, None))
    assert [topic.topic for topic in response.replica_election_results] == ["t"]
    assert (await cluster.state("t")).leader == 3


async def test_a_partition_is_not_unknown_because_it_is_not_read_yet(autojump_clock: MockClock, cluster: Any) -> None:
    controller = await elected_a_moment_ago(cluster)
    response: Any = await controller.ask(ElectLeadersRequest(UNCLEAN, [ElectLeadersTopic("t", [0])]))
    [result] = response.replica_election_results[0].partition_result
    assert result.error_message == "broker 2 leads t:0: there is nothing to recover"


async def test_who_stops_hands_nothing_to_one_that_does_not_answer(autojump_clock: MockClock, cluster: Any) -> None:
    controller = await elected_a_moment_ago(cluster)
    cluster.brokers[3].reachable = False
    cluster.brokers[3].hang_up()
    await controller.ask(ControlledShutdownRequest(2, cluster.brokers[2].epoch))
    assert (await cluster.state("t")).leader == 1


async def test_who_asked_one_that_resigns_hears_so(autojump_clock: MockClock, cluster: Any) -> None:
    controller = await elected_a_moment_ago(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_is_refused, controller)
        await trio.lowlevel.checkpoint()
        controller.term.resign("for this test")


async def _is_refused(controller: Controller) -> None:
    with pytest.raises(NotController):
        await controller.ask(ElectLeadersRequest(PREFERRED, None))
