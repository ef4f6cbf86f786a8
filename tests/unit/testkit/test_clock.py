"""The clock of a simulation: it goes on when nothing can run, and each node sees it in its own way."""

from __future__ import annotations

import math
import random
import time

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from strandline.testkit.clock import SimulationClock, common_time
from strandline.testkit.node_tasks import NodeTasks


@pytest.fixture
def clock() -> SimulationClock:
    return SimulationClock()


async def test_time_goes_on_at_once_when_nothing_can_run(clock: SimulationClock) -> None:
    began_s = time.monotonic()
    await trio.sleep(3600)
    assert trio.current_time() == common_time() == clock.now_s == 3600
    assert time.monotonic() - began_s < 60


async def test_a_node_sees_its_own_time_and_keeps_its_deadlines_by_it(
    clock: SimulationClock, nursery: trio.Nursery
) -> None:
    seen = dict[str, list[tuple[float, float]]](fast=[], slow=[])

    async def work(node: NodeTasks) -> None:
        node.enter()
        for _ in range(3):
            await trio.sleep(1)
            seen[node.name].append((trio.current_time(), round(common_time(), 6)))

    nursery.start_soon(work, NodeTasks("fast", offset_s=1000, rate=1.25))
    nursery.start_soon(work, NodeTasks("slow", offset_s=5, rate=0.8))
    await trio.sleep(10)
    assert seen == {
        "fast": [(1001.0, 0.8), (1002.0, 1.6), (1003.0, 2.4)],
        "slow": [(6.0, 1.25), (7.0, 2.5), (8.0, 3.75)],
    }


async def test_a_deadline_that_another_node_moves_is_kept_by_the_clock_of_who_waits(
    clock: SimulationClock, nursery: trio.Nursery
) -> None:
    scope, seen = trio.CancelScope(), list[float]()

    async def wait() -> None:
        with scope:
            await trio.sleep_forever()
        seen.append(common_time())

    async def move(node: NodeTasks) -> None:
        node.enter()
        scope.deadline = 7.0

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(move, NodeTasks("elsewhere", offset_s=-500, rate=2.0))
    await trio.sleep(20)
    assert seen == [7.0]


@given(
    st.floats(-1e6, 1e6),
    st.floats(0.9, 1.1),
    st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=20),
)
def test_no_deadline_is_met_before_the_nodes_own_clock_shows_it(
    offset_s: float, rate: float, pauses_s: list[float]
) -> None:
    async def work() -> None:
        NodeTasks("a", offset_s=offset_s, rate=rate).enter()
        for pause_s in pauses_s:
            deadline = trio.current_time() + pause_s
            await trio.sleep_until(deadline)
            assert deadline <= trio.current_time() <= deadline + 4 * math.ulp(deadline) + 1e-9

    trio.run(work, clock=SimulationClock())


def test_equal_deadlines_are_met_in_the_order_in_which_they_were_set() -> None:
    async def order() -> list[int]:
        met: list[int] = []
        scopes = [trio.CancelScope(deadline=5) for _ in range(50)]
        random.Random(3).shuffle(scopes)

        async def wait(number: int) -> None:
            with scopes[number]:
                await trio.lowlevel.wait_task_rescheduled(
                    lambda _: (met.append(number), trio.lowlevel.Abort.SUCCEEDED)[1]
                )

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(wait, number)
                await trio.testing.wait_all_tasks_blocked()
        return met

    assert trio.run(order, clock=SimulationClock()) == list(range(50))
