"""One seed for everything: a run of trio whose own order of tasks comes from it, too.

trio shuffles what is runnable at once. It does so from a private stream, and in the order in which tasks were made only
where a private flag says so; both are set here for the time of the run. What else is not the same from run to run is
kept out: no thread, no real time, no address of an object (`clock`), no collection of garbage at a moment
that depends on what the interpreter did before.
"""

from __future__ import annotations

import gc
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, MutableSequence
from contextlib import contextmanager
from typing import Any, TypeVar

import trio
import trio._core._run as trio_run

from strandline.storage.disk import checkpoints
from strandline.testkit.clock import SimulationClock
from strandline.testkit.simulation.shortcuts import cheaper_deadlines, cheaper_sleeps, cheaper_turns

T = TypeVar("T")


class StandsStill(Exception):
    """Time does not go on: every task waits for something that will not happen, or some never wait."""


def run_seeded(seed: int, main: Callable[[SimulationClock], Awaitable[T]]) -> T:
    """Run `main` to its end on virtual time. The same seed gives the same run, on any machine. StandsStill."""
    scope, clock, reasons = trio.CancelScope(), SimulationClock(), list[str]()

    def end(why: str) -> bool:
        reasons.append(why)
        scope.cancel(why)
        return len(reasons) == 1

    async def bounded() -> T:
        clock.on_standstill = end
        cheaper_turns(trio_run.GLOBAL_RUN_CONTEXT.runner)
        with scope:
            return await main(clock)
        raise StandsStill(f"at {clock.now_s:.3f} s of virtual time {reasons[0]}")

    with _seeded(seed), cheaper_deadlines(), cheaper_sleeps(clock):
        return trio.run(bounded, clock=clock)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    module = vars(trio_run)
    theirs = {name: module[name] for name in ("_r", "_ALLOW_DETERMINISTIC_SCHEDULING")}
    vars(checkpoints)["_temporary_numbers"] = itertools.count()  # they are seen in the errors of a disk
    was_collecting = gc.isenabled()
    module.update(_r=_Order(seed), _ALLOW_DETERMINISTIC_SCHEDULING=True)
    gc.disable()
    try:
        yield
    finally:
        module.update(theirs)
        if was_collecting:
            gc.enable()


class _Order(random.Random):
    """Of tasks that are runnable at once, which are one or two nearly always."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        if len(x) > 2:
            super().shuffle(x)
        elif len(x) == 2 and self.random() < 0.5:
            x.reverse()
