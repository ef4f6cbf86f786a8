"""Beats: whoever waits for one wakes with the others."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from strandline.runtime.beats import next_beat, share_beats
from strandline.testkit.clock import SimulationClock
from strandline.testkit.node_tasks import NodeTasks
from strandline.testkit.simulation.scheduler import run_seeded


@pytest.mark.parametrize("interval_s", [0.1, 0.3, 1.0, 7.0])
async def test_each_beat_comes_once_an_interval_after_the_one_before(interval_s: float) -> None:
    clock = MockClock(autojump_threshold=0)

    async def times() -> list[float]:
        found = []
        for _ in range(1000):
            await next_beat(interval_s)
            found.append(trio.current_time())
        return found

    beats = await trio.to_thread.run_sync(lambda: trio.run(times, clock=clock))
    assert beats == pytest.approx([interval_s * number for number in range(1, 1001)])


async def test_who_waits_for_multiples_of_each_others_intervals_wakes_at_one_moment(autojump_clock: MockClock) -> None:
    woken: list[float] = []
    share_beats()

    async def wait(after_s: float, interval_s: float) -> None:
        await trio.sleep(after_s)
        for _ in range(round(3 / interval_s)):
            await next_beat(interval_s)
            woken.append(round(trio.current_time(), 6))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 0.03, 0.1)
        nursery.start_soon(wait, 0.08, 0.1)
        nursery.start_soon(wait, 0.05, 1.0)
    assert sorted(set(woken)) == pytest.approx([number / 10 for number in range(1, 31)])


async def test_beats_may_be_longer_and_who_is_started_by_such_a_task_has_them_too(
    autojump_clock: MockClock,
) -> None:
    woken: list[float] = []

    async def wait() -> None:
        share_beats()
        for interval_s in (0.1, 0.1, 1.0, 1.0):
            await next_beat(interval_s)
            woken.append(round(trio.current_time(), 6))

    async with trio.open_nursery() as nursery:
        share_beats(0.3)
        nursery.start_soon(wait)
    assert woken == pytest.approx([0.3, 0.6, 0.9, 1.8])


async def test_who_waits_for_a_nearer_beat_than_the_others_is_not_kept(autojump_clock: MockClock) -> None:
    share_beats()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(next_beat, 60.0)
        await trio.sleep(0.05)
        await next_beat(0.1)
        assert trio.current_time() == pytest.approx(0.1)
        nursery.cancel_scope.cancel()


async def test_the_time_that_is_returned_is_the_beats_however_late_the_loop_comes_to_it(
    autojump_clock: MockClock,
) -> None:
    async def keep_the_loop_away() -> None:
        while True:
            await trio.sleep(0.9)
            autojump_clock.jump(0.13)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_the_loop_away)
        delays_s = []
        for _ in range(100):
            beat = await next_beat(1.0)
            assert beat == pytest.approx(round(beat))
            delays_s.append(trio.current_time() - beat)
        nursery.cancel_scope.cancel()
    assert max(delays_s) > 0.02


async def test_who_comes_after_all_have_gone_is_woken_too(autojump_clock: MockClock) -> None:
    share_beats()
    with trio.move_on_after(0.25):
        await next_beat(60.0)
    await trio.sleep(100)
    await next_beat(1.0)
    assert trio.current_time() == pytest.approx(101.0, abs=0.5)


async def test_who_comes_between_two_that_are_cancelled_is_woken(autojump_clock: MockClock) -> None:
    share_beats()
    go, scopes = trio.Event(), (trio.CancelScope(), trio.CancelScope())

    async def wait(scope: trio.CancelScope) -> None:
        with scope:
            await next_beat(10.0)

    async def come_late() -> None:
        await go.wait()
        await next_beat(10.0)

    with trio.fail_after(60.0):
        async with trio.open_nursery() as nursery:
            for scope in scopes:
                nursery.start_soon(wait, scope)
            nursery.start_soon(come_late)
            await trio.sleep(0.5)
            scopes[0].cancel()
            go.set()
            scopes[1].cancel()


async def test_the_timer_ends_with_the_last_who_waits(autojump_clock: MockClock) -> None:
    share_beats()
    with trio.move_on_after(0.25):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(next_beat, 60.0)
            nursery.start_soon(next_beat, 60.0)
    await trio.sleep(0.25)
    assert "beats" not in {task.name for task in _system_tasks()}


def _system_tasks() -> list[trio.lowlevel.Task]:
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return [task for nursery in root.child_nurseries for task in nursery.child_tasks]


def test_each_node_of_a_simulation_has_beats_by_its_own_clock() -> None:
    woken: dict[str, list[float]] = {"one": [], "other": []}

    async def wait(name: str, offset_s: float, clock: SimulationClock) -> None:
        NodeTasks(name, offset_s=offset_s).enter()
        share_beats()
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(beat, name, clock)

    async def beat(name: str, clock: SimulationClock) -> None:
        for _ in range(3):
            await next_beat(1.0)
            woken[name].append(round(clock.now_s, 3))

    async def main(clock: SimulationClock) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, "one", 1000.0, clock)
            nursery.start_soon(wait, "other", 2000.5, clock)

    run_seeded(1, main)
    assert woken == {"one": [1.0, 1.0, 2.0, 2.0, 3.0, 3.0], "other": [0.5, 0.5, 1.5, 1.5, 2.5, 2.5]}
