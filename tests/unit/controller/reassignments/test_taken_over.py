"""A controller ends after each write of a reassignment, and the next one goes on; or the answer of one is lost."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.messages import LeaderAndIsrRequest
from strandline.runtime.coordination import ConnectionLost
from support.scripted_moves import ADMIN, TP, Recorded, alter, ask_as_tools_do, catching_up, is_gone, is_moved


async def begin_and_end(cluster: Any, writes: int, *, cancelled: bool, by_tools: bool) -> bool:
    """A controller whose session ends with its process once it has written so much, and the next one. Returns whether
    the first one came so far."""
    await cluster.start(1, 2, 3, 4, 8, 9)
    session = Recorded(cluster.brokers[9].coordination)
    controller = await cluster.controller_on(9, via=lambda _: session)
    await cluster.create(controller, "t", [[1, 2]])
    session.writes.clear()
    ended = trio.Event()

    def end() -> None:
        ended.set()
        session.ends_after = None
        cluster.kill(9)

    session.end = end

    async def ask() -> None:
        if by_tools:
            await ask_as_tools_do(cluster, {TP: [3, 4]})
        else:
            await alter(controller, {TP: [3, 4]})
        if cancelled:
            await trio.sleep(1)
            session.writes.clear()
            session.ends_after = writes
            await alter(controller, {TP: None})

    if not cancelled:
        session.ends_after = writes
    async with catching_up(cluster, *((4,) if cancelled else ())):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(quietly, ask)
            with trio.move_on_after(5):
                await ended.wait()
        came_so_far = ended.is_set()
        if not came_so_far:
            end()
        successor = await cluster.controller_on(8)
        await cluster.come_to_rest()
        target = [1, 2] if cancelled else [3, 4]
        if not cancelled and await is_moved(cluster, [1, 2]):
            assert await alter(successor, {TP: [3, 4]}) == {TP: 0}, "nothing was written yet"
        if cancelled and not await is_moved(cluster, [1, 2]):
            await alter(successor, {TP: None})
        await cluster.until_async(partial(is_moved, cluster, target))
        await cluster.come_to_rest()
        await cluster.until_async(partial(is_gone, cluster, ADMIN.PATH))
    state = await cluster.state("t")
    assert (sorted(state.isr), state.leader in target) == (sorted(target), True)
    role = cluster.brokers[state.leader].roles[TP]
    assert (role.leader_epoch, sorted(role.replicas)) == (state.leader_epoch, target)
    for n in (1, 2, 3, 4):
        assert cluster.brokers[n].metadata[TP].replicas == target
    return came_so_far


async def quietly(ask: Any) -> None:
    try:
        await ask()
    except Exception:
        """It does not hear what became of it."""


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("by_tools", [False, True])
@pytest.mark.parametrize("writes", range(1, 8))
async def test_the_next_controller_goes_on_after_any_write(
    writes: int, by_tools: bool, cancelled: bool, autojump_clock: MockClock, cluster: Any
) -> None:
    came_so_far = await begin_and_end(cluster, writes, cancelled=cancelled, by_tools=by_tools)
    assert came_so_far or writes > (3 if cancelled else 5)


@pytest.mark.parametrize("queued_at", [2, 3])
async def test_no_leader_hears_of_a_departure_as_long_as_it_is_not_known_whether_the_move_has_ended(
    queued_at: int, autojump_clock: MockClock, cluster: Any
) -> None:
    """It would let those who have left come back into the ISR, who are replicas no more."""
    await cluster.start(1, 2, 9)
    session = Recorded(cluster.brokers[9].coordination)
    controller = await cluster.controller_on(9, via=lambda _: session)
    await cluster.create(controller, "t", [[1, 2]])
    await cluster.come_to_rest()

    def written() -> None:
        if len(session.writes) == queued_at:  # another event, which tells what was settled and not told yet
            controller.term.agenda.put(controller.term.duties.settlement.settle_offline)
        if len(session.writes) == 3:
            session.ends_after = None
            raise ConnectionLost("cut")

    session.writes.clear()
    session.ends_after, session.end = 1, written  # 1 that it begins, 2 who leaves, 3 that it has ended
    assert await alter(controller, {TP: [1]}) == {TP: 0}
    await cluster.until_async(partial(is_moved, cluster, [1]))
    await cluster.come_to_rest()
    assert cluster.logged("connection to ZooKeeper lost, event is repeated")
    requests = cluster.brokers[1].told(LeaderAndIsrRequest)
    told = [each for request in requests for topic in request.topic_states for each in topic.partition_states]
    assert [(each.isr, each.replicas) for each in told if each.isr == [1]] == [([1], [1])]
