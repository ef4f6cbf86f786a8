"""A test that does not end is told so, wherever it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from support.time_limit import BEFORE_THE_PROCESS_ENDS_S, TakesTooLong, limited


def item(limit_s: float) -> Any:
    config = SimpleNamespace(getini={"faulthandler_timeout": BEFORE_THE_PROCESS_ENDS_S + limit_s}.__getitem__)
    return SimpleNamespace(nodeid="test_x.py::test_y", config=config)


def spin() -> None:
    while True:
        pass


async def spin_between_checkpoints() -> None:
    while True:
        await trio.lowlevel.checkpoint()


async def spin_in_a_task() -> None:
    spin()


@trio.lowlevel.enable_ki_protection
async def spin_after_the_limit_fell_into_trios_own_code() -> None:
    asks_at_s = time.monotonic() + 0.1
    while time.monotonic() < asks_at_s:
        pass
    trio.lowlevel.disable_ki_protection(spin)()


ENDLESS: dict[str, Callable[[], Any]] = {
    "spins": spin,
    "waits for a process": lambda: subprocess.run(["sleep", "infinity"]),
    "waits for a thread": threading.Event().wait,
    "all tasks wait": lambda: trio.run(trio.sleep_forever),
    "a task spins": lambda: trio.run(spin_in_a_task),
    "a task spins that trio started after the limit": lambda: trio.run(spin_after_the_limit_fell_into_trios_own_code),
    "a task spins between checkpoints": lambda: trio.run(spin_between_checkpoints),
}


def all_of(error: BaseException) -> list[BaseException]:
    """It, what it holds and what it came of."""
    below = [*getattr(error, "exceptions", ()), *filter(None, [error.__cause__])]
    return [error, *(deeper for each in below for deeper in all_of(each))]


@pytest.mark.parametrize("endless", ENDLESS.values(), ids=ENDLESS)
def test_what_does_not_end_fails_and_says_which_test_it_was(endless: Callable[[], Any]) -> None:
    with pytest.raises(BaseException) as raised, limited(item(0.05)):
        endless()
    assert "test_x.py::test_y has not ended after" in str([e for e in all_of(raised.value) if type(e) is TakesTooLong])
    trio.run(trio.sleep, 0)  # nothing is left of a run that was ended


def test_hypothesis_looks_for_no_smaller_example_that_does_not_end() -> None:
    drawn = []

    @given(st.integers())
    def spins(number: int) -> None:
        drawn.append(number)
        with limited(item(0.05)):
            spin()

    with pytest.raises(TakesTooLong):
        spins()
    assert len(drawn) == 1


SLOW_FIXTURE = """
import pytest
from support.time_limit import limited

@pytest.fixture(scope="module", autouse=True)
def endless(request):
    while True:
        pass

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    with limited(item):
        return (yield)

def test_first(): ...
def test_second(): ...
"""


def test_a_fixture_that_does_not_end_fails_each_test_of_its_module_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "test_slow.py").write_text(SLOW_FIXTURE)
    limit = f"faulthandler_timeout={BEFORE_THE_PROCESS_ENDS_S + 0.05}"
    command = [sys.executable, "-m", "pytest", "-p", "test_slow", "-o", limit, "-o", "addopts=", "--rootdir=.", "-rE"]
    path = os.pathsep.join([str(Path(__file__).parents[2]), str(tmp_path)])
    ran = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    told = [line for line in ran.stdout.splitlines() if line.startswith("ERROR")]
    assert ["TakesTooLong" in line for line in told] == [True, True], ran.stdout + ran.stderr


def test_where_the_tasks_wait_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    async def waits_in_here() -> None:
        await trio.Event().wait()

    with pytest.raises(trio.TrioInternalError), limited(item(0.05)):
        trio.run(waits_in_here)
    assert "in waits_in_here\n    await trio.Event().wait()" in capsys.readouterr().err


def test_without_a_timeout_there_is_no_limit_and_that_of_the_test_goes_on() -> None:
    with limited(item(1000)):
        with limited(item(-BEFORE_THE_PROCESS_ENDS_S)):
            assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000
