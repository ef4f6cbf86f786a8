"""The pump takes a step when something changed, when its time has come, and at once when asked to."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from strandline.client.signals import Pump


class Steps:
    """Counts them."""

    count = 0

    def __call__(self, now: float) -> float:
        self.count += 1
        return math.inf


async def test_many_wakes_are_one_step_and_none_follows_a_step_that_was_taken_at_once(nursery: trio.Nursery) -> None:
    pump, steps = Pump(), Steps()
    nursery.start_soon(pump.run, steps)
    await wait_all_tasks_blocked()
    assert steps.count == 1, "whatever was there before it ran"
    pump.wake()
    pump.wake()
    await wait_all_tasks_blocked()
    assert steps.count == 2
    pump.wake()
    pump.step_now()
    assert steps.count == 3
    await wait_all_tasks_blocked()
    assert steps.count == 3
    nursery.cancel_scope.cancel()


async def test_the_time_that_a_step_taken_at_once_returned_is_kept(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    pump, times = Pump(), []

    def step(now: float) -> float:
        times.append(now)
        return now + 5 if len(times) == 2 else math.inf

    nursery.start_soon(pump.run, step)
    await wait_all_tasks_blocked()
    pump.step_now()
    await trio.sleep(100)
    assert [time - times[0] for time in times] == [0, 0, 5]
    nursery.cancel_scope.cancel()


async def test_what_a_step_raises_ends_the_pump_and_not_who_asked_for_it() -> None:
    pump = Pump()

    def step(now: float) -> float:
        if now >= 0 and is_broken:
            raise ValueError("broken")
        return math.inf

    is_broken = False
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="broken")):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump.run, step)
            await wait_all_tasks_blocked()
            is_broken = True
            pump.step_now()


async def test_before_the_pump_runs_a_step_at_once_waits_for_it(nursery: trio.Nursery) -> None:
    pump, steps = Pump(), Steps()
    pump.step_now()
    assert steps.count == 0
    nursery.start_soon(pump.run, steps)
    await wait_all_tasks_blocked()
    assert steps.count == 1
    nursery.cancel_scope.cancel()
