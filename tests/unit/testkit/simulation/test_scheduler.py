"""One seed decides everything, down to trio's own order of tasks."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
from contextlib import nullcontext

import pytest
import trio
import trio._core._run as trio_run

from strandline.testkit.clock import SimulationClock, common_time
from strandline.testkit.simulation import driver, scheduler
from strandline.testkit.simulation.driver import simulate_seed
from strandline.testkit.simulation.faults.striking import Strikes
from strandline.testkit.simulation.scheduler import StandsStill, run_seeded
from strandline.testkit.simulation.script import read_script


async def trace(clock: SimulationClock) -> list[tuple[int, int, float]]:
    """Tasks that meet at the same times, in the order in which they run."""
    seen: list[tuple[int, int, float]] = []

    async def work(number: int) -> None:
        for step in range(20):
            await trio.sleep(step % 3)
            seen.append((number, step, common_time()))

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(work, number)
    return seen


def test_the_same_seed_gives_the_same_order_and_another_one_another() -> None:
    first, again, other = (run_seeded(seed, trace) for seed in (1, 1, 2))
    assert first == again and first != other and sorted(first) == sorted(other)


def test_the_order_does_not_depend_on_the_process_or_its_hash_seed() -> None:
    program = "from unit.testkit.simulation.test_scheduler import run_seeded, trace; print(run_seeded(7, trace))"
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4711")
    }
    assert told == {f"{run_seeded(7, trace)}\n"}


def test_what_a_run_has_cheaper_than_trio_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = simulate_seed(1, length_s=10.0).digest
    monkeypatch.setattr(scheduler, "cheaper_deadlines", nullcontext)
    monkeypatch.setattr(scheduler, "cheaper_turns", lambda runner: None)
    monkeypatch.setattr(scheduler, "cheaper_sleeps", lambda clock: nullcontext())
    assert simulate_seed(1, length_s=10.0).digest == with_it


def test_a_run_that_does_not_come_to_its_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "ENDED_WITHIN_S", 0.0)
    [finding] = simulate_seed(1, length_s=5.0, kinds=()).findings
    assert "not-done: 0 s after the time with faults: clients do not end" in finding


def test_a_fault_that_lasts_longer_than_the_run_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "ENDED_WITHIN_S", 20.0)
    options = driver.options_of(1, length_s=5.0, kinds=())
    report = driver.simulate(options, read_script("1 kill 2 for 60"))
    assert report.findings == [] and report.virtual_s > 60


def test_a_fault_that_nobody_can_undo_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forever(strikes: Strikes, broker: int) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(driver, "ENDED_WITHIN_S", 20.0)
    monkeypatch.setattr(Strikes, "start", forever)
    [finding] = driver.simulate(driver.options_of(1, length_s=5.0, kinds=()), read_script("1 kill 2 for 2")).findings
    assert finding.endswith("not-done: 20 s after the time with faults: undone: 1.000 kill 2 for 2")


def test_after_a_run_that_was_interrupted_trio_is_as_it_was() -> None:
    before = trio.CancelScope._might_change_registered_deadline, trio.sleep_until, trio.current_time

    async def interrupted(clock: SimulationClock) -> None:
        signal.raise_signal(signal.SIGINT)
        await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        run_seeded(1, interrupted)
    assert before == (trio.CancelScope._might_change_registered_deadline, trio.sleep_until, trio.current_time)
    trio.run(trio.sleep, 0)


def test_a_run_in_which_everybody_waits_for_nothing_ends_and_says_when() -> None:
    async def wait(clock: SimulationClock) -> None:
        await trio.sleep(5)
        await trio.Event().wait()

    with pytest.raises(StandsStill, match=r"at 5\.000 s of virtual time every task waits"):
        run_seeded(1, wait)


def test_a_run_that_computes_for_ever_within_one_moment_ends_and_says_who_does() -> None:
    async def turn_round() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    async def wait(clock: SimulationClock) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.sleep(5)
            nursery.start_soon(turn_round)

    with pytest.raises(StandsStill, match=r"at 5\.000 s .* never wait: \S*turn_round$"):
        run_seeded(1, wait)


def test_what_a_run_sets_in_trio_is_as_before_behind_it() -> None:
    trio_run._r.seed(99)
    expected = random.Random(99).random()
    before = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, gc.isenabled()
    run_seeded(1, trace)
    assert trio_run._r.random() == expected
    assert (trio_run._ALLOW_DETERMINISTIC_SCHEDULING, gc.isenabled()) == before
