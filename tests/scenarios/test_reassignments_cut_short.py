"""The controller dies before each of the writes of a reassignment, one after the other, and after the last of them; the
next one goes on. Forward, cancelled, sent elsewhere, with fewer replicas; asked for by a request or by a znode."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from strandline.client.errors import ClientError
from strandline.protocol.errors import BrokerError
from strandline.protocol.types import NO_BROKER
from strandline.protocol.znodes import ReassignPartitionsZnode
from strandline.runtime.coordination import Operation
from strandline.testkit.node import HeldWrite
from support.reassigning import TOPIC, Moves, moves
from support.scenario import T0, die

CONTROLLER = 1
OLD, NEW, OTHER = [2, 3], [4, 5], [3, 6]
PATHS = (f"/brokers/topics/{TOPIC}", ReassignPartitionsZnode.PATH)


def cut_before(moving: Moves, number: int) -> HeldWrite:
    """Hold back the controller's write of that number, from now on: counted are those of topics, states and what tools
    asked for."""
    seen = 0

    def matches(operations: Sequence[Operation]) -> bool:
        nonlocal seen
        seen += any(getattr(one, "path", "").startswith(PATHS) for one in operations)
        return seen >= number

    return moving.cluster.coordination(CONTROLLER).hold_writes(matches)


async def ask(moving: Moves, target: list[int] | None, *, by_znode: bool) -> None:
    if by_znode and target is not None:
        client = moving.cluster.coordination(2).client
        await client.create(ReassignPartitionsZnode.PATH, ReassignPartitionsZnode({T0: target}).encode())
        return
    try:
        await moving.ask({0: target})
    except (ClientError, BrokerError, OSError):
        """The next controller is asked again."""


async def cut_short(moving: Moves, target: list[int] | None, number: int, *, by_znode: bool) -> bool:
    """Ask, and have the controller die before that write. Whether it came so far."""
    held = cut_before(moving, number)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(ask, moving, target, by_znode=by_znode))
        with trio.move_on_after(3):
            await held.reached.wait()
        came_so_far = held.reached.is_set()
        die(moving.cluster, CONTROLLER)
    await moving.cluster.until(lambda: moving.cluster.controller_id not in (NO_BROKER, CONTROLLER), "the next one")
    return came_so_far


NUMBERS = range(1, 8)
"""No way has more than six writes, which the tests assert."""


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("by_znode", [False, True], ids=["request", "znode"])
@pytest.mark.parametrize("target", [NEW, OTHER, [3], [2, 4, 5]], ids=str)
async def test_the_next_controller_goes_on(
    target: list[int], by_znode: bool, number: int, autojump_clock: MockClock
) -> None:
    async with moves(OLD) as moving:
        async with moving.under_load():
            came_so_far = await cut_short(moving, target, number, by_znode=by_znode)
            assert came_so_far or number > 4
            assert not came_so_far or number < 7
            if number == 1 and not by_znode:
                await moving.ask({0: target})
            await trio.sleep(2)
        await moving.check({0: target})
        await moving.cluster.start_broker(CONTROLLER)
        await moving.check({0: target})


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("change", [None, OTHER], ids=["cancelled", "sent elsewhere"])
@pytest.mark.parametrize("by_znode", [False, True], ids=["request", "znode"])
async def test_the_next_controller_goes_on_with_a_change_of_mind(
    change: list[int] | None, by_znode: bool, number: int, autojump_clock: MockClock
) -> None:
    async with moves(OLD) as moving:
        cluster = moving.cluster
        async with moving.under_load():
            cluster.cut_both(2, 5)
            await ask(moving, NEW, by_znode=by_znode)
            await cluster.until(lambda: cluster.isr(T0) == [2, 3, 4], "half of it is copied")
            came_so_far = await cut_short(moving, change, number, by_znode=False)
            assert came_so_far or number > (3 if change is None else 4)
            assert not came_so_far or number < 7
            cluster.heal(2, 5)
            if number == 1:
                await moving.ask({0: change})
            await trio.sleep(2)
        await moving.check({0: change or OLD})
